"""Policies of the simulation: a judge that takes its time, and sources that see what a policy may see."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quvatlh.ports import Clock, Question, Verdict
from tests.fakes.judge import ALWAYS, ENDLESS, FAILING, NEVER, FakeJudge

FREE: Final = "function(state, task) return state.worker.free end"
FEWEST: Final = "function(state, task) return -state.worker.actions.total end"
FIRST_ZONE: Final = "function(state, task) return glob('zone=a', state.worker.tags) end"
WILLING: Final = (ALWAYS, "function(state, task) return 2.5 end", FREE, FEWEST, FIRST_ZONE)
"""Somebody wants it, sooner or later."""
UNWILLING: Final = (NEVER, FAILING, ENDLESS)
"""Nobody ever does."""
JUDGE_S: Final = (0.0002, 0.01)
SLOW_S: Final = 0.2
"""Now and then: longer than an auction waits."""


class SimJudge(FakeJudge):
    def __init__(self, clock: Clock, rng: random.Random) -> None:
        super().__init__(clock)
        self._rng = rng
        self.teach(FREE, lambda state, _task: Verdict("bid", float(state["worker"]["free"])))
        self.teach(FEWEST, lambda state, _task: Verdict("bid", -float(state["worker"]["actions"]["total"])))
        self.teach(FIRST_ZONE, _first_zone)

    async def judge(self, state: Mapping[str, Any], questions: Sequence[Question]) -> Sequence[Verdict]:
        await asyncio.sleep(SLOW_S if self._rng.random() < 0.02 else self._rng.uniform(*JUDGE_S))
        return await super().judge(state, questions)


def _first_zone(state: Mapping[str, Any], _task: Mapping[str, Any]) -> Verdict:
    return Verdict("bid", 1.0) if "zone=a" in state["worker"]["tags"] else Verdict("no_bid")
