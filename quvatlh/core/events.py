"""What the log made happen, as the stream tells it: facts that follow from apply, numbered within their entry.

Kinds of section 9 are public; the others tell the services of this node what they need to know and go no further.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

PUBLIC: Final = frozenset(
    {
        "task.added",
        "task.claimed",
        "task.started",
        "task.progress",
        "task.succeeded",
        "task.failed",
        "task.retrying",
        "task.relocated",
        "task.deleted",
        "queue.changed",
        "worker.up",
        "worker.draining",
        "worker.lost",
        "schedule.fired",
        "schedule.skipped",
        "master.changed",
        "clock.jumped",
    }
)
INTERNAL: Final = frozenset(
    {
        "task.ready",  # promoted, retried by a person, back from a worker: the market looks again
        "task.updated",
        "action.stopping",  # the worker ends it
        "action.ended",  # a service's instance, or an action whose task was finished before it
        "worker.changed",
        "worker.forgotten",
        "session.opened",
        "session.ended",
        "schedule.changed",
        "policy.changed",
        "token.changed",
        "class.changed",
        "announced",
    }
)


class Event(Struct, frozen=True, array_like=True, gc=False):
    """One fact. `n` counts within the entry, so that index and n name it for good."""

    n: int
    kind: str
    id: str
    """Of the task, or the name of the queue, worker, schedule or policy."""
    state: str = ""
    """After it."""
    seq: int = 0
    """Of the task; 0 for other objects."""
    queue: str = ""
    shape: int = 0
    """Of a task that became ready."""
    worker: str = ""
    token: int = 0
    more: dict[str, Any] | None = None
    """What else changed, by name."""
