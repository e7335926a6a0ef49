"""Segments of NDJSON to the nodes, each repeated whole under its own key until every cut of it has a final answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from quvatlh.client import errors
from quvatlh.client.errors import Fault, Problem, Unavailable, Unknown
from quvatlh.client.http import EVENTS, Answer, Http, Request
from quvatlh.client.segments import Segment

SEGMENT_S = 60.0
"""In which a segment must be through, tries included."""
_LINE = re.compile(r"^lines\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Cut:
    first: int
    """Number of its first task in the whole text, from 0; lines without a task have none."""
    end: int
    """Exclusive."""
    ids: list[str]
    existing: Mapping[int, Literal["id", "unique"]]
    """By number in the whole text."""
    index: int | None
    problem: Problem | None
    """None: all of it was added."""


class Upload:
    """One text; the keys of its segments are counted."""

    def __init__(self, http: Http, key: str) -> None:
        self._http = http
        self._key = key
        self._sent = 0
        self._tasks = 0

    async def send(self, segment: Segment) -> AsyncIterator[Cut]:
        """A failure that repeating did not mend is raised after the cuts that were answered."""
        request = Request(
            "POST",
            EVENTS,
            body=segment.body,
            content_type="application/x-ndjson",
            key=f"{self._key}-{self._sent}",
            deadline_s=max(self._http.options.deadline_s, SEGMENT_S),
        )
        last: list[Cut] = []

        def judge(answer: Answer) -> None:
            last[:] = self._cuts(answer)
            for cut in last:
                if isinstance(cut.problem, Unavailable | Unknown):
                    raise cut.problem

        failure: Problem | None = None
        try:
            await self._http.ask(request, judge)
        except Problem as problem:
            failure = problem
        for cut in last:
            yield cut
        if failure is not None:
            raise failure
        self._sent += 1
        self._tasks = last[-1].end if last else self._tasks

    def _cuts(self, answer: Answer) -> list[Cut]:
        try:
            return [self._cut(msgspec.json.decode(line), answer.url) for line in answer.body.splitlines() if line]
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            errors.not_ours(answer.url, "no lines of JSON")

    def _cut(self, line: Mapping[str, Any], url: str) -> Cut:
        start = self._tasks
        first, end = int(line["from"]) + start, int(line["to"]) + start
        problem = None
        if "problem" in line:
            document = line["problem"]
            problem = errors.from_document(document, int(document.get("status", 500)), url=url)
            problem.errors = tuple(Fault(self._moved(fault.path), fault.message) for fault in problem.errors)
        existing = {int(position) + start: how for position, how in line.get("existing", {}).items()}
        return Cut(first, end, line.get("ids", []), existing, line.get("index"), problem)

    def _moved(self, path: str) -> str:
        return _LINE.sub(lambda match: f"lines[{int(match[1]) + self._tasks}]", path)
