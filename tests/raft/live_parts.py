"""A node on real sockets, for tests that need the kernel in between."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from quvatlh.raft.link import Down, Link
from quvatlh.raft.links import Links
from quvatlh.raft.network import TcpNetwork
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import Message
from tests.raft.net_parts import SECRET
from tests.sim.clock import SimEntropy

ANY_PORT = "127.0.0.1:0"
PATIENCE_S = 20.0


class LiveClock:
    def boot(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class LiveNode:
    def __init__(self, name: str, settings: Settings, secret: bytes, network: TcpNetwork | None) -> None:
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.messages: list[Message] = []
        self.downs: list[Down] = []
        self.address = ""
        self._heard = asyncio.Event()
        self.links = Links(
            network or TcpNetwork(settings=settings, note=self._note),
            LiveClock(),
            SimEntropy(f"{name} {time.monotonic_ns()}"),
            settings,
            secret,
            name,
            lambda: {"peer": self.address},
            lambda _doc: None,
            self._note,
        )
        self.links.on_up = lambda _link: self._wake()
        self.links.on_down = self._down
        self.links.on_message = self._message

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await self._heard.wait()

    async def linked(self, other: str) -> Link:
        await self.until(lambda: self.links.get(other))
        link = self.links.get(other)
        assert link is not None
        return link

    def noted(self, kind: str) -> list[str]:
        return [fields["reason"] for name, fields in self.notes if name == kind]

    def _wake(self) -> None:
        self._heard.set()
        self._heard.clear()

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self.notes.append((kind, fields))
        self._wake()

    def _down(self, _link: Link, how: Down) -> None:
        self.downs.append(how)
        self._wake()

    def _message(self, _link: Link, message: Message) -> None:
        self.messages.append(message)
        self._wake()


@contextlib.asynccontextmanager
async def live(
    name: str, *dial: str, settings: Settings | None = None, secret: bytes = SECRET, network: TcpNetwork | None = None
) -> AsyncIterator[LiveNode]:
    node = LiveNode(name, settings or Settings(), secret, network)
    node.address = await node.links.start(ANY_PORT)
    node.links.set_addresses(dial)
    try:
        yield node
    finally:
        await node.links.stop()
