"""The vocabulary of DESIGN.md section 2 as frozen values: what a task, a queue, a worker, a schedule is made of.

A field states its default and its bound in its type, so that no value that decodes can do harm. What only a person can
get wrong (characters of a name, two kinds of work at once) is judged at the door. Times are absolute
milliseconds, durations milliseconds, factors thousandths: nothing that decides is a float.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from quvatlh.core import limits

Id = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
Text = Annotated[str, Meta(max_length=limits.TEXT_CHARS_MAX)]
TimeMs = Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)]
SpanMs = Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Signed = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Serial = Annotated[int, Meta(ge=0, le=limits.INTEGER_MAX)]
Chance = Annotated[int, Meta(ge=0, lt=2**32)]
"""A number drawn by the master; what becomes of it is decided in apply."""
Weight = Annotated[int, Meta(ge=1, le=1_000_000)]
LeaseMs = Annotated[int, Meta(ge=limits.LEASE_MS_MIN, le=limits.LEASE_MS_MAX)]
Names = Annotated[tuple[Name, ...], Meta(max_length=limits.LIST_ITEMS_MAX)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=limits.LIST_ITEMS_MAX)]
Argument = Annotated[str, Meta(max_length=limits.WORK_STRING_BYTES_MAX)]
Arguments = Annotated[tuple[Argument, ...], Meta(max_length=limits.WORK_NODES_MAX)]

TaskState = Literal["scheduled", "pending", "claimed", "running", "retrying", "succeeded", "failed", "deleted"]
ActionState = Literal["claimed", "running", "stopping", "succeeded", "failed", "stopped", "lost"]
WAITING: tuple[TaskState, ...] = ("scheduled", "pending", "retrying")
ACTIVE: tuple[TaskState, ...] = ("claimed", "running")
UNFINISHED: tuple[TaskState, ...] = (*WAITING, *ACTIVE)
FINISHED: tuple[TaskState, ...] = ("succeeded", "failed", "deleted")

Kind = Literal["job", "service"]
Delivery = Literal["at-least-once", "at-most-once"]
Adapter = Literal["command", "python", "warm", "http", "pull"]
UniqueWhile = Literal["queued", "active", "unfinished"]
WorkerState = Literal["up", "lost"]
Role = Literal["admin", "operator", "producer", "worker", "viewer"]
Overlap = Literal["allow", "skip", "queue", "replace"]
CatchUp = Literal["skip", "last", "all"]
LedgerOutcome = Literal["ran", "skipped"]
StopReason = Literal["kill", "delete", "relocate", "surplus"]


class Value(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A part of the vocabulary: written as a map without its defaults, so that fields may be added.

    Values hold no cycles, so the garbage collector is told to pass them by (`gc=False`): looking at those of a hundred
    thousand events took a third of all processor time, and stopped the loop for 100 ms."""


class Code(Value, frozen=True):
    """A Lua function: exactly one of its source and the name of a stored policy."""

    source: Annotated[str, Meta(min_length=1, max_length=limits.TEXT_CHARS_MAX)] | None = None
    name: Name | None = None


class Work(Value, frozen=True):
    """What to run: exactly one of command, shell, commands, python, http, warm, pull. The rest is its surroundings.

    Native commands are held to their bounds by `core.work.check`, before they come here; the types are no narrower.
    """

    command: Arguments | None = None
    shell: Argument | None = None
    commands: Annotated[tuple[Arguments, ...], Meta(max_length=limits.WORK_COMMANDS_MAX)] | None = None
    python: Text | None = None
    """`pkg.mod:function`"""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    environment: Name | None = None
    http: dict[str, Any] | None = None
    warm: dict[str, Any] | None = None
    pull: bool = False
    env: dict[str, Argument] = {}
    cwd: Argument | None = None
    user: Name | None = None
    stdin: Argument | None = None
    rlimits: dict[str, Serial] = {}

    @property
    def adapter(self) -> Adapter:
        """How an action of it is carried out; `command` also where nothing is named, which the door refuses."""
        if self.python is not None:
            return "python"
        if self.http is not None:
            return "http"
        if self.warm is not None:
            return "warm"
        return "pull" if self.pull else "command"


class Retry(Value, frozen=True):
    """How often and how soon an execution that ended by itself is repeated."""

    attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)] = limits.ATTEMPTS_DEFAULT
    backoff: Literal["exponential", "linear", "constant", "list"] = "exponential"
    delays_ms: Annotated[tuple[SpanMs, ...], Meta(max_length=limits.LIST_ITEMS_MAX)] = ()
    """For `list`: the waits in order, the last one repeated."""
    first_ms: SpanMs = limits.SECOND_MS
    factor_milli: Annotated[int, Meta(ge=1000, le=1_000_000)] = 2000
    max_ms: SpanMs | None = None
    """No wait is longer, with its jitter. None: an hour, and no bound for a `list`."""
    jitter_permille: Annotated[int, Meta(ge=0, le=1000)] = 100
    permanent_exit_codes: Annotated[tuple[Signed, ...], Meta(max_length=256)] = ()
    permanent_exceptions: Names = ()
    permanent_statuses: Annotated[tuple[Count, ...], Meta(max_length=256)] = ()


class Unique(Value, frozen=True, rename={"while_": "while"}):
    """One task of a key at a time. The key is the group's own; without one it is made of the task."""

    key: Name | None = None
    while_: UniqueWhile = "unfinished"
    for_ms: Annotated[int, Meta(ge=1, le=limits.TIME_MS_MAX)] | None = None
    """A duration from the ADD, instead of `while`."""


class Stop(Value, frozen=True):
    """How an action is asked to end, and how long it may take before KILL."""

    signal: Name = "TERM"
    grace_ms: SpanMs = 10 * limits.SECOND_MS


class Notify(Value, frozen=True):
    """Who is told of an end: exactly one of url and command."""

    url: Annotated[str, Meta(max_length=limits.URL_CHARS_MAX)] | None = None
    command: Texts | None = None
    on: tuple[TaskState, ...] = ("succeeded", "failed")


class Keep(Value, frozen=True):
    """How long finished tasks stay listed: until older, or not among the last."""

    age_ms: SpanMs = limits.KEEP_MS_DEFAULT
    count: Serial = limits.KEEP_MAX_DEFAULT


class TaskSpec(Value, frozen=True):
    """A task as it was asked for (3.1). Id, payload and absolute times stand beside it in `commands.NewTask`."""

    work: Work
    name: Name | None = None
    """None: the id, and the task has no namesake."""
    group: Name = "default"
    kind: Kind = "job"
    limit: Positive | None = None
    """None: no limit for a job, 1 for a service."""
    queue: Name = "default"
    queue_limit: Count | None = None
    """The limit of its queue from then on, if the task is new."""
    balancable: bool = True
    tags: Names = ()
    policy: Code | None = None
    announce: Code | None = None
    priority: Signed = 0
    key: Name | None = None
    cost: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    slots: Annotated[int, Meta(ge=0, le=1_000_000)] = 1
    retry: Retry | None = None
    """None: the queue's, and `Retry()` if that has none."""
    delivery: Delivery = "at-least-once"
    unique: Unique | None = None
    lease_ms: LeaseMs | None = None
    timeout_ms: SpanMs | None = None
    stop: Stop = Stop()
    notify: Notify | None = None
    keep_ms: SpanMs | None = None


class Rate(Value, frozen=True):
    """Starts in a span of time: `100/m` is 100 in 60,000 ms."""

    count: Positive
    per_ms: Annotated[int, Meta(ge=1, le=limits.DAY_MS)]


class QueueSettings(Value, frozen=True, rename={"class_": "class"}):
    """Everything of a queue that a person may change while it runs (section 4)."""

    discipline: Name = "priority"
    weight: Weight = 1
    limit: Count | None = None
    limit_per_key: Count | None = None
    limit_per_worker: Count | None = None
    rate: Rate | None = None
    burst: Positive | None = None
    """None: what the rate brings in a second, at least 1."""
    paused: bool = False
    unique: Unique | None = None
    retry: Retry | None = None
    lease_ms: LeaseMs | None = None
    keep: Keep = Keep()
    keep_failed: Keep = Keep(limits.KEEP_FAILED_MS_DEFAULT, limits.KEEP_FAILED_MAX_DEFAULT)
    workers: Names = ("*",)
    class_: Name | None = None
    key_weights: Annotated[dict[Name, Weight], Meta(max_length=limits.LIST_ITEMS_MAX)] = {}
    """Under sfq: of flows that weigh other than 1."""


class HtbClass(Value, frozen=True):
    """A node of the tree of queues; rates in thousandths, so that fractions of a slot add up exactly."""

    parent: Name | None = None
    rate_milli: Serial = 0
    ceil_milli: Serial | None = None
    burst: Count = 1
    priority: Signed = 0
    of: Literal["slots", "starts"] = "slots"


class WorkerFacts(Value, frozen=True):
    """What a worker says of itself; changed by its own word or a person's."""

    node: Name
    role: Literal["node", "worker", "pull"] = "node"
    tags: Names = ()
    adapters: tuple[Adapter, ...] = ("command",)
    slots: Count = 1
    queues: Names = ("*",)
    facts: dict[str, Any] = {}


class ScheduleSpec(Value, frozen=True):
    """A rule that adds tasks: exactly one of cron and every."""

    task: TaskSpec
    cron: Name | None = None
    every_ms: Annotated[int, Meta(ge=1, le=limits.TIME_MS_MAX)] | None = None
    zone: Name = "UTC"
    catchup: CatchUp = "last"
    overlap: Overlap = "skip"
    jitter_ms: SpanMs = 0
    paused: bool = False
    expires_in_ms: SpanMs | None = None
    """Of the task, from its slot on; None: it does not expire."""

    @property
    def in_turn(self) -> bool:
        """Its runs wait for each other: by its task's name, and a limit of 1."""
        return self.overlap == "queue" or (self.overlap != "allow" and self.catchup == "all")


class TokenScope(Value, frozen=True):
    """What a bearer of a token may do, on which queues and groups, and how long."""

    role: Role
    queues: Names = ("*",)
    groups: Names = ("*",)
    expires_at: TimeMs | None = None
    """From then on it is refused; None: it holds until it is revoked."""
