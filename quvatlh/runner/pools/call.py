"""One action that is a call: what it has written, how it ended, and the one finish that is told of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from quvatlh.core.limits import FILED_RESULT
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, RunError, StreamName
from quvatlh.runner import inputs, tail
from quvatlh.runner.capture import Bell
from quvatlh.runner.outputs import StreamWriter, named_result

if TYPE_CHECKING:
    from quvatlh.runner.pools.child import Child

RESULT_BYTES_MAX: Final = 64 * 1024
"""Of a result in the record, which the whole cluster keeps. A larger one is a file of the worker."""

PROGRESS_S: Final = 0.1
"""Between two words of a call's progress, in the long run."""
PROGRESS_BURST_S: Final = 1.0
"""What would have been told in so long a silence may be told at once."""


class Written:
    """One stream: in memory as long as it is short, then in files."""

    __slots__ = ("_writer", "held", "tail")

    def __init__(self) -> None:
        self.tail = tail.Tail()
        self.held = b""
        self._writer: StreamWriter | None = None

    @property
    def error(self) -> str:
        return "" if self._writer is None else self._writer.error

    def add(self, data: bytes, directory: str, stream: str, bytes_max: int) -> None:
        self.tail.add(data)
        self.held += data
        if not tail.fits(self.held) or self._writer is not None:
            self.spill(directory, stream, bytes_max)

    def spill(self, directory: str, stream: str, bytes_max: int) -> None:
        """Into files, where others can follow it."""
        if self.held:
            if self._writer is None:
                self._writer = StreamWriter(directory, stream, bytes_max)
            self._writer.write(self.held)
            self.held = b""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class CallRun:
    """A carrier's run: also what Keeper asks about an action that goes on."""

    __slots__ = (
        "_bell", "_bytes_max", "_error", "_outputs_dir", "_streams", "action", "at_s", "began_ms", "began_s", "child",
        "has_slot", "inputs", "is_told", "kill_at_s", "outcome", "progress", "progress_s",
        "recalled_s", "wish",
    )  # fmt: skip

    def __init__(self, action: ActionSpec, outputs_dir: str, output_bytes_max: int, at_s: float) -> None:
        """What most of them never need is made by who needs it."""
        self.action = action
        self._bell: Bell | None = None
        self.has_slot = False
        self.child: Child | None = None
        self.inputs = inputs.NOTHING
        """Files of its own."""
        self.at_s = at_s
        """When it was asked for, by the loop's clock."""
        self.began_s: float | None = None
        """When its turn came in its process, by the same clock."""
        self.began_ms: int | None = None
        self.is_told = False
        """Its start is."""
        self.wish: RunError | None = None
        """Why it is being ended, once it is; the first reason counts."""
        self.kill_at_s: float | None = None
        self.recalled_s = 0.0
        """When it was last asked back."""
        self.progress: ActionProgress | None = None
        """The newest that is not told yet."""
        self.progress_s = 0.0
        self.outcome: tuple[RunError | None, bytes | None] | None = None
        """Known, and told once its process is no more."""
        self._outputs_dir = outputs_dir
        self._bytes_max = output_bytes_max
        self._streams: dict[StreamName, Written] | None = None
        self._error = ""

    @property
    def bell(self) -> Bell:
        if self._bell is None:
            self._bell = Bell()
        return self._bell

    def ring(self) -> None:
        """For whoever waits for more, or for the end."""
        if self._bell is not None:
            self._bell.ring()

    @property
    def _directory(self) -> str:
        return f"{self._outputs_dir}/{self.action.id}"

    @property
    def is_apart(self) -> bool:
        """It needs a process of its own: another user, limits, and so on."""
        work = self.action.work
        return bool(work.env or work.rlimits or work.cwd or work.user or work.stdin is not None)

    @property
    def target(self) -> str:
        assert self.action.work.call is not None
        return self.action.work.call.target

    def written(self) -> tuple[int, int]:
        streams = self._streams or {}
        stdout, stderr = streams.get("stdout"), streams.get("stderr")
        return (0 if stdout is None else stdout.tail.total), (0 if stderr is None else stderr.tail.total)

    def wrote(self, stream: StreamName, data: bytes) -> None:
        if self._streams is None:
            self._streams = {}
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = Written()
        found.add(data, self._directory, stream, self._bytes_max)

    def spill(self) -> None:
        """What there is may be followed from now on."""
        for stream, written in (self._streams or {}).items():
            if written.held:
                written.spill(self._directory, stream, self._bytes_max)
        if self._streams:
            self.ring()

    def may_tell(self, now_s: float) -> bool:
        """One more word of its progress; of those that come faster the newest is told."""
        at_s = max(self.progress_s, now_s - PROGRESS_BURST_S) + PROGRESS_S
        if at_s > now_s:
            return False
        self.progress_s = at_s
        return True

    def kept_result(self, result: bytes) -> bytes:
        """What stands in the record: the result, or where it is. OSError."""
        if len(result) <= RESULT_BYTES_MAX:
            return result
        name, result = named_result(result)
        os.makedirs(self._directory, 0o700, exist_ok=True)
        path = f"{self._directory}/{name}"
        with open(path, "wb") as file:
            file.write(result)
        where = f'{{"file":"{name}","bytes":{len(result)},"worker":'.encode()
        return FILED_RESULT + where + _quoted(self.action.worker) + b',"path":' + _quoted(path) + b"}"

    def finished(
        self,
        error: RunError | None,
        result: bytes | None,
        now_ms: int,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
    ) -> ActionFinished:
        """The event; nothing of the action is left after it."""
        if self.inputs.made:
            inputs.remove(self.inputs)
        action, streams = self.action, self._streams
        if streams is None:
            return ActionFinished(
                action.id, exit_code, signal, error, "", "", 0, 0, self.began_ms, now_ms, self._error, result
            )
        stdout, stderr = (streams.get(stream) or Written() for stream in ("stdout", "stderr"))
        for each in (stdout, stderr):
            each.close()
            self._error = self._error or each.error
        texts = tail.share(stdout.tail.text(), stderr.tail.text())
        totals = stdout.tail.total, stderr.tail.total
        return ActionFinished(
            action.id, exit_code, signal, error, *texts, *totals, self.began_ms, now_ms, self._error, result
        )


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text)
