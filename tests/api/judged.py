"""The real services and the real server over them, and tokens of each kind: who may what is judged by both together."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from quvatlh.api.server import Options, Server
from quvatlh.core import commands as c
from quvatlh.core.model import Role, TokenScope
from quvatlh.service import asks
from quvatlh.service.tokens import hash_of
from tests.api.client import WORK, Answer, Client
from tests.service.stand import Stand, one, two

AGAIN_S = 0.02
"""So often what lasts is judged again here."""


def secret_of(name: str) -> str:
    return f"the-secret-of-{name}"


@dataclass(frozen=True)
class Door:
    """One node's."""

    stand: Stand
    server: Server
    client: Client
    broken: list[BaseException] = field(default_factory=list)

    async def token(
        self, name: str, role: Role, queues: tuple[str, ...] = ("*",), groups: tuple[str, ...] = ("*",)
    ) -> str:
        """Put into the table, as it is or anew; what it is shown by."""
        put = c.PutToken(name, hash_of(secret_of(name)), TokenScope(role, queues, groups))
        await self.stand.node.door.write(asks.Do(put), 1)
        return secret_of(name)

    async def revoke(self, name: str) -> None:
        await self.stand.node.door.write(asks.Do(c.RevokeToken(name)), 1)

    async def as_(self, name: str, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        return await self.client.ask(method, path, body, token=secret_of(name), **more)

    async def get(self, name: str, path: str) -> Any:
        answer = await self.as_(name, "GET", path)
        assert answer.status == 200, answer.json
        return answer.json

    async def ids(self, name: str, path: str) -> list[str]:
        return sorted(task["id"] for task in (await self.get(name, path))["items"])

    async def fill(self, *places: str, **more: Any) -> None:
        """Tasks named `queue.group`, one each."""
        for place in places:
            queue, _, group = place.partition(".")
            await self.stand.add(id=place, queue=queue, group=group or "default", **more)

    @contextlib.asynccontextmanager
    async def open(self, name: str, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is not read to its end."""
        headers = {"Authorization": f"Bearer {secret_of(name)}"}
        async with self.client.session.get(self.client.base + path, headers=headers) as response:
            yield response


@contextlib.asynccontextmanager
async def door_of(stand: Stand) -> AsyncIterator[Door]:
    broken: list[BaseException] = []
    server = Server(stand.pool, Options("127.0.0.1:0"), on_broken=broken.append, judged_each_s=AGAIN_S)
    address = await server.start()
    async with aiohttp.ClientSession() as session:
        try:
            yield Door(stand, server, Client(session, f"http://{address}"), broken)
        finally:
            await server.stop(grace_s=1.0)
    assert broken == []


@contextlib.asynccontextmanager
async def judged(directory: Path, *, slots: int = 0, **options: Any) -> AsyncIterator[Door]:
    async with one(directory, slots=slots, **options) as stand:
        await stand.until(lambda: not stand.node._status.token_waits)
        async with door_of(stand) as door:
            yield door


@contextlib.asynccontextmanager
async def judged_twice(directory: Path) -> AsyncIterator[tuple[Door, Door]]:
    """A master's and a follower's."""
    async with two(directory, slots=0) as (master, follower, _), door_of(master) as first, door_of(follower) as second:
        await master.until(lambda: not follower.node._status.token_waits)
        yield first, second


def add(**task: Any) -> dict[str, Any]:
    return {"event": "ADD", "tasks": [{"work": WORK, **task}]}
