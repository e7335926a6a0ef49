"""What TcpNetwork and SimNetwork both promise: one suite, run on each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from quvatlh.raft.network import Listener, Network, TcpNetwork, Writer
from tests.sim.world import Env, World

PATIENCE_S = 90.0
"""Far above anything that is waited for; a test that needs it has failed."""


@dataclass(frozen=True)
class Place:
    network: Network
    any_port: str
    run: Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["real", "sim"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "real":
        yield Place(TcpNetwork(), "127.0.0.1:0", lambda coro: asyncio.run(asyncio.wait_for(coro, PATIENCE_S)))
        return
    with World(1) as world:

        async def idle(_: Env) -> None:
            await asyncio.Event().wait()

        env = world.host("a").start(idle)

        def run(coro: Coroutine[Any, Any, Any]) -> object:
            return world.loop.run_until_complete(env.process.spawn(asyncio.wait_for(coro, PATIENCE_S)))

        yield Place(env.network, "a:0", run)


class Pair:
    """Two ends of one connection. Held while in use, as the peer link holds its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._accepted: asyncio.Queue[tuple[asyncio.StreamReader, Writer]] = asyncio.Queue()

    async def __aenter__(self) -> Pair:  # noqa: PYI034 - never subclassed
        self.listener: Listener = await self._place.network.listen(self._place.any_port, self._accept)
        self.reader, self.writer = await self._place.network.dial(self.listener.address)
        self.their_reader, self.their_writer = await self._accepted.get()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.close()
        self.writer.abort()
        self.their_writer.abort()
        await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self._accepted.put_nowait((reader, writer))


async def reads_end(reader: asyncio.StreamReader) -> bool:
    """Read on until nothing more comes, by the end or by a reset."""
    try:
        while await reader.read(100_000):
            pass
    except ConnectionError:
        return True
    return reader.at_eof()


async def write_on(writer: Writer) -> None:
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


def test_a_port_nobody_serves_refuses(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            address = pair.listener.address
        with pytest.raises(ConnectionRefusedError):
            await place.network.dial(address)

    place.run(main())


def test_a_port_is_served_once_and_port_0_is_any(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            host, _, port = pair.listener.address.rpartition(":")
            assert host == place.any_port.rpartition(":")[0]
            assert int(port) > 0
            with pytest.raises(OSError, match="in use"):
                await place.network.listen(pair.listener.address, pair._accept)

    place.run(main())


def test_bytes_come_in_order_both_ways(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            data = bytes(range(256)) * 4000
            for start in range(0, len(data), 7777):
                pair.writer.write(data[start : start + 7777])
            pair.their_writer.write(b"hello")
            assert await pair.their_reader.readexactly(len(data)) == data
            assert await pair.reader.readexactly(5) == b"hello"
            assert pair.writer.peername() == pair.listener.address
            assert pair.their_writer.peername().rpartition(":")[0] == place.any_port.rpartition(":")[0]

    place.run(main())


def test_closing_sends_what_was_written_and_then_the_end(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            data = b"x" * 3_000_000
            pair.writer.write(data)
            pair.writer.close()
            pair.writer.close()
            pair.writer.write(b"too late")
            assert await pair.their_reader.read(-1) == data
            assert await reads_end(pair.reader)

    place.run(main())


def test_aborting_ends_it_for_both(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            pair.writer.write(b"x" * 30_000_000)
            assert pair.writer.pending() > 0
            pair.writer.abort()
            pair.writer.abort()
            assert await reads_end(pair.their_reader)
            assert await reads_end(pair.reader)
            assert pair.writer.pending() == 0

    place.run(main())


def test_drain_waits_while_much_is_pending_and_goes_on_when_it_is_read(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            data = b"x" * 30_000_000
            pair.writer.write(data)
            draining = asyncio.ensure_future(pair.writer.drain())
            await pair.their_reader.readexactly(1)
            assert not draining.done()
            assert pair.writer.pending() > 0
            assert len(await pair.their_reader.readexactly(len(data) - 1)) == len(data) - 1
            await draining
            assert pair.writer.pending() < len(data)

    place.run(main())


def test_drain_fails_when_the_connection_is_lost(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            pair.writer.write(b"x" * 30_000_000)
            draining = asyncio.ensure_future(pair.writer.drain())
            await pair.their_reader.readexactly(1)
            pair.their_writer.abort()
            with pytest.raises(ConnectionError):
                await draining
            with pytest.raises(ConnectionError):
                await pair.writer.drain()

    place.run(main())


def test_writing_to_one_who_has_gone_ends_it_here_too(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            pair.their_writer.close()
            with pytest.raises(ConnectionError):
                await write_on(pair.writer)

    place.run(main())


def test_closing_a_listener_leaves_its_connections(place: Place) -> None:
    async def main() -> None:
        async with Pair(place) as pair:
            await pair.listener.close()
            pair.writer.write(b"still")
            assert await pair.their_reader.readexactly(5) == b"still"

    place.run(main())
