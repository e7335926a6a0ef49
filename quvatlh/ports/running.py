"""Actions carried out on this machine: by a runner, inside an executor that outlives the daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec import Struct

from quvatlh.core.work import Work


class ActionSpec(Struct, frozen=True, array_like=True, gc=False):
    """One action as its runner needs to know it. Ids are the task table's; the runner gives them no meaning."""

    id: str
    """1 to 128 of `A-Z a-z 0-9 . _ : -`, the first a letter or digit: it names the directory of the outputs."""
    task_id: str
    attempt: int
    fence: int
    worker: str
    work: Work
    payload: bytes | None = None
    timeout_s: float | None = None
    """From the start; then the action is stopped, with its grace."""
    stop_signal: str = "TERM"
    grace_s: float = 10.0
    """Between that signal and KILL, for the whole process tree."""
    seq: int = 0
    slots: int = 1
    """Both of no meaning to who runs it; given back in HeldAction."""
    lease_s: float = 2.0
    """Counted by an executor from the last answered beat. A runner knows nothing of it."""
    width: int = 0
    """Slots of the worker: an executor begins it when it and all that runs take no more. 0: at once, whatever runs."""
    wait_s: float = 0.0
    """So long a command may wait for that; a call's pool has a rule of its own."""
    once: bool = False
    """It is never begun again: nothing of others may end it, so it shares its process with nobody."""


RunFault = Literal[
    "exit", "signal", "timeout", "stopped", "unrunnable", "resources", "lease", "stale",
    "exception", "crash", "protocol", "environment", "status", "unreachable",
]  # fmt: skip
"""Why an action did not succeed: it ended with another status than 0, or by a signal; its time was over; it was asked to
stop; what it asks for can never be run here (permanent); the machine could not start it now; and of executors: its lease
was over; it was never begun, since its token or lease was not good any more, or no slot became free in time. Of calls: it
raised; the process that ran it died of it; what its process said could not be understood; there is no such environment
here now. Of a request: it was answered with no yes, or not at all."""


class RunError(Struct, frozen=True, array_like=True, gc=False):
    code: RunFault
    text: str
    exception: str = ""
    """Full name of what was raised, with its module."""
    final: bool = False
    """The action's own word: it need not be tried again."""
    retry_after_s: float | None = None
    """The action's own word: when it may be."""

    @property
    def permanent(self) -> bool:
        """Trying again on this machine is of no use."""
        return self.final or self.code == "unrunnable"


class ActionStarted(Struct, frozen=True, array_like=True, gc=False):
    action_id: str
    pid: int
    started_at_ms: int


class ActionFinished(Struct, frozen=True, array_like=True, gc=False):
    """No process of the action is left, as far as the runner can know (see its DESIGN.md), and the outputs are complete."""

    action_id: str
    exit_code: int | None
    """Of the last command that ended by itself; None when it ended by a signal or never ran."""
    signal: str | None
    """Name without SIG, when it was one that ended it."""
    error: RunError | None
    """None exactly when the action succeeded."""
    stdout_tail: str
    stderr_tail: str
    """The ends of both, clean text, together at most 4 KiB of UTF-8."""
    stdout_bytes: int
    stderr_bytes: int
    """Everything that was written, kept or not."""
    started_at_ms: int | None
    """None when no process was started."""
    finished_at_ms: int
    output_error: str = ""
    """Why the output files are not what the caps promise, such as a full disk; empty when they are."""
    result: bytes | None = None
    """JSON, of a call that succeeded and returned anything, and of a request that did."""
    status: int | None = None
    """What a request was answered with."""
    no_sooner_ms: int | None = None
    """Who was asked wants to be left alone as long; the task's own rules may say longer."""


class ActionProgress(Struct, frozen=True, array_like=True, gc=False):
    """What a call says of itself while it goes on."""

    action_id: str
    percent: int | None
    text: str


StreamName = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class OutputChunk:
    stream: StreamName
    offset: int
    """Of its first byte among all that the stream ever was. More than the end of the chunk before: that much was left out."""
    data: bytes


class RunnerListener(Protocol):
    """Hears of actions, on the loop, in order: started at most once, finished exactly once. Must be quick and total.

    The start of an action that ends within some milliseconds is told by its end alone.
    """

    def started(self, event: ActionStarted) -> None: ...

    def progressed(self, event: ActionProgress) -> None:
        """Between start and end, any number of times; only the last one matters."""
        ...

    def finished(self, event: ActionFinished) -> None: ...


class Runner(Protocol):
    """Carries out actions on this machine. It knows nothing of tasks, leases or the log."""

    def listen(self, listener: RunnerListener) -> None: ...

    def start(self, action: ActionSpec) -> None:
        """Begin soon. Whatever becomes of it is an event; ValueError only for an id that is live or is none."""
        ...

    def stop(self, action_id: str, grace_s: float | None = None) -> None:
        """End the whole process tree: its stop signal, and KILL after the grace (the action's own by default; 0: at once).

        Said again it can only shorten the grace. An action that is not live is none of its business.
        """
        ...

    def live(self) -> Collection[str]:
        """Ids of the actions started and not yet finished."""
        ...

    def follow(self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncIterator[OutputChunk]:
        """What is kept of both streams from the offsets on, then what comes, until the action has finished.

        Short outputs of short actions are in the finish alone: a stream whose tail has all its bytes needs no runner.
        """
        ...

    async def close(self, grace_s: float) -> None:
        """Stop every action, and return when all have finished."""
        ...


class HeldAction(Struct, frozen=True, array_like=True, gc=False):
    """What an executor knows of an action that it was given and has not been told to forget."""

    id: str
    fence: int
    seq: int
    slots: int
    lease_s: float
    stopping: bool
    started: ActionStarted | None
    finished: ActionFinished | None
    """Its end, kept until `forget`, however many daemons come and go meanwhile."""


class Life(Struct, frozen=True, array_like=True, gc=False):
    """The life of an executor: what the cluster calls a session."""

    session: str
    """Public, made by the executor with its secret."""
    secret: bytes
    """32 bytes. The log has their hash; whoever speaks for the session shows them."""
    worker: str
    """Name of the worker it was started for."""
    isolated: bool
    """It is the first process of a PID namespace: nothing of it survives it."""
    fence: int
    """The highest token that it has seen; it starts none that is not above."""
    held: tuple[HeldAction, ...]
    fresh: bool
    """Started for this call; else it was found alive."""


class ExecutorListener(RunnerListener, Protocol):
    def gone(self, why: str) -> None:
        """The executor is no more, or belongs to another daemon: nothing is held any more, the session is over."""
        ...


class Executor(Protocol):
    """A small process whose children the actions are; it outlives its daemon, and leases outlive neither.

    Each action's lease is counted here too, from the send time of the last answered beat (`renew`, CLOCK_BOOTTIME): when it
    is over, the action is killed, whole tree, without grace, and finishes with the fault `lease`. Nothing else here ends
    one by itself. An executor without daemon ends itself once the last lease is over.
    """

    @property
    def life(self) -> Life | None:
        """As it was when `open` returned; None before, and after `gone`."""
        ...

    def listen(self, listener: ExecutorListener) -> None: ...

    async def open(self) -> Life:
        """Connect to the living executor of this data directory, taking it from any older connection, or start one.
        OSError when neither can be done."""
        ...

    def start(self, action: ActionSpec) -> None:
        """Begin as soon as its slots are free, in the order of tokens. Whatever becomes of it is an event: also `finished`
        with the fault `stale`, without a start, where the token is not above the highest seen, the lease, counted from the
        last renewal, is over, or no slot became free in time. The start of what ends within some milliseconds is told by
        its end alone."""
        ...

    def flush(self) -> None:
        """What was started leaves now, not at the end of the caller's turn."""
        ...

    def stop(self, action_id: str, grace_s: float | None = None) -> None:
        """As Runner.stop; what has not begun is `stale`."""
        ...

    def recall(self) -> None:
        """What waits for a slot is not to begin: it is `stale`."""
        ...

    def forget(self, action_ids: Collection[str]) -> None:
        """Their ends are applied, or nobody's business any more: the executor need not keep them."""
        ...

    async def ask(self) -> float:
        """A sign of life: asked, and answered by the executor itself; the boot time *before* the question left.
        OSError when there is no executor any more. A beat is sent only after an answer to a question asked since the last."""
        ...

    async def reload(self, environment: str | None) -> Collection[str]:
        """New processes in place of the old ones of an environment, or of all, as these finish: the names of those.
        OSError as `ask`."""
        ...

    def renew(self, sent_s: float) -> None:
        """The master has answered a beat that was sent at this boot time: every lease counts from there."""
        ...

    def live(self) -> Collection[str]:
        """Ids of the actions started and not yet finished, as far as this side has heard."""
        ...

    def follow(self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncIterator[OutputChunk]:
        """As Runner.follow."""
        ...

    async def result(self, action_id: str, offset: int) -> tuple[bytes, int] | None:
        """Of a call's result that is a file: what comes from `offset` on, some of it, and the size of the whole. None: there
        is no such file."""
        ...

    async def keep(self, action_id: str, stdout: bytes) -> None:
        """The output of an action that was carried out beside the executor becomes a file like those of its own. A disk that
        is full is nobody's fault: then there is none."""
        ...

    async def kept(self) -> Collection[str]:
        """Ids of the actions whose output files are kept on this machine."""
        ...

    def prune(self, keep: Collection[str]) -> None:
        """Kept output files of actions that are not in `keep` and not live may be taken away."""
        ...

    async def close(self, grace_s: float) -> None:
        """Stop every action, and end the executor: the session is over in order."""
        ...

    async def leave(self) -> None:
        """Let go of the executor without ending anything: another daemon may find it."""
        ...
