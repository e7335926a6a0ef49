"""Many events in few words: what a page needs to know which of the things it shows it should read again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from quvatlh.core.events import PUBLIC, Event

EVENTS_MAX: Final = 5000
"""More are not looked at one by one: 2 ms of the loop."""
IDS_MAX: Final = 200
_TOPICS: Final = {"action": "task", "session": "worker", "announced": "task"}


@dataclass(slots=True)
class Summary:
    index: int
    """Of the last entry in it."""
    kinds: dict[str, int] = field(default_factory=dict)
    """Public kinds of events, and how many of each."""
    topics: set[str] = field(default_factory=set)
    """What kinds of objects changed: task, queue, worker, schedule, policy, token, class, master. More than `kinds`
    tells, since some changes make no public event."""
    queues: set[str] = field(default_factory=set)
    """Of the tasks that changed, and changed ones."""
    ids: set[str] | None = field(default_factory=set)
    """Of the tasks that changed; None: too many."""
    whole: bool = False
    """Too much happened to be told: anything may have changed, and the rest is empty."""


def summed(index: int, events: Iterable[Event]) -> Summary:
    made = Summary(index)
    kinds, topics, queues = made.kinds, made.topics, made.queues
    ids: set[str] = set()
    for event in events:
        kind = event.kind
        kinds[kind] = kinds.get(kind, 0) + 1
        if event.seq:
            ids.add(event.id)
        queues.add(event.queue or (event.id if kind == "queue.changed" else ""))
    for kind in list(kinds):
        topic = kind.partition(".")[0]
        topics.add(_TOPICS.get(topic, topic))
        if kind not in PUBLIC:
            del kinds[kind]
    queues.discard("")
    made.ids = ids if len(ids) <= IDS_MAX else None
    return made
