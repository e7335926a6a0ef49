"""Who says byte by byte what the client library says of a lone ADD; and nodes that take it this way or that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quvatlh.api import straight
from quvatlh.service.pool import Principal
from quvatlh.service.tokens import hash_of
from tests.api.client import WORK, Answer, Node, until
from tests.fakes.pool import TOKEN

BODY = json.dumps({"event": "ADD", "tasks": [{"work": WORK}]}).encode()
SOON_S = 30.0


def sentence(node: Node, body: bytes = BODY, *more: str, key: str = "k", token: str = TOKEN, host: str = "") -> bytes:
    """As the client says it; `more` are headers that it does not send."""
    lines = [
        "POST /v1/events?deadline=5000ms HTTP/1.1",
        f"Host: {host or node.address}",
        "User-Agent: quvatlh",
        *more,
        *([f"Authorization: Bearer {token}"] if token else []),
        "Content-Type: application/json",
        f"Idempotency-Key: {key}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Caller:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def hear(self) -> Answer:
        async with asyncio.timeout(SOON_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            headers = dict(line.split(": ", 1) for line in head[1:-1])
            body = await self.reader.readexactly(int(headers["Content-Length"]))
        return Answer(int(head[0].split()[1]), headers, body)

    async def ask(self, raw: bytes) -> Answer:
        self.writer.write(raw)
        return await self.hear()

    async def end(self) -> bytes:
        """What still comes until the node has closed."""
        async with asyncio.timeout(SOON_S):
            return await self.reader.read()


async def call(node: Node) -> Caller:
    """Connected, and its connection made."""
    before = len(lines(node))
    caller = Caller(*await node.dial())
    await until(lambda: len(lines(node)) > before)
    return caller


def lines(node: Node) -> set[straight.Line]:
    """Connections that are not aiohttp's."""
    assert node.server._lines is not None
    return node.server._lines.open


def health(node: Node, *more: str) -> bytes:
    lines = ["GET /healthz HTTP/1.1", f"Host: {node.address}", *more, "", ""]
    return "\r\n".join(lines).encode()


def add(**task: Any) -> bytes:
    return json.dumps({"event": "ADD", "tasks": [{"work": WORK} | task]}).encode()


def fails_with(error: Exception) -> Callable[[Node], None]:
    return lambda node: node.pool.fail_next(error)


def known_as(role: str, *queues: str) -> Callable[[Node], None]:
    who = Principal("ann", role, queues or ("*",))
    return lambda node: node.pool.watching.principals.update({hash_of("of-ann"): who})


def judges_with(error: Exception) -> Callable[[Node], None]:
    def authenticate(bearer: str) -> Principal | None:
        raise error

    return lambda node: setattr(node.pool, "authenticate", authenticate)
