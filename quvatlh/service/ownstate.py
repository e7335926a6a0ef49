"""What a policy sees of the worker that it runs on: its actions, what it has bid for, its machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from quvatlh.core.model import WorkerFacts
from quvatlh.ports import Host
from quvatlh.service import asks
from quvatlh.service.seat import Look
from quvatlh.service.worker import Worker

MachineLoad = Callable[[], Mapping[str, Any]]
"""cpu_load, memory_free_bytes, memory_total_bytes, disk_free_bytes; what is not known is left out."""


def load_of(host: Host) -> MachineLoad:
    """What is not known of the machine is left out."""

    def load() -> Mapping[str, Any]:
        try:
            return asdict(host.load())
        except OSError:
            return {}

    return load


def measured(load: Mapping[str, Any]) -> asks.Load | None:
    """As beats tell it; None where something is not known."""
    return asks.Load(**load) if load else None


Wanted = tuple[str, str, str, int]
"""Group, queue, name and slots of a task that was bid for."""


class OwnState:
    def __init__(self, name: str, facts: WorkerFacts, worker: Worker, load: MachineLoad) -> None:
        self.facts = facts
        """As the cluster has them."""
        self._name = name
        self._worker = worker
        self._load = load

    def table(self, wanted: Iterable[Wanted], look: Look) -> dict[str, Any]:
        """ports.PolicyState, but for the group, which is the question's."""
        return {
            "worker": self._own(wanted),
            "cluster": {"workers": look.workers, "group": {}, "queues": look.queues},
            "now": look.now_ms,
        }

    def _own(self, wanted: Iterable[Wanted]) -> dict[str, Any]:
        group: Counter[str] = Counter()
        queue: Counter[str] = Counter()
        name: Counter[str] = Counter()
        taken = 0
        for its_group, its_queue, its_name, slots in (*self._live(), *wanted):
            group[its_group] += 1
            queue[its_queue] += 1
            name[its_name] += 1
            taken += slots
        facts = self.facts
        return {
            "name": self._name,
            "tags": [*facts.tags, f"worker={self._name}", f"node={facts.node}"],
            "slots": self._worker.slots,
            "free": max(0, self._worker.slots - taken - self._worker.surplus_slots()),
            **self._load(),
            "actions": {"total": group.total(), "group": dict(group), "queue": dict(queue), "name": dict(name)},
            "adapters": list(facts.adapters),
            "facts": facts.facts,
        }

    def _live(self) -> Iterable[Wanted]:
        for held in self._worker.actions:
            claim = held.claim
            yield ("", "", "", held.slots) if claim is None else (claim.group, claim.queue, claim.name, held.slots)
