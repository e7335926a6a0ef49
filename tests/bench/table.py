"""Many waiting tasks in one real node: python -m tests.bench.table [--waiting N] [--large] [--json FILE]

Adds N tasks (1,000,000; with --large 5,000,000 too, which takes minutes more) by NDJSON to one `quvatlh run`, and tells:
the rate; memory (resident, and of it what is not of files); bytes a task of the state file and of the log after a
checkpoint; the time from the start of the process until /readyz says yes, after a stop in order and after kill -9; pages
of lists by kind of filter, over HTTP; the longest stall of the loop in each phase; and `true` as tasks, added at once and
awaited, a second, before and after. The waiting ones stand in the same queue and ask for a tag that no worker has.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.load import Report, loaded
from tests.cluster.cluster import now
from tests.cluster.daemons import TOKEN, Daemon, daemons

MILLION = 1_000_000
TASK: dict[str, Any] = {"work": {"command": ["true"]}, "tags": ["nobody-has-this"]}
RUNNING: dict[str, Any] = {"work": {"command": ["true"]}}
QUEUE = "default"
PIECE = 250_000
"""Tasks of one request; memory is read after each."""
PAGES_EACH = 40
READY_S = 120.0

KINDS = {
    "newest": "",
    "newest, the page after": "cursor",
    "newest, with eta": "eta=1",
    "oldest": "sort=created_at",
    "state=pending": "state=pending",
    "state=running": "state=running",
    "state=failed": "state=failed&sort=-finished_at",
    "queue": f"queue={QUEUE}",
    "by priority": "sort=-priority",
    "by at": "sort=-at",
    "group": "group=default",
    "name, none has it": "name=nobody",
    "key, none has it": "key=nobody",
    "worker, none has it": "worker=nobody",
    "tag": "tag=nobody-has-this",
    "error, none has it": "error=nothing",
    "text, found": "q=true",
    "text, not found": "q=nowhere",
    "created_after, none": "created_after=2100-01-01T00:00:00Z",
    "group_by=state": "group_by=state",
    "group_by=queue": "group_by=queue",
}


class Table:
    def __init__(self, rows: report.Rows, node: Daemon, waiting: int, runs: int) -> None:
        self._rows = rows
        self._node = node
        self._waiting = waiting
        self._runs = runs

    async def tell(self) -> None:
        before = await self._throughput()
        await self._fill()
        await self._pages()
        after = await self._throughput()
        self._add("`true` as tasks, a second", empty=before, with_waiting=after, ratio=after / before)
        await self._restarts()

    def _add(self, what: str, **figures: Any) -> None:
        self._rows.add(f"{self._waiting:,} waiting: {what}", **figures)

    async def _ask(self, do: str, **given: Any) -> Report:
        return await loaded(do, self._node.place.client, TOKEN, **given)

    async def _stall_ms(self) -> dict[str, Any]:
        """The longest since this was asked last."""
        worst = (await self._node.stalls())["worst"]
        return {"stall_ms": worst["late_ms"] - worst["queued_ms"], "of_it_computing_ms": worst["computing_ms"]}

    async def _throughput(self) -> float:
        rates: list[float] = []
        for _ in range(3):
            found = await self._ask("runs", task=RUNNING, count=self._runs, queue=QUEUE)
            rates.append(found["count"] / found["seconds"])
        return statistics.median(rates)

    async def _fill(self) -> None:
        await self._stall_ms()
        rates, most = [], 0
        used, began = self._node.cpu_s(), now()
        for _ in range(self._waiting // PIECE):
            found = await self._ask("lines", task=TASK, count=PIECE)
            rates.append(found["count"] / found["seconds"])
            most = max(most, self._node.memory_bytes())
        self._add(
            "added",
            per_s=self._waiting / (now() - began),
            first_per_s=rates[0],
            last_per_s=rates[-1],
            node_us=(self._node.cpu_s() - used) / self._waiting * 1e6,
            rss_mb=most / MILLION,
            **await self._stall_ms(),
        )

    async def _pages(self) -> None:
        await self._stall_ms()
        self._node.hang_up()
        first = await self._node.get("/v1/tasks?limit=50")
        paths = {
            what: f"/v1/tasks?limit=50&{query if query != 'cursor' else 'cursor=' + first['next']}"
            for what, query in KINDS.items()
        }
        found = (await self._ask("gets", paths=list(paths.values()), times_each=PAGES_EACH))["paths"]
        for what, path in paths.items():
            self._add(f"page, {what}", **found[path])
        await self._one(first["items"][0]["id"])
        self._add("pages, all of them", p99_ms=max(each["p99_ms"] for each in found.values()), **await self._stall_ms())

    async def _one(self, newest: str) -> None:
        """The two ends of the queue: with eta and place."""
        oldest = (await self._node.get("/v1/tasks?limit=1&sort=created_at"))["items"][0]["id"]
        for where, task_id in (("newest", newest), ("oldest", oldest)):
            for what, path in (("task", f"/v1/tasks/{task_id}"), ("explain", f"/v1/tasks/{task_id}/explain")):
                found = (await self._ask("gets", paths=[path], times_each=PAGES_EACH))["paths"][path]
                self._add(f"{what}, {where}", **found)

    async def _restarts(self) -> None:
        for what, end in (("a stop", self._node.stop), ("kill -9", self._node.kill)):
            rss_before = self._node.memory_bytes() / MILLION
            await end()
            if end == self._node.stop:
                self._sizes(rss_before)
            began = now()
            await self._node.start()
            await self._node.ready(READY_S)
            self._add(f"ready after {what}", seconds=now() - began, rss_mb=self._node.memory_bytes() / MILLION)

    def _sizes(self, rss_mb: float) -> None:
        """Of a node that was stopped in order, which leaves no write-ahead file behind."""
        (generation,) = self._node.place.data.glob("gen-*")
        state = sum(_size(path) for path in generation.glob("state*"))
        log = sum(_size(path) for path in (generation / "log").iterdir())
        self._add(
            "in the end",
            rss_mb=rss_mb,
            state_bytes_each=state / self._waiting,
            log_bytes_each=log / self._waiting,
            together=(state + log) / self._waiting,
        )


def _size(path: Path) -> int:
    return os.stat(path).st_blocks * 512


async def tell(rows: report.Rows, waiting: Sequence[int], runs: int) -> None:
    for count in waiting:
        with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
            async with daemons(Path(directory), 1, gauged=True) as nodes:
                node = nodes.nodes[0]
                assert isinstance(node, Daemon)
                await Table(rows, node, count, runs).tell()


def main() -> None:
    parser = report.parser("tests.bench.table", __doc__)
    parser.add_argument("--waiting", type=int, default=MILLION)
    parser.add_argument("--large", action="store_true", help="5,000,000 too")
    parser.add_argument("--runs", type=int, default=2000, help="`true` as tasks")
    told = parser.parse_args()
    rows = report.Rows()
    asyncio.run(tell(rows, [told.waiting, *[5 * MILLION] * told.large], told.runs))
    rows.write(told.json)


if __name__ == "__main__":
    main()
