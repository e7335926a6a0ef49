"""Schedules end to end: python -m tests.bench.cron [steady burst] [--json FILE] [--seconds N]

    steady  1,000 schedules `@every 5s` on three nodes for two minutes: slots missed and doubled, how late they are, and
            what the API takes meanwhile, through each node
    burst   2,000 schedules that are due in the same second, on one node and on three, six times: from the slot to its
            entry, the API meanwhile, and the longest that the master's loop stood still

Tasks wait for a worker that there is not, so that what is seen is the calendar and not the machine's processes; in `steady`
a second round runs them. The API is one ADD and one list of a hundred tasks in turn on each node, 20 times a second.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.load import times
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.cluster.slots import GROUP, IDLE, asked, judge, pause, set_up
from tests.support.wire import Wire, head

PARTS = ("steady", "burst")
SCHEDULES, EVERY_S = 1000, 5
AT_ONCE, TURN_S, TURNS = 2000, 10, 6
PAUSE_S = 0.05
SHORT: dict[str, Any] = {"work": {"command": ["true"]}, "group": GROUP}
BODY = json.dumps({"event": "ADD", "tasks": [{**IDLE, "group": "api"}]}).encode()


class Probe:
    """Somebody who asks all the time."""

    def __init__(self, nodes: Cluster) -> None:
        self.took: list[float] = []
        self._asking = [asyncio.create_task(self._ask(node.place.client)) for node in nodes.nodes]

    async def _ask(self, address: str) -> None:
        wire = await Wire.open(address)
        questions = [
            head(address, TOKEN, "/v1/events", length=len(BODY)) + BODY,
            head(address, TOKEN, "/v1/tasks?limit=100"),
        ]
        try:
            while True:
                for question in questions:
                    sent = time.perf_counter()
                    reply = await wire.ask(question)
                    self.took.append(time.perf_counter() - sent)
                    assert reply.status < 300, reply
                    await asyncio.sleep(PAUSE_S)
        finally:
            wire.close()

    async def end(self) -> dict[str, float]:
        for asking in self._asking:
            asking.cancel()
        for found in await asyncio.gather(*self._asking, return_exceptions=True):
            if isinstance(found, Exception):
                raise found
        return times(self.took)


class Bench:
    def __init__(self, rows: report.Rows, directory: Path, seconds: float) -> None:
        self._rows = rows
        self._directory = directory
        self._seconds = seconds

    async def steady(self) -> None:
        for what, task in {"waiting": IDLE, "run": SHORT}.items():
            async with daemons(self._directory / what) as nodes, asked(nodes) as client:
                names = await set_up(client, SCHEDULES, f"{EVERY_S}s", task)
                probe = Probe(nodes)
                await asyncio.sleep(self._seconds)
                api = await probe.end()
                await pause(client, names)
                seen = await judge(client, names, EVERY_S)
            told = {"due": seen.due, "missed": seen.missed, "doubled": seen.doubled, "orphans": seen.orphans}
            late = {"late_p50_s": seen.late.at(0.5), "late_p99_s": seen.late.at(0.99), "late_max_s": seen.late.at(1)}
            self._rows.add(f"{SCHEDULES} every {EVERY_S}s, 3 nodes, tasks {what}", **told, **late, **_api(api))

    async def burst(self) -> None:
        for count in (1, 3):
            async with (
                daemons(self._directory / f"burst-{count}", count, gauged=True) as nodes,
                asked(nodes) as client,
            ):
                names = await set_up(client, AT_ONCE, f"{TURN_S}s", IDLE)
                master = await nodes.master()
                assert isinstance(master, Daemon)
                await master.stalls()
                probe = Probe(nodes)
                await asyncio.sleep(TURN_S * TURNS)
                api = await probe.end()
                stalls = await master.stalls()
                await pause(client, names)
                seen = await judge(client, names, TURN_S)
            told = {"due": seen.due, "missed": seen.missed, "doubled": seen.doubled}
            late = {"late_p50_s": seen.late.at(0.5), "late_max_s": seen.late.at(1)}
            self._rows.add(f"{AT_ONCE} in one second, {count} nodes", **told, **late, **_api(api), **_stalls(stalls))


def _api(took: dict[str, float]) -> dict[str, float]:
    return {f"api_{name}": value for name, value in took.items()}


def _stalls(found: dict[str, Any]) -> dict[str, Any]:
    """The tick that came latest by the loop's own doing, in milliseconds."""
    worst = found["worst"]
    return {"stall_ms": worst["late_ms"] - worst["queued_ms"], "computing_ms": worst["computing_ms"]}


def main() -> None:
    parser = report.parser("tests.bench.cron", __doc__, PARTS)
    parser.add_argument("--seconds", type=float, default=120.0, help="of `steady`")
    told = parser.parse_args()
    rows = report.Rows()
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
        bench = Bench(rows, Path(directory), told.seconds)
        for part in report.chosen(told.parts, PARTS):
            asyncio.run(getattr(bench, part)())
    rows.write(told.json)


if __name__ == "__main__":
    main()
