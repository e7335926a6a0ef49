"""What beats tell of machines: every node answers it, and an hour of it outlives the master that heard it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quvatlh.service import asks
from quvatlh.service.hostloads import STEP_S, Hour, columns
from quvatlh.service.pool import Rejected
from tests.service.pulling import hand_over
from tests.service.stand import Stand, asked, one, two

STEPS = asks.HOUR_BYTES // asks.HOUR_PAIR


def load(cpu: float, free: int = 25) -> dict[str, Any]:
    return {"cpu_load": cpu, "memory_free_bytes": free, "memory_total_bytes": 100, "disk_free_bytes": 7}


def measured(cpu: float, free: int = 25) -> asks.Load:
    return asks.Load(**load(cpu, free))


async def beat(stand: Stand, cpu: float, free: int = 25) -> None:
    stand.load = load(cpu, free)
    await stand.node.session.beat()


async def now(stand: Stand, worker: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = (await stand.pool.worker(asked(), worker))["load"]
    return found


async def hour(stand: Stand, worker: str) -> list[int | None]:
    return list((await stand.pool.worker_load(asked(), worker))["cpu"])


def test_a_step_is_the_mean_of_its_measurements_and_a_silent_one_is_unknown() -> None:
    kept = Hour()
    assert columns(kept.told(100.0)) == {"cpu": [], "memory": []}
    kept.add(100.0, measured(0.2))
    kept.add(104.9, measured(0.6, 50))
    kept.add(115.0, measured(1.0))
    assert columns(kept.told(120.0)) == {"cpu": [40, None, None, 100, None], "memory": [50, None, None, 75, None]}


def test_an_hour_is_all_that_is_kept() -> None:
    kept = Hour()
    for step in range(STEPS + 10):
        kept.add(step * STEP_S, measured(step % 100 / 100))
    told = columns(kept.told((STEPS + 9) * STEP_S))
    assert told["cpu"] == [step % 100 for step in range(10, STEPS + 10)]
    kept.add(10 * 3600.0, measured(0.5))
    assert columns(kept.told(10 * 3600.0))["cpu"] == [None] * (STEPS - 1) + [50]


def test_what_another_clock_has_kept_ends_now() -> None:
    kept, other = Hour(), Hour()
    for at in range(0, 20, 5):
        kept.add(at, measured(at / 100))
    other.heard(7_777.0, kept.told(20.0))
    other.add(7_777.0, measured(0.9))
    assert columns(other.told(7_780.0))["cpu"] == [0, 5, 10, 15, 90, None]


def test_what_is_known_here_stands_where_the_other_knows_nothing() -> None:
    kept, other = Hour(), Hour()
    for at in range(0, 30, 5):
        kept.add(at, measured(at / 100))
    other.add(10.0, measured(0.9))
    other.add(20.0, measured(0.8))
    kept.heard(25.0, other.told(25.0))
    assert columns(kept.told(25.0))["cpu"] == [0, 5, 90, 15, 80, 25]
    other.heard(25.0, kept.told(25.0))
    assert columns(other.told(25.0)) == columns(kept.told(25.0))
    kept.heard(25.0, bytes([7, 7]) * (STEPS + 3))
    assert columns(kept.told(25.0))["cpu"] == [7] * STEPS


async def test_a_worker_that_began_anew_leaves_the_hour_as_it_was(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        for stand in (master, follower):
            await stand.working()
        await beat(follower, 0.5)
        master.clock.advance(3)
        await beat(follower, 0.5)
        master.clock.advance(3)
        assert await hour(master, "n2") == [50]
        await beat(follower, 0.75)
        await follower.crash()
        master.clock.advance(5)
        follower.load = load(0.25)
        follower.begin()
        await follower.working()
        await beat(follower, 0.25)
        assert await hour(master, "n2") == [50, 75, 25]
        master.clock.advance(10)
        assert await hour(master, "n2") == [50, 75, 25, None, None]


async def test_every_node_tells_the_loads_of_all_workers(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        for stand in (master, follower):
            await stand.working()
        assert await now(follower, "n1") is None
        await beat(master, 0.5)
        await beat(follower, 0.25)
        for stand in (master, follower):
            listed = {worker["name"]: worker["load"] for worker in await stand.pool.workers(asked())}
            assert listed == {"n1": load(0.5), "n2": load(0.25)}
            assert await hour(stand, "n2") == [25]
        with pytest.raises(Rejected, match="n3"):
            await follower.pool.worker_load(asked(), "n3")
        switchboard.cut("n2")
        assert await now(follower, "n2") is None
        assert await hour(follower, "n2") == []
        master.clock.advance(11)
        assert await now(master, "n2") is None


async def test_a_new_master_has_the_hour_that_the_old_one_had(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        for stand in (master, follower):
            await stand.working()
        await beat(follower, 0.25)
        for clock in (master.clock, follower.clock):
            clock.advance(5)
        await beat(follower, 0.75)
        assert await hour(master, "n2") == [25, 75]
        hand_over(master, follower)
        await beat(follower, 0.75)
        assert await hour(follower, "n2") == [25, 75]


async def test_a_beat_without_its_proof_tells_nothing(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await beat(stand, 0.5)
        session = stand.node.session.id
        assert session is not None
        forged = asks.Beat("n1", session, b"x" * 32, 0, None, measured(0.01))
        assert not stand.node.presence.beat(forged).known
        assert await now(stand, "n1") == load(0.5)
