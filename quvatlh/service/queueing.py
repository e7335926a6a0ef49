"""What the doors of a node need of queues and of the classes above them: one Protocol, beside pool.Pool and by its rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from quvatlh.core.model import FINISHED, WAITING, TaskState
from quvatlh.service.pool import Bulk, Call, Done, Json, Metric, Page

PURGED: Final[tuple[TaskState, ...]] = (*WAITING, *FINISHED)
"""What can be purged: what runs is stopped by a verb on tasks."""

QueueSort = Literal["name", "-pending", "-running", "-failed"]
"""By name, or those with most such tasks first; what is claimed counts as running."""


class Queueing(Protocol):
    async def queues(self, call: Call, limit: int, cursor: str | None, sort: QueueSort = "name") -> Page:
        """Sorted: settings as `core.model.QueueSettings` has them, with all defaults (`rate: {count, per_ms}`, `keep:
        {age_ms, count}`), and `{name, counts, over, oldest_pending_at_ms, oldest_placeable_at_ms, unplaceable: {count, at_least,
        lacks: [{what, value, count}]} or None, rates: {in, out, failed, retried, span_ms, wait, run}}`,
        a second, `wait` and `run` being `{p50_ms, p95_ms, p99_ms}` or None."""
        ...

    async def queue(self, call: Call, name: str) -> Json: ...

    async def put_queue(self, call: Call, name: str, settings: Json) -> Json:
        """A map that `msgspec.convert` takes as QueueSettings replaces what there was -> the queue as it is then."""
        ...

    async def patch_queue(self, call: Call, name: str, changes: Json) -> Json:
        """A map that `msgspec.convert` takes as `core.commands.QueueChanges`; makes the queue if there is none."""
        ...

    async def delete_queue(self, call: Call, name: str) -> None:
        """Rejected(not_empty) while it has tasks, listed ones included."""
        ...

    async def purge_queue(self, call: Call, name: str, states: Sequence[TaskState]) -> Done | Bulk:
        """Of PURGED: what waits becomes deleted, what is over leaves the list."""
        ...

    async def classes(self, call: Call) -> Sequence[Json]:
        """`{name, parent, rate_milli, ceil_milli, burst, priority, of}`, by name."""
        ...

    async def get_class(self, call: Call, name: str) -> Json: ...

    async def put_class(self, call: Call, name: str, settings: Json) -> Json:
        """Rejected(invalid) where it does not fit into the tree."""
        ...

    async def patch_class(self, call: Call, name: str, changes: Json) -> Json:
        """A map that `msgspec.convert` takes as `core.commands.ClassChanges`; makes the class if there is none."""
        ...

    async def delete_class(self, call: Call, name: str) -> None:
        """Rejected(not_empty) while classes or queues hang on it."""
        ...

    async def numbers(self) -> Sequence[Metric]:
        """Of the queues with most to do, those of all others together; none where there is no state at the moment."""
        ...
