"""What the doors of a node (HTTP today) need of the pool of tasks: one Protocol, and the four kinds of no.

Values are plain: dicts and lists of the shapes of DESIGN.md section 9, but each time and duration is an integer of
milliseconds under its name with `_ms` (`created_at_ms`, `at_ms`, `eta: {at_ms, low_ms, high_ms}`), and what a producer
gave of a task stands together under `spec`, as `core.model.TaskSpec` is written: the door fills in defaults and knows how
things look on the wire. What a person may have written wrong is the door's business too: what arrives here has been
checked. What is decided here: order, identity, promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NotRequired, Protocol, TypedDict

from quvatlh.core.filters import TaskFilter
from quvatlh.core.model import Role, TaskSpec
from quvatlh.core.owned import OwnedBy, OwnedFilter
from quvatlh.core.rejections import STATUS as REJECTED_BY_CORE
from quvatlh.core.rejections import FieldError
from quvatlh.core.scopes import Scope
from quvatlh.service.pullpool import Pull
from quvatlh.service.timetable import Timetable

if TYPE_CHECKING:
    from quvatlh.service.queueing import Queueing
    from quvatlh.service.watching import Watching
    from quvatlh.service.wire import Line

Json = dict[str, Any]

UNAVAILABLE: Final = {"rate_limited": 429, "no_master": 503, "disk_full": 503, "stopping": 503}
REJECTED: Final = {code: status for code, status in REJECTED_BY_CORE.items() if code not in UNAVAILABLE}
CODES: Final[Mapping[str, int]] = {**REJECTED, **UNAVAILABLE, "unknown": 504, "broken": 500}
"""The closed list of DESIGN.md 3.4: every code, and its status in HTTP. The one place where it stands whole."""

DEADLINE_MS: Final = 5000
RETRY_AFTER_S: Final = 1.0


class Problem(Exception):
    """A no. One of the four kinds below, never this class itself."""

    def __init__(self, code: str, detail: str, errors: Sequence[FieldError] = ()) -> None:
        if code not in self.codes:
            raise ValueError(f"{code} is not a code of {type(self).__name__}")
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)

    codes: Mapping[str, int] = {}

    @property
    def status(self) -> int:
        return self.codes[self.code]


class Rejected(Problem):
    """The request is at fault, or the present state forbids it. Nothing was changed; the same again gets the same."""

    codes = REJECTED


class Unavailable(Problem):
    """Certainly not done, now or later. Asking again is safe."""

    codes = UNAVAILABLE

    def __init__(self, code: str, detail: str, retry_after_s: float = RETRY_AFTER_S) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s


class Unknown(Problem):
    """It may have happened, or may yet happen. Ask again under the same id or Idempotency-Key."""

    codes: Mapping[str, int] = {"unknown": 504}

    def __init__(self, detail: str) -> None:
        super().__init__("unknown", detail)


class Broken(Problem):
    """A bug, or a broken disk. The node says so and stops."""

    codes: Mapping[str, int] = {"broken": 500}

    def __init__(self, detail: str) -> None:
        super().__init__("broken", detail)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whose token it is. What its role may do is judged where a request comes in (api/access.py); what lies in its scope,
    wherever tasks are read or changed (scoping.py)."""

    name: str
    role: str
    queues: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ("*",)
    """Globs, as core/scopes.py reads them."""
    mark: str = ""
    """Of this one token: another that gets its name later is another."""
    expires_at_ms: int | None = None

    @property
    def scope(self) -> Scope | None:
        """None: everything."""
        if "*" in self.queues and "*" in self.groups:
            return None
        return Scope(self.queues, self.groups)


class Until(NamedTuple):
    """An end, as a time, or from now on; neither: there is none."""

    at_ms: int | None = None
    in_ms: int | None = None


NEVER: Final = Until()


class RequestKey(NamedTuple):
    """The name under which a write is remembered for 24 h, with its answer."""

    token: str
    """Name and mark: answers are for who got them, not for who is called the same."""
    route: str
    id: str
    digest: bytes
    """Of what was asked, 16 bytes: something else under the same name is Rejected(conflict)."""


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks, and how long he waits."""

    principal: Principal
    deadline_ms: int = DEADLINE_MS
    consistent: bool = False
    """A read behind a barrier: it sees every write that was answered before it, on any node."""
    key: RequestKey | None = None
    """None: the pool makes a request id of its own, so that its own repeats count once."""
    turn: asyncio.Lock | None = None
    """ADDs that share one reach the log in the order of their calls, whatever each of them takes to be prepared."""


class NewTask(TypedDict):
    """One checked task. What was not given is absent: defaults are the core's."""

    spec: Json | TaskSpec
    """What `msgspec.convert` takes as a TaskSpec: a map, or one already."""
    id: NotRequired[str]
    """Chosen by the producer."""
    at_ms: NotRequired[int]
    """A time; or `delay_ms` from the ADD, never both."""
    delay_ms: NotRequired[int]
    expires_ms: NotRequired[int]
    """A time; or `expires_in_ms` from the ADD, never both."""
    expires_in_ms: NotRequired[int]
    payload: NotRequired[bytes]
    payload_json: NotRequired[bool]
    """Whether `payload` is the text of a JSON value; absent: it is."""


@dataclass(frozen=True, slots=True)
class Added:
    ids: Sequence[str]
    """`ids[i]` is the task that stands for `tasks[i]`."""
    index: int
    existing: Mapping[int, str]
    """Position -> `id` or `unique`, where an older task stands for it."""


@dataclass(frozen=True, slots=True)
class Done:
    matched: int
    done: int
    index: int
    over: int = 0
    """delete: of those done, so many were over before, and stay as they are."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a verb does beyond its name."""

    verb: Verb
    to: str | None = None
    """relocate: the worker to go to; None: away from where it is."""
    queue: str | None = None
    """retry: the queue to run in; None: each in its own."""
    changes: Json | None = None
    """update: a map that `msgspec.convert` takes as `core.commands.TaskChanges`; times are absolute."""


@dataclass(frozen=True, slots=True)
class Balanced:
    """The least moves that even a group's load over the workers that may run it."""

    moves: Sequence[Json]
    """`{task, from, to}`"""
    index: int | None
    """None of a plan (`dry_run`)."""


class Bulk(NamedTuple):
    """More matched than one entry takes: it is worked off, and `Pool.bulk` tells how far."""

    id: str


Sort = Literal["created_at", "at", "finished_at", "priority"]
GroupBy = Literal["state", "queue", "group", "name", "worker", "key", "error"]
Verb = Literal["delete", "kill", "retry", "relocate", "update"]
Output = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class TaskQuery:
    wanted: TaskFilter
    sort: Sort = "created_at"
    descending: bool = False
    limit: int = 100
    cursor: str | None = None
    eta: bool = False


class Page(NamedTuple):
    items: Sequence[Json]
    next: str | None
    total: int | None


class Groups(NamedTuple):
    """Tasks by one of their fields: `{value, count}`, most first; `parts`, where they were asked for: how many ended in
    each equal part of the time from `finished_after` to `finished_before`, or now."""

    groups: Sequence[Json]
    partial: bool
    """Not all were counted: the time of one read was over, or there are too many values. The youngest tasks were."""


class LogOutput(NamedTuple):
    """What an action wrote. With `tail_only` this is what travelled with the finish, and no more is to be had."""

    chunks: AsyncIterator[bytes]
    tail_only: bool
    action: str | None = None
    """Whose it is; None where nothing has run yet."""
    offset: int = 0
    """Of the first byte, in all that the action wrote: what stood before it was not asked for, or is no longer kept."""
    is_there: bool = True
    """Its worker can be asked; where only the tail is left, that worker does not keep the rest."""
    bytes_all: int | None = None
    """Of all that it wrote, once it has ended. `chunks` end where something is not kept, and what comes behind it is had by
    asking again: so an offset always counts what was written."""


class LargeResult(NamedTuple):
    """A result that is a file of the worker that made it."""

    size_bytes: int
    worker: str
    chunks: AsyncIterator[bytes]
    """Raises BrokeOff."""
    is_packed: bool = False
    """In msgpack, not in JSON."""


class BrokeOff(Exception):
    """An answer that has begun cannot be brought to its end: who has the rest of it went away."""


@dataclass(frozen=True, slots=True)
class Backup:
    index: int
    chunks: AsyncIterator[bytes]
    size_bytes: int | None = None
    """Of all chunks, where it is known before they are read."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the stream of events. After all events of an entry: n = N_MAX."""

    index: int
    n: int


N_MAX: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class StreamEvent:
    index: int
    n: int
    kind: str
    """`task.added` ...: the public kinds of core/events.py."""
    data: Json
    """id, state, what changed; `queue` and `group` where the object has them."""


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    code: Literal["no_master", "disk_full", "stopping"] = "no_master"
    detail: str = ""
    """What is missing, for people; of a ready node, what does not go (then `code` says so too)."""


class Metric(NamedTuple):
    name: str
    """With its unit, without the prefix `quvatlh_`; counters end in `_total`."""
    kind: Literal["counter", "gauge"]
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


class Market(Protocol):
    """What a door may ask beyond tasks themselves: placement, workers, policies. Same rules as Pool."""

    async def balance(self, call: Call, group: str, most: int | None, *, dry_run: bool) -> Balanced:
        """Rejected(not_found) for a group without tasks. Moves of more than `most` are left for the next time."""
        ...

    async def explain(self, call: Call, task_id: str) -> Json:
        """`{state, reason, text, change, position, holders, workers: [{name, verdict, detail, score}], eta}`, as section 9
        says; the score of its policy's bid, None without one. Of a task that was given away by policies: who had said what
        (`bid` or `policy`) when it was."""
        ...

    async def workers(self, call: Call) -> Sequence[Json]:
        """`{name, node, role, state, tags, adapters, slots, free, queues, facts, load}`, by name. Of one that does not tell
        its load it is None, else `{cpu_load, memory_free_bytes, memory_total_bytes, disk_free_bytes}`."""
        ...

    async def worker(self, call: Call, name: str) -> Json: ...

    async def worker_load(self, call: Call, name: str) -> Json:
        """`{step_ms, cpu: [percent or None], memory: [percent or None]}`, oldest first, at most an hour until now."""
        ...

    async def patch_worker(self, call: Call, name: str, changes: Json) -> Json:
        """Any of `tags, queues, slots, draining` -> the worker as it is then."""
        ...

    async def announcements(self, call: Call, group: str | None) -> Sequence[Json]:
        """`{task, action, group, name, worker, at_ms, data}` of the live actions that have one."""
        ...

    async def owned(self, call: Call, wanted: OwnedFilter, limit: int, cursor: str | None) -> Page:
        """Live actions in the order of their awards: each as `actions` tells it, with its task's `name, group, queue, kind`.
        The total is exact."""
        ...

    async def count_owned(self, call: Call, wanted: OwnedFilter, by: OwnedBy) -> Groups:
        """How many live actions each has: exact."""
        ...

    async def policies(self, call: Call) -> Sequence[Json]:
        """`{name, version, digest, at_ms}`, by name."""
        ...

    async def policy(self, call: Call, name: str) -> Json:
        """With its `source`."""
        ...

    async def put_policy(self, call: Call, name: str, source: str) -> Json:
        """A new version, or the same one if nothing changed. Rejected(invalid) with line and column of what does not
        compile."""
        ...

    async def delete_policy(self, call: Call, name: str) -> None:
        """Rejected(not_empty) while a task that is listed, or a schedule, names it as policy or announce."""
        ...

    async def reload_worker(self, call: Call, name: str, environment: str | None) -> Json:
        """Its environments, or the one, begin anew as their processes finish what they do: `{worker, environments}`."""
        ...

    async def test_policy(
        self, call: Call, source: str, task: str | NewTask, worker: str | None, states: Sequence[Json] | None = None
    ) -> Sequence[Json]:
        """What the live workers (or the one) would answer for a task that stands, or one that might; nothing runs:
        `{worker, verdict, score, text, state}`, the state as its policy saw it. With `states` those are judged instead."""
        ...


class Pool(Market, Timetable, Pull, Protocol):
    """The one way from a door to the cluster. Any node takes any call.

    Each coroutine raises one of the four Problems, and nothing else that is not a bug. A call may be cancelled (its
    client went away): a read ends, a write's outcome is then unknown and no damage is done. What iterates is closed
    (`aclose`) by who asked for it.
    """

    @property
    def queueing(self) -> Queueing:
        """What is set up rather than added: queues, and classes of queues."""
        ...

    @property
    def watching(self) -> Watching:
        """For people who watch: sessions, what changed, the last hour."""
        ...

    def authenticate(self, bearer: str) -> Principal | None:
        """By the replicated table of hashed tokens, as this node has it; takes no longer for a near miss. Unavailable
        where it is unknown here, and this node may not know all that the cluster does."""
        ...

    def readiness(self) -> Readiness: ...

    def metrics(self) -> Sequence[Metric]: ...

    async def add(self, call: Call, tasks: Sequence[NewTask]) -> Added:
        """One entry, all or nothing, in order. 1 to ADD_TASKS_MAX tasks."""
        ...

    async def act(self, call: Call, turn: Turn, which: Sequence[str] | TaskFilter) -> Done | Bulk:
        """A verb over ids, where an unknown one is Rejected(not_found) with all of them in `errors`; or over a filter."""
        ...

    async def bulk(self, call: Call, bulk_id: str) -> Json:
        """`{id, matched, done, state: working|done}`, `over` as of Done where there are such."""
        ...

    async def tasks(self, call: Call, query: TaskQuery) -> Page: ...

    async def groups(self, call: Call, wanted: TaskFilter, by: GroupBy, parts: int | None = None) -> Groups:
        """With `parts`: only what has ended, since the `finished_after` that is named, and when."""
        ...

    async def task(self, call: Call, task_id: str, wait_ms: int = 0) -> Json:
        """As it is when it has finished (a service: runs), or the wait is over: `{id, spec, state, created_at_ms, at_ms,
        expires_ms, started_at_ms, finished_at_ms, attempts, eta, error, result, actions}`, a service also `wanted, live`;
        `spec` with the `retry`, `lease_ms` and `unique` that hold, the task's own or its queue's; here, not in lists, `payload`
        (bytes) and `payload_json` too, the actions that ended, all that are live, and the result."""
        ...

    async def actions(self, call: Call, task_id: str) -> Sequence[Json]:
        """The live ones and the last hundred that ended, oldest first."""
        ...

    async def result(self, call: Call, task_id: str) -> object:
        """The value the task succeeded with; bytes as they are; a LargeResult where that is a file of a worker.
        Rejected(conflict) while there is none yet, it failed, or that worker cannot be asked; gone where it does not keep
        it any more."""
        ...

    async def log(
        self, call: Call, task_id: str, output: Output, action: str | None, *, follow: bool, offset: int = 0
    ) -> LogOutput:
        """Of the named action, else the last one, from the byte at `offset` on. With `follow` it goes on until the action
        has ended."""
        ...

    async def events(self, call: Call, since: Position | None) -> AsyncIterator[StreamEvent]:
        """What happens after `since`, or from now on, without end. Rejected(gone) at once when that is no longer kept,
        and from the iterator when its reader fell so far behind."""
        ...

    async def cluster(self, call: Call) -> Json: ...

    async def add_member(self, call: Call, member: Mapping[str, str]) -> Json:
        """`{id, name, peer, http}` -> the cluster as it is then."""
        ...

    async def remove_member(self, call: Call, member_id: str) -> Json: ...

    async def backup(self, call: Call) -> Backup: ...

    async def connect(self, call: Call, line: Line) -> None:
        """A worker of role `worker` on a WebSocket, for as long as it stays. Rejected(forbidden) at once for other tokens."""
        ...

    async def tokens(self, call: Call) -> Sequence[Json]:
        """`{name, role, queues, groups, created_at_ms, expires_at_ms, expired, revoked_at_ms}`; never the token itself."""
        ...

    async def token(self, call: Call, name: str) -> Json: ...

    async def add_token(self, call: Call, name: str, role: Role, scope: Scope, until: Until = NEVER) -> Json:
        """As `token` tells it, and its `secret`, which nobody can be told again. Rejected(conflict) for a name in use,
        (invalid) for an end that is over already."""
        ...

    async def revoke_token(self, call: Call, name: str) -> None:
        """For good: its sessions, streams and connections end within a second, on every node. Rejected(conflict) for the
        last of role admin that does not expire."""
        ...
