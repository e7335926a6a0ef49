"""What readers get: rows as they are shown, decoded, with nothing left to look up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from quvatlh.core.books import Shape
from quvatlh.core.disciplines.htb import Full
from quvatlh.core.limits import LEASE_MS_DEFAULT
from quvatlh.core.model import (
    ActionState,
    HtbClass,
    LedgerOutcome,
    QueueSettings,
    Retry,
    ScheduleSpec,
    TaskSpec,
    TokenScope,
    Unique,
    WorkerFacts,
)
from quvatlh.core.rows import TaskRow


class ActionView(Struct, frozen=True):
    """One run: live, ended, or told from its task's row."""

    id: str
    task: str
    worker: str
    token: int
    attempt: int
    state: ActionState
    awarded_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    error_text: str | None = None
    result: bytes | None = None
    output_tail: bytes | None = None
    progress: dict[str, Any] | None = None
    announcement: dict[str, Any] | None = None
    lease_ms: int | None = None
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task: its row as it is now, and what it was asked for."""

    row: TaskRow
    spec: TaskSpec
    shape: Shape
    queue: QueueSettings
    """What holds where the task says nothing."""
    actions: tuple[ActionView, ...] = ()
    """The live ones and the last ten; in lists the first ten that are live."""

    @property
    def retry(self) -> Retry:
        """As an end would be judged now."""
        return self.spec.retry or self.queue.retry or Retry()

    @property
    def lease_ms(self) -> int:
        """Of an award that would be made now."""
        return self.spec.lease_ms or self.queue.lease_ms or LEASE_MS_DEFAULT

    @property
    def unique(self) -> Unique | None:
        """A queue's counts for what was added under it."""
        return self.spec.unique or (self.queue.unique if self.row.unique_key is not None else None)


class Page(Struct, frozen=True):
    """Some of a list. `cursor` goes on, also where a page ended early; None at the end."""

    items: tuple[TaskView, ...]
    cursor: str | None
    total: int | None
    """None: not counted in time, or more than are counted."""


class Group(Struct, frozen=True):
    value: str | None
    count: int
    parts: tuple[int, ...] = ()
    """When they ended, as far as that was asked: so many in each part of a stretch of time."""


class Groups(Struct, frozen=True):
    groups: tuple[Group, ...]
    cursor: str | None
    """Time ran out here, and there are more; None: all were counted."""
    cut_off: bool = False
    """There are more values than are told."""


class QueueView(Struct, frozen=True):
    name: str
    settings: QueueSettings
    counts: dict[str, int]
    live: int
    oldest_pending_at: int | None
    rate_free_at: int | None
    """When the next start is allowed, if not now; None without a rate."""
    reranking: bool


class WorkerView(Struct, frozen=True):
    name: str
    session: str | None
    state: str
    """up, draining, lost"""
    facts: WorkerFacts
    live: int
    slots_taken: int


class SessionView(Struct, frozen=True):
    id: str
    worker: str
    secret_hash: bytes
    directory: str
    isolated: bool
    opened_at: int
    floor: int
    ended: bool


class ClockJump(Struct, frozen=True):
    """The last one that a master has told of."""

    at: int
    """By log time."""
    node: str
    by_ms: int
    """Ahead, or back where it is negative."""
    behind_ms: int
    """How far the clocks were behind log time then."""


class ScheduleView(Struct, frozen=True):
    name: str
    spec: ScheduleSpec
    version: int
    next_at: int | None
    last_slot: int | None
    last_task: str | None
    payload: bytes | None
    payload_json: bool


class LedgerRow(Struct, frozen=True):
    ordinal: int
    slot: int
    at: int
    outcome: LedgerOutcome
    task: str | None
    why: str | None
    manual: bool


class PolicyView(Struct, frozen=True):
    name: str
    version: int
    source: str
    at: int


class TokenView(Struct, frozen=True):
    name: str
    hash: bytes
    scope: TokenScope
    at: int

    def holds_at(self, now_ms: int) -> bool:
        return self.scope.expires_at is None or self.scope.expires_at > now_ms


class AnnouncementView(Struct, frozen=True):
    task: str
    action: str
    group: str
    name: str
    worker: str
    at: int
    data: dict[str, Any]


class OwnedView(Struct, frozen=True):
    """A live action, and what its task is called; queue and group as it was awarded."""

    action: ActionView
    name: str
    group: str
    queue: str
    kind: Literal["job", "service"]


class OwnedPage(Struct, frozen=True):
    items: tuple[OwnedView, ...]
    last: int | None
    """The token after which it goes on; None at the end."""
    total: int


class ClassView(Struct, frozen=True):
    name: str
    settings: HtbClass


class ExplainFacts(Struct, frozen=True):
    """What the tables know of why a task does not run; the market adds what only it knows."""

    task: TaskView
    queue: QueueView
    position: int | None
    """Ready tasks of its queue before it, counted up to 10,000."""
    holders: tuple[str, ...]
    """Tasks whose actions fill the limit that holds it."""
    held_by: tuple[str, ...]
    """paused, queue_limit, key_limit, rate, limit, unique, schedule, retry: all that apply."""
    until: int | None
    """When a wait for a time ends."""
    full: Full | None = None
    """The class that has as much as it may."""
