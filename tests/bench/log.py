"""The log's figures: throughput, failover, stalls while a snapshot goes out, a node that catches up.

    python -m tests.bench.log [throughput failover stall catchup] [--json FILE] [--seconds S] [--quick]

Prints a table and, with --json, the same as JSON. Where it makes sense plain pysyncobj, as it comes, runs beside it in the
same minutes; it syncs nothing to disk. On a small machine nodes and clients share the processors: compare rows of one
run, not runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.rivals import first_write, leader, rivals
from tests.cluster.cluster import Cluster, cluster
from tests.cluster.load import Load
from tests.cluster.node import Node, until
from tests.cluster.strikes import Gaps, freeze_the_master, kill_the_master

ITEM_BYTES = 100
GROUPED = 512
"""Proposers at once."""
SNAPSHOT_BYTES = 256 * 1024 * 1024
VALUE_BYTES = 512 * 1024
BEHIND_ENTRIES = 100_000
NEAR_ENTRIES = 100
"""No further behind than this counts as caught up, as for a learner."""
PLAIN = "pysyncobj as it comes (no fsync)"
PLAIN_JOURNAL = "pysyncobj, journal file (no fsync)"


@dataclass
class Report:
    directory: Path
    seconds: float
    quick: bool
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, what: str, **figures: Any) -> None:
        row = {"what": what, **figures}
        self.rows.append(row)
        shown = ", ".join(f"{key} {_shown(value)}" for key, value in figures.items())
        print(f"{what:<52} {shown}", flush=True)

    def times(self, count: int) -> int:
        return max(2, count // 10) if self.quick else count


def _shown(value: object) -> str:
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 100
        else f"{value:,.0f}"
        if isinstance(value, float)
        else str(value)
    )


# --- throughput


async def throughput(report: Report) -> None:
    for count in (1, 3):
        for name, proposers in (("one at a time", 1), ("grouped", GROUPED)):
            async with cluster(report.directory / f"through-{count}-{proposers}", count, ticker=True) as nodes:
                master = await nodes.master()
                await _burst(master, proposers, 0.5)
                await master.ask("reset")
                found = await _burst(master, proposers, report.seconds)
                stall = (await master.status())["stalls"]["worst"]
            _add_throughput(report, f"{count} nodes, {name}, fdatasync", found, loop_held_ms=_held(stall))
            for label, journal in ((PLAIN, False), (PLAIN_JOURNAL, True)):
                where = report.directory / f"plain-{count}-{proposers}-{journal}"
                async with rivals(where, count, journal=journal) as others:
                    first = await leader(others)
                    await first.ask(op="burst", proposers=proposers, bytes=ITEM_BYTES, seconds=0.5)
                    found = await first.ask(op="burst", proposers=proposers, bytes=ITEM_BYTES, seconds=report.seconds)
                _add_throughput(report, f"{count} nodes, {name}, {label}", found)


async def _burst(node: Node, proposers: int, seconds: float) -> dict[str, Any]:
    answer = await node.ask("burst", patience_s=seconds + 60, proposers=proposers, seconds=seconds, bytes=ITEM_BYTES)
    found: dict[str, Any] = answer["ok"]
    return found


def _add_throughput(report: Report, what: str, found: dict[str, Any], **more: float) -> None:
    commits = {"commits_per_s": found["entries"] / found["seconds"]} if "entries" in found else {}
    report.add(
        what,
        items_per_s=found["items"] / found["seconds"],
        **commits,
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
        refused=found["refused"],
        **more,
    )


def _held(stall: dict[str, float]) -> float:
    return stall["late_ms"] - stall["queued_ms"]


# --- failover

Strike = Callable[[Cluster, Load], Coroutine[Any, Any, float]]


async def failover(report: Report) -> None:
    strikes: tuple[tuple[str, Strike, int, int], ...] = (
        ("kill -9 of the master, idle but for the probe", kill_the_master, 50, 0),
        ("kill -9 of the master, under load", kill_the_master, 50, 2),
        ("SIGSTOP of the master, idle but for the probe", freeze_the_master, 20, 0),
        ("SIGSTOP of the master, under load", freeze_the_master, 20, 2),
    )
    for what, strike, count, clients in strikes:
        async with cluster(report.directory / f"failover-{len(report.rows)}") as nodes:
            # Without clients of its own the probe is what goes on: nothing is waited for before the strike.
            async with Load(nodes, clients_per_node=clients) as load:
                gaps = [await strike(nodes, load) for _ in range(report.times(count))]
                seen = await load.end()
            if not seen.sound:
                raise AssertionError(str(seen))
        _add_gaps(report, what, gaps, lost=len(seen.lost), acknowledged=seen.acknowledged)
    for what, number, count in (
        (f"kill -9 of the leader, {PLAIN}", signal.SIGKILL, 20),
        (f"SIGSTOP of the leader, {PLAIN}", signal.SIGSTOP, 10),
    ):
        async with rivals(report.directory / "plain-failover", 3, journal=False) as others:
            gaps = []
            for _ in range(report.times(count)):
                first = await leader(others)
                rest = [each for each in others if each is not first]
                struck = time.monotonic()
                first.send(number)
                gaps.append(await first_write(rest, struck))
                if number == signal.SIGKILL:
                    await first.kill()
                    await first.start()
                else:
                    first.send(signal.SIGCONT)
                await until(_ready(others), lambda: "plain nodes are all ready again", 60)
        _add_gaps(report, what, gaps)


def _ready(others: list[Any]) -> Callable[[], Any]:
    async def look() -> bool:
        statuses = [await each.ask(op="status") for each in others]
        return all(each["ready"] for each in statuses) and len({each["leader"] for each in statuses}) == 1

    return look


def _add_gaps(report: Report, what: str, gaps: list[float], **more: Any) -> None:
    found = Gaps(tuple(sorted(gaps)))
    report.add(
        what,
        times=len(gaps),
        p50_s=round(found.at(0.5), 3),
        p90_s=round(found.at(0.9), 3),
        p99_s=round(found.at(0.99), 3),
        max_s=round(found.seconds[-1], 3),
        **more,
    )


# --- stalls while a snapshot goes out


async def stall(report: Report) -> None:
    size = SNAPSHOT_BYTES // (10 if report.quick else 1)
    settings = "keep_bytes=1048576,checkpoint_bytes=8388608,segment_bytes=1048576"
    async with cluster(report.directory / "stall", 3, settings, ticker=True) as nodes:
        master = await nodes.master()
        await _fill(master, size // VALUE_BYTES)
        receiver = nodes.others(master)[0]
        await _base_line(report, nodes, master)
        status = await receiver.status()
        await receiver.kill()
        while (await master.status())["log"]["first"] <= status["log"]["last"]:
            await _fill(master, 16)
        for node in nodes.others(receiver):
            await node.ask("reset")
        began = time.monotonic()
        await receiver.start()
        await receiver.ask("reset")
        load = asyncio.create_task(_until_cancelled(master))
        await until(lambda: receiver.heard("snapshot in force"), lambda: "the snapshot is in force", 300)
        took_s = time.monotonic() - began
        load.cancel()
        statuses = await nodes.statuses()
        seen = (await asyncio.gather(load, return_exceptions=True))[0]
        if isinstance(seen, Exception):
            raise seen
        nbytes = _state(receiver).stat().st_size
        for node, found in statuses:
            role = "sender" if node is master else "receiver" if node is receiver else "third"
            _add_stall(report, f"snapshot of {nbytes >> 20} MiB, loop of the {role}", found["stalls"], took_s=took_s)
        await nodes.caught_up(receiver, 120)


def _state(node: Node) -> Path:
    """The state file in force: the one whose generation is named as the current one."""
    current = (node.place.data / "current").read_text()
    return next(each for each in node.place.data.glob("gen-*/state") if each.parent.name in current)


def _add_stall(report: Report, what: str, stalls: dict[str, Any], **more: float) -> None:
    worst, latest = stalls["worst"], stalls["latest"]
    report.add(
        what,
        held_ms=_held(worst),
        of_it_computing_ms=min(worst["computing_ms"], _held(worst)),
        latest_tick_ms=latest["late_ms"],
        of_it_others_ran_ms=latest["queued_ms"],
        ticks=stalls["ticks"],
        **more,
    )


async def _base_line(report: Report, nodes: Cluster, master: Node) -> None:
    await master.ask("reset")
    await _burst(master, 1, 3.0)
    _add_stall(report, "no snapshot, writes one at a time, loop of the master", (await master.status())["stalls"])


async def _until_cancelled(master: Node) -> None:
    line = master.line()
    try:
        while True:
            request = {"op": "burst", "proposers": 1, "seconds": 0.5, "bytes": ITEM_BYTES}
            await line.ask(request, 60)
    except asyncio.CancelledError:
        pass
    finally:
        line.close()


async def _fill(master: Node, values: int) -> None:
    line = master.line()
    try:
        for number in range(values):
            text = f"{number}:".ljust(VALUE_BYTES, "x")
            answer = await line.ask({"op": "write", "name": f"heavy{number}", "value": text, "deadline": 30}, 31)
            if answer.get("ok") is not True:
                raise AssertionError(str(answer))
    finally:
        line.close()


# --- catching up


async def catchup(report: Report) -> None:
    behind = BEHIND_ENTRIES // (10 if report.quick else 1)
    async with cluster(report.directory / "catchup", ticker=True) as nodes:
        master = await nodes.master()
        node = nodes.others(master)[0]
        await nodes.settled()
        began_at = (await node.status())["index"]
        await node.kill()
        alone = await _burst(master, 1, report.seconds)
        while (await master.status())["committed"] - began_at < behind:
            # Two at a time: each is an entry of its own.
            await _burst(master, 2, 5.0)
        missing = (await master.status())["committed"] - began_at
        for each in nodes.others(node):
            await each.ask("reset")
        caught_up = asyncio.Event()
        writing = asyncio.create_task(_measured(master, caught_up))
        began = time.monotonic()
        await node.start()
        ready_s = time.monotonic() - began
        await node.until(lambda status: _lag(status) <= NEAR_ENTRIES < status["index"] - began_at, "caught up", 300)
        took_s = time.monotonic() - began
        caught_up.set()
        during = await writing
        stalls = (await master.status())["stalls"]
        full = await _burst(master, 1, report.seconds)
    report.add(
        f"{missing:,} entries behind, caught up while written to",
        seconds=took_s,
        of_it_starting_s=ready_s,
        entries_per_s=missing / (took_s - ready_s),
        loop_of_master_held_ms=_held(stalls["worst"]),
    )
    for what, found in (("meanwhile", during), ("before, two nodes", alone), ("after, three nodes", full)):
        report.add(
            f"  writes one at a time, {what}",
            p50_ms=found["p50_ms"],
            p99_ms=found["p99_ms"],
            max_ms=found["max_ms"],
            items_per_s=found["items"] / found["seconds"],
        )


def _lag(status: dict[str, Any]) -> int:
    return int(status["committed"]) - int(status["index"])


async def _measured(master: Node, over: asyncio.Event) -> dict[str, Any]:
    """Writes one at a time until it is over; the middle and the worst of all."""
    line = master.line()
    samples: list[float] = []
    began = time.monotonic()
    try:
        while not over.is_set():
            request = {"op": "burst", "proposers": 1, "seconds": 0.25, "bytes": ITEM_BYTES, "samples": True}
            samples += (await line.ask(request, 60))["samples_ms"]
    finally:
        line.close()
    samples.sort()
    return {
        "p50_ms": samples[len(samples) // 2],
        "p99_ms": samples[int(len(samples) * 0.99)],
        "max_ms": samples[-1],
        "items": len(samples),
        "seconds": time.monotonic() - began,
    }


# --- all of it

PARTS: dict[str, Callable[[Report], Coroutine[Any, Any, None]]] = {
    "throughput": throughput,
    "failover": failover,
    "stall": stall,
    "catchup": catchup,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.log", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement of throughput")
    parser.add_argument("--quick", action="store_true", help="a tenth of the counts and sizes")
    parser.add_argument("--directory", type=Path, help="of the nodes' data; a temporary one when not given")
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench.", dir=given.directory) as directory:
        report = Report(Path(directory), given.seconds, given.quick)
        print(
            f"{platform.node()}, {os.cpu_count()} processors, Python {platform.python_version()}, load {os.getloadavg()}"
        )
        asyncio.run(_run(report, given.parts or list(PARTS)))
    if given.json is not None:
        facts = {"processors": os.cpu_count(), "python": sys.version, "rows": report.rows}
        given.json.write_text(json.dumps(facts, indent=1) + "\n")


async def _run(report: Report, parts: list[str]) -> None:
    for part in parts:
        await PARTS[part](report)


if __name__ == "__main__":
    main()
