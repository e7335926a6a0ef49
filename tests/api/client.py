"""A server on a free port of loopback over a fake pool, and ways to ask it: as a client does, and byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from quvatlh.api.server import JUDGED_EACH_S, Options, Server
from quvatlh.api.stream import Streams
from tests.fakes.pool import TOKEN, FakePool

WORK = {"command": ["true"]}


async def until(condition: Callable[[], object]) -> None:
    """Let everything else run until it holds."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def code(self) -> str | None:
        """Of a problem; None for a yes."""
        return self.json["code"] if self.headers["Content-Type"] == "application/problem+json" else None


class Client:
    """Asks with the good token, unless told otherwise."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = TOKEN,
    ) -> Answer:
        sent = {} if token is None else {"Authorization": f"Bearer {token}"}
        text = raw if body is None else json.dumps(body).encode()
        data = None if text is None else io.BytesIO(text)
        if text is not None:
            sent["Content-Type"] = "application/json"
        url = URL(self.base + path, encoded=True)
        sent |= headers or {}
        async with self.session.request(method, url, data=data, headers=sent, allow_redirects=False) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.ask("GET", path, **more)

    async def add(self, *tasks: Any, **more: Any) -> Answer:
        return await self.ask("POST", "/v1/events", {"event": "ADD", "tasks": list(tasks)}, **more)

    async def add_lines(self, raw: bytes, query: str = "", **headers: str) -> Answer:
        sent = {"Content-Type": "application/x-ndjson"} | {n.replace("_", "-"): v for n, v in headers.items()}
        return await self.ask("POST", f"/v1/events{query}", raw=raw, headers=sent)


@dataclass(frozen=True)
class Node:
    pool: FakePool
    server: Server
    address: str
    client: Client
    broken: list[BaseException]
    notes: list[dict[str, Any]]
    dialled: list[asyncio.StreamWriter] = field(default_factory=list)

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self.dialled.append(writer)
        return reader, writer

    async def say(self, raw: bytes) -> bytes:
        """All that comes back to these bytes until the server closes."""
        reader, writer = await self.dial()
        writer.write(raw)
        try:
            return await reader.read()
        finally:
            writer.close()

    def head(self, method: str, path: str, *more: str, token: str = TOKEN) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.address}", f"Authorization: Bearer {token}", *more, "", ""]
        return "\r\n".join(lines).encode()


@contextlib.asynccontextmanager
async def serving(
    options: Options | None = None,
    streams: Streams | None = None,
    trust: ssl.SSLContext | None = None,
    judged_each_s: float = JUDGED_EACH_S,
) -> AsyncIterator[Node]:
    pool = FakePool()
    broken: list[BaseException] = []
    notes: list[dict[str, Any]] = []
    server = Server(
        pool,
        options or Options("127.0.0.1:0"),
        note=lambda event, **fields: notes.append({"event": event, **fields}),
        on_broken=broken.append,
        streams=streams,
        judged_each_s=judged_each_s,
    )
    address = await server.start()
    connector = aiohttp.TCPConnector(ssl=trust or False)
    scheme = "https" if trust else "http"
    async with aiohttp.ClientSession(connector=connector) as session:
        node = Node(pool, server, address, Client(session, f"{scheme}://{address}"), broken, notes)
        try:
            yield node
        finally:
            for writer in node.dialled:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            await server.stop(grace_s=1.0)
