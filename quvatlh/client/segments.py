"""NDJSON of any length as segments of whole lines, each small enough to be held and sent again. Pure, but for `read`.

A segment is one request with one Idempotency-Key: what is repeated after a failure is at most one of them, and memory
holds no more than one and the line that follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

SEGMENT_BYTES = 4 * 1024 * 1024
SEGMENT_LINES_MAX = 50_000
"""Bounds the answer, which has an id for each."""
LINE_BYTES_MAX = 2 * 1024 * 1024
"""What a node takes."""
READ_BYTES = 256 * 1024


class LineTooLong(ValueError):
    """No node would take it, and it would have to be held whole to be sent."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line + 1} is longer than {LINE_BYTES_MAX} bytes")


class Segment(NamedTuple):
    body: bytes
    lines: int
    is_last: bool


async def segments(read: Callable[[int], bytes]) -> AsyncIterator[Segment]:
    """`read` may block, as a pipe does: it is called in a thread."""
    cutter = _Cutter()
    while data := await _aside(read, READ_BYTES):
        for segment in cutter.feed(data):
            yield segment
    yield cutter.finish()


async def _aside(read: Callable[[int], bytes], size: int) -> bytes:
    """In a thread that nobody waits for at the end: a pipe may never give anything, and Ctrl-C shall not wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def settle(data: bytes, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(data)
        else:
            done.set_exception(error)

    def work() -> None:
        data, error = b"", None
        try:
            data = read(size)
        except Exception as raised:  # noqa: BLE001 - raised again where it is awaited
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, data, error)

    threading.Thread(target=work, name="quvatlh-read", daemon=True).start()
    return await done


class _Cutter:
    def __init__(self) -> None:
        self._whole = bytearray()
        """Lines with their ends."""
        self._lines = 0
        self._before = 0
        """Lines of earlier segments."""
        self._tail = bytearray()
        """The line that has not ended."""

    def feed(self, data: bytes) -> list[Segment]:
        found: list[Segment] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._take(data[start : end + 1])
            start = end + 1
            if len(self._whole) >= SEGMENT_BYTES or self._lines == SEGMENT_LINES_MAX:
                found.append(self._segment(is_last=False))
        self._tail += data[start:]
        self._check_tail()
        return found

    def finish(self) -> Segment:
        if self._tail:
            self._take(b"")
        return self._segment(is_last=True)

    def _take(self, piece: bytes) -> None:
        self._tail += piece
        self._check_tail()
        if self._tail.strip():
            self._whole += self._tail
            self._lines += 1
        self._tail.clear()

    def _check_tail(self) -> None:
        if len(self._tail) > LINE_BYTES_MAX + 1:
            raise LineTooLong(self._before + self._lines)

    def _segment(self, *, is_last: bool) -> Segment:
        made = Segment(bytes(self._whole), self._lines, is_last)
        self._before += self._lines
        self._whole.clear()
        self._lines = 0
        return made
