"""What the simulated world promises of time, chance and processes, before anything is proved in it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quvatlh.raft.network import Writer
from tests.sim.loop import SimError, SimLoop
from tests.sim.process import Crashed
from tests.sim.world import Env, World

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world() -> Iterator[World]:
    with World(1) as made:
        yield made


async def idle(_: Env) -> None:
    await asyncio.Event().wait()


def busy_world(seed: int) -> str:
    """Three machines that talk, write, are cut off, killed and started again; the hash of all they did."""

    async def main(env: Env) -> None:
        async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
            try:
                while data := await reader.read(100):
                    env.trace(f"from {writer.peername()}: {data!r}")
            except OSError as error:
                env.trace(f"from {writer.peername()}: {error!r}")

        await env.network.listen(f"{env.host.name}:1", serve)
        env.disk.mkdir("/data")
        file = env.disk.create(f"/data/{env.host.starts}")
        lane = env.lane()
        for round_ in range(1_000_000):
            async with asyncio.TaskGroup() as group:
                for peer in "abc":
                    group.create_task(call(env, f"{peer}:1", f"{round_} {env.entropy.random()}".encode()))
            file.write(env.entropy.token(100))
            await lane.run(file.sync)
            await asyncio.sleep(env.entropy.random() / 10)

    async def call(env: Env, address: str, text: bytes) -> None:
        try:
            async with asyncio.timeout(0.5):
                _, writer = await env.network.dial(address)
            writer.write(text)
            await writer.drain()
            writer.close()
        except OSError as error:
            env.trace(f"{address}: {error!r}")

    with World(seed) as world:
        a, b, c = (world.host(name) for name in "abc")
        for host in (a, b, c):
            host.start(main)
        world.run_for(2)
        world.net.partition("a", "bc")
        b.pause()
        world.run_for(2)
        c.kill()
        world.net.heal()
        b.resume()
        world.run_for(1)
        c.start(main)
        a.power_fail()
        world.run_for(1)
        a.start(main)
        world.run_for(2)
        return f"{world.trace.hash()} {world.trace.count} {world.loop.steps}"


def test_the_same_seed_is_the_same_history_and_another_seed_another() -> None:
    assert busy_world(7) == busy_world(7)
    assert busy_world(7) != busy_world(8)


def test_the_same_seed_is_the_same_history_in_another_interpreter() -> None:
    code = "from tests.sim.test_world import busy_world; print(busy_world(7))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashseed},
            check=True,
            stdout=-1,
        ).stdout
        for hashseed in ("0", "0", "1")
    }
    assert told == {f"{busy_world(7)}\n".encode()}


def test_timers_of_one_instant_run_in_the_order_they_were_set() -> None:
    loop = SimLoop()
    ran: list[int] = []
    for number in range(50):
        loop.call_at(1.0, ran.append, number)
    loop.run_for(1)
    loop.close()
    assert ran == list(range(50))


def test_sets_of_tasks_are_walked_by_age() -> None:
    async def main() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0), name=str(number)) for number in range(20)}
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    loop = SimLoop()
    assert loop.run_until_complete(main()) == [str(number) for number in range(20)]
    loop.close()


def test_a_killed_process_has_no_last_words(world: World) -> None:
    said: list[str] = []

    async def main(env: Env) -> None:
        env.disk.mkdir("/d")
        try:
            await asyncio.sleep(1)
        finally:
            said.append("finally")
            env.disk.create("/d/late")

    host = world.host("a")
    host.start(main)
    world.run_for(0.5)
    host.kill()
    world.run_for(5)
    assert said == []
    assert host.disk.find("/d/late") is None


def test_a_process_that_crashes_inside_a_call_does_nothing_more(world: World) -> None:
    host = world.host("a")

    async def main(env: Env) -> None:
        env.disk.mkdir("/d")
        host.disk.crash_at_op(1)
        try:
            env.disk.create("/d/one")
        finally:
            with pytest.raises(Crashed):
                env.disk.create("/d/two")
            env.trace("still here")

    host.start(main)
    world.run_for(1)
    assert not host.running
    assert host.disk.find("/d/one") is host.disk.find("/d/two") is None
    assert "still here" not in world.trace.last()


def test_a_paused_process_does_later_in_order_what_it_missed(world: World) -> None:
    ran: list[str] = []
    host = world.host("a")
    env = host.start(idle)
    loop = world.loop

    def put(text: str) -> None:
        loop.call_soon(ran.append, text, context=env.process.context)

    world.run_for(1)
    loop.call_at(2.0, ran.append, "timer", context=env.process.context)
    put("first")
    host.pause()
    world.run_for(2)
    put("second")
    world.run_for(1)
    assert ran == []
    host.resume()
    world.run_for(1)
    assert ran == ["first", "second", "timer"]


def test_a_busy_process_sees_its_clock_go_on_while_others_run(world: World) -> None:
    seen: list[tuple[str, float]] = []

    async def slow(env: Env) -> None:
        env.process.spend(1)
        seen.append(("slow", env.clock.boot()))
        await asyncio.sleep(0)
        seen.append(("slow", env.clock.boot()))

    async def quick(env: Env) -> None:
        await asyncio.sleep(0.5)
        seen.append(("quick", env.clock.boot()))

    world.host("a").start(slow)
    world.host("b").start(quick)
    world.run_for(2)
    assert seen == [("slow", 1.0), ("quick", 0.5), ("slow", 1.0)]


def test_a_crash_can_be_planned_for_any_step(world: World) -> None:
    host = world.host("a")
    reached = []
    for steps in range(1, 6):
        count = 0

        async def main(_: Env) -> None:
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0.1)

        host.start(main).process.crash_after_steps(steps)
        world.run_for(2)
        assert not host.running
        reached.append(count)
    assert reached == [0, 1, 1, 2, 2]


def test_an_error_nobody_caught_fails_the_simulation(world: World) -> None:
    async def child() -> None:
        raise ZeroDivisionError

    async def main(_: Env) -> None:
        task = asyncio.create_task(child())
        await asyncio.sleep(1)
        del task
        await asyncio.sleep(1)

    world.host("a").start(main)
    with pytest.raises(SimError, match="ZeroDivisionError"):
        world.run_for(1.5)


def test_an_error_the_process_ends_with_is_its_own_affair(world: World) -> None:
    async def main(env: Env) -> None:
        asyncio.get_running_loop().call_soon(env.disk.read, "/nothing")
        await asyncio.sleep(1)

    host = world.host("a")
    env = host.start(main, ends_with=(FileNotFoundError,))
    world.run_for(2)
    assert isinstance(env.process.end, FileNotFoundError)


def test_a_live_lock_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sim.loop.STEPS_PER_INSTANT_MAX", 1_000)

    async def spin(_: Env) -> None:
        while True:  # noqa: ASYNC110 - the live-lock that is to be found
            await asyncio.sleep(0)

    world.host("a").start(spin)
    with pytest.raises(SimError, match="time stands still: a: a/main"):
        world.run_for(1)


def test_clocks_run_at_their_own_rate_and_can_be_set(world: World) -> None:
    host = world.host("a", rate=1.001)
    wall_ms = host.clock.wall_ms()
    world.run_for(1000)
    host.clock.jump_ms(-5_000)
    assert host.clock.boot() == pytest.approx(1001)
    assert host.clock.wall_ms() - wall_ms == pytest.approx(1_001_000 - 5_000, abs=1)
