"""What the simulated network does to connections: partitions, cuts, deaths at either end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from quvatlh.raft.network import Writer
from tests.sim.world import Env, World


@pytest.fixture
def world() -> Iterator[World]:
    with World(1) as made:
        yield made


async def idle(_: Env) -> None:
    await asyncio.Event().wait()


class Wire:
    """A connection from `a` to `b`, and what each end has read of it."""

    def __init__(self, world: World) -> None:
        self.a = world.host("a")
        self.b = world.host("b")
        self.got = {"a": bytearray(), "b": bytearray()}
        self.end: dict[str, str] = {}
        self.b.start(self.accept)
        self.env = self.a.start(self.dial)
        world.run_for(0.5)

    async def accept(self, env: Env) -> None:
        async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
            self.b_writer = writer
            await self.read("b", reader)

        await env.network.listen("b:1", serve)
        await asyncio.Event().wait()

    async def dial(self, env: Env) -> None:
        reader, self.writer = await env.network.dial("b:1")
        await self.read("a", reader)
        await asyncio.Event().wait()

    async def read(self, name: str, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(1000):
                self.got[name] += data
            self.end[name] = "end"
        except OSError as error:
            self.end[name] = type(error).__name__

    def write(self, data: bytes) -> None:
        self.env.process.call(self.writer.write, data)


def test_bytes_arrive_all_and_in_order_however_they_are_cut(world: World) -> None:
    wire = Wire(world)
    rng = random.Random(3)
    sent = b""
    for _ in range(300):
        chunk = rng.randbytes(rng.randrange(5000))
        sent += chunk
        wire.write(chunk)
        world.run_for(rng.random() / 1000)
    world.run_for(10)
    assert wire.got["b"] == sent
    assert wire.writer.pending() == 0


def test_a_partition_holds_bytes_and_healing_lets_them_go(world: World) -> None:
    wire = Wire(world)
    world.net.block("a", "b")
    wire.write(b"x" * 3_000_000)
    world.run_for(100)
    assert wire.writer.pending() == 3_000_000
    assert not wire.got["b"]
    world.net.heal()
    world.run_for(10)
    assert wire.got["b"] == b"x" * 3_000_000
    assert wire.end == {}


def test_a_sender_gives_up_a_partition_that_lasts(world: World) -> None:
    world.net.give_up_s = 20
    wire = Wire(world)
    world.net.partition("a", "b")
    wire.write(b"x")
    world.run_for(30)
    assert wire.end == {"a": "TimeoutError"}


def test_a_cut_connection_is_reset_at_both_ends(world: World) -> None:
    wire = Wire(world)
    assert world.net.cut("a", "b") == 2
    world.run_for(1)
    assert wire.end == {"a": "ConnectionResetError", "b": "ConnectionResetError"}


def test_peers_of_a_killed_process_see_it_unless_they_are_cut_off(world: World) -> None:
    wire = Wire(world)
    world.net.partition("a", "b")
    wire.b.kill()
    world.run_for(100)
    assert wire.end == {}
    world.net.heal()
    world.run_for(1)
    assert wire.end["a"] in {"end", "ConnectionResetError"}


def test_a_machine_without_power_says_nothing_until_it_is_back(world: World) -> None:
    wire = Wire(world)
    wire.b.power_fail()
    wire.write(b"into the dark")
    world.run_for(100)
    assert wire.end == {}
    assert wire.writer.pending() > 0
    wire.b.start(idle)
    world.run_for(1)
    assert wire.end == {"a": "ConnectionResetError"}


def test_a_paused_process_is_connected_to_by_its_kernel_and_answers_later(world: World) -> None:
    wire = Wire(world)
    wire.b.pause()
    wire.write(b"x" * 3_000_000)
    connected = wire.env.process.spawn(wire.env.network.dial("b:1"))
    world.run_for(100)
    assert connected.done()
    assert not wire.got["b"]
    assert wire.writer.pending() > 0
    wire.b.resume()
    world.run_for(10)
    assert len(wire.got["b"]) == 3_000_000


def test_dialling_is_refused_by_a_kernel_and_hangs_without_one(world: World) -> None:
    a, b = world.host("a"), world.host("b")
    env = a.start(idle)
    b.start(idle)
    ends: list[str] = []

    async def dial() -> None:
        try:
            await env.network.dial("b:9")
        except OSError as error:
            ends.append(type(error).__name__)

    env.process.spawn(dial())
    world.run_for(0.5)
    assert ends == ["ConnectionRefusedError"]
    world.net.partition("a", "b")
    env.process.spawn(dial())
    world.run_for(5)
    assert ends == ["ConnectionRefusedError"]
    world.net.heal()
    world.run_for(2)
    assert ends == ["ConnectionRefusedError", "ConnectionRefusedError"]
