"""Functions as tasks over three nodes that are killed one after the other: each result comes, and once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from quvatlh import App
from tests.cluster.daemons import TOKEN, daemons
from tests.daemon import library_app as tasks
from tests.daemon.program import ROOT

COUNT = 400


async def test_results_come_once_each_while_every_node_is_killed(tmp_path: Path) -> None:
    async with daemons(tmp_path, QUVATLH_WORKER_SLOTS="2", PYTHONPATH=str(ROOT)) as nodes:
        app = App(",".join(f"http://{node.place.client}" for node in nodes.nodes), token=TOKEN, deadline_s=30)
        twice = app.task(tasks.twice.__wrapped__)
        mine = twice.options(queue="mine")
        followed: list[str] = []

        async def follow() -> None:
            async for outcome in app.results(queue="mine", since=place):
                followed.append(outcome.id)
                if len(followed) == COUNT:
                    return

        place = str((await (await nodes.master()).status())["index"])
        following = asyncio.create_task(follow())
        handles = await app.aenqueue_many(mine.options(delay=n / 50).call(n) for n in range(COUNT))
        found: dict[str, int] = {}
        turns = iter(range(COUNT // 4, COUNT, COUNT // 4))
        turn = next(turns)
        async for outcome in app.results(handles):
            assert outcome.id not in found
            found[outcome.id] = await outcome.aresult()
            if len(found) == turn:
                victim = await nodes.master()
                await victim.kill()
                await victim.start()
                turn = next(turns, -1)
        assert found == {handle.id: 2 * n for n, handle in enumerate(handles)}
        await asyncio.wait_for(following, 60)
        assert sorted(followed) == sorted(found), "each once"
        await asyncio.to_thread(app.close)
