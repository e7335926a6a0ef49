"""ports.Judge on Lua: `LuaJudge(clock)`, then `close()`. The process starts with the first question.

Questions go over in frames; between two of them others get their turn. Whatever question ends the process is answered by
that, and the others are asked again of the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from quvatlh.core.limits import JSON_BYTES_MAX, TEXT_CHARS_MAX
from quvatlh.policy import frames
from quvatlh.policy.bounds import (
    DEATHS_IDLE_MAX,
    FRAME_JOBS_BYTES,
    IDLE_S,
    JOB_BYTES_MAX,
    JOBS_MAX,
    REST_S,
)
from quvatlh.policy.marks import Marks
from quvatlh.policy.process import CannotRun, PolicyProcess
from quvatlh.policy.told import Answer
from quvatlh.ports import Announcement, Clock, CodeKind, Question, SourceFault, Verdict, Word

Data = Mapping[str, Any]

_TOO_LARGE: Final = f"the task is larger than {JOB_BYTES_MAX >> 20} MiB"
_NO_DATA: Final = (TypeError, ValueError, OverflowError)
_NO_STATE: Final = b"\x80"


class _Pending:
    """Jobs that wait for answers. What overran is noted by source."""

    def __init__(self, state: bytes, sources: Sequence[str], pack: Callable[[int], bytes]) -> None:
        self.state = state
        self.sources = sources
        self.answers: dict[int, Answer] = {}
        self.left = list(range(len(sources)))
        self._pack = pack
        self._packed: dict[int, bytes] = {}

    def frame(self) -> tuple[list[int], list[bytes]]:
        """As many of those left as go over in one. What cannot go over is answered here."""
        places: list[int] = []
        jobs: list[bytes] = []
        size = 0
        for place in self.left:
            if len(jobs) >= JOBS_MAX or size >= FRAME_JOBS_BYTES:
                break
            job = self._packed.get(place)
            if job is None:
                try:
                    job = self._packed[place] = self._pack(place)
                except _NO_DATA as error:
                    self.answers[place] = Answer("failed", text=str(error))
                    continue
            places.append(place)
            jobs.append(job)
            size += len(job)
        return places, jobs

    def answer(self, place: int, answer: Answer) -> None:
        self.answers[place] = answer
        self._packed.pop(place, None)

    def pass_over(self, source: str, answer: Answer) -> None:
        """Whatever of it has no answer yet is not asked."""
        for place in self.left:
            if place not in self.answers and self.sources[place] == source:
                self.answer(place, answer)

    def settle(self) -> None:
        self.left = [place for place in self.left if place not in self.answers]


class LuaJudge:
    """One process for all. Made inside the loop or before it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks = Marks()
        self._process = PolicyProcess(JSON_BYTES_MAX)
        self._turn = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._idle_end: asyncio.Task[None] | None = None
        self._rests_until = 0.0
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid

    async def check(self, source: str, kind: CodeKind) -> SourceFault | None:  # noqa: ARG002 - both kinds are one function
        try:
            source.encode()
        except UnicodeEncodeError as error:
            return _fault_at(source, error.start, "holds half a surrogate pair: no text")
        if len(source) > TEXT_CHARS_MAX:
            return SourceFault(1, 1, f"is longer than {TEXT_CHARS_MAX} characters")
        if left_s := self._left_s(source):
            return SourceFault(1, 1, _marked(left_s))
        pending = _Pending(_NO_STATE, [source], lambda _: _job(frames.CHECK, source, None, None))
        await self._answer(pending)
        answer = pending.answers[0]
        if answer.word == "fit":
            return None
        # It may also have overrun, or nothing can be run here: then no line is at fault.
        return SourceFault(max(1, answer.line), max(1, answer.column), answer.text)

    async def judge(self, state: Data, questions: Sequence[Question]) -> Sequence[Verdict]:
        verdicts: dict[int, Verdict] = {}
        asked: list[int] = []
        try:
            packed_state = frames.packed(state)
        except _NO_DATA as error:
            return [Verdict("failed", text=f"the state cannot be shown to it: {error}")] * len(questions)
        marked = {source: self._left_s(source) for source in {question.source for question in questions}}
        for place, question in enumerate(questions):
            if left_s := marked[question.source]:
                verdicts[place] = Verdict("marked", text=_marked(left_s))
            else:
                asked.append(place)

        def pack(n: int) -> bytes:
            question = questions[asked[n]]
            return _job(frames.JUDGE, question.source, question.task, question.group)

        pending = _Pending(packed_state, [questions[place].source for place in asked], pack)
        await self._answer(pending)
        for n, answer in pending.answers.items():
            verdicts[asked[n]] = Verdict(cast("Word", answer.word), answer.score, answer.text)
        return [verdicts[place] for place in range(len(questions))]

    async def announce(self, source: str, state: Data, task: Data, action: Data) -> Announcement:
        if left_s := self._left_s(source):
            return Announcement(None, _marked(left_s))
        pending = _Pending(frames.packed(state), [source], lambda _: _job(frames.ANNOUNCE, source, task, action))
        await self._answer(pending)
        answer = pending.answers[0]
        if answer.word != "made":
            return Announcement(None, answer.text)
        return Announcement(msgspec.json.decode(answer.text))

    async def close(self) -> None:
        """What is asked afterwards fails."""
        self._closed = True
        self._rest()
        if self._idle_end is not None:
            await self._idle_end
        async with self._turn:
            await self._process.close()

    # --- one batch ---

    async def _answer(self, pending: _Pending) -> None:
        deaths = 0
        while pending.left:
            async with self._turn:
                self._rest()
                try:
                    await self._running()
                    deaths = await self._one_frame(pending, deaths)
                except CannotRun as error:
                    for place in pending.left:
                        pending.answer(place, Answer("failed", text=str(error)))
                finally:
                    self._idle_later()
            pending.settle()

    async def _one_frame(self, pending: _Pending, deaths: int) -> int:
        """How often the process has ended outside of all policies by now."""
        places, jobs = pending.frame()
        if not jobs:
            return deaths
        outcome = await self._process.ask(pending.state, jobs)
        for place, answer in zip(places, outcome.answers, strict=False):
            self._noted(pending, place, answer)
        if outcome.culprit is not None:
            self._noted(pending, places[outcome.culprit], Answer("overran", text=outcome.why))
        elif outcome.why and not outcome.answers:
            if deaths + 1 >= DEATHS_IDLE_MAX:
                raise CannotRun(f"the process for policies {outcome.why}")
            return deaths + 1
        return 0

    def _noted(self, pending: _Pending, place: int, answer: Answer) -> None:
        pending.answer(place, answer)
        if answer.word == "overran":
            source = pending.sources[place]
            self._marks.overran(source, self._clock.boot())
            if left_s := self._left_s(source):
                pending.pass_over(source, Answer("marked", text=_marked(left_s)))

    def _left_s(self, source: str) -> float:
        return self._marks.left_s(source, self._clock.boot())

    # --- the process ---

    async def _running(self) -> None:
        if self._closed:
            raise CannotRun("policies are not asked any more: the node stops")
        if self._process.runs:
            return
        now = self._clock.boot()
        if now < self._rests_until:
            raise CannotRun("no process for policies could be started a moment ago")
        try:
            await self._process.start()
        except CannotRun:
            self._rests_until = now + REST_S
            raise

    def _rest(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _idle_later(self) -> None:
        if not self._closed:
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        self._idle = None
        self._idle_end = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        async with self._turn:
            if self._idle is None:
                await self._process.close()


def _job(verb: int, source: str, first: Any, second: Any) -> bytes:
    job = frames.packed((verb, source, first, second))
    if len(job) > JOB_BYTES_MAX:
        raise ValueError(_TOO_LARGE)
    return job


def _marked(left_s: float) -> str:
    return f"overran twice within a minute; asked again in {left_s:.0f} s, or when it changes"


def _fault_at(source: str, place: int, message: str) -> SourceFault:
    before = source[:place]
    return SourceFault(before.count("\n") + 1, place - before.rfind("\n"), message)
