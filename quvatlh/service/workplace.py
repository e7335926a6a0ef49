"""A worker, put together: session, actions, reports, bids, around one seat and one executor. The node's own worker is one,
and so is a daemon of role `worker`, which is nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quvatlh.core.model import WorkerFacts
from quvatlh.ports import (
    ActionFinished,
    ActionProgress,
    ActionStarted,
    Clock,
    Entropy,
    Executor,
    Judge,
    LogError,
    Sender,
    Unavailable,
)
from quvatlh.service import asks, outputs
from quvatlh.service.announcer import Announcer
from quvatlh.service.bidder import Bidder
from quvatlh.service.courier import Courier
from quvatlh.service.mixed import Mixed
from quvatlh.service.ownstate import MachineLoad, OwnState, measured
from quvatlh.service.reports import Reports
from quvatlh.service.seat import LISTED_MAX, Claim, Seat, Standing, serial_of
from quvatlh.service.session import Session
from quvatlh.service.tree import Tree
from quvatlh.service.worker import Worker

PRUNE_S: Final = 60.0
"""Between two rounds of taking away outputs that nobody may ask for any more."""
LEAVE_S: Final = 2.0
RELOAD_S: Final = 3.0
"""For an executor to say that it will."""


@dataclass(frozen=True, slots=True)
class Craft:
    """The adapters that a worker stands on."""

    executor: Executor
    judge: Judge
    clock: Clock
    entropy: Entropy
    load: MachineLoad = dict
    note: Callable[..., None] = lambda *_, **__: None
    sender: Sender | None = None
    """None: requests are not carried out here."""


class Workplace:
    """A seat.Occupant, a ports.ExecutorListener, a crew.Member."""

    def __init__(self, seat: Seat, craft: Craft, *, worker: str, directory: str, facts: WorkerFacts) -> None:
        self._seat = seat
        mixed = (
            None
            if craft.sender is None
            else Mixed(craft.executor, Courier(craft.sender, craft.clock, craft.executor.keep))
        )
        executor: Executor = mixed or craft.executor
        self._executor = executor
        self.reports = Reports(seat, craft.entropy, lambda: self.session.id or self.session.last)
        self.worker = Worker(self.reports, executor, craft.clock, facts.slots, craft.note)
        self.session = Session(
            seat, executor, craft.clock, self.worker,
            worker=worker, directory=directory, facts=facts, note=craft.note,
            load=lambda: measured(craft.load()),
        )  # fmt: skip
        self.worker.session = self.session
        self.worker.send = None if mixed is None else mixed.send
        self._own = OwnState(worker, facts, self.worker, craft.load)
        self.worker.announcer = Announcer(craft.judge, self.reports, self._state, craft.note)
        self.bidder = Bidder(seat, self.session, self.worker, craft.judge, self._own, craft.clock)
        self.worker.on_changed = self.bidder.changed
        self._drained = False
        self._pruned_to = 0
        """The last token that was asked about in this walk over the kept outputs."""
        seat.sit(self)
        executor.listen(self)

    def start(self, tree: Tree) -> None:
        tree.grow("reports", self.reports.run)
        tree.grow("bidder", self.bidder.run)
        tree.grow("prune", self._prune)
        tree.grow("session", self.session.run)

    async def drain(self, drain_s: float) -> None:
        """No new work; what runs may go on for a while, then it is stopped and goes to others."""
        self._drained = True
        await self.session.leave(LEAVE_S)
        await self.worker.drain(drain_s)

    async def stop(self, tree: Tree) -> None:
        """Drained, the session ends with its executor. Else the executor is left to the next daemon."""
        for name in ("session", "bidder", "prune"):
            await tree.stop(name)
        if self._drained:
            await self.worker.close()
        else:
            await self.worker.let_go()

    def _state(self) -> dict[str, Any]:
        return self.bidder.state()

    # --- a crew.Member ---

    async def output(self, ask: asks.OutputAsk) -> asks.OutputAnswer:
        try:
            return await outputs.read(self._executor, ask)
        except OSError as error:
            raise _unread(error) from None

    async def result(self, ask: asks.ResultAsk) -> asks.ResultAnswer:
        try:
            found = await self._executor.result(ask.action, ask.offset)
        except OSError as error:
            raise _unread(error) from None
        return asks.ResultAnswer(b"", None) if found is None else asks.ResultAnswer(*found)

    async def judge(self, ask: asks.JudgeAsk) -> asks.JudgeAnswer:
        return await self.bidder.judge(ask)

    async def reload(self, ask: asks.ReloadAsk) -> asks.ReloadAnswer:
        try:
            async with asyncio.timeout(RELOAD_S):
                return asks.ReloadAnswer(tuple(await self._executor.reload(ask.environment)))
        except (OSError, RuntimeError) as error:  # TimeoutError is one
            raise Unavailable(f"its executor does not answer: {error}") from None

    # --- a seat.Occupant ---

    def claimed(self, claims: Sequence[Claim]) -> None:
        self.worker.claimed(claims)

    def stop_actions(self, tokens: Sequence[int]) -> None:
        self.worker.stop(tokens)

    def not_ours(self, tokens: Sequence[int]) -> None:
        self.worker.not_ours(tokens)

    def over(self, session: str) -> None:
        self.session.over(session)

    def moved(self) -> None:
        self.session.moved()
        self.bidder.moved()

    def stands(self, standing: Standing) -> None:
        self._own.facts = standing.facts
        self.worker.stands(standing)

    def news(self) -> None:
        self.bidder.news()

    def decided(self, tasks: Sequence[int]) -> None:
        self.bidder.decided(tasks)

    # --- a ports.ExecutorListener ---

    def started(self, event: ActionStarted) -> None:
        self.worker.started(event)

    def progressed(self, event: ActionProgress) -> None:
        self.worker.progressed(event)

    def finished(self, event: ActionFinished) -> None:
        self.worker.finished(event)

    def gone(self, why: str) -> None:
        self.session.gone(why)

    # --- a chore ---

    async def _prune(self) -> None:
        """Outputs of actions that are not listed any more are taken away, some at a time."""
        while True:
            await asyncio.sleep(PRUNE_S)
            await self.prune()

    async def prune(self) -> None:
        """The oldest first; the next round goes on after what one question holds, and begins anew after the youngest."""
        kept = {token: name for name in await self._executor.kept() if (token := serial_of(name))}
        asked = sorted(token for token in kept if token > self._pruned_to)[:LISTED_MAX]
        if not asked:
            self._pruned_to = 0
            return
        try:
            listed = set(await self._seat.listed(asked))
        except LogError:
            return
        self._pruned_to = asked[-1] if len(asked) == LISTED_MAX else 0
        gone = set(asked) - listed
        if gone:
            self._executor.prune([name for token, name in kept.items() if token not in gone])


def _unread(error: OSError) -> Unavailable:
    """Of what an action has left: too many files are open, the disk has a fault, or somebody else was in its directory."""
    return Unavailable(f"its file cannot be read: {error.strerror}")
