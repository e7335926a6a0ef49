"""A hundred actions on two of four workers, and BALANCE: the least number of moves, and how long each was away."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from tests.cluster import asks
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import TOKEN, daemons
from tests.cluster.diary import Diary
from tests.cluster.node import until
from tests.cluster.strikes import Gaps
from tests.daemon.program import Program
from tests.support.executors import end_executor

ACTIONS = 100
LATE = ("w2", "w3")
SLOTS = str(ACTIONS)


@contextlib.asynccontextmanager
async def two_more(nodes: Cluster, directory: Path) -> AsyncIterator[None]:
    """Workers without a replica, connected to either node."""
    servers = ",".join(f"http://{node.place.client}" for node in nodes.nodes)
    environ = {"QUVATLH_TOKEN": TOKEN, "QUVATLH_WORKER_SLOTS": SLOTS}
    flags = ("--role", "worker", "--server", servers)
    made = [Program(directory / name, "--name", name, *flags, **environ) for name in LATE]

    async def up() -> bool:
        found = await asks.anywhere(nodes.nodes, "/v1/workers")
        return {worker["name"] for worker in found["items"] if worker["state"] == "up"} >= set(LATE)

    try:
        await until(up, lambda: "".join(each.told() for each in made))
        yield
    finally:
        for each in made:
            each.kill()
            end_executor(each.data)


async def test_two_workers_join_and_the_load_is_evened(tmp_path: Path) -> None:
    async with daemons(tmp_path, 2, QUVATLH_WORKER_SLOTS=SLOTS) as nodes:
        diary = Diary(tmp_path / "diary")
        try:
            ids = await asks.add(nodes, [{"id": f"t{n}", "group": "g", "work": diary.work()} for n in range(ACTIONS)])
            await until(lambda: len(diary.alive(ids)) == ACTIONS, lambda: "all run")
            async with two_more(nodes, tmp_path):
                plan = await balance(nodes, dry_run=True)
                assert len(plan) == ACTIONS // 2
                assert all(len(runs) == 1 for runs in diary.of(ids).values()), "a dry run moved something"
                moves = await balance(nodes)
                await until(lambda: evened(diary, ids), lambda: str(spread(diary, ids)))
                await asyncio.sleep(1.0)
                show(diary, ids, len(moves))
                assert not await balance(nodes, dry_run=True), "there is more to move"
        finally:
            await nodes.stop()
            for node in nodes.nodes:
                end_executor(node.place.data)
    assert not diary.overlaps(ids)


async def balance(nodes: Cluster, *, dry_run: bool = False) -> list[object]:
    event = {"event": "BALANCE", "group": "g", "dry_run": dry_run}
    return list((await asks.anywhere(nodes.nodes, "/v1/events", event, key="" if dry_run else "once"))["moves"])


def spread(diary: Diary, ids: list[str]) -> dict[str, int]:
    return dict(Counter(run.worker for run in diary.alive(ids)))


def evened(diary: Diary, ids: list[str]) -> bool:
    return sorted(spread(diary, ids).values()) == [ACTIONS // 4] * 4


def show(diary: Diary, ids: list[str], planned: int) -> None:
    moved = [runs for runs in diary.of(ids).values() if len(runs) > 1]
    away = sorted((runs[1].first_us - runs[0].last_us) / 1e6 for runs in moved)
    print(
        f"\nBALANCE of {ACTIONS} actions: {planned} moves planned, {len(moved)} actions moved (least possible "
        f"{ACTIONS // 2}), then {dict(sorted(spread(diary, ids).items()))}; each was away {Gaps(tuple(away))}"
    )
    assert planned == len(moved) == ACTIONS // 2
    assert all(len(runs) == 2 for runs in moved)
