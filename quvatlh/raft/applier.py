"""From committed entries to the machine, a slice of time at a time, and from there to whoever waits or listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quvatlh.ports import Entry, LogListener, Membership
from quvatlh.raft import entries

if TYPE_CHECKING:
    from quvatlh.ports import Clock
    from quvatlh.raft.generation import Generation
    from quvatlh.raft.proposals import Proposals
    from quvatlh.raft.settings import Settings


class Applier:
    """Of one generation."""

    def __init__(
        self, generation: Generation, proposals: Proposals, listeners: Sequence[LogListener], clock: Clock, settings: Settings
    ) -> None:
        self._journal = generation.journal
        self._machine = generation.machine
        self._proposals = proposals
        self._listeners = listeners
        self._clock = clock
        self._slice_s = settings.slice_s
        self.on_membership: Callable[[int, Membership], None] = lambda _index, _membership: None

    def apply(self, first: int, last: int) -> int:
        """At least one entry, at most a slice, as one transaction; answers and listeners come after its commit."""
        machine, clock = self._machine, self._clock
        ends = clock.boot() + self._slice_s
        done: list[tuple[Entry, Sequence[object]]] = []
        memberships: list[tuple[int, Membership]] = []
        time_ms = machine.time_ms
        machine.begin()
        for index in range(first, last + 1):
            command, _, term = self._journal.entry(index)
            head = entries.head(command)
            if head.kind != entries.NO_OP:
                time_ms = max(time_ms, head.time_ms)
            items: tuple[bytes, ...] = ()
            if head.kind == entries.ITEMS and head.term == term:
                items = entries.unpack_items(command)
            elif head.kind == entries.MEMBERSHIP and head.term == term:
                memberships.append((index, entries.unpack_membership_entry(command)))
            entry = Entry(index, term, time_ms, items)
            done.append((entry, machine.apply(entry)))
            if clock.boot() >= ends:
                break
        machine.commit()
        for entry, results in done:
            self._proposals.applied(entry, results)
            for listener in self._listeners:
                listener.applied(entry, results)
        for index, membership in memberships:
            self.on_membership(index, membership)
        return done[-1][0].index
