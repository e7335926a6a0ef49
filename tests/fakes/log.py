"""The log of a cluster of one, in memory: everything that ports.Log promises, with switches for what is rare.

Entries are applied at once and to the same machine that a real log would drive, so that what is built on the port runs
on it unchanged. What it has not: a disk, other nodes, time of its own. A node may be deposed and elected again
(`depose`, `elect`), commits may be held back as without a majority (`hold`, `release`), and the answers of coming
proposals may get lost (`lose_answers`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from quvatlh.ports import (
    Applied,
    Clock,
    Entry,
    LogListener,
    Machine,
    Member,
    Membership,
    Refused,
    Role,
    Unavailable,
    Unknown,
)
from tests.fakes.clock import FakeClock

OTHER = "other"
"""Id of the node that leads while this one is deposed; it is no member and answers nobody."""


@dataclass(slots=True)
class _Waiting:
    items: tuple[bytes, ...]
    answer: asyncio.Future[Applied]
    term: int
    appended: bool = False
    """In the log already: what becomes of it is not certain any more."""


class FakeLog:
    """ports.Log. Made inside a running loop; acts at once unless `acting` is False."""

    def __init__(
        self, machine: Machine, *, clock: Clock | None = None, node: Member | None = None, acting: bool = True
    ) -> None:
        self.machine = machine
        self.held = False
        self.ahead_ms = 0
        """So far are the clocks of the other voters ahead of this node's: log time goes by theirs."""
        self.heir: Callable[[str], None] | None = None
        """Makes a master of the node that this one hands over to; where there is none, nobody can take over."""
        self._clock: Clock = FakeClock() if clock is None else clock
        self._node = node or Member("node1", "one", "127.0.0.1:7421")
        self._membership = Membership("cluster1", (self._node,))
        self._listeners: list[LogListener] = []
        self._queue: deque[_Waiting] = deque()
        self._answers_to_lose = 0
        self._progress = asyncio.Event()
        self._stopping = False
        self._role = Role(0, None, acting=False)
        if acting:
            self.elect()

    # -- what the port says

    @property
    def node_id(self) -> str:
        return self._node.id

    @property
    def role(self) -> Role:
        return self._role

    @property
    def applied_index(self) -> int:
        return self.machine.applied_index

    @property
    def time_ms(self) -> int:
        return self._time_ms()

    @property
    def membership(self) -> Membership | None:
        return self._membership

    def acts(self) -> bool:
        return self._role.acting and not self._stopping

    def listen(self, listener: LogListener) -> None:
        self._listeners.append(listener)

    async def propose(self, item: bytes, *, deadline: float) -> Applied:
        lost = self._answers_to_lose > 0
        self._answers_to_lose -= lost
        applied = await self._append((item,), deadline)
        if lost:
            raise Unknown("the answer was lost")
        return applied

    async def barrier(self, *, deadline: float) -> int:
        return (await self._append((), deadline)).index

    async def wait_applied(self, index: int, *, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline):
                while self.applied_index < index:
                    self._check_not_stopping()
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            raise Unavailable(f"index {index} was not applied in time") from None

    async def add_member(self, member: Member, *, deadline: float) -> Membership:
        """A new one stays a learner, and the caller is told so: there is nobody who could catch up."""

        def put(members: tuple[Member, ...]) -> tuple[Member, ...]:
            return tuple(member if each.id == member.id else each for each in members)

        changed = replace(
            self._membership, voters=put(self._membership.voters), learners=put(self._membership.learners)
        )
        if changed.get(member.id) is None:
            changed = replace(changed, learners=_by_id((*changed.learners, member)))
        await self._change(changed, deadline)
        if not changed.is_voter(member.id):
            raise Unknown(f"{member.id} is a learner now, and has not caught up yet")
        return changed

    async def remove_member(self, node_id: str, *, deadline: float) -> Membership:
        self._check_acting()
        if node_id == self.node_id:
            raise Refused("the master must hand over before it is removed")
        if self._membership.get(node_id) is None:
            raise Refused(f"no member has the id {node_id}", "not_found")
        return await self._change(
            replace(
                self._membership,
                voters=tuple(m for m in self._membership.voters if m.id != node_id),
                learners=tuple(m for m in self._membership.learners if m.id != node_id),
            ),
            deadline,
        )

    async def transfer(self, to: str | None = None, *, deadline: float) -> str:
        self._check_acting()
        heirs = [voter.id for voter in self._membership.voters if voter.id != self.node_id and to in {None, voter.id}]
        if not heirs or self.heir is None:
            raise Refused("no voter that could take over can be reached" if to is None else f"{to} is no other voter")
        self.depose(heirs[0])
        self.heir(heirs[0])
        return heirs[0]

    async def backup(self, path: str) -> int:
        """Only the state: there is nothing else to keep."""
        return self.machine.copy_to(path)

    async def stop(self) -> None:
        """The machine stays open: it belongs to who made it."""
        self._stopping = True
        self._give_up("the node is stopping", "stopping")
        self._set_role(replace(self._role, acting=False))
        self._progress.set()

    # -- switches

    def depose(self, master: str | None = OTHER) -> None:
        """Another node leads a newer term, or none does. What is appended and not committed is unknown, the rest not done."""
        self._set_role(Role(self._role.term + 1, master, acting=False))
        self._give_up("not master any more", "no_master")

    def join(self, membership: Membership) -> None:
        """From now on it is one of these."""
        self._membership = membership

    def elect(self) -> None:
        """This node leads a new term, and has applied its no-op."""
        term = self._role.term + 1
        self._apply(Entry(self.applied_index + 1, term, self._time_ms(), ()))
        self._set_role(Role(term, self.node_id, acting=True))

    def found(self, *members: Member) -> None:
        """These are the members from now on; all but this one in name only."""
        self._membership = Membership("cluster1", _by_id(members))

    def hold(self) -> None:
        """From now on nothing commits, as when no majority answers."""
        self.held = True

    def release(self) -> None:
        self.held = False
        self._commit_all()

    def lose_answers(self, count: int) -> None:
        """The next proposals are applied, and answered as Unknown."""
        self._answers_to_lose = count

    # -- how it works

    async def _append(self, items: tuple[bytes, ...], deadline: float) -> Applied:
        self._check_acting()
        if deadline <= 0:
            raise Unavailable("the deadline is over")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(items, loop.create_future(), self._role.term)
        self._queue.append(waiting)
        loop.call_soon(self._commit_all)  # shares the entry with all that comes in this turn of the loop
        try:
            async with asyncio.timeout(deadline):
                return await waiting.answer
        except TimeoutError:
            raise Unknown("no majority has answered in time") from None

    def _commit_all(self) -> None:
        for waiting in self._queue:
            waiting.appended = True
        if self.held or not self._queue:
            return
        together = list(self._queue)
        self._queue.clear()
        items = tuple(item for waiting in together for item in waiting.items)
        entry = Entry(self.applied_index + 1, self._role.term, self._time_ms(), items)
        results = iter(self._apply(entry))
        for waiting in together:
            mine = [next(results) for _ in waiting.items]
            if not waiting.answer.done():
                waiting.answer.set_result(Applied(entry.index, mine[0] if mine else None))

    def _apply(self, entry: Entry) -> Iterable[object]:
        self.machine.begin()
        results = self.machine.apply(entry)
        self._tell(lambda listener: listener.applied(entry, results))
        self.machine.commit()
        self._progress.set()
        return results

    async def _change(self, changed: Membership, deadline: float) -> Membership:
        await self._append((), deadline)
        self._membership = changed
        return changed

    def _give_up(self, detail: str, code: str) -> None:
        for waiting in self._queue:
            if not waiting.answer.done():
                certain = not waiting.appended
                waiting.answer.set_exception(Unavailable(detail, code) if certain else Unknown(detail))
        self._queue.clear()

    def _set_role(self, role: Role) -> None:
        if role != self._role:
            self._role = role
            self._tell(lambda listener: listener.role_changed(role))

    def _tell(self, what: Callable[[LogListener], None]) -> None:
        for listener in self._listeners:
            what(listener)

    def _time_ms(self) -> int:
        return max(self._clock.wall_ms() + self.ahead_ms, self.machine.time_ms)

    def _check_acting(self) -> None:
        self._check_not_stopping()
        if not self._role.acting:
            raise Unavailable("this node is not master")

    def _check_not_stopping(self) -> None:
        if self._stopping:
            raise Unavailable("the node is stopping", "stopping")


def _by_id(members: tuple[Member, ...]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda member: member.id))
