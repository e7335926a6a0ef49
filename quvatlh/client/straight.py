"""A lone ADD leaves from the thread that makes it, over a connection of its own; the loop that reads the answer hears of it then.

So the node has it before a second thread has been woken, and before a general client has looked at it: a third of a
millisecond sooner. What comes back is read here where it is an answer with its length, as a node gives it. Whatever else
comes has the request made again as all others are; under its Idempotency-Key it counts once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import time
from typing import Final
from urllib.parse import SplitResult, urlsplit

from multidict import CIMultiDict

from quvatlh.client.http import CONNECT_S, EVENTS, GRACE_S, KEEPALIVE_S, Answer, Options, Request, new_key

BYTES_MAX: Final = 64 * 1024
"""Of a task: what a socket surely takes at once."""
ANSWER_BYTES_MAX: Final = 1024 * 1024
"""As of a problem: that of one task is far below."""

_STATUS: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9])(?: |$)")
_LENGTH: Final = re.compile(r"[0-9]{1,7}")
_LINE: Final = re.compile(r"[\x20-\x7e]+")


class Odd(ConnectionError):
    """No answer as a node gives it: something else stands between, or there. The request may have been carried out."""


class Straight:
    """Of a motor. At most one request at a time is under way."""

    def __init__(self, options: Options) -> None:
        self._try_s = min(options.deadline_s, options.one_try_s)
        self._token = options.token
        self._line: _Line | None = None
        self._opening: asyncio.Task[None] | None = None
        self._odd: set[str] = set()
        """Nodes that are asked in the usual way alone."""

    def begin(self, body: bytes, url: str) -> Begun | None:
        """By any thread, for the node that answered last. None: nothing has left."""
        line = self._line
        if line is None or line.url != url or len(body) > BYTES_MAX:
            return None
        key = new_key()
        event = b'{"event":"ADD","tasks":[%b]}' % body
        if not line.send(b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (line.head, key.encode(), len(event), event)):
            return None
        return Begun(self, line, Request("POST", EVENTS, body=event, key=key))

    def give_way(self) -> None:
        """To a node of this machine that was just sent something. The kernel takes it that who writes sleeps next, and has the
        node wait for his processor, though another is idle: a tenth of a millisecond."""
        line = self._line
        if line is not None and line.is_waiting and line.is_here:
            os.sched_yield()

    def follow(self, url: str) -> None:
        """In the motor's loop: it has just answered in the usual way."""
        is_there = self._line is not None and self._line.url == url and self._line.is_fresh
        is_opening = self._opening is not None and not self._opening.done()
        if not (is_there or is_opening) and url not in self._odd:
            self._leave()  # while this is answered nothing can be under way on it
            self._opening = asyncio.get_running_loop().create_task(self._open(url))

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self._leave()

    def give_up(self, url: str) -> None:
        self._odd.add(url)

    async def _open(self, url: str) -> None:
        place = urlsplit(url)
        head = self._head(place)
        if head is None:
            self.give_up(url)
            return
        loop = asyncio.get_running_loop()
        line = _Line(loop, url, head)
        with contextlib.suppress(OSError, TimeoutError):  # what it is for goes the usual way, and says what is wrong
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: line, place.hostname or "", place.port or 80)
            self._line = line

    def _leave(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.cut()

    def _head(self, place: SplitResult) -> bytes | None:
        """All but the key and what follows it. None: it wants more than this way has, TLS or a password or other letters."""
        lines = [
            f"POST {place.path}{EVENTS}?deadline={max(int(self._try_s * 1000), 1)}ms HTTP/1.1",
            f"Host: {place.netloc}",
            "User-Agent: quvatlh",
            *([f"Authorization: Bearer {self._token}"] if self._token else []),
            "Content-Type: application/json",
            "Idempotency-Key: ",
        ]
        is_plain = place.scheme == "http" and "@" not in place.netloc and all(map(_LINE.fullmatch, lines))
        return "\r\n".join(lines).encode() if is_plain else None

    async def answer(self, line: _Line) -> Answer:
        """As of http.Begun."""
        try:
            async with asyncio.timeout(self._try_s + GRACE_S):
                return await line.answer()
        except Odd:
            self.give_up(line.url)
            raise
        finally:
            if line.is_waiting:  # what comes now would be taken for the next answer
                line.cut()


class Begun:
    """It has left, for one node."""

    __slots__ = ("_line", "_straight", "request")

    def __init__(self, straight: Straight, line: _Line, request: Request) -> None:
        self._straight = straight
        self._line = line
        self.request = request

    @property
    def url(self) -> str:
        return self._line.url

    async def answer(self) -> Answer:
        return await self._straight.answer(self._line)


class _Line(asyncio.Protocol):
    """Written by any thread, read and closed by its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, head: bytes) -> None:
        self.url = url
        self.head = head
        self.is_waiting = False
        """For an answer."""
        self.is_here = False
        """The node is on this machine."""
        self._loop = loop
        self._lock = threading.Lock()
        """Nobody writes to a descriptor that has been closed, and is another file's."""
        self._fd = -1
        self._transport: asyncio.Transport | None = None
        self._used_s = time.monotonic()
        self._read = bytearray()
        self._answer: Answer | Exception | None = None
        self._woken: asyncio.Future[None] | None = None

    @property
    def is_fresh(self) -> bool:
        """Open, and not about to be closed by the node."""
        return self._fd >= 0 and time.monotonic() - self._used_s <= KEEPALIVE_S

    def send(self, data: bytes) -> bool:
        """Whether all of it has left. What has left in part is cut off, so that no node carries it out."""
        with self._lock:
            if self.is_waiting or not self.is_fresh:
                return False
            self._used_s, self._answer, self.is_waiting = time.monotonic(), None, True
            left = False
            try:
                left = os.write(self._fd, data) == len(data)
            except (BlockingIOError, ConnectionError):
                pass
            finally:  # whatever a signal's handler raises is its thread's matter
                if not left:
                    self._fd, self.is_waiting = -1, False
                    with contextlib.suppress(RuntimeError):  # its loop is closed, and the connection with it
                        self._loop.call_soon_threadsafe(self.cut)
            return left

    async def answer(self) -> Answer:
        if self._answer is None:
            self._woken = self._loop.create_future()
            await self._woken
        found, self._answer = self._answer, None
        if isinstance(found, Answer):
            return found
        assert found is not None
        raise found

    def cut(self) -> None:
        self._close()
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        own, other = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        self.is_here = other is not None and own[0] == other[0]  # none: it has gone already
        self._fd = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        if not self.is_waiting:
            self.cut()
            return
        self._read += data
        try:
            found = _read(bytes(self._read), self.url)
        except Odd as error:
            self.cut()
            self._tell(error)
            return
        if found is not None:
            answer, goes_on = found
            self._read.clear()
            if not goes_on:
                self.cut()
            self._tell(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._close()
        if self.is_waiting:
            self._tell(
                exc if isinstance(exc, OSError) else ConnectionResetError("the connection ended without an answer")
            )

    def _close(self) -> None:
        with self._lock:
            self._fd = -1

    def _tell(self, answer: Answer | Exception) -> None:
        self._answer, self.is_waiting = answer, False
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def _read(data: bytes, url: str) -> tuple[Answer, bool] | None:
    """An answer, and whether the connection is good for another; None: it has not all come."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        if len(data) > ANSWER_BYTES_MAX:
            raise Odd("a head without end")
        return None
    status, *fields = head.split(b"\r\n")
    begins = _STATUS.match(status)
    headers = CIMultiDict(_field(each) for each in fields)
    length = headers.getall("Content-Length", [])
    if begins is None or len(length) != 1 or not _LENGTH.fullmatch(length[0]) or "Transfer-Encoding" in headers:
        raise Odd("not an answer with its length")
    size = int(length[0])
    if size > ANSWER_BYTES_MAX or len(body) > size or "Content-Encoding" in headers:
        raise Odd("not the answer of a node to one task")
    if len(body) < size:
        return None
    return Answer(int(begins[1]), headers, body, url), headers.get("Connection", "").lower() != "close"


def _field(line: bytes) -> tuple[str, str]:
    name, colon, value = line.decode("latin-1").partition(":")
    if not colon:
        raise Odd("not a header")
    return name, value.strip(" \t")
