"""Schedules of a cluster under test: set up, and judged by their ledgers and by the tasks that they have added."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from quvatlh.client import Client, Options
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import TOKEN
from tests.cluster.strikes import Gaps

GROUP = "cron"
AT_ONCE = 20
"""Requests under way."""
PAGE_ROWS = 1000
IDLE: dict[str, Any] = {"work": {"command": ["true"]}, "group": GROUP, "tags": ["nobody-has-this"]}
"""A task that waits for ever: what is judged is that it was added."""


@asynccontextmanager
async def asked(nodes: Cluster) -> AsyncIterator[Client]:
    """A client that knows all nodes."""
    urls = tuple(f"http://{node.place.client}" for node in nodes.nodes)
    async with Client(Options(urls, TOKEN, None, 30.0)) as client:
        yield client


async def set_up(client: Client, count: int, every: str, task: dict[str, Any]) -> list[str]:
    names = [f"s{number:04d}" for number in range(count)]
    schedule = {"every": every, "overlap": "allow", "catchup": "all", "task": task}
    await _each(names, lambda name: client.put_schedule(name, schedule))
    return names


async def pause(client: Client, names: Sequence[str]) -> None:
    await _each(names, client.pause_schedule)


@dataclass(frozen=True, slots=True)
class Verdict:
    due: int
    """From each schedule's first slot to its last."""
    rows: int
    missed: int
    doubled: int
    skipped: int
    orphans: int
    """Tasks that no ledger knows, and rows whose task is not there."""
    late: Gaps
    """From a slot to the entry that it stands in."""

    @property
    def sound(self) -> bool:
        return self.rows > 0 and not (self.missed or self.doubled or self.skipped or self.orphans)

    def __str__(self) -> str:
        return (
            f"slots due {self.due}, ledger rows {self.rows}, missed {self.missed}, doubled {self.doubled}, "
            f"skipped {self.skipped}, tasks without a row or rows without a task {self.orphans}; late: {self.late}"
        )


async def judge(client: Client, names: Sequence[str], every_s: int) -> Verdict:
    """Of schedules that rest: all their slots that ever were, and all tasks of the group."""
    ledgers = dict(zip(names, await _each(names, lambda name: _ledger(client, name)), strict=True))
    tasks = {task["id"] async for task in client.all_tasks(group=GROUP, limit=PAGE_ROWS)}
    due = missed = doubled = 0
    late: list[float] = []
    for rows in ledgers.values():
        slots = Counter(round(_seconds(row["slot"])) for row in rows)
        wanted = range(min(slots, default=0), max(slots, default=-every_s) + every_s, every_s)
        due += len(wanted)
        missed += sum(slot not in slots for slot in wanted)
        doubled += sum(n - 1 for n in slots.values())
        late += [_seconds(row["at"]) - _seconds(row["slot"]) for row in rows]
    told = [row["task"] for rows in ledgers.values() for row in rows if row["task"]]
    rows_in_all = sum(map(len, ledgers.values()))
    return Verdict(
        due=due,
        rows=rows_in_all,
        missed=missed,
        doubled=doubled + len(told) - len(set(told)),
        skipped=rows_in_all - len(told),
        orphans=len(tasks ^ set(told)),
        late=Gaps(tuple(sorted(late))),
    )


async def _ledger(client: Client, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = await client.ledger(name, limit=PAGE_ROWS, cursor=cursor)
        rows += page["items"]
        cursor = page["next"]
        if cursor is None:
            return rows


async def _each(names: Sequence[str], ask: Any) -> list[Any]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> Any:
        async with room:
            return await ask(name)

    return await asyncio.gather(*[one(name) for name in names])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
