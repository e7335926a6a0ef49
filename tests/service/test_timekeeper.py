"""Clocks that are set: what is told of it, what is shown, and what becomes due."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core.limits import HOUR_MS, MINUTE_MS
from tests.service.stand import WORK, Stand, asked, one

START = 1_700_000_000_000
HOUR_S = HOUR_MS // 1000
LOOK_S = 0.01


@contextlib.asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[Stand]:
    """A master that looks often, and has looked once."""
    async with one(directory, slots=0, elect=False) as stand:
        stand.node.timekeeper.look_s = stand.node.cron.look_s = LOOK_S
        await elect(stand)
        yield stand


async def elect(stand: Stand) -> None:
    """Again, as another master."""
    stand.log.depose()
    await asyncio.sleep(5 * LOOK_S)
    stand.log.elect()
    await asyncio.sleep(5 * LOOK_S)
    await stand.until(lambda: stand.node.timekeeper._began_ms is not None)


def told(stand: Stand) -> list[tuple[str, int, int]]:
    """Which way, by how many seconds, and for how many log time stands still."""
    words = "the clocks have jumped"
    return [(facts["way"], facts["by_s"], facts["stands_still_s"]) for text, facts in stand.notes if text == words]


async def clock(stand: Stand) -> dict[str, Any]:
    shown: dict[str, Any] = (await stand.pool.cluster(asked()))["clock"]
    return shown


def behind_s(stand: Stand) -> float:
    return next(metric.samples[0][1] for metric in stand.pool.metrics() if metric.name == "clock_behind_seconds")


async def slots(stand: Stand) -> list[tuple[int, str]]:
    """As minutes from the start, the first one first."""
    page = await stand.pool.ledger(asked(), "s", 100, None)
    return [((row["slot_ms"] - START) // MINUTE_MS, row["outcome"]) for row in page.items][::-1]


async def put(stand: Stand, **spec: Any) -> None:
    await stand.pool.put_schedule(asked(), "s", {"task": {"work": WORK}, "overlap": "allow", **spec})


async def test_a_jump_ahead_is_told_and_what_was_jumped_over_is_late(tmp_path: Path) -> None:
    async with watched(tmp_path) as stand:
        events = stand.node.feed.follow(None)
        await put(stand, cron="*/10 * * * *")
        stand.clock.set_wall(START + HOUR_MS)
        await stand.until(lambda: told(stand) == [("ahead", HOUR_S, 0)])
        async with asyncio.timeout(5):
            event = await anext(each async for each in events if each.kind == "clock.jumped")
        assert event.data == {"id": "n1", "state": "ahead", "by_ms": HOUR_MS, "behind_ms": 0}
        shown = await clock(stand)
        assert (shown["behind_ms"], shown["at_ms"]) == (0, START + HOUR_MS)
        assert shown["jumped"] == {"at_ms": START + HOUR_MS, "way": "ahead", "by_ms": HOUR_MS, "seen_by": "n1"}
        await stand.until(lambda: stand.machine.db.execute("SELECT count(*) FROM ledger").fetchone()[0] == 6)
        assert [outcome for _, outcome in await slots(stand)] == ["skipped"] * 5 + ["ran"]


async def test_a_jump_back_is_told_and_nothing_is_due_until_the_clocks_have_caught_up(tmp_path: Path) -> None:
    async with watched(tmp_path) as stand:
        await put(stand, every_ms=MINUTE_MS)
        stand.clock.advance(60)
        await stand.until(lambda: stand.machine.db.execute("SELECT count(*) FROM ledger").fetchone()[0] == 1)
        stand.clock.set_wall(START - HOUR_MS)
        await stand.until(lambda: told(stand) == [("back", HOUR_S + 60, HOUR_S + 60)])
        task = await stand.add(delay_ms=1000)
        shown = await clock(stand)
        assert (shown["at_ms"], shown["behind_ms"]) == (START + MINUTE_MS, HOUR_MS + MINUTE_MS)
        assert shown["jumped"]["way"] == "back"
        assert behind_s(stand) == HOUR_S + 60
        stand.clock.advance(HOUR_S)
        await asyncio.sleep(0.1)
        assert (len(await slots(stand)), stand.peek(task), behind_s(stand)) == (1, "scheduled", 60)
        stand.clock.advance(121)
        await stand.until_state(task, "pending")
        await stand.until(lambda: stand.machine.db.execute("SELECT count(*) FROM ledger").fetchone()[0] == 2)
        assert behind_s(stand) == 0
        found = await slots(stand)
        assert len({slot for slot, _ in found}) == 2
        assert len(told(stand)) == 1


@pytest.mark.parametrize("by_s", [59, -59])
async def test_what_a_minute_holds_is_no_jump(tmp_path: Path, by_s: int) -> None:
    async with watched(tmp_path) as stand:
        for _ in range(3):
            stand.clock.advance(3600)
            stand.clock.set_wall(stand.clock.wall_ms() + by_s * 1000)
            await asyncio.sleep(10 * LOOK_S)
        assert told(stand) == []
        assert (await clock(stand))["jumped"] is None


async def test_clocks_that_were_set_back_before_are_told_by_the_next_master_once(tmp_path: Path) -> None:
    async with watched(tmp_path) as stand:
        await stand.add()
        stand.log.depose()
        await asyncio.sleep(5 * LOOK_S)
        stand.clock.set_wall(START - HOUR_MS)
        for _ in range(3):
            await elect(stand)
        assert told(stand) == [("back", HOUR_S, HOUR_S)]


async def test_a_jump_that_the_log_did_not_take_is_told_with_the_next_look(tmp_path: Path) -> None:
    async with watched(tmp_path) as stand:
        stand.log.lose_answers(2)
        stand.clock.set_wall(START + HOUR_MS)
        await stand.until(lambda: told(stand) == [("ahead", HOUR_S, 0)])
        await asyncio.sleep(10 * LOOK_S)
        assert len(told(stand)) == 1
