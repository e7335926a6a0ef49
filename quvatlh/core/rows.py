"""Rows of the task table as objects, for everything but the three hot statements, which know their columns themselves."""

from __future__ import annotations

from typing import ClassVar, Final, cast

import msgspec
from msgspec import Struct

from quvatlh.core.model import FINISHED, WAITING, ActionState, TaskSpec, TaskState


class Queued(Struct, gc=False):
    """What the market asks of a task that may be awarded. A row is read column by column, and these are less than half."""

    seq: int
    id: str
    service: int
    once: int
    grp: str
    name: str | None
    queue: str
    key: str | None
    lim: int | None
    shape: int
    slots: int
    rank: int
    lease_ms: int | None
    live: int
    resting: int
    cost: int
    flow: str | None
    turn: int

    @property
    def counted_name(self) -> str | None:
        """Under which name its actions are counted; None: under none (see tally.NameTally)."""
        if self.name is None and self.lim is None:
            return None
        return self.name or self.id


class TaskRow(Queued, gc=False):
    """A task on its way through one command. Whoever changes it hands it to `Unit.store`, which keeps the books."""

    chosen: int
    state: TaskState
    priority: int
    created_at: int
    at: int | None
    due_at: int | None
    expires_at: int | None
    expiry: int | None
    ready: int
    keep_ms: int | None
    unique_key: str | None
    unique_while: str | None
    spec: str | None
    attempts: int
    ended: int
    deaths: int
    running: int
    streak: int
    token: int
    worker: str | None
    started_at: int | None
    finished_at: int | None
    kept: int | None
    error: str | None
    error_text: str | None

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def waiting(self) -> bool:
        return self.state in WAITING

    @property
    def may_want_telling(self) -> bool:
        """Cheaper than to decode its spec: a text without the word has no such field; a long one stands elsewhere."""
        return self.spec is None or '"notify":' in self.spec


class FlowTask(Struct, gc=False):
    """A ready task as the market sees it in a queue that is fair by key."""

    seq: int
    rank: int
    cost: int
    once: int
    grp: str
    name: str | None
    plain: int
    """0: it is in no line, a limit or a lease of its own has a say, or it is a service."""
    lined: int
    key: str | None
    turn: int


class Candidate(Struct, gc=False):
    """What an award has to know of a job that goes the short way. A row is read column by column, and this is what there is
    of one that says nothing else."""

    seq: int
    id: str
    queue: str
    grp: str
    name: str | None
    key: str | None
    lim: int | None
    shape: int
    slots: int
    cost: int
    attempts: int
    ready: int
    live: int
    flow: str | None
    since: int
    """When it was to begin."""
    lease_ms: int | None
    spec: str | None
    is_short: int
    """0: a service, or with a unique key, an expiry or a keep of its own. So `service` and the like need not be read."""

    service: ClassVar[int] = 0
    expiry: ClassVar[int | None] = None
    unique_key: ClassVar[str | None] = None
    unique_while: ClassVar[str | None] = None

    @property
    def may_want_telling(self) -> bool:
        """As of a TaskRow."""
        return self.spec is None or '"notify":' in self.spec

    @property
    def counted_name(self) -> str | None:
        """As of a TaskRow."""
        if self.name is None and self.lim is None:
            return None
        return self.name or self.id


class Lined(Candidate, gc=False):
    """One that waits in a line, with what the market asks of it: a FlowTask as well."""

    once: int
    plain: int
    turn: int

    lined: ClassVar[int] = 1


Flowing = FlowTask | Lined


class Ending(Struct, gc=False):
    """What a success that goes the short way has to know of its live action."""

    token: int
    task: int
    worker: str
    session: str
    state: ActionState
    id: str
    queue: str
    grp: str
    name: str | None
    key: str | None
    lim: int | None
    awarded_at: int
    started_at: int | None


class LiveRow(Struct, gc=False):
    """An action that has not ended."""

    token: int
    task: int
    worker: str
    session: str
    state: ActionState
    stop: str | None
    id: str
    service: int
    plain: int
    queue: str
    grp: str
    name: str | None
    key: str | None
    lim: int | None
    slots: int
    attempt: int
    lease_ms: int
    awarded_at: int
    started_at: int | None
    announcement: str | None
    progress: str | None


TASK_COLUMNS: Final = TaskRow.__struct_fields__
TASK_SELECT: Final = f"SELECT {', '.join(TASK_COLUMNS)} FROM task"  # noqa: S608 - text of our own
QUEUED_SELECT: Final = f"SELECT {', '.join(Queued.__struct_fields__)} FROM task"  # noqa: S608 - text of our own
CANDIDATE_COLUMNS: Final = """
SELECT seq, id, queue, grp, name, key, lim, shape, slots, cost, attempts, ready, live, flow, coalesce(at, created_at),
    lease_ms, spec, service = 0 AND expiry IS NULL AND unique_key IS NULL AND keep_ms IS NULL"""
CANDIDATE_SELECT: Final = f"{CANDIDATE_COLUMNS} FROM task WHERE seq IN (SELECT value FROM json_each(?))"  # noqa: S608 - text of our own
LIVE_COLUMNS: Final = LiveRow.__struct_fields__
LIVE_SELECT: Final = f"SELECT {', '.join(LIVE_COLUMNS)} FROM live"  # noqa: S608 - text of our own
ENDING_SELECT: Final = f"""
SELECT {", ".join(Ending.__struct_fields__)} FROM live
WHERE plain = 1 AND token IN (SELECT value FROM json_each(?))"""  # noqa: S608 - text of our own

_FIXED: Final = frozenset(
    {"seq", "id", "chosen", "service", "once", "grp", "name", "key", "created_at", "unique_key", "cost"}
)
STORED_COLUMNS: Final = tuple(name for name in TASK_COLUMNS if name not in _FIXED)
STORE_TASK: Final = f"UPDATE task SET {', '.join(f'{name} = ?' for name in STORED_COLUMNS)} WHERE seq = ?"  # noqa: S608 - text of our own

_SPEC = msgspec.json.Decoder(TaskSpec)


def decode_spec(text: str) -> TaskSpec:
    """A spec as it stands in the table."""
    return _SPEC.decode(text)


def json_text(value: object) -> str | None:
    """Canonical JSON; None for what has no JSON form (a map with odd keys, an extension type, too deep)."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, OverflowError):
        return None


def json_list(values: object) -> str:
    """Numbers or names for `json_each`: one prepared statement for any number of them."""
    return msgspec.json.encode(values).decode()


def task_row(columns: object) -> TaskRow:
    return TaskRow(*cast("tuple", columns))  # type: ignore[type-arg]


def queued(columns: object) -> Queued:
    return Queued(*cast("tuple", columns))  # type: ignore[type-arg]


def live_row(columns: object) -> LiveRow:
    return LiveRow(*cast("tuple", columns))  # type: ignore[type-arg]
