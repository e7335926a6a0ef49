"""huey on Redis."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from huey import RedisHuey

from tests.bench.pyqueues import jobs

THREADS = 4
"""That send: one alone waits for each answer, and longer for those of a server that syncs."""

app = RedisHuey("bench", url=os.environ.get("PYQUEUES_URL"), results=False)
tally = app.task()(jobs.tally)
mark = app.task()(jobs.mark)


def worker(processes: int) -> list[list[str]]:
    path = "tests.bench.pyqueues.on_huey.app"
    return [["huey_consumer", path, "-k", "process", "-w", str(2 * processes), "-n", "-q"]]


async def many(count: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        sending = [asyncio.get_running_loop().run_in_executor(pool, _some, count // THREADS) for _ in range(THREADS)]
        await asyncio.gather(*sending)


async def one(number: int) -> None:
    mark(number)


def _some(count: int) -> None:
    for _ in range(count):
        tally()
