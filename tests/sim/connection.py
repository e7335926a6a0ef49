"""One simulated TCP connection: two endpoints, a pipe each way.

A pipe keeps order and loses nothing as long as both machines live: bytes wait unsent at the writer, then on the wire,
then in the receiver's kernel, and each of the three is bounded by the next. What a process sees (bytes in its reader,
an end, a reset, room to write) reaches it by a handle of its own, so a paused one sees it later and a dead one never.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, cast

from quvatlh.raft.network import READ_LIMIT_BYTES
from quvatlh.raft.settings import Settings

if TYPE_CHECKING:
    from tests.sim.loop import SimHandle
    from tests.sim.net import NetWorld
    from tests.sim.process import Process

WINDOW_BYTES = 256 * 1024
"""On the wire and in the receiver's kernel together; beyond it bytes wait at the writer."""
CHUNK_BYTES_MAX = 64 * 1024
HIGH_WATER_BYTES = Settings().append_bytes_max
LOW_WATER_BYTES = HIGH_WATER_BYTES // 4
"""`drain` waits above the one until below the other, as it does over TCP."""


class Mark(Enum):
    """What travels besides bytes, in order with them."""

    END = "end"
    RESET = "reset"


class Pipe:
    """One direction, from `src` to `dst`."""

    __slots__ = ("arrived", "arrived_bytes", "dst", "end_due", "give_up", "last_at_s", "net", "src", "timer", "unsent",
                 "wire", "wire_bytes")  # fmt: skip

    def __init__(self, net: NetWorld, src: Endpoint, dst: Endpoint) -> None:
        self.net = net
        self.src = src
        self.dst = dst
        self.unsent = bytearray()
        self.end_due = False
        """END follows once `unsent` is empty."""
        self.wire: deque[tuple[float, bytes | Mark]] = deque()
        self.wire_bytes = 0
        self.arrived: deque[bytes | Mark] = deque()
        self.arrived_bytes = 0
        self.last_at_s = 0.0
        self.timer: SimHandle | None = None
        self.give_up: SimHandle | None = None

    def pump(self) -> None:
        """Put on the wire what has room there; called whenever that may have changed."""
        net, unsent = self.net, self.unsent
        if net.blocked(self.src.host, self.dst.host):
            self._stall()
            return
        if self.give_up is not None:
            self.give_up.cancel()
            self.give_up = None
        while unsent and (room := WINDOW_BYTES - self.wire_bytes - self.arrived_bytes) > 0:
            size = net.cut_size(min(len(unsent), room, CHUNK_BYTES_MAX))
            chunk = bytes(unsent[:size])
            del unsent[:size]
            self._send(chunk)
        if self.end_due and not unsent:
            self.end_due = False
            self._send(Mark.END)
        elif self.wire and self.timer is None:
            self._send_again()
        self.src.sent()

    def finish(self, mark: Mark) -> None:
        """No more bytes: what is unsent is dropped, what is on the wire arrives, then `mark`."""
        self.unsent.clear()
        self.end_due = False
        self._send(mark)

    def clear(self) -> None:
        """Nothing of it arrives any more."""
        self.unsent.clear()
        self.end_due = False
        self.wire.clear()
        self.wire_bytes = 0
        for timer in (self.timer, self.give_up):
            if timer is not None:
                timer.cancel()
        self.timer = self.give_up = None

    def take(self) -> bytes | Mark | None:
        """The receiver's process reads what its kernel has: all bytes up to the next mark, or that mark."""
        if not self.arrived:
            return None
        if isinstance(self.arrived[0], Mark):
            return cast("Mark", self.arrived.popleft())
        parts: list[bytes] = []
        while self.arrived and not isinstance(self.arrived[0], Mark):
            parts.append(cast("bytes", self.arrived.popleft()))
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.arrived_bytes -= len(data)
        self.pump()
        return data

    def _send(self, item: bytes | Mark) -> None:
        net = self.net
        size = len(item) if isinstance(item, bytes) else 0
        at_s = max(self.last_at_s, net.loop.now_s + net.latency(self.src.host, self.dst.host, size))
        self.last_at_s = at_s
        self.wire.append((at_s, item))
        self.wire_bytes += size
        if self.timer is None:
            self._arm(at_s)

    def _send_again(self) -> None:
        """The wire held still and moves again: what is on it is sent anew."""
        at_s = self.net.loop.now_s + self.net.latency(self.src.host, self.dst.host, self.wire_bytes)
        self.wire = deque((max(at_s, due_s), item) for due_s, item in self.wire)
        self.last_at_s = max(self.last_at_s, at_s)
        self._arm(self.wire[0][0])

    def _arm(self, at_s: float) -> None:
        self.timer = self.net.loop.call_at(at_s, self._arrive, context=self.net.context)

    def _arrive(self) -> None:
        self.timer = None
        if self.net.blocked(self.src.host, self.dst.host):
            self._stall()
            return
        now_s = self.net.loop.now_s
        wire, dst = self.wire, self.dst
        while wire and wire[0][0] <= now_s:
            item = wire.popleft()[1]
            if isinstance(item, bytes):
                self.wire_bytes -= len(item)
                if not dst.gone:
                    self.arrived_bytes += len(item)
            if not dst.gone:
                self.arrived.append(item)
            elif isinstance(item, bytes) and not self.src.gone:
                # Nobody is there who knows this connection, and the kernel says so.
                self.clear()
                dst.out.finish(Mark.RESET)
                return
        if not dst.gone:
            dst.wake()
        if wire:
            self._arm(wire[0][0])

    def _stall(self) -> None:
        if self.give_up is None and self.net.give_up_s is not None and (self.unsent or self.wire or self.end_due):
            self.give_up = self.net.loop.call_later(self.net.give_up_s, self._given_up, context=self.net.context)

    def _given_up(self) -> None:
        self.give_up = None
        if self.net.blocked(self.src.host, self.dst.host):
            self.src.break_off(TimeoutError("the other side has not answered for long"))


class _Brake:
    """The StreamReader's transport, as far as it uses one: it holds up reading while its buffer is full."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def pause_reading(self) -> None:
        self._endpoint.reading = False

    def resume_reading(self) -> None:
        self._endpoint.reading = True
        self._endpoint.wake()


class Endpoint:
    """One side's socket. Keeps raft.network.Writer."""

    def __init__(self, net: NetWorld, process: Process, host: str, peer: str) -> None:
        self.net = net
        self.process = process
        self.host = host
        self.peer = peer
        """Address of the other side."""
        self.out: Pipe
        self.inn: Pipe
        self.gone = False
        """The kernel knows no such connection any more: what arrives is answered with a reset."""
        self.reading = True
        self.reader = asyncio.StreamReader(limit=READ_LIMIT_BYTES, loop=process.loop)
        self.reader.set_transport(cast("asyncio.Transport", _Brake(self)))
        self._closing = False
        self._lost = False
        self._fate: Exception | None = None
        self._awake = False
        self._drainers: deque[asyncio.Future[None]] = deque()

    # The process's side.

    def write(self, data: bytes) -> None:
        if self._closing or self.gone or not data or not self.process.alive:
            return
        self.out.unsent += data
        self.out.pump()

    async def drain(self) -> None:
        error = self.reader.exception()
        if error is not None:
            raise error
        if self._closing:
            await asyncio.sleep(0)
        if self._lost:
            raise ConnectionResetError("Connection lost")
        if len(self.out.unsent) > HIGH_WATER_BYTES:
            waiter: asyncio.Future[None] = self.process.loop.create_future()
            self._drainers.append(waiter)
            await waiter

    def pending(self) -> int:
        return len(self.out.unsent)

    def peername(self) -> str:
        return self.peer

    def close(self) -> None:
        """What is unsent still goes, then the end; nothing more is read."""
        if self._closing or self.gone or not self.process.alive:
            return
        self._closing = True
        self.out.end_due = True
        self.out.pump()
        self.wake()

    def abort(self) -> None:
        if self._lost or self.gone or not self.process.alive:
            return
        self._closing = True
        self.leave()
        self.wake()

    # The kernel's side.

    def leave(self) -> None:
        """The socket is closed by force, by abort or with its process: the end or, with bytes unread, a reset."""
        if self.gone:
            return
        self.gone = True
        unread = bool(self.inn.arrived_bytes)
        self.out.finish(Mark.RESET if unread or self.net.rng.random() < 0.5 else Mark.END)
        self.inn.arrived.clear()
        self.inn.arrived_bytes = 0
        self.net.forget(self)

    def vanish(self) -> None:
        """The machine lost its power: not a word to anybody, and nothing known of it later."""
        if not self.gone:
            self.gone = True
            self.out.clear()
            self.inn.arrived.clear()
            self.inn.arrived_bytes = 0
            self.net.forget(self)

    def break_off(self, error: OSError) -> None:
        """The kernel gives the connection up, on this side."""
        if not self.gone:
            self.gone = True
            self._fate = error
            self.out.clear()
            self.net.forget(self)
            self.wake()

    def sent(self) -> None:
        """The pipe took what it could: somebody may be waiting for that."""
        if len(self.out.unsent) <= LOW_WATER_BYTES and (self._drainers or (self._closing and not self.gone)):
            self.wake()

    def wake(self) -> None:
        """Have the process look at its socket."""
        if not self._awake and self.process.alive:
            self._awake = True
            self.process.loop.call_soon(self._look, context=self.process.context)

    def _look(self) -> None:
        self._awake = False
        while self.reading and not self._lost and not self._closing and (item := self.inn.take()) is not None:
            if item is Mark.RESET:
                self.break_off(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            elif item is Mark.END:
                self.reader.feed_eof()
            elif isinstance(item, bytes):
                self.reader.feed_data(item)
        if self._closing and not self.gone:
            self._look_closing()
        if (self.gone or self._fate is not None) and not self._lost:
            self._connection_lost()
        self._let_drain()

    def _look_closing(self) -> None:
        """Bytes that come now are for nobody; once the last of ours are on the wire the kernel forgets the socket."""
        while (item := self.inn.take()) is not None:
            if item is Mark.RESET:
                self.break_off(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
                return
        if not self.out.unsent and not self.out.end_due:
            self.gone = True
            self.net.forget(self)

    def _connection_lost(self) -> None:
        self._lost = True
        if self._fate is None or self._closing:
            self.reader.feed_eof()
        else:
            self.reader.set_exception(self._fate)

    def _let_drain(self) -> None:
        while self._drainers and (self._lost or len(self.out.unsent) <= LOW_WATER_BYTES):
            waiter = self._drainers.popleft()
            if not waiter.done():
                if self._lost:
                    waiter.set_exception(self._fate or ConnectionResetError("Connection lost"))
                else:
                    waiter.set_result(None)
