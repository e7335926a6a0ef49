"""What the clients of a run ask for: tasks of every kind, in proportions that the seed chooses."""

from __future__ import annotations

import random
from typing import Any, Final, Protocol

from quvatlh.service.pool import NewTask
from tests.sim.table.hands import PROGRAM, Script
from tests.sim.table.policies import UNWILLING, WILLING

QUEUES: Final = ("default", "default", "default", "narrow", "keyed", "late")
NARROW: Final = 2
"""Limit of the queue `narrow`, which its ADDs set."""
PULLED: Final = ("pulled", "pulled-narrow")
NAMES: Final = ("a", "b")
KEYS: Final = ("k1", "k2", "k3")
ZONES: Final = ("zone=a", "zone=b")
RETRY: Final = {"attempts": 4, "first_ms": 200, "max_ms": 1500}


class Making(Protocol):
    def tasks(self, op: int) -> list[NewTask]: ...


class Maker:
    """Of tasks; each carries in its work which request it came with, and its place in it."""

    def __init__(self, rng: random.Random, founders: int) -> None:
        self._rng = rng
        self._founders = founders
        self._chosen: list[str] = []
        # A run has its own temper here too: long tasks or short ones, many limits or none.
        # Half of them with actions that outlast most leases, so that an owner too many would be met.
        self._longest_ms = rng.choice([50, 1500, 10_000, 20_000])
        self._special = rng.choice([0.2, 0.5, 0.9])
        leases: list[tuple[int | None, ...]] = [(None,), (1000, 1000, None), (1000, 5000), (None, 8000)]
        self._leases_ms = rng.choice(leases)

    def tasks(self, op: int) -> list[NewTask]:
        return [self._task(op, place) for place in range(self._rng.choice([1, 1, 1, 2, 4]))]

    def _task(self, op: int, place: int) -> NewTask:
        rng = self._rng
        run_ms = round(self._longest_ms * rng.random() ** 1.5) + 1
        fails = rng.choice([0, 0, 0, 0, 0, 1, 2, 99])
        script = Script(op, run_ms, fails, rng.choice([0, 5, 200, -1]))
        spec: dict[str, Any] = {
            "work": {"command": script.command(), "env": {"PLACE": str(place)}},
            "queue": rng.choice(QUEUES),
            "retry": RETRY,
            "stop": {"grace_ms": rng.choice([100, 600, 2000])},
        }
        task: NewTask = {"spec": spec}
        lease_ms = rng.choice(self._leases_ms)
        if lease_ms is not None:
            spec["lease_ms"] = lease_ms
        if spec["queue"] == "narrow":
            spec["queue_limit"] = NARROW
        if spec["queue"] == "keyed":
            spec["key"] = rng.choice(KEYS)
        for wanted in self._wishes():
            wanted(task, spec)
        return task

    def _wishes(self) -> list[Any]:
        every = [
            self._id, self._name, self._unique, self._delay, self._expires, self._once, self._service, self._tags,
            self._slots, self._priority, self._keep, self._timeout, self._policy,
        ]  # fmt: skip
        return [wish for wish in every if self._rng.random() < self._special / 4]

    def _id(self, task: NewTask, _spec: dict[str, Any]) -> None:
        if self._chosen and self._rng.random() < 0.3:
            task["id"] = self._rng.choice(self._chosen)
        else:
            task["id"] = f"chosen-{len(self._chosen)}"
            self._chosen.append(task["id"])

    def _name(self, _task: NewTask, spec: dict[str, Any]) -> None:
        spec |= {"name": self._rng.choice(NAMES), "limit": self._rng.choice([1, 1, 2])}

    def _unique(self, _task: NewTask, spec: dict[str, Any]) -> None:
        ways: list[dict[str, Any]] = [
            {"while": "queued"},
            {"while": "active"},
            {"while": "unfinished"},
            {"for_ms": 3000},
        ]
        spec["unique"] = {"key": self._rng.choice(KEYS), **self._rng.choice(ways)}

    def _delay(self, task: NewTask, _spec: dict[str, Any]) -> None:
        task["delay_ms"] = self._rng.choice([0, 100, 1000, 4000])

    def _expires(self, task: NewTask, _spec: dict[str, Any]) -> None:
        task["expires_in_ms"] = self._rng.choice([50, 500, 3000])

    def _once(self, _task: NewTask, spec: dict[str, Any]) -> None:
        spec["delivery"] = "at-most-once"

    def _service(self, _task: NewTask, spec: dict[str, Any]) -> None:
        spec |= {"kind": "service", "limit": self._rng.choice([1, 2])}
        spec.pop("name", None)

    def _tags(self, _task: NewTask, spec: dict[str, Any]) -> None:
        spec["tags"] = [self._rng.choice(["zone=a", "worker=n1", f"!worker=n{self._founders + 1}"])]

    def _slots(self, _task: NewTask, spec: dict[str, Any]) -> None:
        spec["slots"] = self._rng.choice([0, 2])

    def _priority(self, _task: NewTask, spec: dict[str, Any]) -> None:
        spec["priority"] = self._rng.randint(-2, 2)

    def _keep(self, _task: NewTask, spec: dict[str, Any]) -> None:
        spec["keep_ms"] = self._rng.choice([0, 2000])

    def _timeout(self, _task: NewTask, spec: dict[str, Any]) -> None:
        spec["timeout_ms"] = self._rng.choice([20, 1000])

    def _policy(self, _task: NewTask, spec: dict[str, Any]) -> None:
        """Nobody waits for what nobody wants: those are deleted in the end."""
        spec["policy"] = {"source": self._rng.choice(WILLING if self._rng.random() < 0.85 else UNWILLING)}


class PullMaker:
    """Of tasks for pull workers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._longest_ms = rng.choice([50, 1500, 8000])
        self._once_chance = rng.choice([0.0, 0.3, 0.8])

    def tasks(self, op: int) -> list[NewTask]:
        return [self._task(op, place) for place in range(self._rng.choice([1, 1, 2, 4]))]

    def _task(self, op: int, place: int) -> NewTask:
        rng = self._rng
        script = Script(op, round(self._longest_ms * rng.random() ** 1.5) + 1, rng.choice([0, 0, 0, 0, 1, 99]))
        spec: dict[str, Any] = {
            "work": {"pull": True, "env": {"PLACE": str(place), PROGRAM: script.pulled()}},
            "queue": rng.choice(PULLED),
            "retry": RETRY,
            "priority": rng.choice([0, 0, 1]),
        }
        if spec["queue"] == PULLED[1]:
            spec["queue_limit"] = NARROW
        if rng.random() < self._once_chance:
            spec["delivery"] = "at-most-once"
        if rng.random() < 0.1:
            spec |= {"name": rng.choice(NAMES), "limit": 1, "group": "pulled"}
        return {"spec": spec}
