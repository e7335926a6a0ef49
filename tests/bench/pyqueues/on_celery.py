"""Celery on Redis, set up for short tasks as its own guide has it: no results, no events, many fetched ahead."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from celery import Celery

from tests.bench.pyqueues import jobs

THREADS = 4
AHEAD = 128

app = Celery("bench", broker=os.environ.get("PYQUEUES_URL"))
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=AHEAD,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
tally = app.task(name="tally")(jobs.tally)
mark = app.task(name="mark")(jobs.mark)


def worker(processes: int) -> list[list[str]]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    return [["celery", "-A", "tests.bench.pyqueues.on_celery:app", "worker", "-c", str(processes), *quiet]]


async def many(count: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        sending = [asyncio.get_running_loop().run_in_executor(pool, _some, count // THREADS) for _ in range(THREADS)]
        await asyncio.gather(*sending)


async def one(number: int) -> None:
    mark.delay(number)


def _some(count: int) -> None:
    for _ in range(count):
        tally.delay()
