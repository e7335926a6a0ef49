from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quvatlh.codec import Values
from quvatlh.core import commands as c
from quvatlh.core import limits
from quvatlh.core.limits import DAY_MS, HOUR_MS
from quvatlh.ports import Entry
from quvatlh.service import chores as duty
from quvatlh.service.feed import StateDiverged
from quvatlh.service.pool import Turn
from tests.service.stand import Stand, asked, one, two


async def test_a_delayed_task_is_promoted_when_its_time_has_come(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add(delay_ms=100)
        assert stand.peek(task) == "scheduled"
        stand.clock.advance(0.2)
        await stand.until_state(task, "pending")


async def test_time_is_the_logs_whatever_the_masters_own_clock_says(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        stand.log.ahead_ms = HOUR_MS
        task = await stand.add(delay_ms=1000)
        assert (await stand.pool.task(asked(), task))["at_ms"] == stand.clock.wall_ms() + HOUR_MS + 1000
        stand.clock.advance(1)
        await stand.until_state(task, "pending")


async def test_a_nearer_time_shortens_the_wait(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(delay_ms=3_600_000)
        await asyncio.sleep(0.1)
        near = await stand.add(delay_ms=50)
        stand.clock.advance(0.1)
        await stand.until_state(near, "pending")


async def test_what_is_not_awarded_in_time_has_failed(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add(expires_in_ms=100)
        stand.clock.advance(0.2)
        await stand.until_state(task, "failed")


async def test_old_tasks_are_forgotten(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add()
        await stand.pool.act(asked(), Turn("delete"), [task])
        stand.clock.advance((DAY_MS + HOUR_MS) / 1000)
        await stand.add()
        await stand.until(lambda: stand.peek(task) is None)


class Sweeps:
    """Counts them in the log."""

    def __init__(self, stand: Stand) -> None:
        self.count = 0
        stand.log.listen(self)

    def applied(self, entry: Entry, _results: object) -> None:
        items = [Values().decode_item(item) for item in entry.items]
        self.count += sum(isinstance(item, c.Item) and isinstance(item.command, c.Sweep) for item in items)

    def role_changed(self, _role: object) -> None:
        pass

    def reset(self, _index: int) -> None:
        pass


def rows(stand: Stand, table: str) -> int:
    return int(stand.machine.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def test_what_is_over_leaves_the_tables_as_fast_as_more_of_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece, known, writes = 20, 60, 1200
    for owner, name, value in ((duty, "BATCH_MAX", piece), (limits, "BATCH_MAX", piece), (limits, "KNOWN_MAX", known)):
        monkeypatch.setattr(owner, name, value)
    async with one(tmp_path, slots=0) as stand:
        sweeps = Sweeps(stand)
        for _ in range(writes // 10):
            for _ in range(10):
                await stand.add()
            stand.clock.advance(0.2)
            await asyncio.sleep(duty.LAZY_S + 0.1)
            assert rows(stand, "request") <= 2 * known
        looked_at = sweeps.count * piece
        assert looked_at <= (duty.WALKED_A_ROW + 1 / duty.PLENTY) * writes, "and nothing is looked at again and again"


async def test_unique_keys_that_are_over_leave_as_fast_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty, "BATCH_MAX", 20)
    monkeypatch.setattr(limits, "BATCH_MAX", 20)
    async with one(tmp_path, slots=0) as stand:
        for n in range(60):
            for m in range(10):
                await stand.add(unique={"key": f"{n}-{m}", "for_ms": 1000})
            stand.clock.advance(0.2)
            await asyncio.sleep(duty.LAZY_S + 0.1)
            assert rows(stand, "unique_key") <= 150


async def test_all_that_is_over_at_once_goes_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duty, "BATCH_MAX", 20)
    async with one(tmp_path, slots=0) as stand:
        for _ in range(1000):
            await stand.add()
        stand.clock.advance((DAY_MS + HOUR_MS) / 1000)
        sweeps = Sweeps(stand)
        await stand.add()
        await stand.until(lambda: rows(stand, "request") <= 20)
        assert 40 <= sweeps.count <= 60


async def test_only_the_master_does_them(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        names = set(follower.node.tree._running)
        assert not names & {"presence", "chores", "auction"}
        assert {"presence", "chores", "auction"} <= set(master.node.tree._running)
        master.log.depose("n2")
        assert not set(master.node.tree._running) & {"presence", "chores", "auction"}
        follower.log.elect()
        assert {"presence", "chores", "auction"} <= set(follower.node.tree._running)


async def test_an_idle_master_proposes_nothing(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await asyncio.sleep(0.7)
        before = stand.machine.applied_index
        await asyncio.sleep(1.3)
        assert stand.machine.applied_index == before


async def test_digests_are_taken_and_compared_on_every_node(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        master.node.duties.chores.digest_every_entries = 10
        master.node.duties.chores.role_changed(master.log.role)
        for _ in range(30):
            await master.add()
            await asyncio.sleep(0.005)
        await master.until(lambda: len(digests(master)) == 1)
        assert digests(master) == digests(follower)


async def test_a_node_whose_tables_differ_is_told_to_stop(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        chores = master.node.duties.chores
        chores.digest_every_entries = 5
        chores.role_changed(master.log.role)
        while not digests(master):
            await master.add()
            await asyncio.sleep(0.005)
        follower.machine.db.execute("UPDATE own_digest SET value = x'00'")
        before = digests(master)
        while digests(master) == before:
            await master.add()
            await asyncio.sleep(0.005)
        assert [type(error) for error in follower.fatal] == [StateDiverged]
        follower.fatal.clear()
        assert master.fatal == []


def digests(stand: Stand) -> list[object]:
    return stand.machine.db.execute("SELECT at_index, value FROM own_digest WHERE at_index > 0").fetchall()


async def test_the_first_word_of_a_master_is_that_it_is_one(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        events = stand.node.feed.follow(None)
        stand.log.depose(None)
        stand.log.elect()
        async with asyncio.timeout(5):
            async for event in events:
                if event.kind == "master.changed":
                    assert event.data["id"] == "n1"
                    break
