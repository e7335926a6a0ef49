"""Schedules while the master is killed again and again: each slot is a task, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.cluster.daemons import daemons
from tests.cluster.slots import IDLE, asked, judge, pause, set_up

SCHEDULES = 200
EVERY_S = 1
BETWEEN_KILLS_S = 10.0


async def test_no_slot_is_missed_or_doubled_while_the_master_is_killed(
    tmp_path: Path, times: Callable[[int], int]
) -> None:
    async with daemons(tmp_path) as nodes, asked(nodes) as client:
        names = await set_up(client, SCHEDULES, f"{EVERY_S}s", IDLE)
        for _ in range(times(12)):
            await asyncio.sleep(BETWEEN_KILLS_S)
            master = await nodes.master()
            await master.kill()
            await master.start()
            await nodes.caught_up(master)
        await asyncio.sleep(2 * EVERY_S)
        await pause(client, names)
        seen = await judge(client, names, EVERY_S)
        print(f"\n{SCHEDULES} schedules each second, {times(12)} masters killed: {seen}")
        assert seen.sound, seen
