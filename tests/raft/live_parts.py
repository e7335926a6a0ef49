"""A node on real sockets, for tests that need the kernel in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator

from quvatlh.raft.link import Down, Link
from quvatlh.raft.links import Links
from quvatlh.raft.network import TcpNetwork
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import Message
from quvatlh.system.clock import RealClock
from tests.raft.net_parts import SECRET, Ears
from tests.sim.clock import SimEntropy

ANY_PORT = "127.0.0.1:0"
PATIENCE_S = 90.0


class LiveNode(Ears):
    def __init__(self, name: str, settings: Settings, secret: bytes, network: TcpNetwork | None) -> None:
        super().__init__()
        self.downs: list[Down] = []
        self.address = ""
        self.links = Links(
            network or TcpNetwork(settings=settings, note=self._note),
            RealClock(),
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
