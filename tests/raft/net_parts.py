"""What the tests of the peer link share: a network in memory on virtual time, and a node that writes down what it hears.

Bytes take a random time, in order on each connection. A connection can be cut as the world cuts them: by the death of a
process (the other side sees the end), or silently (nobody sees anything).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from quvatlh.raft.handshake import Doc
from quvatlh.raft.link import Down, Link
from quvatlh.raft.links import Links
from quvatlh.raft.network import Accept, Listener, Network, Writer
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import Channel, Message
from tests.sim.clock import SimClock, SimEntropy
from tests.sim.loop import SimLoop

T = TypeVar("T")

SECRET = b"the secret of this cluster"
DELAY_MAX_S = 0.003


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]]) -> T:
    """Run on virtual time. What a task raises unseen fails the test."""
    loop = SimLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


class End:
    """One end of a connection; Writer for its owner."""

    def __init__(self, net: MemNet, owner: str, address: str) -> None:
        self.net = net
        self.owner = owner
        self.address = address
        self.reader = asyncio.StreamReader()
        self.other: End = self
        self.closed = False
        self.ended = False
        self.stuck = False
        self.held = 0
        self.sent = bytearray()
        self.moved = asyncio.Event()
        self._arrives_s = 0.0

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        self.sent += data
        self.net.spoken.set()
        if self.stuck:
            self.held += len(data)
        else:
            self._later(self.other.arrive, data)

    async def drain(self) -> None:
        while self.stuck and not self.closed:
            await self.moved.wait()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if not self.stuck:
                self._later(self.other.finish, None)
            asyncio.get_running_loop().call_soon(self.finish, None)

    def abort(self) -> None:
        self.closed = True
        self.held = 0
        self._later(self.other.finish, ConnectionResetError("reset by peer"))
        asyncio.get_running_loop().call_soon(self.finish, None)

    def pending(self) -> int:
        return self.held

    def peername(self) -> str:
        return self.address

    def arrive(self, data: bytes) -> None:
        if not self.ended and not self.closed:
            self.reader.feed_data(data)

    def finish(self, error: Exception | None) -> None:
        if not self.ended:
            self.ended = True
            if error is None:
                self.reader.feed_eof()
            else:
                self.reader.set_exception(error)

    def _later(self, call: Callable[[Any], None], what: object) -> None:
        if (self.owner, self.other.owner) in self.net.silent or self.owner in self.net.gone:
            return
        loop = asyncio.get_running_loop()
        self._arrives_s = max(self._arrives_s, loop.time() + self.net.delay_s())
        loop.call_at(self._arrives_s, self._deliver, call, what)

    def _deliver(self, call: Callable[[Any], None], what: object) -> None:
        if (self.owner, self.other.owner) not in self.net.silent and self.owner not in self.net.gone:
            call(what)


class MemListener:
    def __init__(self, net: MemNet, address: str) -> None:
        self.net = net
        self.address = address

    async def close(self) -> None:
        self.net.listening.pop(self.address, None)


class MemNet:
    """All connections of all nodes."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.listening: dict[str, tuple[str, Accept]] = {}
        self.ends: list[End] = []
        self.silent: set[tuple[str, str]] = set()
        """(from, to): what is sent vanishes."""
        self.gone: set[str] = set()
        self.spoken = asyncio.Event()
        self.dialled_s: list[float] = []
        self.dials: list[tuple[str, str]] = []
        self.tasks: dict[asyncio.Future[None], None] = {}

    def delay_s(self) -> float:
        return self.random.random() * DELAY_MAX_S

    def view(self, owner: str) -> Network:
        return MemView(self, owner)

    def kill(self, owner: str) -> None:
        """The process died: its system closes all it had. It hears nothing more itself."""
        for end in self.ends:
            if end.owner == owner and not end.closed:
                end.close()
        self.vanish(owner, after=True)

    def vanish(self, owner: str, *, after: bool = False) -> None:
        """The machine lost its power: nobody is told. With `after`, what it sent before still arrives."""
        for address, (name, _) in list(self.listening.items()):
            if name == owner:
                del self.listening[address]
        for end in self.ends:
            if end.owner == owner:
                end.ended = end.closed = True
        if not after:
            self.gone.add(owner)

    async def first_words(self, owner: str, other: str) -> End:
        """The owner's end of the first connection between the two, once the owner has said something on it."""
        while not any(end.sent for end in self.between(owner, other)):
            self.spoken.clear()
            await self.spoken.wait()
        return self.between(owner, other)[0]

    def between(self, one: str, other: str) -> list[End]:
        return [end for end in self.ends if end.owner == one and end.other.owner == other]


class MemView:
    """The network as one node has it."""

    def __init__(self, net: MemNet, owner: str) -> None:
        self.net = net
        self.owner = owner

    async def dial(self, address: str) -> tuple[asyncio.StreamReader, Writer]:
        net = self.net
        net.dials.append((self.owner, address))
        net.dialled_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(net.delay_s())
        if address not in net.listening:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        owner, accept = net.listening[address]
        here, there = End(net, self.owner, address), End(net, owner, f"{self.owner}:55555")
        here.other, there.other = there, here
        net.ends += [here, there]
        task = asyncio.ensure_future(accept(there.reader, there))
        net.tasks[task] = None
        return here.reader, here

    async def listen(self, address: str, accept: Accept) -> Listener:
        self.net.listening[address] = (self.owner, accept)
        return MemListener(self.net, address)


class Ears:
    """What an owner of links hears, written down, and waiting for it."""

    links: Links

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.heard = asyncio.Event()

    async def until(self, holds: Callable[[], object], within_s: float = 30.0) -> None:
        """Wait for something that shows in what was heard."""
        async with asyncio.timeout(within_s):
            while not holds():
                await self.heard.wait()

    async def linked(self, other: str) -> Link:
        await self.until(lambda: self.links.get(other))
        link = self.links.get(other)
        assert link is not None
        return link

    def noted(self, kind: str) -> list[str]:
        return [fields["reason"] for name, fields in self.notes if name == kind]

    def _wake(self) -> None:
        self.heard.set()
        self.heard.clear()

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        self.notes.append((kind, fields))
        self._wake()


class Node(Ears):
    """Links with an owner that writes everything down."""

    def __init__(
        self, net: MemNet, loop: SimLoop, name: str, *, process: str = "", seed: int = 0, secret: bytes = SECRET,
        settings: Settings | None = None, wall_offset_ms: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.name = name
        self.address = f"{name}:1"
        self.ups: list[Link] = []
        self.downs: list[tuple[Link, Down]] = []
        self.story: list[str] = []
        self.hellos: list[tuple[Doc, str]] = []
        self.channels: list[Channel] = []
        self.doc: Doc = {"peer": self.address, "cluster": "c"}
        self.clock = SimClock(loop, wall_offset_ms=wall_offset_ms)
        self.links = Links(
            net.view(process or name),
            self.clock,
            SimEntropy(f"{name}/{process}/{seed}"),
            settings or Settings(),
            secret,
            name,
            lambda: self.doc,
            lambda doc: None if doc.get("cluster") == self.doc["cluster"] else f"of cluster {doc.get('cluster')}",
            self._note,
        )
        self.links.on_up = self._up
        self.links.on_down = self._down
        self.links.on_message = self._message
        self.links.on_hello = self._hello

    async def start(self, *dial: str) -> Node:
        await self.links.start(self.address)
        self.links.set_addresses(dial)
        return self

    def _up(self, link: Link) -> None:
        self.ups.append(link)
        self.story.append(f"up {link.serial}")
        self._wake()

    def _down(self, link: Link, how: Down) -> None:
        assert not link.send(["too late"])
        self.downs.append((link, how))
        self.story.append(f"down {link.serial} {how.how}")
        self._wake()

    def _message(self, link: Link, message: Message) -> None:
        self.story.append(f"message {link.serial}")
        self.messages.append(message)
        self._wake()

    def _hello(self, doc: Doc, address: str) -> None:
        self.hellos.append((doc, address))
        self._wake()


async def stop(*nodes: Node) -> None:
    for node in nodes:
        await node.links.stop()


async def open_pair(net: MemNet) -> tuple[tuple[asyncio.StreamReader, Writer], tuple[asyncio.StreamReader, Writer]]:
    """Two ends of one bare connection: the dialer's and the acceptor's."""
    arrived: asyncio.Future[tuple[asyncio.StreamReader, Writer]] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: Writer) -> None:
        arrived.set_result((reader, writer))

    listener = await net.view("acceptor").listen("acceptor:1", accept)
    dialled = await net.view("dialer").dial("acceptor:1")
    there = await arrived
    await listener.close()
    return dialled, there


async def two(loop: SimLoop, seed: int = 0, settings: Settings | None = None) -> tuple[MemNet, Node, Node]:
    """a dials b; both are linked."""
    net = MemNet(seed)
    a, b = Node(net, loop, "a", settings=settings), Node(net, loop, "b", settings=settings)
    await b.start()
    await a.start("b:1")
    await a.linked("b")
    await b.linked("a")
    return net, a, b


def raw_of(net: MemNet, owner: str, other: str) -> End:
    """The owner's end of the open connection to the other."""
    return next(end for end in reversed(net.between(owner, other)) if not end.closed)
