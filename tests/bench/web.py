"""What the dashboard costs, beside many tasks: python -m tests.bench.web [--waiting N] [--pairs P] [--minutes M] [--json FILE]

One real node with N waiting tasks (1,000,000), in which 2,000 events a second happen (tasks added and deleted by the hundred),
and one tab of a real Chromium. Told for each view: until something is painted and until its content is there, both on the
loopback with an empty cache; milliseconds of scripting, of layout and of all work of the page's main thread a second; the
processor time of the node beyond that of the time just before, with an empty tab; and for how much of the time it was busy with
questions of the tab, by its own count and waiting included, which is far less noisy. All of it is the median of P pairs of
windows (3), for the node with the least and the most. Then the heap of the tab over M minutes (10) of the overview, and what
there was more of at its end than a minute after its beginning, by kind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from tests.bench import report
from tests.bench.load import loaded
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.web import browser

MILLION = 1_000_000
TASK: dict[str, Any] = {"work": {"command": ["true"]}, "tags": ["nobody-has-this"], "queue": "backlog"}
BATCH = 100
PAUSE_S = 0.1
"""Each turn adds a batch and deletes the one before: two events a task."""
SETTLE_S = 3.0
VIEWS = {
    "overview": ("#/", ".charts"),
    "tasks": ("#/tasks", "tbody tr"),
    "tasks of the queue": ("#/tasks?q=queue%3Alive", "tbody tr"),
    "failed": ("#/failed", "main .empty"),
    "workers": ("#/workers", "tbody tr"),
    "queues": ("#/queues", "main > *"),
    "cluster": ("#/cluster", "tbody tr"),
    "queue": ("#/queues/live", ".stats"),
    "queue with all that wait": ("#/queues/backlog", ".stats"),
    "services": ("#/services", "tbody tr"),
    "schedules": ("#/schedules", "main > *"),
    "task with a log": ("#/tasks/writes", ".log"),
}
WRITES: dict[str, Any] = {"id": "writes", "queue": "writes", "work": {"shell": "while :; do seq 100; sleep 0.1; done"}}
"""A thousand lines a second."""
OF_THE_LOAD = ("/v1/events", "/metrics")
MEASURED = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")


class Bench:
    def __init__(self, rows: report.Rows, node: Daemon, session: aiohttp.ClientSession) -> None:
        self._rows = rows
        self._node = node
        self._session = session
        self._url = f"http://{node.place.client}"
        self._events = 0

    async def post(self, path: str, body: Any) -> Any:
        async with self._session.post(self._url + path, json=body) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()

    async def fill(self, waiting: int) -> None:
        told = await loaded("lines", address=self._node.place.client, token=TOKEN, task=TASK, count=waiting)
        self._rows.add("added", tasks=waiting, seconds=told["seconds"])

    async def happen(self) -> None:
        """Without end."""
        before: list[str] = []
        due = time.monotonic()
        for turn in count():
            ids = [f"live-{turn}-{n}" for n in range(BATCH)]
            tasks = [{**TASK, "id": each, "queue": "live"} for each in ids]
            await self.post("/v1/events", {"event": "ADD", "tasks": tasks})
            if before:
                await self.post("/v1/events", {"event": "DELETE", "ids": before})
            before = ids
            self._events += 2 * BATCH
            due = max(due + PAUSE_S, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def node_cost(self, seconds: float) -> tuple[float, float]:
        """Percent of a core, and events a second, meanwhile."""
        cpu, events, began = self._node.cpu_s(), self._events, time.monotonic()
        await asyncio.sleep(seconds)
        passed = time.monotonic() - began
        return 100 * (self._node.cpu_s() - cpu) / passed, (self._events - events) / passed

    async def asked_s(self) -> float:
        """How long the node has had questions, all but those of the load: waiting for its turn included."""
        async with self._session.get(f"{self._url}/metrics") as answer:
            text = await answer.text()
        sums = re.findall(r'^quvatlh_http_request_seconds_sum{route="([^"]*)"} (\S+)$', text, re.MULTILINE)
        return sum(float(seconds) for route, seconds in sums if route not in OF_THE_LOAD)

    async def link(self) -> str:
        return self._url + str((await self.post("/v1/session/link", {}))["url"])

    async def view(self, running: Any, name: str, seconds: float, pairs: int) -> None:
        place, content = VIEWS[name]
        more: list[float] = []
        found: list[dict[str, float]] = []
        for _ in range(pairs):
            async with self.watching(running) as (tab, devtools):
                await asyncio.sleep(SETTLE_S)
                alone, alone_rate = await self.node_cost(seconds)
                began = time.monotonic()
                await tab.page.goto(f"{self._url}/{place}")
                await tab.page.locator(content).first.wait_for()
                there_ms = 1000 * (time.monotonic() - began)
                painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"
                painted_ms = await tab.page.evaluate(painted)
                await asyncio.sleep(SETTLE_S)
                before, asked_s = await metrics(devtools), await self.asked_s()
                cost, rate = await self.node_cost(seconds)
                after, asked_s = await metrics(devtools), await self.asked_s() - asked_s
                if tab.errors:
                    raise AssertionError(tab.errors)
            passed = after["Timestamp"] - before["Timestamp"]
            spent = {key: 1000 * (after[key] - before[key]) / passed for key in MEASURED}
            more.append(cost - alone * rate / alone_rate)
            found.append(
                {
                    "painted_ms": painted_ms,
                    "content_ms": there_ms,
                    "script_ms_a_s": spent["ScriptDuration"],
                    "layout_ms_a_s": spent["LayoutDuration"] + spent["RecalcStyleDuration"],
                    "main_thread_ms_a_s": spent["TaskDuration"],
                    "asked_percent": 100 * asked_s / seconds,
                    "node_percent_more": more[-1],
                    "events_a_s": rate,
                }
            )
        medians = {name: statistics.median(each[name] for each in found) for name in found[0]}
        self._rows.add(f"view {name}", **medians, least_percent=min(more), most_percent=max(more))

    async def heap(self, running: Any, minutes: float) -> None:
        async with self.watching(running) as (tab, devtools):
            await tab.page.goto(f"{self._url}/#/")
            early: Counter[str] = Counter()
            for minute in range(int(minutes) + 1):
                await devtools.send("HeapProfiler.collectGarbage")
                now = await metrics(devtools)
                self._rows.add(
                    f"heap of the overview after {minute} min",
                    mb=now["JSHeapUsedSize"] / 1e6,
                    nodes=int(now["Nodes"]),
                    listeners=int(now["JSEventListeners"]),
                )
                if minute == 1:
                    early = await kinds(devtools)
                if minute < int(minutes):
                    await asyncio.sleep(60)
            more = await kinds(devtools) - early
            for kind, size in more.most_common(8):
                self._rows.add(f"more of {kind}", kb=size / 1e3)

    @contextlib.asynccontextmanager
    async def watching(self, running: Any) -> AsyncIterator[tuple[browser.Tab, Any]]:
        async with browser.tab(running) as tab:
            async with self._session.get(await self.link(), allow_redirects=False) as answer:
                name, _, secret = answer.headers["Set-Cookie"].partition(";")[0].partition("=")
            await tab.context.add_cookies([{"name": name, "value": secret, "url": self._url}])
            devtools = await tab.context.new_cdp_session(tab.page)
            await devtools.send(
                "Performance.enable", {"timeDomain": "threadTicks"}
            )  # what it computes, not what it waits for
            yield tab, devtools


async def metrics(devtools: Any) -> dict[str, float]:
    return {each["name"]: each["value"] for each in (await devtools.send("Performance.getMetrics"))["metrics"]}


async def kinds(devtools: Any) -> Counter[str]:
    """Bytes of what is reachable, by kind of node and name of constructor."""
    pieces: list[str] = []
    devtools.on("HeapProfiler.addHeapSnapshotChunk", lambda event: pieces.append(event["chunk"]))
    await devtools.send("HeapProfiler.takeHeapSnapshot", {"reportProgress": False})
    told = json.loads("".join(pieces))
    meta = told["snapshot"]["meta"]
    fields, nodes, strings = meta["node_fields"], told["nodes"], told["strings"]
    kind, name, size = (fields.index(each) for each in ("type", "name", "self_size"))
    named = {"object", "native", "code", "hidden"}
    found: Counter[str] = Counter()
    for at in range(0, len(nodes), len(fields)):
        which = meta["node_types"][0][nodes[at + kind]]
        found[f"{which} {strings[nodes[at + name]][:60]}" if which in named else which] += nodes[at + size]
    return found


async def tell(
    rows: report.Rows, waiting: int, seconds: float, pairs: int, minutes: float, views: Sequence[str]
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with tempfile.TemporaryDirectory() as directory:
        async with daemons(Path(directory), 1) as cluster, aiohttp.ClientSession(headers=headers) as session:
            [node] = cluster.nodes
            assert isinstance(node, Daemon)
            bench = Bench(rows, node, session)
            await bench.fill(waiting)
            await bench.post("/v1/events", {"event": "ADD", "tasks": [WRITES]})
            happening = asyncio.create_task(bench.happen())
            try:
                await asyncio.sleep(SETTLE_S)
                async with browser.started(browser.CHROMIUM) as running:
                    for name in views:
                        await bench.view(running, name, seconds, pairs)
                    if minutes:
                        await bench.heap(running, minutes)
            finally:
                happening.cancel()
                await asyncio.gather(happening, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=MILLION)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each window")
    parser.add_argument("--pairs", type=int, default=3, help="of windows, for each view")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the heap; 0: not at all")
    parser.add_argument("--views", nargs="*", choices=VIEWS, help="these alone")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if lacking := browser.missing(browser.CHROMIUM):
        sys.exit(lacking)
    rows = report.Rows()
    asyncio.run(tell(rows, given.waiting, given.seconds, given.pairs, given.minutes, given.views or list(VIEWS)))
    rows.write(given.json)


if __name__ == "__main__":
    main()
