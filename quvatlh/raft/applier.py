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
        self,
        generation: Generation,
        proposals: Proposals,
        listeners: Sequence[LogListener],
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._journal = generation.journal
        self._machine = generation.machine
        self._proposals = proposals
        self._listeners = listeners
        self._clock = clock
        self._slice_s = settings.slice_s
        self.on_membership: Callable[[int, Membership], None] = lambda _index, _membership: None

    def apply(self, first: int, last: int) -> int:
        """At least one entry, at most a slice, as one transaction. Listeners are told before it is closed, so that what they set
        going, such as the start of an action, leaves first: the log has it, whatever becomes of the state file. Answers are
        read after the commit, when this turn of the loop is over: who has one finds what it says in every reader. They are
        given before, so that whoever waits for one goes on before all else that this entry wakes."""
        machine, clock = self._machine, self._clock
        ends = clock.boot() + self._slice_s
        done: list[tuple[Entry, Sequence[object]]] = []
        memberships: list[tuple[int, Membership]] = []
        time_ms = machine.time_ms
        machine.begin()
        for index in range(first, last + 1):
            try:
                entry, membership = self._read(index, time_ms)
                done.append((entry, machine.apply(entry)))
            except Exception as error:
                error.add_note(f"while entry {index} of term {self._journal.term_at(index)} was applied")
                raise
            if membership is not None:
                memberships.append((index, membership))
            time_ms = entry.time_ms
            if clock.boot() >= ends:
                break
        for entry, results in done:
            self._proposals.applied(entry, results)
        for entry, results in done:
            for listener in self._listeners:
                listener.applied(entry, results)
        machine.commit()
        for index, membership in memberships:
            self.on_membership(index, membership)
        return done[-1][0].index

    def _read(self, index: int, time_ms: int) -> tuple[Entry, Membership | None]:
        """The entry as the machine sees it, after one of this log time; and the membership, if it is one."""
        command, _, term = self._journal.entry(index)
        head = entries.head(command)
        items: tuple[bytes, ...] = ()
        membership = None
        if head.kind != entries.NO_OP and head.term == term:
            if head.kind == entries.ITEMS:
                items = entries.unpack_items(command)
            else:
                membership = entries.unpack_membership_entry(command)
        return Entry(index, term, max(time_ms, head.time_ms), items), membership
