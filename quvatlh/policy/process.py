"""The process of the policies, seen from the node: started when needed, asked one frame at a time, killed when it is silent.

It knows frames and ends, not policies. One caller at a time; a caller that is cancelled leaves answers behind, which the
next one passes over by their number.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quvatlh.policy import boot, frames
from quvatlh.policy.bounds import CPU_S, START_S, WALL_S
from quvatlh.policy.told import Answer, Line, Told

LATE_S: Final = 0.001
"""What has arrived while the loop itself stood still is heard within it."""


class CannotRun(Exception):
    """No process for policies can be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one frame."""

    answers: Sequence[Answer]
    """Of the first jobs, in order."""
    why: str = ""
    """Not empty: it ended, and so."""
    culprit: int | None = None
    """The job that it ended in, counted from 0."""


class PolicyProcess:
    """`start` before anything else, `close` at last."""

    def __init__(self, announcement_bytes_max: int) -> None:
        self._announcement_bytes_max = announcement_bytes_max
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._line: Line | None = None
        self._page: mmap.mmap | None = None

    @property
    def runs(self) -> bool:
        process, line = self._process, self._line
        return process is not None and process.returncode is None and line is not None and not line.over

    @property
    def pid(self) -> int | None:
        """Of the warden, who leads the group of all that belongs to it."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """CannotRun if it does not come up."""
        await self.close()
        try:
            line = await self._connected()
        except OSError as error:
            await self.close()
            raise CannotRun(f"no process for policies: {error.strerror}") from error
        try:
            async with asyncio.timeout(START_S):
                born = await line.next()
        except TimeoutError:
            born = None
        if born is None or born.number != 0:
            await self.close()
            raise CannotRun(f"no process for policies: {line.last_words or f'not there within {START_S:g} s'}")
        self._line = line

    async def _connected(self) -> Line:
        with contextlib.ExitStack() as stack:
            ours, theirs = socket.socketpair()
            stack.callback(theirs.close)
            closing_ours = stack.enter_context(contextlib.ExitStack())
            closing_ours.callback(ours.close)
            page_fd = os.memfd_create("quvatlh-policies", os.MFD_CLOEXEC)
            stack.callback(os.close, page_fd)
            os.ftruncate(page_fd, frames.PAGE_BYTES)
            self._page = mmap.mmap(page_fd, frames.PAGE_BYTES)
            self._process = await self._spawn(theirs.fileno(), page_fd)
            ours.setblocking(False)  # noqa: FBT003 - the library's own way
            _, line = await asyncio.get_running_loop().create_connection(Line, sock=ours)
            closing_ours.pop_all()  # they are the transport's now
        return line

    async def _spawn(self, socket_fd: int, page_fd: int) -> asyncio.subprocess.Process:
        paths = [path or os.getcwd() for path in sys.path]
        numbers = [str(number) for number in (socket_fd, page_fd, self._announcement_bytes_max)]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", "-B", os.path.abspath(boot.__file__), *numbers, *paths),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(socket_fd, page_fd),
            start_new_session=True,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
        )

    async def ask(self, state: bytes, jobs: list[bytes]) -> Outcome:
        """State and jobs are packed already: what is asked again is not packed again."""
        line = self._line
        assert line is not None
        self._number = self._number % 0xFFFF_FFFF + 1
        line.write(frames.request(self._number, state, jobs))
        answers: list[Answer] = []
        while True:
            told = await self._next(line)
            if isinstance(told, str):
                return Outcome(answers, told, await self._kill())
            if told.number == self._number and told.first == len(answers):
                answers += told.answers
                if told.is_all:
                    return Outcome(answers)
            elif told.number == 0 and told.ran_number == self._number:
                return Outcome(answers, _cause(told.ended_by), told.ran_place - 1)

    async def _next(self, line: Line) -> Told | str:
        """What it tells next, or why it tells nothing any more."""
        try:
            async with asyncio.timeout(WALL_S):
                told = await line.next()
        except TimeoutError:
            await asyncio.sleep(LATE_S)
            if not line.has_more:
                return f"did not answer within {WALL_S:g} s"
            told = await line.next()
        return "ended the process" if told is None else told

    async def _kill(self) -> int | None:
        """-> The job that ran. Looked up when nothing can run any more."""
        assert self._page is not None
        page, self._page = self._page, None
        await self.close()
        number, place = frames.PLACE.unpack_from(page)
        page.close()
        return place - 1 if number == self._number and place else None

    async def close(self) -> None:
        """The warden is gone afterwards, its cell killed."""
        process, self._process = self._process, None
        line, self._line = self._line, None
        page, self._page = self._page, None
        if line is not None:
            line.close()
        if page is not None:
            page.close()
        if process is not None:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _cause(number: int) -> str:
    """In words, of the signal that ended a cell."""
    if number == signal.SIGPROF:
        return f"ran over {CPU_S * 1000:g} ms of its own time"
    try:
        return f"ended the process by {signal.Signals(number).name}"
    except ValueError:
        return f"ended the process by signal {number}"
