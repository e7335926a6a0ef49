"""Policies tried out: what live workers, or recorded ones, would answer for a task. Nothing is stored, nothing runs.

The task is what the auction would show: one that stands as it stands, one that might as if it were added now. Each answer
has the state that was judged, so that it can be kept, and given back as a recorded one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from quvatlh.core import queries
from quvatlh.core.model import TaskSpec
from quvatlh.core.rejections import FieldError
from quvatlh.core.scopes import matches_any
from quvatlh.core.views import WorkerView
from quvatlh.service import asks, policytask
from quvatlh.service.fleet import Fleet, bounds_of
from quvatlh.service.jury import Jury
from quvatlh.service.pool import Call, Json, NewTask, Rejected
from quvatlh.service.reads import Reads
from quvatlh.service.sources import Sources
from quvatlh.service.stamps import Stamps

STATE_BYTES_MAX: Final = 1024 * 1024
"""Of a recorded state, as it goes to the process for policies. A real one has a few KiB, and 20 bytes a queue."""


class Trials:
    def __init__(
        self, reads: Reads, fleet: Fleet, sources: Sources, jury: Jury, stamps: Stamps, now_ms: Callable[[], int]
    ) -> None:
        self._reads = reads
        self._fleet = fleet
        self._sources = sources
        self._jury = jury
        self._stamps = stamps
        self._now_ms = now_ms

    async def test_policy(
        self, call: Call, source: str, task: str | NewTask, worker: str | None, states: Sequence[Json] | None = None
    ) -> Sequence[Json]:
        await self._sources.compiles(source)
        question = await self._question(call, source, task)
        if states is None:
            return await self._live(call, question, worker)
        _check(states)
        wanted = [each for each in states if worker in {None, each["worker"]["name"]}]
        return [await self._recorded(question, each) for each in wanted]

    async def _recorded(self, question: asks.JudgeQuestion, state: Json) -> Json:
        """By this node, whose policies run as those of any other."""
        said = await self._sources.judge(state, question.source, question.task, state["cluster"]["group"])
        return _said(state["worker"]["name"], said, state)

    async def _live(self, call: Call, question: asks.JudgeQuestion, worker: str | None) -> Sequence[Json]:
        if worker is not None:
            views = [await self._fleet.view(call, worker)]
        else:
            views = [view for view in await self._reads.read(call, queries.workers) if view.state != "lost"]
        queue = str(question.task["queue"])
        asked = [view for view in views if matches_any(queue, bounds_of(view))]
        answers = dict(zip((view.name for view in asked), await self._jury.show_all(asked, question), strict=True))
        is_narrow = call.principal.scope is not None
        return [_verdict(view, answers.get(view.name), queue, is_narrow=is_narrow) for view in views]

    async def _question(self, call: Call, source: str, task: str | NewTask) -> asks.JudgeQuestion:
        if isinstance(task, str):
            view = await self._reads.view(call, task)
            seen = await self._reads.read(None, lambda db: policytask.of_view(db, view))
            return asks.JudgeQuestion(source, view.row.grp, seen)
        given = dict(task)
        try:
            draft = asks.Draft(msgspec.convert(given.pop("spec"), TaskSpec), **given)  # type: ignore[arg-type]
        except msgspec.ValidationError as error:
            raise Rejected("invalid", "the task cannot be taken as it is", [FieldError("task", str(error))]) from error
        now_ms = self._now_ms()
        (new,) = self._stamps.new_tasks((draft,), now_ms)
        return asks.JudgeQuestion(source, draft.spec.group, policytask.of_new(new, now_ms))


def _check(states: Sequence[Json]) -> None:
    """What can go to the process for policies at all."""
    for position, state in enumerate(states):
        try:
            size = len(msgspec.msgpack.encode(state))
        except (OverflowError, RecursionError) as error:
            raise Rejected(
                "invalid", "a state cannot be taken", [FieldError(f"states[{position}]", str(error))]
            ) from None
        if size > STATE_BYTES_MAX:
            fault = FieldError(f"states[{position}]", f"is larger than {STATE_BYTES_MAX >> 20} MiB")
            raise Rejected("invalid", "a state cannot be taken", [fault])


def _verdict(view: WorkerView, answer: asks.JudgeAnswer | str | None, queue: str, *, is_narrow: bool) -> Json:
    if answer is None or isinstance(answer, str):
        text = f"its token is not for queue {queue}" if answer is None else answer
        return {"worker": view.name, "verdict": "not_asked", "score": None, "text": text, "state": None}
    return _said(view.name, answer.verdicts[0], None if is_narrow else answer.state)


def _said(worker: str, said: asks.Offer, state: Json | None) -> Json:
    """A state tells of all groups and queues, so who sees some of them gets none."""
    score = said.score if said.word == "bid" else None
    return {"worker": worker, "verdict": said.word, "score": score, "text": said.text, "state": state}
