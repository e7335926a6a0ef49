"""Who is next: the rules by which a queue orders its tasks, and by which queues share the workers.

All of it is arithmetic on integers, without loop or clock, so that what it decides can be stored and is the same on every
node. A queue's discipline is one of `fifo`, `priority` and `sfq`, or a plug-in: an entry point of the group
`quvatlh.disciplines` whose object is a `Discipline`. fifo, priority and plug-ins give each task a place once, when it
begins to wait; sfq gives one when the task becomes the first of its flow that may run (sfq.py). Between queues there is
start-time fair queueing by weight, and the tree of classes above them (htb.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from quvatlh.core.limits import INTEGER_MAX
from quvatlh.core.model import QueueSettings

ENTRY_POINTS: Final = "quvatlh.disciplines"
FAIR: Final = "sfq"
UNPLACED: Final = INTEGER_MAX
"""The place of a task that a plug-in's has not been told of: behind all others, in the order of arrival."""
PLACE_MAX: Final = INTEGER_MAX - 1


class Waiting(NamedTuple):
    """What a discipline sees of a task that may be awarded."""

    seq: int
    """Order of arrival; of equal places the smaller one goes first."""
    id: str
    group: str
    name: str
    queue: str
    key: str | None
    priority: int
    cost: int
    slots: int
    created_ms: int
    expires_ms: int | None
    attempts: int
    """Awards that it had before."""


class Discipline(Protocol):
    """What an entry point of the group names: an object, or a class that is called without arguments.

    The master asks it once for each task that begins to wait, and its answers are stored through the log; so it may be
    as clever as it likes, and a new master goes on with what was stored. It must not wait, and what it raises is told and
    leaves the task in the order of arrival.
    """

    name: str
    """As queues name it: none of the built-in ones."""
    version: str
    """Of what it decides. A queue takes it only while all voters announce the same one."""

    def place(self, task: Waiting) -> int:
        """Smaller goes first, equals by arrival; between -PLACE_MAX and PLACE_MAX."""
        ...


class Fifo:
    name = "fifo"
    version = "1"

    def place(self, task: Waiting) -> int:  # noqa: ARG002 - as the protocol
        return 0


class Priority:
    name = "priority"
    version = "1"

    def place(self, task: Waiting) -> int:
        return -task.priority


BUILT_IN: Final[Mapping[str, str]] = {"fifo": "1", "priority": "1", FAIR: "1"}
"""Names and versions of what every node has."""


def rank(discipline: str, priority: int) -> int:
    """The place of a new task among those that its discipline does not tell apart otherwise: by priority, by arrival, or
    behind what the plug-in has placed."""
    if discipline in {"priority", FAIR}:
        return -priority
    return 0 if discipline in BUILT_IN else UNPLACED


def rearranged(before: QueueSettings, after: QueueSettings) -> bool:
    """Whether a change of settings gives waiting tasks another place or line (core/lines.py)."""
    heads = (before.limit == 1) != (after.limit == 1)
    return heads or (before.discipline, before.limit_per_key) != (after.discipline, after.limit_per_key)
