"""Policies without Lua. ports.Judge.

It knows sources of one line, `function(state, task) return 1 end` and the like, and what it has been taught. A source that
it does not know does not compile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quvatlh.ports import Announcement, Clock, CodeKind, Judge, Question, SourceFault, Verdict
from tests.fakes.clock import FakeClock

ALWAYS = "function(state, task) return true end"
NEVER = "function(state, task) return false end"
FAILING = "function(state, task) error('no luck') end"
ENDLESS = "function(state, task) while true do end end"
BROKEN = "function(state, task) return end end"

Policy = Callable[[Mapping[str, Any], Mapping[str, Any]], Verdict]
Announcer = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], Announcement]

MARK_S = 60.0
_LINE = re.compile(
    r"(?:return\s+|\w+\s*=\s*)?function\s*\(\s*state\s*,\s*task\s*(?:,\s*action\s*)?\)\s*"
    r"(?:return\s+(?P<value>(?!end\b)[\w.+-]+|\{\s*\})|error\('(?P<error>[^']*)'\)|(?P<endless>while true do end))\s+end\s*"
)
OVERRAN = Verdict("overran", text="ran over 10 ms of its own time")


def bid(score: float = 1.0) -> Policy:
    return lambda _state, _task: Verdict("bid", score)


class FakeJudge:
    """`asked` counts how often each source was run."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.closed = False
        self._clock = clock or FakeClock()
        self._policies: dict[str, Policy] = {}
        self._announcers: dict[str, Announcer] = {}
        self._overruns: dict[str, list[float]] = {}

    def teach(self, source: str, policy: Policy) -> None:
        """What a source shall answer from now on."""
        self._policies[source] = policy

    def teach_announce(self, source: str, announcer: Announcer) -> None:
        self._announcers[source] = announcer

    async def check(self, source: str, kind: CodeKind) -> SourceFault | None:
        known = self._announcers if kind == "announce" else self._policies
        if source in known or _LINE.fullmatch(source):
            return None
        return SourceFault(1, 1, "not a source that the fake knows")

    async def judge(self, state: Mapping[str, Any], questions: Sequence[Question]) -> Sequence[Verdict]:
        return [self._verdict(state, question) for question in questions]

    async def announce(
        self, source: str, state: Mapping[str, Any], task: Mapping[str, Any], action: Mapping[str, Any]
    ) -> Announcement:
        if (announcer := self._announcers.get(source)) is not None:
            return announcer(state, task, action)
        verdict = self._verdict(state, Question(source, task))
        if verdict.word != "failed" or verdict.text:
            return Announcement(None, verdict.text or "announce answered no table")
        return Announcement({})

    async def close(self) -> None:
        self.closed = True

    def _verdict(self, state: Mapping[str, Any], question: Question) -> Verdict:
        source = question.source
        if self._is_marked(source):
            return Verdict("marked", text="overran twice within a minute")
        self.asked[source] += 1
        cluster = {**state.get("cluster", {}), "group": question.group}
        policy = self._policies.get(source, _of_line(source))
        verdict = policy({**state, "cluster": cluster}, question.task)
        if verdict.word == "overran":
            self._overruns[source] = [*self._overruns.get(source, [])[-1:], self._clock.boot()]
        return verdict

    def _is_marked(self, source: str) -> bool:
        times = self._overruns.get(source, [])
        if len(times) < 2 or times[1] - times[0] > MARK_S:
            return False
        if self._clock.boot() - times[1] < MARK_S:
            return True
        del self._overruns[source]
        return False


def _of_line(source: str) -> Policy:
    found = _LINE.fullmatch(source)
    if found is None:
        verdict = Verdict("failed", text="line 1, column 1: not a source that the fake knows")
    elif found["endless"]:
        verdict = OVERRAN
    elif found["error"] is not None:
        verdict = Verdict("failed", text=f"line 1: {found['error']}")
    else:
        verdict = _of_value(found["value"])
    return lambda _state, _task: verdict


def _of_value(value: str) -> Verdict:
    if value in {"false", "nil"}:
        return Verdict("no_bid")
    if value == "true":
        return Verdict("bid", 1.0)
    if value.startswith("{"):
        return Verdict("failed")  # what `announce` may answer, and a policy may not
    try:
        return Verdict("bid", float(value))
    except ValueError:
        return Verdict("failed", text="line 1: answered neither number nor boolean")


def _is_a_judge() -> Judge:
    """Held by mypy."""
    return FakeJudge()
