"""taskiq on Redis."""

from __future__ import annotations

import asyncio
import os

from taskiq_redis import ListQueueBroker

from tests.bench.pyqueues import jobs

AT_ONCE = 100

broker = ListQueueBroker(os.environ.get("PYQUEUES_URL", ""))


async def _tally() -> None:
    """Async, as those that are not go through threads."""
    jobs.tally()


async def _mark(number: int) -> None:
    jobs.mark(number)


tally = broker.task(task_name="tally")(_tally)
mark = broker.task(task_name="mark")(_mark)


def worker(processes: int) -> list[list[str]]:
    path = "tests.bench.pyqueues.on_taskiq:broker"
    return [["taskiq", "worker", path, "--workers", str(processes), "--no-parse", "--log-level", "ERROR"]]


async def many(count: int) -> None:
    async def some() -> None:
        for _ in range(count // AT_ONCE):
            await tally.kiq()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def one(number: int) -> None:
    await mark.kiq(number)
