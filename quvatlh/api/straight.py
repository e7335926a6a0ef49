"""The request that the client library sends for a lone ADD, answered without a general HTTP server around it.

A connection begins as a Line. It knows one sentence of HTTP, the one of client/straight.py, letter by letter, and answers it
as long as each piece that arrives is exactly that, whole. Whatever else comes, half of it included, is handed over with its
connection and for good to the general server, and so is what the guard refuses: nobody reads HTTP here who could read it
otherwise than aiohttp does. What is asked, and what becomes of it, is said where it is said of all requests.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from aiohttp.http import SERVER_SOFTWARE
from multidict import CIMultiDict, CIMultiDictProxy

from quvatlh.api import problems
from quvatlh.api.exchange import JSON_HEADERS
from quvatlh.api.formats import encode
from quvatlh.api.params import parse
from quvatlh.api.routes import ROUTES, params_of
from quvatlh.service.pool import Problem

BODY_BYTES_MAX: Final = 64 * 1024 - 1
"""What surely fits a single piece of asyncio's (256 KiB) with its head."""
LATE_BYTES_MAX: Final = 64 * 1024
"""Kept of what arrives while an answer is made; beyond it, and one piece, nothing more is read before that is given."""
ENDING_S: Final = 1.0
"""In which what is cancelled comes to its end."""
(ROUTE,) = (route for route in ROUTES if (route.method, route.path) == ("POST", "/v1/events"))

_PARAMS: Final = params_of(ROUTE)
_HEAD: Final = re.compile(
    rb"POST (/v1/events(?:\?(deadline=[0-9]{1,7}ms))?) HTTP/1\.1\r\n"
    rb"Host: ([A-Za-z0-9._:\[\]-]{1,300})\r\n"
    rb"User-Agent: ([!-~]{1,200})\r\n"
    rb"(?:Authorization: (Bearer [!-~]{1,1024})\r\n)?"
    rb"Content-Type: application/json\r\n"
    rb"Idempotency-Key: "
)
_REST: Final = re.compile(rb"([!-~]{1,128})\r\nContent-Length: ([1-9][0-9]{0,4})\r\n\r\n")


@dataclass(frozen=True, slots=True)
class Head:
    """Of the last request. It holds for the next one where that begins with the same bytes, but for the key."""

    raw: bytes
    """Up to the key."""
    raw_path: str
    query: Mapping[str, Any]
    headers: CIMultiDictProxy[str]
    local: str
    """The address that the client reached."""
    remote: str | None
    own: CIMultiDict[str]
    """The headers, for who sets the key."""
    method: str = ROUTE.method


class Reply(NamedTuple):
    status: int
    data: bytes
    """Head and body."""


Answer = Callable[[], Awaitable[Reply]]
Ask = Callable[[Head, bytes], Answer | None]
"""How a head with its body is answered; None: that is the general server's matter."""


class Lines:
    """All connections that have said nothing else yet. Called, it makes one."""

    def __init__(self, ask: Ask, general: Callable[[], asyncio.Protocol], idle_s: float) -> None:
        self.ask = ask
        self.general = general
        self.idle_s = idle_s
        self.is_stopping = False
        self.open: set[Line] = set()

    def __call__(self) -> Line:
        return Line(self)

    def pre_shutdown(self) -> None:
        """Who waits for nothing is closed now, and the others after their answer."""
        self.is_stopping = True
        for line in list(self.open):
            if line.task is None:
                line.close()

    async def shutdown(self, grace_s: float) -> None:
        under_way = {line.task for line in self.open if line.task is not None}
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=ENDING_S)
        for line in list(self.open):
            line.close()


class Line(asyncio.Protocol):
    """At most one request is under way. What comes meanwhile is no answer's matter and is kept for the general server."""

    __slots__ = ("_head", "_is_full", "_late", "_lines", "_loop", "_since_s", "_timer", "_transport", "task")

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._head: Head | None = None
        self._late = b""
        self._is_full = False
        """The client does not read, and is not read from."""
        self._since_s = self._loop.time()
        """Nothing is under way."""
        self.task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """What was answered still leaves, unless the client does not read."""
        if self._is_full:
            self._transport.abort()
        else:
            self._transport.close()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = self._loop.call_later(self._lines.idle_s, self._look)
        self._lines.open.add(self)
        if self._lines.is_stopping:  # it had been let in just before
            self.close()

    def data_received(self, data: bytes) -> None:
        if self.task is not None:
            self._late += data
            if len(self._late) > LATE_BYTES_MAX:
                self._transport.pause_reading()
            return
        answer = self._understood(data)
        if answer is None:
            self._hand_over(data)
        else:
            self.task = self._loop.create_task(self._answer(answer))

    def pause_writing(self) -> None:
        self._is_full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as inherited
        self._leave()
        if self.task is not None:
            self.task.cancel()

    # --- inside ---

    def _understood(self, data: bytes) -> Answer | None:
        head = self._head
        if head is None or not data.startswith(head.raw):
            head = self._head = _head_of(data, self._transport)
            if head is None:
                return None
        rest = _REST.match(data, len(head.raw))
        if rest is None:
            return None
        size, begin = int(rest[2]), rest.end()
        if len(data) != begin + size or size > BODY_BYTES_MAX:
            return None
        head.own["Idempotency-Key"] = rest[1].decode()
        return self._lines.ask(head, data[begin:])

    async def _answer(self, answer: Answer) -> None:
        try:
            reply = await answer()
        except ConnectionError:  # as the general server takes it
            self._transport.abort()
            return
        self.task = None
        self._since_s = self._loop.time()
        self._transport.write(reply.data)
        if self._lines.is_stopping:
            self.close()
        elif self._late and not self._transport.is_closing():
            self._hand_over(self._late)

    def _hand_over(self, data: bytes) -> None:
        self._leave()
        transport, general = self._transport, self._lines.general()
        transport.resume_reading()
        transport.set_protocol(general)
        general.connection_made(transport)
        if self._is_full:
            general.pause_writing()
        general.data_received(data)

    def _leave(self) -> None:
        self._timer.cancel()
        self._lines.open.discard(self)

    def _look(self) -> None:
        """Whether it has been idle for too long."""
        left_s = self._since_s + self._lines.idle_s - self._loop.time()
        if self.task is None and left_s <= 0:
            self.close()
        else:
            self._timer = self._loop.call_later(left_s if left_s > 0 else self._lines.idle_s, self._look)


def _head_of(data: bytes, transport: asyncio.Transport) -> Head | None:
    match = _HEAD.match(data)
    if match is None:
        return None
    raw_path, query, host, agent, bearer = (group.decode() if group else "" for group in match.groups())
    try:
        given = parse(query, _PARAMS) if query else {}
    except Problem:
        return None
    headers = {"Host": host, "User-Agent": agent, "Authorization": bearer, "Content-Type": "application/json"}
    own = CIMultiDict((name, value) for name, value in headers.items() if value)
    local, remote = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return Head(
        match[0],
        raw_path,
        given,
        CIMultiDictProxy(own),
        local[0] if isinstance(local, tuple) else "",
        remote[0] if isinstance(remote, tuple) else None,
        own,
    )


# --- answers as bytes, as aiohttp writes them ---


def told(value: object, status: int) -> Reply:
    return _reply(status, _YES[status], encode(value))


def refused(problem: Problem) -> Reply:
    headers, body = problems.parts(problem)
    return _reply(problem.status, _top(problem.status, headers), body)


def _reply(status: int, top: bytes, body: bytes) -> Reply:
    return Reply(status, b"%bContent-Length: %d\r\n%b\r\n%b" % (top, len(body), _bottom(int(time.time())), body))


def _top(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "".join(f"{line}\r\n" for line in lines).encode()


@lru_cache(maxsize=1)
def _bottom(second: int) -> bytes:
    return f"Date: {formatdate(second, usegmt=True)}\r\nServer: {SERVER_SOFTWARE}\r\n".encode()


_YES: Final = {status: _top(status, JSON_HEADERS) for status in ROUTE.answers}
