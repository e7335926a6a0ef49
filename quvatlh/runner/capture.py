"""What an action writes: two pipes read on the loop into files and tails.

Memory is bounded by a chunk and a tail a stream, disk by the cap of the files, and a flood is slowed by its full pipe.
"""

from __future__ import annotations

import asyncio
import os

from quvatlh.ports import StreamName
from quvatlh.runner.outputs import StreamWriter
from quvatlh.runner.settings import CHUNK_BYTES, DRAIN_BYTES_MAX, WATCH_AFTER_S
from quvatlh.runner.tail import Tail, fits

STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")


class Bell:
    """Wakes whoever waits for more, and knows nobody's place."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def wait(self) -> asyncio.Future[None]:
        """Of the next ring after this call, whenever it is awaited."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = [each for each in self._waiters if not each.done()]  # who gave up waits no more
        self._waiters.append(waiter)
        return waiter

    def ring(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


class Pipe:
    """One stream. The write end is kept until the last command has it; the read end until everything is over."""

    __slots__ = ("_bell", "_read_fd", "_writer", "held", "tail", "write_fd")

    def __init__(self, directory: str, stream: str, bytes_max: int, bell: Bell) -> None:
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_fd, False)
        self._writer = StreamWriter(directory, stream, bytes_max)
        self._bell = bell
        self.tail = Tail()
        self.held = b""
        """All of a short output that has no file, because the record says every byte of it."""

    @property
    def error(self) -> str:
        return self._writer.error

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._read_fd, self._readable, loop)

    def close_write(self) -> None:
        if self.write_fd >= 0:
            os.close(self.write_fd)
        self.write_fd = -1

    def close(self, loop: asyncio.AbstractEventLoop, *, watched: bool) -> None:
        """Take what is left, and let go."""
        self.close_write()
        if watched:
            loop.remove_reader(self._read_fd)
        drained = 0
        while drained < DRAIN_BYTES_MAX and (data := self._read()):
            if not drained and not watched and fits(data):
                self.held = data
            else:
                self._writer.write(self.held)
                self._writer.write(data)
                self.held = b""
            drained += len(data)
        os.close(self._read_fd)
        self._writer.close()

    def _readable(self, loop: asyncio.AbstractEventLoop) -> None:
        if data := self._read():
            self._writer.write(data)
            self._bell.ring()
        else:
            loop.remove_reader(self._read_fd)  # all write ends are closed, and stay so

    def _read(self) -> bytes:
        """Nothing at the end, and when there is nothing now."""
        try:
            data = os.read(self._read_fd, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        self.tail.add(data)
        return data


class Capture:
    """Both streams of one action. The bell rings at whatever is written."""

    def __init__(self, directory: str, bytes_max: int, bell: Bell) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched = False
        self.stdout = Pipe(directory, "stdout", bytes_max, bell)
        try:
            self.stderr = Pipe(directory, "stderr", bytes_max, bell)
        except OSError:
            self.stdout.close(self._loop, watched=False)
            raise
        self._timer = self._loop.call_later(WATCH_AFTER_S, self._watch)

    def pipe(self, stream: StreamName) -> Pipe:
        return self.stdout if stream == "stdout" else self.stderr

    @property
    def error(self) -> str:
        return self.stdout.error or self.stderr.error

    def last_command(self) -> None:
        """No further command will be given the write ends."""
        self.stdout.close_write()
        self.stderr.close_write()

    def close(self) -> None:
        self._timer.cancel()
        self.stdout.close(self._loop, watched=self._watched)
        self.stderr.close(self._loop, watched=self._watched)

    def _watch(self) -> None:
        self._watched = True
        self.stdout.watch(self._loop)
        self.stderr.watch(self._loop)
