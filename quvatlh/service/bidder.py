"""The worker's side of the auction: policies are asked about tasks that wait, and the master is told what they made of them.

It looks when policy tasks appear, when what runs here changes, when a master is new, and at least each second; a look takes
a bounded number of tasks and a bounded time. Bids are made one after the other, each counting in the state that the next
policy sees; a task that is looked at again is judged as if it had not been bid for. What was said already and has not
changed is not said again to the same master, but for bids, once in a while, and what the master waits for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from quvatlh.ports import Clock, Judge, LogError, Question, Verdict
from quvatlh.service import asks
from quvatlh.service.door import Refusal
from quvatlh.service.ownstate import OwnState, Wanted
from quvatlh.service.seat import LOOK_TASKS_MAX, Look, PolicyTask, Seat
from quvatlh.service.session import Session
from quvatlh.service.worker import Worker

LOOK_S: Final = 1.0
"""At least so often, as long as there are policy tasks."""
BUDGET_S: Final = 0.25
"""Of one look: then what was found is offered, and the loop is others' for a while."""
ROUNDS_MAX: Final = 16
"""Judgements of one look: after each the bids made count."""
REST_S: Final = 0.01
"""Between two looks: what happens meanwhile is one reason to look."""
SAY_AGAIN_S: Final = 1.0
"""A bid that stands is said again: the master remembers a bounded number."""
SAID_MAX: Final = 10_000
TEXT_CHARS_MAX: Final = 1000


class Bidder:
    """The part of a seat.Occupant that is about policies."""

    def __init__(self, seat: Seat, session: Session, worker: Worker, judge: Judge, own: OwnState, clock: Clock) -> None:
        self._seat = seat
        self._session = session
        self._worker = worker
        self._judge = judge
        self._own = own
        self._clock = clock
        self._said: OrderedDict[int, tuple[asks.Offer, float]] = OrderedDict()
        """What was said last of a task, and when."""
        self._bids: dict[int, Wanted] = {}
        """That stand."""
        self._wake = asyncio.Event()
        self._seen = Look()
        """The cluster's part of the last look."""
        self._tells_all = False

    # --- a seat.Occupant ---

    def news(self) -> None:
        self._wake.set()

    def changed(self) -> None:
        """What runs here is not what it was: what was looked at last may be judged otherwise now."""
        if self._seen.tasks:
            self._wake.set()

    def moved(self) -> None:
        """Another master has heard nothing of what was offered."""
        self._tells_all = True
        self._wake.set()

    def decided(self, tasks: Sequence[int]) -> None:
        for task in tasks:
            self._bids.pop(task, None)
            self._said.pop(task, None)

    # --- others ask ---

    async def judge(self, ask: asks.JudgeAsk) -> asks.JudgeAnswer:
        """As it would be now, what is bid for counted; nothing follows from it."""
        questions = [Question(each.source, each.task, self._seen.groups.get(each.group, {})) for each in ask.questions]
        state = self.state()
        verdicts = await self._judge.judge(state, questions)
        said = tuple(_offer(0, verdict) for verdict in verdicts)
        if not ask.shows_state:
            return asks.JudgeAnswer(said)
        return asks.JudgeAnswer(said, state | {"cluster": state["cluster"] | {"group": dict(questions[0].group)}})

    def state(self) -> dict[str, Any]:
        """What a policy would see now, with the cluster as it was at the last look."""
        return self._own.table(self._bids.values(), self._seen)

    # --- the loop ---

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if not self._worker.takes:
                self._forget()
                continue
            try:
                more = await self._look()
            except (LogError, Refusal):
                more = False
                self._tells_all = True
            if more:
                self._wake.set()
            await asyncio.sleep(REST_S)

    async def _look(self) -> bool:
        """Whether there may be more to look at now."""
        if self._tells_all:
            self._forget()
        look = await self._seat.look()
        self._seen = look
        session = self._session.id
        if not look.tasks or session is None:
            return False
        ends = self._clock.boot() + BUDGET_S
        for task in look.tasks:
            self._bids.pop(task.seq, None)
        offers = await self._judged(look, ends)
        awaited = {task.seq for task in look.tasks[: look.fresh]}
        met = sum(offer.task not in self._said for offer in offers)
        news = [offer for offer in offers if offer.task in awaited or self._is_news(offer)]
        if news:
            await self._seat.offer(asks.Offers(self._session.worker, session, tuple(news)))
        self._remember(news)
        return len(look.tasks) >= LOOK_TASKS_MAX and met > 0

    def _is_news(self, offer: asks.Offer) -> bool:
        said = self._said.get(offer.task)
        if said is None or said[0] != offer:
            return True
        return offer.word == "bid" and self._clock.boot() - said[1] >= SAY_AGAIN_S

    async def _judged(self, look: Look, ends: float) -> list[asks.Offer]:
        """In rounds: what bids first is bid for, and the others are asked again by the state that this makes."""
        left = list(look.tasks)
        offers: list[asks.Offer] = []
        for n in range(ROUNDS_MAX):
            if not left:
                break
            state = self._own.table(self._bids.values(), look)
            questions = [Question(look.sources[t.source], t.task, look.groups.get(t.group, {})) for t in left]
            verdicts = await self._judge.judge(state, questions)
            is_last = n == ROUNDS_MAX - 1 or self._clock.boot() >= ends or state["worker"]["free"] <= 0
            taken = len(left) if is_last else max(1, state["worker"]["free"] // ROUNDS_MAX)
            rest = []
            for task, verdict in zip(left, verdicts, strict=True):
                if verdict.word == "bid" and not taken:
                    rest.append(task)
                    continue
                offers.append(_offer(task.seq, verdict))
                if verdict.word == "bid":
                    taken -= 1
                    self._bids[task.seq] = _wanted(task)
            left = rest
        return offers

    def _remember(self, offers: Sequence[asks.Offer]) -> None:
        now = self._clock.boot()
        for offer in offers:
            self._said[offer.task] = (offer, now)
            self._said.move_to_end(offer.task)
        while len(self._said) > SAID_MAX:
            task, _ = self._said.popitem(last=False)
            self._bids.pop(task, None)

    def _forget(self) -> None:
        self._said.clear()
        self._bids.clear()
        self._tells_all = False


def _offer(task: int, verdict: Verdict) -> asks.Offer:
    return asks.Offer(task, verdict.word, verdict.score, verdict.text[:TEXT_CHARS_MAX])


def _wanted(task: PolicyTask) -> Wanted:
    fields = task.task
    return task.group, str(fields.get("queue", "")), str(fields.get("name", "")), int(fields.get("slots", 1))
