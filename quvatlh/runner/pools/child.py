"""One process of a pool, seen from the executor: its pipes, what it was given and has not answered, and its end.

What it writes besides the protocol belongs to the action that has the process for itself at that moment; one that shares
its process tells by the protocol what it writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections import deque
from collections.abc import Callable
from typing import Final

from quvatlh.ports import StreamName
from quvatlh.runner.pools import lines
from quvatlh.runner.pools.call import CallRun
from quvatlh.runner.pools.company import Company
from quvatlh.runner.pools.nursery import Nursery
from quvatlh.runner.tail import Tail

READ_BYTES: Final = 256 * 1024
SAID_BYTES: Final = 64 * 1024
"""Of what it says, in one look: the rest waits in its pipe for the next turn of the loop."""
PIPE_BYTES: Final = 1024 * 1024
"""Asked for; a user who has many such pipes gets smaller ones."""
PIPE_READS_MAX: Final = 4
"""Of one look: a flood takes turns with everything else."""
ANSWERED_MAX: Final = 64
"""An answer too many comes soon after the first, if at all."""
GRACE_S: Final = 5.0
"""For a process that was asked to end, or said that it does, and has nothing to do."""


class Child:
    company: Company | None = None
    """Of a warm process that is ready."""
    has_more = False
    """It may have said more than the last look has read."""
    is_grown = False
    """Beyond the memory that it may have."""
    lost = ""
    """What it has closed before its end."""
    lost_s = 0.0
    """And when."""
    refusal = ""
    """Why it never became ready."""

    def __init__(self, number: int, born_s: float, nursery: Nursery, *, is_python: bool, own: CallRun | None) -> None:
        self.number = number
        self.born_s = born_s
        self.nursery = nursery
        self.own = own
        """It was made for this action alone."""
        self.is_python = is_python
        self.pid = 0
        self.is_born = False
        """It was asked for, with its files."""
        self.is_ready = False
        self.is_leaving = False
        """It takes nothing more: it was asked to end, or said so, or is being killed."""
        self.has_left = False
        """Its last answer was of a call that has left processes behind: it ends now, and nothing else in its hands has
        begun."""
        self.is_garbled = False
        """It has said what is no message: nothing that stands after it counts."""
        self.is_shared = False
        """What it runs now is async: it may have more of it."""
        self.kill_at_s: float | None = None
        self.killed = False
        self.is_silent = False
        """It has closed its side of the protocol: its end is near."""
        self.given: dict[str, CallRun] = {}
        """By action, in the order of their turn."""
        self.answered: deque[str] = deque(maxlen=ANSWERED_MAX)
        """Calls that it has answered lately."""
        self.is_doubtful = False
        """It has answered one of them again: it does what it has, and nothing more."""
        self.done = 0
        self.idle_s = born_s
        """Since when it has nothing to do."""
        self.measured_s = born_s
        self.early = Tail()
        """The end of what a warm process wrote before it was ready: of its first call, or of those that it fails."""
        self.last_words: list[tuple[StreamName, bytes]] = []
        """What it wrote beside the protocol, and was not read before its end."""
        self._loop = asyncio.get_running_loop()
        self._watch = -1
        self._rest = bytearray()
        self._unsent = b""
        self._outbox: list[bytes] = []
        in_read, self._in = os.pipe()
        self._out, out_write = os.pipe()
        self._stdout, stdout_write = os.pipe()
        self._stderr, stderr_write = os.pipe()
        self._theirs: tuple[int, ...] = (in_read, out_write, stdout_write, stderr_write)
        for fd in (self._in, self._out, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        for fd in (self._out, self._stdout, self._in):
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def files(self, bell: int) -> tuple[int, ...]:
        """As `inside/server.py` names them."""
        return (*self._theirs, bell, self._stdout, self._stderr)

    def handed_over(self) -> None:
        for fd in self._theirs:
            os.close(fd)
        self._theirs = ()
        self.is_born = True

    def watched(self, pid: int, fd: int) -> None:
        self.pid, self._watch = pid, fd

    @property
    def in_fd(self) -> int:
        return self._in

    @property
    def out_fd(self) -> int:
        return self._out

    @property
    def head(self) -> CallRun | None:
        """Whose turn it is, where one at a time has it."""
        return next(iter(self.given.values()), None)

    # --- to it ---

    def post(self, data: bytes) -> None:
        """Sent by the next `flush`, with what else is posted."""
        self._outbox.append(data)

    def flush(self) -> None:
        if not self._outbox:
            return
        data = b"".join(self._outbox)
        self._outbox.clear()
        if self._unsent:
            self._unsent += data
        else:
            self._send(data)

    def nudge(self) -> None:
        """A Python process looks for news now, whatever it does."""
        if self.is_python:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self.killed = self.is_leaving = True
        self._signal(signal.SIGKILL)

    def when_gone(self, tell: Callable[[Child], None]) -> None:
        """Where nobody else will say so."""
        if self._watch < 0:
            self._loop.call_soon(tell, self)
            return
        self._signal(signal.SIGKILL)
        watch = self._watch

        def gone() -> None:
            self._loop.remove_reader(watch)
            tell(self)

        self._loop.add_reader(watch, gone)

    def ask_to_end(self) -> None:
        """Once it has done what it was given."""
        self.is_leaving = True
        self.kill_at_s = self._loop.time() + GRACE_S
        self.post(lines.STOP)
        self.flush()

    def leaves(self) -> None:
        """It said so, with an answer."""
        self.is_leaving = self.has_left = True
        self.kill_at_s = self._loop.time() + GRACE_S

    def lose(self, name: str) -> None:
        if not self.lost:
            self.lost, self.lost_s = f"has closed its {name}", self._loop.time()

    def _signal(self, number: int) -> None:
        if self._watch >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watch, number)

    def _send(self, data: bytes) -> None:
        try:
            sent = os.write(self._in, data)
        except BlockingIOError:
            sent = 0
        except BrokenPipeError:  # its end, if it comes, is told otherwise
            if self._unsent:
                self._loop.remove_writer(self._in)
                self._unsent = b""
            self.lose("standard input")
            return
        waits = bool(self._unsent)
        self._unsent = data[sent:]
        if self._unsent and not waits:
            self._loop.add_writer(self._in, self._writable)
        elif waits and not self._unsent:
            self._loop.remove_writer(self._in)

    def _writable(self) -> None:
        self._send(self._unsent)

    # --- from it ---

    def said(self, bytes_max: int = SAID_BYTES) -> list[lines.Said]:
        """What it has said since, as far as one read goes; what is no message stands there as `garbage`, and ends it."""
        found: list[lines.Said] = []
        data = _read(self._out, bytes_max)
        self.has_more = data is not None and len(data) == bytes_max
        if not data:
            self.is_silent = self.is_silent or data is not None
            return found
        try:
            whole, end, rest = data.rpartition(b"\n")
            if end:
                for line in bytes(self._rest + whole).split(b"\n"):
                    if line:
                        found.append(lines.read(line))  # noqa: PERF401 - what was read before a fault counts
                self._rest.clear()
            self._rest += rest
            if len(self._rest) > lines.LINE_BYTES_MAX:
                raise lines.Garbage("wrote a line that does not end")
        except lines.Garbage as error:
            found.append(lines.Said("garbage", text=str(error)))
        return found

    def wrote(self) -> list[tuple[StreamName, bytes]]:
        """Beside the protocol, since."""
        found: list[tuple[StreamName, bytes]] = []
        pairs: tuple[tuple[StreamName, int], ...] = (("stdout", self._stdout), ("stderr", self._stderr))
        for stream, fd in pairs:
            for _ in range(PIPE_READS_MAX):
                data = _read(fd, READ_BYTES)
                if not data:
                    break
                found.append((stream, data))
        return found

    def hear_early(self, wrote: list[tuple[StreamName, bytes]]) -> None:
        for _, data in wrote:
            self.early.add(data)

    def close(self) -> None:
        if self._unsent:
            self._loop.remove_writer(self._in)
        for fd in (self._in, self._out, self._stdout, self._stderr, self._watch, *self._theirs):
            if fd >= 0:
                os.close(fd)
        self._watch = -1

    def megabytes(self) -> int:
        """Of memory that it uses, shared or not; of several programs behind each other, the largest."""
        return max(map(_megabytes, (self.pid,) if self.company is None else self.company.programs))


def _megabytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000
    except (OSError, IndexError, ValueError):
        return 0


def _read(fd: int, size: int) -> bytes | None:
    """None: nothing now. Empty: nothing any more."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
