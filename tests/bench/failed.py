"""Many failed tasks in one real node: python -m tests.bench.failed [--failed N] [--json FILE]

Adds N tasks (100,000) to eleven queues of one `quvatlh run`, with 100 names, five groups and a text each, for workers that do
not exist, where they expire; each tenth runs, and fails. Then, over HTTP: pages and counts by every field that a person
may ask by, the whole list walked page by page and held against what was added; all moved to another queue, retried, and
deleted by a filter, purged, each in the background, while an idle client asks for a page again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from quvatlh.client import Client, Options
from tests.bench import report
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.cluster.node import until

COUNT = 100_000
QUEUES, NAMES, GROUPS, RUNS = 11, 100, 5, 10
TIMES = 20
PATIENCE_S = 300.0

PAGES = {
    "failed, the last first": "sort=-finished_at",
    "failed, the oldest first": "sort=created_at",
    "by priority": "sort=-priority",
    "of a queue": "queue=q3&sort=-finished_at",
    "of a name": "name=n42&sort=-finished_at",
    "of a group": "group=g2",
    "of an error": "error=exit&sort=-finished_at",
    "of a key": "key=k42",
    "text, found": "q=needle-77",
    "text, not found": "q=nowhere",
    "between two times": "finished_after=2020-01-01T00:00:00Z&finished_before=2100-01-01T00:00:00Z",
}
COUNTS = ("queue", "error", "name", "group", "worker", "key", "state")


class Failed:
    def __init__(self, rows: report.Rows, node: Daemon, client: Client, count: int) -> None:
        self._rows = rows
        self._node = node
        self._client = client
        self._count = count

    async def tell(self) -> None:
        await self._fill()
        await self._pages()
        await self._walk()
        await self._verbs()

    async def _fill(self) -> None:
        lines = b"".join(msgspec.json.encode(self._task(n)) + b"\n" for n in range(self._count))
        place = 0

        def read(size: int) -> bytes:
            nonlocal place
            part = lines[place : place + size]
            place += len(part)
            return part

        began = time.perf_counter()
        async for cut in self._client.add_lines(read):
            assert cut.problem is None, cut.problem
        self._rows.add(f"{self._count:,} added", per_s=self._count / (time.perf_counter() - began))
        await self._until("failed", self._count)

    def _task(self, n: int) -> dict[str, Any]:
        runs = n % RUNS == 0
        return ({"retry": {"attempts": 1}} if runs else {"expires": "1ms", "tags": ["nobody"]}) | {
            "work": {"command": ["false", f"needle-{n % 1000}"]},
            "id": f"t{n}",
            "queue": f"q{n % QUEUES}",
            "name": f"n{n % NAMES}",
            "group": f"g{n % GROUPS}",
            "key": f"k{n % NAMES}",
            "priority": n % 3,
        }

    async def _until(self, state: str, count: int, **more: str) -> None:
        page: dict[str, Any] = {}

        async def there() -> bool:
            page.update(await self._client.tasks(state=state, limit=1, **more))
            return bool(page["total"] == count)

        await until(there, lambda: f"{state}: {page.get('total')}", PATIENCE_S)

    async def _pages(self) -> None:
        for what, query in PAGES.items():
            asked = dict(part.split("=") for part in query.split("&"))
            self._rows.add(f"page, {what}", **await _timed(self._client, state="failed", limit="50", **asked))
        for field in COUNTS:
            found = await _timed(self._client, state="failed", group_by=field)
            self._rows.add(f"counted by {field}", **found)

    async def _walk(self) -> None:
        began = time.perf_counter()
        seen: Counter[str] = Counter()
        async for task in self._client.all_tasks(state="failed", sort="-finished_at", limit=1000):
            seen[task["error"]["code"]] += 1
        took = time.perf_counter() - began
        ran = len(range(0, self._count, RUNS))
        assert seen == {"exit": ran, "expired": self._count - ran}, seen
        self._rows.add("the whole list, by a thousand", per_s=self._count / took)

    async def _verbs(self) -> None:
        await self._work("kept longer, by a filter", "update", {"state": "failed"}, self._count, {"keep": "60d"})
        for n in range(QUEUES):
            await self._client.pause_queue(f"q{n}")
        await self._work("retried by a filter", "retry", {"state": "failed"}, self._count)
        await self._until("pending", self._count)
        await self._work(
            "moved by a filter", "update", {"state": "pending"}, self._count, {"queue": "all", "tags": ["nobody"]}
        )
        await self._work("deleted by a filter", "delete", {"queue": "all"}, self._count)
        await self._until("deleted", self._count)
        async with self._watched("purged from the list") as told:
            done = await self._client.purge_queue("all", ["deleted"], on_progress=told)
        assert (done.matched, done.done) == (self._count, self._count), done
        await self._client.delete_queue("all")
        assert (await self._client.tasks(limit=1))["total"] == 0

    async def _work(self, what: str, verb: str, match: Any, count: int, changes: Any = None) -> None:
        async with self._watched(what) as told:
            done = await self._client.act(verb, match=match, changes=changes, on_progress=told)
        assert (done.matched, done.done) == (count, count), done

    @contextlib.asynccontextmanager
    async def _watched(self, what: str) -> AsyncIterator[Any]:
        """How long it took, how an idle client fared meanwhile, and whether progress was told."""
        await self._node.stalls()
        steps: list[tuple[int, int]] = []
        asking = asyncio.create_task(_asks(self._client))
        began = time.perf_counter()
        yield lambda done, matched: steps.append((done, matched))
        took = time.perf_counter() - began
        asking.cancel()
        times = await asking
        worst = (await self._node.stalls())["worst"]
        self._rows.add(
            what,
            seconds=took,
            per_s=steps[-1][0] / took,
            progress_told=len(steps),
            first_of=steps[0][1],
            page_p99_ms=_share(times, 0.99),
            page_max_ms=times[-1],
            stall_ms=worst["late_ms"] - worst["queued_ms"],
        )


async def _asks(client: Client) -> list[float]:
    times: list[float] = []
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            began = time.perf_counter()
            await client.tasks(limit=10)
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.01)
    return sorted(times)


async def _timed(client: Client, **query: str) -> dict[str, Any]:
    times = []
    answer: dict[str, Any] = {}
    for _ in range(TIMES):
        began = time.perf_counter()
        answer = await client.tasks(**query)
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    if "groups" in answer:
        groups = answer["groups"]
        told = {"groups": len(groups), "tasks": sum(each["count"] for each in groups)}
        told |= {"partial": True} if answer.get("partial") else {}
    else:
        told = {"items": len(answer["items"]), "total": answer["total"]}
    return {"p50_ms": _share(times, 0.5), "max_ms": times[-1], **told}


def _share(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


async def tell(rows: report.Rows, count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
        async with daemons(Path(directory), 1, gauged=True) as nodes:
            node = nodes.nodes[0]
            assert isinstance(node, Daemon)
            url = f"http://{node.place.client}"
            async with Client(Options((url,), TOKEN, None, 60.0, patient=True)) as client:
                await Failed(rows, node, client, count).tell()


def main() -> None:
    parser = report.parser("tests.bench.failed", __doc__)
    parser.add_argument("--failed", type=int, default=COUNT)
    told = parser.parse_args()
    rows = report.Rows()
    asyncio.run(tell(rows, told.failed))
    rows.write(told.json)


if __name__ == "__main__":
    main()
