"""Nodes that answer as they are told, one behaviour a request, and remember what they were asked. Ports are free ones; a
node that refuses connections holds a port and does not listen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from quvatlh.client import Client, Options
from quvatlh.client.http import Http


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        return self.headers.get("Idempotency-Key")


Behaviour = Callable[[web.BaseRequest, bytes], Awaitable[web.StreamResponse]]


@dataclass
class Node:
    url: str
    script: list[Behaviour]
    asked: list[Asked] = field(default_factory=list)

    @property
    def keys(self) -> list[str | None]:
        return [one.key for one in self.asked]


def answers(value: object, status: int = 200, **headers: str) -> Behaviour:
    async def behave(_request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): each for name, each in headers.items()}
        return web.Response(body=json.dumps(value).encode(), status=status, headers=sent)

    return behave


def problem(status: int, code: str, detail: str = "no", errors: Any = (), **headers: str) -> Behaviour:
    document = {"code": code, "status": status, "detail": detail, "errors": list(errors)}
    return answers(document, status, Content_Type="application/problem+json", **headers)


def added(*ids: str) -> Behaviour:
    return answers({"ids": list(ids), "index": 7, "existing": {}}, 201)


def drops() -> Behaviour:
    """Took the request, and is gone."""

    async def behave(request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError

    return behave


def drops_after(data: bytes, content_type: str = "application/json", **headers: str) -> Behaviour:
    """Gone in the middle of its answer."""

    async def behave(request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        sent = {"Content-Type": content_type} | {name.replace("_", "-"): each for name, each in headers.items()}
        response = web.StreamResponse(headers=sent)
        await response.prepare(request)
        await response.write(data)
        assert request.transport is not None
        request.transport.close()  # what was written still goes out; the end of the chunks does not
        raise ConnectionResetError

    return behave


def sends(data: bytes, content_type: str = "text/plain", **headers: str) -> Behaviour:
    async def behave(_request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        sent = {"Content-Type": content_type} | {name.replace("_", "-"): each for name, each in headers.items()}
        return web.Response(body=data, headers=sent)

    return behave


def hangs() -> Behaviour:
    async def behave(_request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    return behave


@contextlib.asynccontextmanager
async def node(*script: Behaviour) -> AsyncIterator[Node]:
    unexpected: list[str] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        body = b"".join([part async for part in request.content.iter_any()])
        made.asked.append(Asked(request.method, request.path_qs, dict(request.headers), body))
        if not made.script:
            unexpected.append(f"{request.method} {request.path_qs}")
            raise ConnectionResetError
        return await made.script.pop(0)(request, body)

    server = web.Server(handle, handler_cancellation=True)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    made = Node(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", list(script))
    try:
        yield made
    finally:
        await _close(listener)
        await server.shutdown(0.1)
        assert unexpected == []


async def _close(listener: asyncio.Server) -> None:
    """asyncio drops a connection that it accepts while its server closes, and leaves it open."""
    loop = asyncio.get_running_loop()
    for each in listener.sockets:
        loop.remove_reader(each.fileno())
    for _ in range(3):
        await asyncio.sleep(0)
    listener.close()


@contextlib.asynccontextmanager
async def nobody() -> AsyncIterator[str]:
    """An address where nobody listens, for as long as it is entered."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def clock(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@contextlib.asynccontextmanager
async def client(*urls: str, time: Time | None = None, **options: Any) -> AsyncIterator[Client]:
    made = Options(urls, "secret", **options)
    http = Http(made, clock=time.clock, pause=time.pause) if time else Http(made)
    async with Client(made, http) as entered:
        yield entered
