"""Promises of voters and the leadership lease that they make.

A voter that took an append promises, for the shortest election time by its own clock, to help no other node to
leadership. The master counts a voter's promise from the moment it *sent* the append that was answered, and only for a
part of that time, so that the lease is over before the first promise is. Promises die with no process: a voter that has
just started behaves as if it had promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from quvatlh.ports import Clock, Membership
    from quvatlh.raft.settings import Settings


class Promise:
    """What this node owes as a voter. Outlives the engine, not the process."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._length_s = settings.election_min_s
        self._started = clock.boot()
        self._to: str | None = None
        self._since = 0.0

    def heard(self, node_id: str) -> None:
        """An append of this master was taken."""
        self._to = node_id
        self._since = self._clock.boot()

    def released(self, node_id: str) -> None:
        """The connection to this node was reset by its side: its process is gone, and its lease with it."""
        if self._to == node_id:
            self._to = None

    def binds_against(self, candidate: str) -> bool:
        """Whether this candidate must be refused now."""
        now = self._clock.boot()
        if now - self._started < self._length_s:
            return True
        return self._to is not None and self._to != candidate and now - self._since < self._length_s


class Lease:
    """What the master has been promised in its present term."""

    def __init__(self, own_id: str, clock: Clock, settings: Settings, serial_of: Callable[[str], int | None]) -> None:
        self._own_id = own_id
        self._clock = clock
        self._length_s = settings.election_min_s * settings.lease_fraction
        self._serial_of = serial_of
        self._answers: dict[str, tuple[float, int]] = {}
        self._began = 0.0

    def begin(self) -> None:
        """A leadership begins: nothing is promised yet."""
        self._answers.clear()
        self._began = self._clock.boot()

    def answered(self, node_id: str, sent: float, serial: int) -> None:
        """A voter answered, over this connection, the append that was sent at `sent`."""
        known = self._answers.get(node_id)
        if known is None or known[1] != serial or known[0] < sent:
            self._answers[node_id] = (sent, serial)

    def majority_sent(self, members: Membership) -> float:
        """The latest moment such that a majority answered appends sent at or after it, over connections that still stand."""
        moments = []
        for member in members.voters:
            if member.id == self._own_id:
                moments.append(self._clock.boot())
                continue
            sent, serial = self._answers.get(member.id, (self._began - self._length_s, None))
            if serial is not None and self._serial_of(member.id) != serial:
                sent = self._began - self._length_s
            moments.append(sent)
        moments.sort(reverse=True)
        return moments[members.majority - 1]

    def holds(self, members: Membership) -> bool:
        """By a clock read now."""
        sent = self.majority_sent(members)
        return self._clock.boot() < sent + self._length_s

    def silent_since(self, members: Membership) -> float:
        """For how long no majority has answered, counted from the beginning of the leadership at the earliest."""
        return self._clock.boot() - max(self._began, self.majority_sent(members))
