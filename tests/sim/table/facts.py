"""What the judge knows of a task, from the log alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from quvatlh.core.commands import NewTask
from tests.sim.table.policies import UNWILLING

FINISHED: Final = frozenset({"succeeded", "failed", "deleted"})


@dataclass(slots=True, eq=False)
class TaskFacts:
    id: str
    op: int
    """Number of the request that added it."""
    place: int
    """In that request."""
    job: bool
    once: bool
    group: str
    name: str
    limit: int | None
    queue: str
    key: str
    keep_ms: int | None
    expires_ms: int | None
    anywhere: bool
    """No tags: any worker may have it."""
    unwanted: bool
    """Its policy never bids."""
    state: str
    attempts: int = 0
    tokens: set[int] = field(default_factory=set)
    """Of its live actions."""
    finished_ms: int = 0
    relimited: bool = False
    """Its limit was changed, which stops nothing that runs."""
    retries: int = 0
    """By a person."""
    pulled: bool = False
    """By pull workers; no other can have it."""
    succeeded_by: int = 0
    """The token under which it did."""
    schedule: str = ""
    """Whose slot made it; then that slot, and whether a person asked for it."""
    slot: int = 0
    by_hand: bool = False

    @classmethod
    def of(cls, task: NewTask, op: int, place: int, state: str) -> TaskFacts:
        spec = task.spec
        job = spec.kind == "job"
        return cls(
            task.id, op, place, job, job and spec.delivery == "at-most-once", spec.group, spec.name or task.id,
            spec.limit if job else spec.limit or 1, spec.queue, spec.key or "", spec.keep_ms, task.expires_ms, not spec.tags,
            spec.policy is not None and spec.policy.source in UNWILLING, state, pulled=spec.work.pull,
        )  # fmt: skip

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    def may_be_forgotten(self, now_ms: int) -> bool:
        """Only tasks with a keep of their own are, as short as these runs are."""
        return self.finished and self.keep_ms is not None and self.finished_ms + self.keep_ms <= now_ms
