"""One real engine on a real journal and a disk whose power can fail; the test plays all other nodes, and time.

Nothing happens by itself: `hear` hands a frame to the engine, `tick` lets time go by, and what the engine says to others
is in `said`. With a HeldLane the test decides when a sync is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from quvatlh.ports import Member, Membership
from quvatlh.raft import entries
from quvatlh.raft.ballot import Ballot
from quvatlh.raft.disk import Lane
from quvatlh.raft.engine import Engine
from quvatlh.raft.journal import Base, Journal
from quvatlh.raft.lease import Promise
from quvatlh.raft.link import Link
from quvatlh.raft.settings import Settings
from tests.fakes.clock import FakeClock
from tests.fakes.entropy import FakeEntropy
from tests.raft.parts import HOME, LOG, InlineLane, PoweredMachine, item, new_log, turns

LONG_AGO_S = 10.0
"""Before a test begins: no promise of the start binds any more."""

Frame = list[Any]
Row = tuple[bytes, int, int]


def cluster(voters: str = "abc", learners: str = "") -> Membership:
    def members(ids: str) -> tuple[Member, ...]:
        return tuple(Member(i, i, f"{i}:1") for i in sorted(ids))

    return Membership("c1", members(voters), members(learners))


def row(index: int, term: int, text: str = "") -> Row:
    """An entry as it goes in an append; its content tells index and term."""
    return (item(term, index * 10, text or f"{index}.{term}"), index, term)


def rows(first: int, last: int, term: int = 1) -> list[Row]:
    return [row(index, term) for index in range(first, last + 1)]


def membership_row(index: int, term: int, membership: Membership) -> Row:
    return (entries.pack_membership_entry(term, index * 10, membership), index, term)


class Wire:
    """A connection to another node, as far as the engine sees it."""

    def __init__(self, node_id: str, serial: int) -> None:
        self.node_id = node_id
        self.serial = serial
        self.said: list[Frame] = []

    def send(self, message: Frame) -> bool:
        self.said.append(message)
        return True


class Bench:
    """The engine and all that it stands on. Made by `bench`; keeps engine.Host."""

    engine: Engine
    journal: Journal

    def __init__(self, own: str, settings: Settings, lane: Lane) -> None:
        self.own = own
        self.settings = settings
        self.lane = lane
        self.clock = FakeClock()
        self.machine = PoweredMachine()
        self.links: dict[str, Wire] = {}
        self.applied: list[Row] = []
        self.notes: list[str] = []
        self.behind_told: list[tuple[str, int]] = []
        self.failures: list[Exception] = []
        self._serials = 0

    def open(self, applied_index: int, *, freshly_started: bool = False) -> None:
        """A process begins: on what the disk holds, with a state that is so far."""
        disk = self.machine.view
        ballot = Ballot.open(disk, HOME)
        self.journal = Journal.open(disk, LOG, self.lane, self.settings, ballot, applied_index=applied_index)
        self.journal.on_synced = self._synced
        self.journal.on_failure = self.failures.append
        promise = Promise(self.clock, self.settings)
        if not freshly_started:
            self.clock.advance(LONG_AGO_S)
        self.engine = Engine(
            self.own, self.journal, applied_index, self, self.clock, FakeEntropy(), self.settings, promise
        )
        for node_id in list(self.links):
            self.connect(node_id)

    def _synced(self) -> None:
        self.engine.synced()

    def power_fail(self, applied_index: int = 0) -> None:
        """And start again, on what was synced."""
        self.machine.power_fail()
        self.open(applied_index)

    # What the engine asks of its host.

    def link(self, node_id: str) -> Link | None:
        return cast("Link | None", self.links.get(node_id))

    def wake(self) -> None:
        """The test ticks. What a tick would begin with does not wait for that: what came goes to the disk."""
        asyncio.get_running_loop().call_soon(self.journal.kick)

    def apply(self, first: int, last: int) -> int:
        self.applied += [self.journal.entry(index) for index in range(first, last + 1)]
        return last

    def role_changed(self) -> None:
        pass

    def members_changed(self, membership: Membership) -> None:
        pass

    def behind(self, master: str, first_index: int) -> None:
        self.behind_told.append((master, first_index))

    def note(self, event: str, **facts: object) -> None:
        self.notes.append(event)

    # What the test does.

    def connect(self, node_id: str) -> Wire:
        """A new connection to this node, in place of the one that was."""
        self._serials += 1
        wire = self.links[node_id] = Wire(node_id, self._serials)
        self.engine.link_up(cast("Link", wire))
        return wire

    def hear(self, sender: str | Wire, *frame: Any) -> None:
        wire = self.links[sender] if isinstance(sender, str) else sender
        self.engine.receive(cast("Link", wire), list(frame))

    def append(self, sender: str, term: int, prev: tuple[int, int], *new: Row, commit: int = 0) -> None:
        """Hear an append of a master, after the entry (index, term)."""
        self.hear(sender, "append", term, self.clock.boot(), *prev, commit, [list(entry) for entry in new])

    def said(self, to: str, *kinds: str) -> list[Frame]:
        """What was said to that node since the last look, of these kinds; what was of other kinds is forgotten."""
        wire = self.links[to]
        said, wire.said = wire.said, []
        return [frame for frame in said if not kinds or frame[0] in kinds]

    async def tick(self, seconds: float = 0.0) -> None:
        """Time goes by, then the engine looks at it, and what is ready on the loop runs."""
        self.clock.advance(seconds)
        self.engine.tick()
        await turns()
        self.engine.tick()

    async def settle(self) -> None:
        await self.tick()

    async def lead(self, *voters: str) -> None:
        """Become an acting master, by the voices of these (and its own)."""
        engine = self.engine
        others = voters or tuple(v.id for v in engine.membership.voters if v.id != self.own)
        await self.campaign(*others)
        for voter in others:
            self.hear(voter, "vote", engine.term())
        assert engine.leads()
        await turns()
        self.answer(*others)
        await self.tick()
        assert engine.acts()

    async def campaign(self, *others: str) -> None:
        """Ask for votes, by the word of these."""
        await self.tick(self.settings.election_max_s)
        for voter in others:
            for frame in self.said(voter, "canvass"):
                self.hear(voter, "would", self.engine.term(), frame[2], True)
        await self.tick()

    def answer(self, *voters: str) -> None:
        """As followers that hold all of the log, synced, and have answered the last append."""
        for voter in voters:
            self.echo(voter)
            self.holds(voter, self.journal.last_index)

    def echo(self, voter: str, sent: float | None = None) -> None:
        at = self.clock.boot() if sent is None else sent
        self.hear(voter, "echo", self.engine.term(), at, self.clock.wall_ms())

    def holds(self, voter: str, index: int) -> None:
        self.hear(voter, "next", self.engine.term(), index + 1, False, True)

    def propose(self, text: str = "x") -> int:
        """An entry of this master."""
        return self.engine.append(entries.pack_items(self.engine.term(), self.engine.log_time_ms(), [text.encode()]))

    @property
    def held(self) -> list[tuple[int, int]]:
        """(index, term) of all in the log but its base."""
        return [(index, term) for _, index, term in self.journal[1:]]


async def bench(
    own: str = "a",
    membership: Membership | None = None,
    *,
    log: Iterable[Row] = (),
    applied: int = 0,
    base: Base | None = None,
    settings: Settings | None = None,
    lane: Lane | None = None,
    freshly_started: bool = False,
) -> Bench:
    """A node with this log on its disk, connected to all other members."""
    members = membership or cluster()
    made = Bench(own, settings or Settings(), lane or InlineLane())
    new_log(made.machine.view, base or Base(0, 0, 0, entries.pack_membership(members)))
    ballot = Ballot.open(made.machine.view, HOME)
    start = base.index if base is not None else 0
    before = Journal.open(made.machine.view, LOG, InlineLane(), made.settings, ballot, applied_index=start)
    for entry in log:
        before.add(*entry)
    if before.last_term > ballot.term:
        ballot.set(before.last_term, None)
    await before.close()
    made.open(max(applied, start), freshly_started=freshly_started)
    for other in (*members.voters, *members.learners):
        if other.id != own:
            made.connect(other.id)
    return made
