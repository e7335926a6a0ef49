"""Writes on their way into the log: grouped, bounded, and answered exactly once.

All that waits shares one entry, at most `in_flight_entries` of them uncommitted. A proposal that never reached the log
is certainly not done; one that did is decided by what is applied at its index, and unknown until then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quvatlh.ports import Applied, Entry, Refused, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quvatlh.raft.settings import Settings


@dataclass(slots=True, eq=False)
class _Proposal:
    item: bytes | None
    """None for a barrier, which wants no more than an entry after its call."""
    answer: asyncio.Future[Applied]
    logged: bool = False
    withdrawn: bool = False


class Proposals:
    """The queue before the log, and the answers behind it."""

    def __init__(self, settings: Settings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._wake = wake
        self._queue: deque[_Proposal] = deque()
        self._queue_bytes = 0
        self._logged: dict[int, tuple[int, list[_Proposal]]] = {}
        self._broken = ""
        """Why nothing is known here any more."""

    async def submit(self, item: bytes | None, deadline_s: float) -> Applied:
        """Wait in the queue, then in the log, for the answer. Unavailable or Unknown when it does not come in time."""
        nbytes = len(item or b"")
        if nbytes > self._settings.item_bytes_max:
            raise Refused(f"an item of {nbytes} bytes does not fit into an entry", "too_large")
        if self._queue_bytes + nbytes > self._settings.queue_bytes_max:
            raise Unavailable("too many writes are waiting", "busy")
        loop = asyncio.get_running_loop()
        proposal = _Proposal(item, loop.create_future())
        self._queue.append(proposal)
        self._queue_bytes += nbytes
        self._wake()
        timer = loop.call_later(deadline_s, self._expire, proposal)
        try:
            return await self._answer(proposal)
        finally:
            timer.cancel()
            if not proposal.logged:
                self._withdraw(proposal)

    async def _answer(self, proposal: _Proposal) -> Applied:
        """It is there before the transaction is closed, and read after that: the node may have broken between."""
        answer = await proposal.answer
        if self._broken:
            raise Unknown(self._broken)
        return answer

    def _expire(self, proposal: _Proposal) -> None:
        if proposal.logged:
            self._refuse([proposal], Unknown("no majority answered in time"))
        else:
            self._withdraw(proposal)
            self._refuse([proposal], Unavailable("the log did not take it in time"))

    def _withdraw(self, proposal: _Proposal) -> None:
        """Take it out of the queue; its place there is passed over later."""
        if not proposal.withdrawn:
            proposal.withdrawn = True
            self._queue_bytes -= len(proposal.item or b"")

    async def follow(self, index: int, term: int, deadline_s: float) -> None:
        """Wait until the log's own entry that was appended there is applied."""
        loop = asyncio.get_running_loop()
        proposal = _Proposal(None, loop.create_future(), logged=True)
        self._logged[index] = (term, [proposal])
        timer = loop.call_later(deadline_s, self._expire, proposal)
        try:
            await self._answer(proposal)
        finally:
            timer.cancel()

    @property
    def are_waiting(self) -> bool:
        """Something is in the queue; it may be withdrawn already."""
        return bool(self._queue)

    @property
    def none_logged(self) -> bool:
        """Nothing is under way."""
        return not self._logged

    def idle(self, term: int) -> bool:
        """Nothing of this term is under way."""
        return not any(logged_term == term for logged_term, _ in self._logged.values())

    def flush(self, term: int, append: Callable[[list[bytes]], int]) -> None:
        """As master of `term`: put into entries what waits, as far as the number in flight allows."""
        in_flight = sum(logged_term == term for logged_term, _ in self._logged.values())
        while in_flight < self._settings.in_flight_entries:
            group = self._next_group()
            if not group:
                return
            index = append([p.item for p in group if p.item is not None])
            self._logged[index] = (term, group)
            in_flight += 1

    def _next_group(self) -> list[_Proposal]:
        group: list[_Proposal] = []
        nbytes = 0
        while self._queue:
            size = len(self._queue[0].item or b"") + 8
            if group and nbytes + size > self._settings.group_bytes_max:
                break
            proposal = self._queue.popleft()
            if proposal.withdrawn:
                continue
            self._queue_bytes -= len(proposal.item or b"")
            nbytes += size
            proposal.logged = True
            group.append(proposal)
        return group

    def applied(self, entry: Entry, results: Sequence[object]) -> None:
        """What stands at this index is decided. Whoever waits for it goes on when this turn of the loop is over."""
        waiting = self._logged.pop(entry.index, None)
        if waiting is None:
            return
        term, group = waiting
        if term != entry.term:
            self._refuse(group, Unavailable("another master's entry stands in its place"))
            return
        given = iter(results)
        for proposal in group:
            result = None if proposal.item is None else next(given)
            if not proposal.answer.done():
                proposal.answer.set_result(Applied(entry.index, result))

    def drop_queue(self, why: str, code: str = "no_master") -> None:
        """This node is not master any more: what is not in the log will not get there."""
        group = [p for p in self._queue if not p.withdrawn]
        for proposal in group:
            self._withdraw(proposal)
        self._queue.clear()
        self._refuse(group, Unavailable(why, code))

    def forget(self, why: str) -> None:
        """What is logged will not be heard of here any more."""
        for _, group in self._logged.values():
            self._refuse(group, Unknown(why))
        self._logged.clear()

    def broke(self, why: str) -> None:
        """What waits is not done; of all else nothing is known, nor of what was to be answered in this very turn."""
        self._broken = why
        self.drop_queue(why, "stopping")
        self.forget(why)

    @staticmethod
    def _refuse(group: list[_Proposal], error: Unavailable | Unknown) -> None:
        for proposal in group:
            if not proposal.answer.done():
                proposal.answer.set_exception(error)
