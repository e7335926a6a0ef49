"""What HTTP takes: python -m tests.bench.http [door idle clients bulk] [--json FILE] [--seconds S] [--rounds N]

    door     the HTTP side alone, over a pool that costs nothing
    idle     ADD, one at a time with a pause, over keep-alive: one node, three nodes (through master and follower)
    clients  ADD with 1, 8 and 64 clients: one node, three nodes
    bulk     NDJSON into one node, two kinds of task

Nodes are `quvatlh run` as it is, every write is synced; the load has a process of its own, and no task ever runs. `load`
is the part of a core that the load took, `node` the busiest node: which one is near 1 was the limit; `node_us` is the
processor time of that node for each task, which other processes disturb least. Stalls are those of gauge.py, by the
kernel's account not to be blamed on other processes. A round is repeated, the median told with the range: on a busy
machine compare rounds, not runs.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.costless import check_alone, costless
from tests.bench.load import Report, loaded
from tests.cluster.cluster import Cluster, now
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.fakes.pool import TOKEN as FAKE_TOKEN

NOBODY = {"tags": ["nobody-has-this"]}
SMALL: dict[str, Any] = {"work": {"command": ["true"]}, **NOBODY}
USUAL: dict[str, Any] = {
    "name": "resize",
    "group": "photos",
    "queue": "images",
    "work": {"python": "photos.jobs:resize", "args": [1024, 768]},
    "payload": {"photo": 8_123_456},
    "priority": 3,
    "key": "tenant-7",
    **NOBODY,
}
TASKS = {"small": SMALL, "usual": USUAL}
PARTS = ("door", "idle", "clients", "bulk")
CLIENTS = (1, 8, 64)
IDLE_PAUSE_S = 0.005


class Bench:
    def __init__(self, rows: report.Rows, directory: Path, seconds: float, rounds: int, lines: int) -> None:
        self._rows = rows
        self._directory = directory
        self._seconds = seconds
        self._rounds = rounds
        self._lines = lines

    async def door(self) -> None:
        for connections in CLIENTS:
            with costless(noted=False) as (address, end):
                given = {"task": USUAL, "connections": connections, "seconds": self._seconds}
                found = await loaded("adds", address, FAKE_TOKEN, **given)
                cost = end() / found["count"] * 1e6
            self._rows.add(f"door, {connections} clients", **_rate([found]), node_us=cost, **_latency([found]))
        for name, task in TASKS.items():
            alone = self._lines / await check_alone(json.dumps(task).encode(), self._lines)
            with costless(noted=False) as (address, end):
                found = await loaded("lines", address, FAKE_TOKEN, task=task, count=self._lines)
                cost = end() / found["count"] * 1e6
            self._rows.add(f"door, NDJSON, {name} task", **_rate([found]), node_us=cost, judged_alone_per_s=alone)

    async def idle(self) -> None:
        for count in (1, 3):
            async with daemons(self._directory / f"idle-{count}", count, gauged=True) as nodes:
                master = await nodes.master()
                ways = {"": master} if count == 1 else {", master": master, ", follower": nodes.others(master)[0]}
                for way, node in ways.items():
                    given = {"task": SMALL, "seconds": self._seconds, "pause_s": IDLE_PAUSE_S}
                    found = [await _asked(nodes, node, "adds", **given) for _ in range(self._rounds)]
                    self._rows.add(f"idle ADD, {count} nodes{way}", **_latency(found), **_limits(found))

    async def clients(self) -> None:
        for count in (1, 3):
            async with daemons(self._directory / f"clients-{count}", count, gauged=True) as nodes:
                master = await nodes.master()
                for connections in CLIENTS:
                    given = {"task": SMALL, "seconds": self._seconds, "connections": connections}
                    found = [await _asked(nodes, master, "adds", **given) for _ in range(self._rounds)]
                    what = f"ADD, {count} nodes, {connections} clients"
                    self._rows.add(what, **_rate(found), **_latency(found), **_limits(found))

    async def bulk(self) -> None:
        for name, task in TASKS.items():
            async with daemons(self._directory / f"bulk-{name}", 1, gauged=True) as nodes:
                node = nodes.nodes[0]
                await _asked(nodes, node, "lines", task=task, count=10_000)
                given = {"task": task, "count": self._lines}
                found = [await _asked(nodes, node, "lines", **given) for _ in range(self._rounds)]
                self._rows.add(f"bulk ADD, 1 node, {name} task", **_rate(found), **_limits(found))
                with_ids = [await _asked(nodes, node, "lines", **given, path="/v1/events")]
                self._rows.add(f"bulk ADD, 1 node, {name} task, with ids", **_rate(with_ids), **_limits(with_ids))


async def _asked(nodes: Cluster, node: object, do: str, **given: Any) -> Report:
    """One round of load on that node, and what it cost the nodes."""
    assert isinstance(node, Daemon)
    every = [each for each in nodes.nodes if isinstance(each, Daemon)]
    await asyncio.gather(*(each.stalls() for each in every))
    before, began = [each.cpu_s() for each in every], now()
    found = await loaded(do, node.place.client, TOKEN, **given)
    took_s = now() - began
    stalls = [(await each.stalls())["worst"] for each in every]
    return found | {
        "node_cpu": (used_s := max(each.cpu_s() - used for each, used in zip(every, before, strict=True))) / took_s,
        "node_us": used_s / found["count"] * 1e6,
        "stall_ms": max(stall["late_ms"] - stall["queued_ms"] for stall in stalls),
        "computing_ms": max(stall["computing_ms"] for stall in stalls),
    }


def _rate(found: Sequence[Report]) -> dict[str, Any]:
    rates = [each["count"] / each["seconds"] for each in found]
    spread = {"least": min(rates), "most": max(rates)} if len(rates) > 1 else {}
    return {"per_s": statistics.median(rates), **spread}


def _latency(found: Sequence[Report]) -> dict[str, Any]:
    return {name: statistics.median(each[name] for each in found) for name in ("p50_ms", "p99_ms")}


def _limits(found: Sequence[Report]) -> dict[str, Any]:
    return {
        "node_us": statistics.median(each["node_us"] for each in found),
        "node": statistics.median(each["node_cpu"] for each in found),
        "load": statistics.median(each["load_cpu"] for each in found),
        "stall_ms": max(each["stall_ms"] for each in found),
        "of_it_computing_ms": max(each["computing_ms"] for each in found),
    }


def main() -> None:
    parser = report.parser("tests.bench.http", __doc__, PARTS)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round of single ADDs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=200_000, help="of each round of bulk ADDs")
    told = parser.parse_args()
    rows = report.Rows()
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
        bench = Bench(rows, Path(directory), told.seconds, told.rounds, told.lines)
        for part in report.chosen(told.parts, PARTS):
            asyncio.run(getattr(bench, part)())
    rows.write(told.json)


if __name__ == "__main__":
    main()
