"""Policies: a person's Lua, asked whether a worker wants a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict

CodeKind = Literal["policy", "announce"]


class ActionCounts(TypedDict):
    """Live actions of this worker, those that it has bid for or claimed among them."""

    total: int
    group: dict[str, int]
    queue: dict[str, int]
    name: dict[str, int]
    """By the task's name; of tasks with the same name in different groups together."""


class WorkerState(TypedDict):
    """The worker that the policy runs on. What is not known is left out or None: nil in Lua."""

    name: str
    tags: list[str]
    """As tasks see them: `worker=NAME` and `node=NAME` too."""
    slots: int
    free: int
    cpu_load: float
    """Share of all its processors that is busy, 0 to 1."""
    memory_free_bytes: int
    memory_total_bytes: int
    disk_free_bytes: int
    """Of the data directory."""
    actions: ActionCounts
    adapters: list[str]
    facts: dict[str, Any]


class ClusterState(TypedDict):
    workers: int
    """That are up."""
    group: dict[str, int]
    """Live actions of the task's group by worker. The Judge takes it from each Question, which is of one group."""
    queues: dict[str, int]
    """Tasks that wait, by queue."""


class PolicyState(TypedDict):
    """The `state` of a policy. A Mapping of this shape is what a Judge is given."""

    worker: WorkerState
    cluster: ClusterState
    now: int
    """Milliseconds since 1970 UTC."""


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
    group: Mapping[str, int] = field(default_factory=dict)
    """Live actions of the task's group by worker: `state.cluster.group`."""


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
    """Runs policies, each within its bounds, none able to hold up or harm anything else. Sources are compiled once.

    States, tasks and actions are plain data: None, booleans, numbers, text, bytes, lists and mappings with text as keys.
    """

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
