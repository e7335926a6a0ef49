"""Asks live workers what their policies would make of a task now. Nothing follows from the answer, and nothing runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from quvatlh.core.views import WorkerView
from quvatlh.ports import LogError, Peers, Unavailable
from quvatlh.service import asks

KIND: Final = "judge"
JUDGE_S: Final = 1.0
"""Twice what a policy may take by the clock."""
QUESTIONS_MAX: Final = 200
"""In one message: each carries a task."""

Verdicts = Sequence[asks.Offer]


async def _nobody(_ask: asks.JudgeAsk) -> asks.JudgeAnswer:
    raise Unavailable("this node judges nothing")


class Jury:
    def __init__(self, peers: Peers, node_id: str) -> None:
        self.own: Callable[[asks.JudgeAsk], Awaitable[asks.JudgeAnswer]] = _nobody
        """For workers of this node."""
        self._peers = peers
        self._node_id = node_id

    async def ask(self, worker: WorkerView, questions: Sequence[asks.JudgeQuestion]) -> Verdicts | str:
        """One verdict a question, or why there is no answer."""
        found: list[asks.Offer] = []
        for n in range(0, len(questions), QUESTIONS_MAX):
            ask = asks.JudgeAsk(worker.name, tuple(questions[n : n + QUESTIONS_MAX]))
            answer = await self._answer(worker, ask)
            if isinstance(answer, str):
                return answer
            found += answer.verdicts
        return found

    async def ask_all(
        self, workers: Sequence[WorkerView], questions: Sequence[asks.JudgeQuestion]
    ) -> Sequence[Verdicts | str]:
        return await asyncio.gather(*(self.ask(worker, questions) for worker in workers))

    async def show_all(
        self, workers: Sequence[WorkerView], question: asks.JudgeQuestion
    ) -> Sequence[asks.JudgeAnswer | str]:
        """With the state that each has judged by."""
        shown = [asks.JudgeAsk(worker.name, (question,), shows_state=True) for worker in workers]
        return await asyncio.gather(*(self._answer(*each) for each in zip(workers, shown, strict=True)))

    async def _answer(self, worker: WorkerView, ask: asks.JudgeAsk) -> asks.JudgeAnswer | str:
        try:
            answer = await self._asked(worker, ask)
        except (LogError, asks.Unreadable, TimeoutError) as error:
            return f"worker {worker.name} did not answer: {error}"
        if len(answer.verdicts) != len(ask.questions):
            return f"worker {worker.name} answered something else"
        return answer

    async def _asked(self, worker: WorkerView, ask: asks.JudgeAsk) -> asks.JudgeAnswer:
        node = worker.facts.facts.get("node_id")
        if not isinstance(node, str):
            raise Unavailable("nobody knows its node")
        if node == self._node_id:
            async with asyncio.timeout(JUDGE_S):
                return await self.own(ask)
        body = await self._peers.request(node, KIND, asks.JUDGE_ASK.encode(ask), deadline=JUDGE_S)
        answer: asks.JudgeAnswer = asks.JUDGE_ANSWER.decode(body)
        return answer
