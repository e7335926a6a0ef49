"""The network between simulated machines: dialling, delay, partitions, and what befalls connections.

`NetWorld` is the wires and kernels; `attach` gives each incarnation a view that keeps raft.network.Network. An address
is "machine:port". A blocked direction loses nothing that TCP would not send again: it holds it until `heal`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Iterable
from contextvars import Context
from dataclasses import dataclass

from quvatlh.raft.network import Accept
from tests.sim.connection import Endpoint, Pipe
from tests.sim.loop import SimLoop
from tests.sim.process import Process

EPHEMERAL_PORT = 50_000
"""Port 0 is the first free one from here."""
SYN_AGAIN_S = 1.0
SYN_TRIES_MAX = 6
"""A dial nobody answers is tried again so often, then it is a timeout."""


@dataclass(slots=True)
class Link:
    """One direction between two machines."""

    latency_s: tuple[float, float] = (0.0002, 0.002)
    spike_chance: float = 0.005
    spike_s: tuple[float, float] = (0.005, 0.05)
    bytes_per_s: float = 1e9
    cut_chance: float = 0.2
    """A chunk is cut in two at any byte; whole messages would hide faults of framing."""

    def delay(self, rng: random.Random, size: int) -> float:
        low, high = self.spike_s if rng.random() < self.spike_chance else self.latency_s
        return low + (high - low) * rng.random() + size / self.bytes_per_s


class SimListener:
    def __init__(self, net: NetWorld, process: Process, host: str, port: int, accept: Accept) -> None:
        self._net = net
        self.process = process
        self.host = host
        self.port = port
        self.accept = accept

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def close(self) -> None:
        self._net.unlisten(self)


class SimNetwork:
    """Keeps raft.network.Network for one incarnation."""

    def __init__(self, net: NetWorld, process: Process, host: str) -> None:
        self._net = net
        self._process = process
        self._host = host

    async def dial(self, address: str) -> tuple[asyncio.StreamReader, Endpoint]:
        answer: asyncio.Future[Endpoint] = self._process.loop.create_future()
        self._net.dial(self._process, self._host, address, answer)
        endpoint = await answer
        return endpoint.reader, endpoint

    async def listen(self, address: str, accept: Accept) -> SimListener:
        return self._net.listen(self._process, self._host, address, accept)


class NetWorld:
    def __init__(self, loop: SimLoop, rng: random.Random, link: Link | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.context: Context = loop.world_context
        self.link = link or Link()
        """Of all pairs that have none of their own."""
        self.give_up_s: float | None = None
        """A sender whose bytes are held for so long gets a timeout; None: it waits for ever."""
        self._links: dict[tuple[str, str], Link] = {}
        self._blocks: dict[tuple[str, str], None] = {}
        self._down: dict[str, None] = {}
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._endpoints: dict[Endpoint, None] = {}
        self._next_port: dict[str, int] = {}

    def attach(self, process: Process, host: str | None = None) -> SimNetwork:
        host = host or process.name
        process.on_dead.append(lambda power: self._process_dead(process, power))
        return SimNetwork(self, process, host)

    # What befalls it.

    def block(self, src: str, dst: str) -> None:
        """Nothing gets from `src` to `dst`; the other direction is as it was."""
        self._blocks[src, dst] = None

    def partition(self, side: Iterable[str], other: Iterable[str], both_ways: bool = True) -> None:
        other = list(other)
        for a in side:
            for b in other:
                self.block(a, b)
                if both_ways:
                    self.block(b, a)

    def heal(self) -> None:
        """Nothing is blocked any more; links keep their speed."""
        self._blocks.clear()
        self._kick()

    def unblock(self, src: str, dst: str) -> None:
        self._blocks.pop((src, dst), None)
        self._kick()

    def set_link(self, src: str, dst: str, link: Link | None) -> None:
        """None: as all others."""
        if link is None:
            self._links.pop((src, dst), None)
        else:
            self._links[src, dst] = link

    def cut(self, a: str, b: str) -> int:
        """Reset all connections between two machines, each end in its own time; the number of ends."""
        ends = [e for e in self._endpoints if {e.host, e.out.dst.host} == {a, b}]
        for end in ends:
            reset = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self.loop.call_later(self.latency(a, b, 0), end.break_off, reset, context=self.context)
        return len(ends)

    def host_down(self, host: str) -> None:
        """The machine is without power: it takes nothing and says nothing."""
        self._down[host] = None

    def host_up(self, host: str) -> None:
        """Its kernel answers again, and knows no connection from before."""
        self._down.pop(host, None)
        self._kick()

    # What processes ask for.

    def listen(self, process: Process, host: str, address: str, accept: Accept) -> SimListener:
        port = _port(address)
        if port == 0:
            port = self._next_port.get(host, EPHEMERAL_PORT)
            while (host, port) in self._listeners:
                port += 1
            self._next_port[host] = port + 1
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), address)
        listener = SimListener(self, process, host, port, accept)
        if process.alive:
            self._listeners[host, port] = listener
        return listener

    def unlisten(self, listener: SimListener) -> None:
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[listener.host, listener.port]

    def dial(self, process: Process, host: str, address: str, answer: asyncio.Future[Endpoint]) -> None:
        """Send a first SYN; `answer` gets the socket or an OSError, or nothing for long."""
        if process.alive:
            self._syn(_Dial(process, host, address, answer), 1)

    def _syn(self, dial: _Dial, tries: int) -> None:
        if dial.over():
            return
        if tries > SYN_TRIES_MAX:
            dial.refuse(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), dial.address))
            return
        dial.again = self.loop.call_later(SYN_AGAIN_S, self._syn, dial, tries + 1, context=self.context)
        delay_s = self.latency(dial.host, dial.to_host, 0)
        self.loop.call_later(delay_s, self._syn_arrives, dial, context=self.context)

    def _syn_arrives(self, dial: _Dial) -> None:
        if dial.over() or dial.taken or self.blocked(dial.host, dial.to_host) or self.blocked(dial.to_host, dial.host):
            return
        delay_s = self.latency(dial.to_host, dial.host, 0)
        listener = self._listeners.get((dial.to_host, dial.port))
        if listener is None:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED), dial.address)
            self.loop.call_later(delay_s, dial.refuse, refused, context=self.context)
            return
        dial.again.cancel()
        dial.taken = True
        ours = Endpoint(self, dial.process, dial.host, dial.address)
        theirs = Endpoint(self, listener.process, dial.to_host, f"{dial.host}:{self._source_port(dial.host)}")
        ours.out = theirs.inn = Pipe(self, ours, theirs)
        ours.inn = theirs.out = Pipe(self, theirs, ours)
        # What the accepting side says at once must not overtake the news that the connection stands.
        theirs.out.last_at_s = self.loop.now_s + delay_s
        self._endpoints[ours] = self._endpoints[theirs] = None
        listener.process.loop.call_soon(_accepted, listener, theirs, context=listener.process.context)
        self.loop.call_later(delay_s, self._syn_answered, dial, ours, context=self.context)

    def _syn_answered(self, dial: _Dial, endpoint: Endpoint) -> None:
        if self.blocked(dial.to_host, dial.host) and not dial.over():
            self.loop.call_later(SYN_AGAIN_S, self._syn_answered, dial, endpoint, context=self.context)
        else:
            dial.connect(endpoint)

    # What pipes and endpoints ask for.

    def blocked(self, src: str, dst: str) -> bool:
        return (src, dst) in self._blocks or dst in self._down or src in self._down

    def latency(self, src: str, dst: str, size: int) -> float:
        return self._links.get((src, dst), self.link).delay(self.rng, size)

    def cut_size(self, size: int) -> int:
        """How many of `size` bytes travel together."""
        if size > 1 and self.rng.random() < self.link.cut_chance:
            return self.rng.randrange(1, size)
        return size

    def forget(self, endpoint: Endpoint) -> None:
        self._endpoints.pop(endpoint, None)

    def _kick(self) -> None:
        for endpoint in list(self._endpoints):
            endpoint.out.pump()
            endpoint.inn.pump()

    def _process_dead(self, process: Process, power: bool) -> None:
        for key in [key for key, listener in self._listeners.items() if listener.process is process]:
            del self._listeners[key]
        for endpoint in [e for e in self._endpoints if e.process is process]:
            if power:
                endpoint.vanish()
            else:
                endpoint.leave()

    def _source_port(self, host: str) -> int:
        port = self._next_port.get(host, EPHEMERAL_PORT)
        self._next_port[host] = port + 1
        return port


class _Dial:
    """One attempt to connect."""

    def __init__(self, process: Process, host: str, address: str, answer: asyncio.Future[Endpoint]) -> None:
        self.process = process
        self.host = host
        self.address = address
        self.to_host = address.rpartition(":")[0]
        self.port = _port(address)
        self.answer = answer
        self.again: asyncio.TimerHandle
        self.taken = False
        """The other kernel has accepted it; a SYN sent twice makes no second connection."""

    def over(self) -> bool:
        return self.answer.done() or not self.process.alive

    def refuse(self, error: OSError) -> None:
        if not self.over():
            self.again.cancel()
            self.answer.set_exception(error)

    def connect(self, endpoint: Endpoint) -> None:
        """The other side has accepted; a dialler that has gone hangs up."""
        if endpoint.gone:
            self.refuse(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET), self.address))
        elif self.over():
            endpoint.leave()
        else:
            self.answer.set_result(endpoint)


def _accepted(listener: SimListener, endpoint: Endpoint) -> None:
    async def serve() -> None:
        await listener.accept(endpoint.reader, endpoint)

    listener.process.spawn(serve(), name=f"{listener.host}/accept {endpoint.peer}")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
