"""What one node asks of the master, and of another node, as records: one hop, and no further.

A request goes, not an entry: who is master then decides what stands in the entry (ids, times, whether a session is
silent). Versioned by a first byte, as the log's values are.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from quvatlh.core import limits
from quvatlh.core.commands import AnyCommand, Request
from quvatlh.core.model import Id, Name, Serial, SpanMs, TaskSpec, TimeMs, WorkerFacts
from quvatlh.core.results import Answer, Shift
from quvatlh.core.scopes import Scope
from quvatlh.ports import Word

HOUR_STEP_S = 5
HOUR_PAIR = 2
HOUR_BYTES = 3600 // HOUR_STEP_S * HOUR_PAIR
VERSION = 1
_PREFIX = bytes([VERSION])


class Draft(Struct, frozen=True, array_like=True, gc=False):
    """A task as it was asked for, before it has an id and absolute times."""

    spec: TaskSpec
    id: Id | None = None
    at_ms: TimeMs | None = None
    delay_ms: SpanMs | None = None
    expires_ms: TimeMs | None = None
    expires_in_ms: SpanMs | None = None
    payload: bytes | None = None
    payload_json: bool = True


class AddTasks(Struct, frozen=True, array_like=True, tag="add"):
    tasks: Annotated[tuple[Draft, ...], Meta(max_length=limits.ADD_TASKS_MAX)]


class Do(Struct, frozen=True, array_like=True, tag="do"):
    """A command that needs nothing of the master but its place in the log."""

    command: AnyCommand


class Open(Struct, frozen=True, array_like=True, tag="open"):
    """A session for an executor; whether the worker's old one is silent, the master knows."""

    worker: Name
    session: Name
    secret_hash: bytes
    directory: Name
    facts: WorkerFacts
    isolated: bool = False
    """The executor is a PID namespace: nothing of it outlives it."""
    fresh: bool = False
    """Started for this session: the directory's old executor is no more."""
    outlived: Name | None = None
    """The session before, if its executor was found alive after it was over."""


class Barrier(Struct, frozen=True, array_like=True, tag="barrier"):
    pass


class AddMember(Struct, frozen=True, array_like=True, tag="add_member"):
    id: str
    name: str
    peer: str
    http: str


class RemoveMember(Struct, frozen=True, array_like=True, tag="remove_member"):
    id: str


class RunSchedule(Struct, frozen=True, array_like=True, tag="run_schedule"):
    """Now, beside its slots."""

    name: Name


Wish = AddTasks | Do | Open | Barrier | AddMember | RemoveMember | RunSchedule


class Ask(Struct, frozen=True, array_like=True):
    wish: Wish
    request: Request | None
    deadline_s: float
    scope: Scope | None = None
    """Of who wishes, judged where he came in; what it means for tasks is decided as the entry is applied."""


class Told(Struct, frozen=True, array_like=True, tag="told"):
    """Done: applied on the master at `index`."""

    index: int
    answer: Answer


class No(Struct, frozen=True, array_like=True, tag="no"):
    """A ports.LogError on its way back."""

    kind: str
    code: str
    detail: str


Reply = Told | No


class Load(Struct, frozen=True, array_like=True):
    """Of a worker's machine, as it is now: ports.HostLoad."""

    cpu_load: float
    memory_free_bytes: int
    memory_total_bytes: int
    disk_free_bytes: int


class Beat(Struct, frozen=True, array_like=True):
    """A sign of life of a session, by who has its secret."""

    worker: Name
    session: Name
    secret: bytes = b""
    surplus_slots: int = 0
    """Taken by actions that still end here and count nowhere else any more."""
    held: tuple[Serial, ...] | None = None
    """Tokens of all that runs here: in the first beat to a master, or after a while apart. None: as before."""
    load: Load | None = None
    """None: it is not known."""
    hour: Annotated[bytes, Meta(max_length=HOUR_BYTES)] = b""
    """hostloads.Hour.told, where `held` is told."""


class BeatAnswer(Struct, frozen=True, array_like=True):
    """`known`: the session is the worker's own, and its leases begin anew at the beat. Else it is over."""

    known: bool
    foreign: tuple[Serial, ...] = ()
    """Actions whose leases do not begin anew: not the session's any more, or proposed lost. They end."""
    token: Serial = 0
    """The last one awarded to anybody."""


class Offer(Struct, frozen=True, array_like=True):
    """What a worker's policies made of a task: ports.Verdict, with the task it is about."""

    task: Serial
    word: Word
    score: float = 0.0
    text: Annotated[str, Meta(max_length=limits.ERROR_CHARS_MAX)] = ""


class Offers(Struct, frozen=True, array_like=True):
    """One worker's, all that it looked at in one go. What bids stands until the next offer of it for the task, the
    worker's next session, or the task's award; a master that is asked twice has heard it once."""

    worker: Name
    session: Name
    offers: tuple[Offer, ...]


class OutputAsk(Struct, frozen=True, array_like=True):
    action: str
    stderr: bool
    offset: int
    wait_s: float
    """0: what is there now."""
    worker: str = ""
    """Whose action it is; empty: the node's own."""


class OutputAnswer(Struct, frozen=True, array_like=True):
    data: bytes
    next_offset: int
    ended: bool
    """Nothing will come after this."""


class ResultAsk(Struct, frozen=True, array_like=True):
    """Of an action whose result is a file of its worker, what comes from `offset` on."""

    worker: Name
    action: str
    offset: int


class ResultAnswer(Struct, frozen=True, array_like=True):
    data: bytes
    size: int | None
    """Of all of it; None: there is no such file."""


class JudgeQuestion(Struct, frozen=True, array_like=True):
    source: str
    group: str
    task: dict[str, Any]


class JudgeAsk(Struct, frozen=True, array_like=True):
    """What a worker would make of tasks now: for `policy test`, balance. Nothing follows from it."""

    worker: Name
    questions: Annotated[tuple[JudgeQuestion, ...], Meta(max_length=1000)]
    shows_state: bool = False
    """The answer has the state that was judged, with the group of the first question."""


class JudgeAnswer(Struct, frozen=True, array_like=True):
    """In order; `task` in them is 0."""

    verdicts: tuple[Offer, ...]
    state: dict[str, Any] | None = None


class ReloadAsk(Struct, frozen=True, array_like=True):
    """New processes in place of those of an environment, or of all, as these finish what they do."""

    worker: Name
    environment: Name | None


class ReloadAnswer(Struct, frozen=True, array_like=True):
    environments: tuple[Name, ...]
    """Those that it was done for."""


class HeardAsk(Struct, frozen=True, array_like=True):
    """What the master has heard of a task from workers' policies, and of its queue from pull workers."""

    task: Serial
    queue: Name


class HeardAnswer(Struct, frozen=True, array_like=True):
    verdicts: dict[str, Offer]
    """By worker."""
    silent: tuple[str, ...] = ()
    """Workers that the master has not heard of late, whatever the table says yet."""
    claims: dict[str, int] = {}
    """By pull worker, the room of the largest claim that waits for something of the queue."""
    weighed: dict[str, Offer] = {}
    """By worker, what stood when the task was given away last."""


class BalanceAsk(Struct, frozen=True, array_like=True):
    group: Name
    most: int | None
    dry_run: bool
    deadline_s: float
    request: Request | None = None
    """Of who gave an Idempotency-Key: the plan is remembered under it."""


class BalanceAnswer(Struct, frozen=True, array_like=True):
    moves: tuple[Shift, ...]
    index: int | None
    no: No | None = None


class BulkAsk(Struct, frozen=True, array_like=True):
    id: str


class BulkAnswer(Struct, frozen=True, array_like=True):
    known: bool
    matched: int = 0
    done: int = 0
    working: bool = False
    over: int = 0


class Unreadable(ValueError):
    """Bytes that are no message of a version known here."""


class Form:
    """One kind of message as bytes."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, value: object) -> bytes:
        return _PREFIX + self._encoder.encode(value)

    def decode(self, data: bytes) -> Any:
        if data[:1] != _PREFIX:
            raise Unreadable("a message of another version")
        try:
            return self._decoder.decode(memoryview(data)[1:])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Unreadable(str(error)) from error


ASK, REPLY, BEAT, BEAT_ANSWER = Form(Ask), Form(Reply), Form(Beat), Form(BeatAnswer)
OUTPUT_ASK, OUTPUT_ANSWER, OFFERS = Form(OutputAsk), Form(OutputAnswer), Form(Offers)
RESULT_ASK, RESULT_ANSWER = Form(ResultAsk), Form(ResultAnswer)
JUDGE_ASK, JUDGE_ANSWER = Form(JudgeAsk), Form(JudgeAnswer)
RELOAD_ASK, RELOAD_ANSWER = Form(ReloadAsk), Form(ReloadAnswer)
HEARD_ASK, HEARD_ANSWER = Form(HeardAsk), Form(HeardAnswer)
BALANCE_ASK, BALANCE_ANSWER = Form(BalanceAsk), Form(BalanceAnswer)
BULK_ASK, BULK_ANSWER = Form(BulkAsk), Form(BulkAnswer)
