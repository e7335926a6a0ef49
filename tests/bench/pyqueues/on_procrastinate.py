"""procrastinate on PostgreSQL."""

from __future__ import annotations

import os

from procrastinate import App, PsycopgConnector

from tests.bench.pyqueues import jobs

CONCURRENCY = 10
LOT = 1000

app = App(connector=PsycopgConnector(conninfo=os.environ.get("PYQUEUES_URL", "")))


async def _tally() -> None:
    """Async, as those that are not go through threads."""
    jobs.tally()


async def _mark(number: int) -> None:
    jobs.mark(number)


tally = app.task(name="tally")(_tally)
mark = app.task(name="mark")(_mark)


def worker(processes: int) -> list[list[str]]:
    path = "tests.bench.pyqueues.on_procrastinate.app"
    return [["procrastinate", "--app", path, "worker", "--concurrency", str(CONCURRENCY)]] * processes


async def prepare() -> None:
    await app.open_async()
    await app.schema_manager.apply_schema_async()
    await app.close_async()


async def many(count: int) -> None:
    await _opened()
    for first in range(0, count, LOT):
        await tally.batch_defer_async(*[{}] * min(LOT, count - first))


async def one(number: int) -> None:
    await _opened()
    await mark.defer_async(number=number)


_is_open = False


async def _opened() -> None:
    global _is_open  # noqa: PLW0603 - once a process
    if not _is_open:
        await app.open_async()
        _is_open = True
