"""Policies: a person's Lua, asked whether a worker wants a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

CodeKind = Literal["policy", "announce"]


@dataclass(frozen=True, slots=True)
class SourceFault:
    """Why a source cannot be taken. Lines and columns count from 1."""

    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


@dataclass(frozen=True, slots=True)
class Question:
    """One task before one policy."""

    source: str
    task: Mapping[str, Any]


Word = Literal["bid", "no_bid", "failed", "overran", "marked"]
"""It bids; it does not; it raised an error or answered neither number nor boolean; it passed its bounds of time or memory;
it was not asked, since it did so twice within a minute."""


@dataclass(frozen=True, slots=True)
class Verdict:
    word: Word
    score: float = 0.0
    """Of a bid; `true` is 1."""
    text: str = ""
    """Of failed, overran, marked: message with line, for people."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What `announce` returned, or why there is nothing."""

    table: Mapping[str, Any] | None
    fault: str = ""


class Judge(Protocol):
    """Runs policies, each within its bounds, none able to hold up or harm anything else. Sources are compiled once."""

    async def check(self, source: str, kind: CodeKind) -> SourceFault | None:
        """Whether it compiles and gives one function. Nothing of it is called."""
        ...

    async def judge(self, state: Mapping[str, Any], questions: Sequence[Question]) -> Sequence[Verdict]:
        """One verdict a question, in order. Never raises for what a policy does."""
        ...

    async def announce(
        self, source: str, state: Mapping[str, Any], task: Mapping[str, Any], action: Mapping[str, Any]
    ) -> Announcement: ...

    async def close(self) -> None: ...
