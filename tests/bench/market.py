"""The market end to end: python -m tests.bench.market [auctions latency hostile native idle] [--json FILE] [--rounds N]

    auctions  tasks with a policy added at once to three nodes, until the last is awarded; beside tasks without one
    latency   one task at a time, its policy asked of five workers: from the ADD until the award is seen on the stream
    hostile   a hundred tasks of a hundred good policies at once; then the same with one that never ends among them
    native    `true` as a task, output and status kept, on one node; beside `xargs -P 2 -n 1 true` in turns; `node_us` is
              the processor time of the node itself for each, its executor's not counted; nobody follows the stream
    idle      one task at a time: from before its ADD is sent until its own clock, which its command prints; `alone_ms` is the
              same command's, started by this process in turns with the tasks: what of the time is the command's own

Nodes are `quvatlh run` as it is, every write is synced. In every part the tasks really run: processes are started while
auctions go on. Rounds of what is compared take turns; their median is told. The whole takes two to four minutes.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from quvatlh.client.sse import Parser
from tests.bench import report
from tests.bench.load import loaded, times
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.support.wire import Wire, head

PARTS = ("auctions", "latency", "hostile", "native", "idle")
POLICY = """
function(state, task)
  if not glob('linux', state.worker.facts.os) or count(task.name) >= 3 then return false end
  return state.worker.free / state.worker.slots - state.worker.cpu_load
end -- {}"""
TRUE: dict[str, Any] = {"work": {"command": ["true"]}}
DATE: dict[str, Any] = {"work": {"command": ["date", "+%s%N"]}}
MANY, AT_ONCE, ONE_BY_ONE, NATIVE = 100, 600, 150, 1500
PATIENCE_S = 60.0
PAUSE_S = 0.02


class Door:
    """One connection for requests, and one on which all that happens is told."""

    def __init__(self, address: str, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._wire = wire
        self._writer = writer
        self._claimed: dict[str, float] = {}
        self._more = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(reader))

    @classmethod
    async def open(cls, address: str) -> Self:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        # 1.0: what follows the head is the stream itself, not in chunks.
        asked = head(address, TOKEN, "/v1/stream?event=task.claimed").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        writer.write(asked)
        said = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in said.splitlines()[0], said
        return cls(address, await Wire.open(address), reader, writer)

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()
        self._wire.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        parser = Parser()
        while chunk := await reader.read(65536):
            at = time.perf_counter()
            for frame in parser.feed(chunk):
                if frame.kind == "task.claimed":
                    self._claimed.setdefault(json.loads(frame.data)["id"], at)
            self._more.set()
            self._more.clear()

    async def ask(self, path: str, body: Any = None) -> Any:
        sent = b"" if body is None else json.dumps(body).encode()
        reply = await self._wire.ask(head(self._address, TOKEN, path, length=len(sent)) + sent)
        assert reply.status < 300, reply
        return json.loads(reply.body)

    async def add(self, tasks: Sequence[Any]) -> list[str]:
        return list((await self.ask("/v1/events", {"event": "ADD", "tasks": list(tasks)}))["ids"])

    async def ended(self, ids: Sequence[str]) -> list[Any]:
        return [await self.ask(f"/v1/tasks/{id_}?wait=30s") for id_ in ids]

    async def awards(self, tasks: Sequence[Any], *, of: slice = slice(None)) -> list[float]:
        """Seconds from before the ADD until each of these tasks was seen awarded."""
        began = time.perf_counter()
        ids = (await self.add(tasks))[of]
        async with asyncio.timeout(PATIENCE_S):
            while not all(id_ in self._claimed for id_ in ids):
                await self._more.wait()
        return [self._claimed[id_] - began for id_ in ids]


@asynccontextmanager
async def opened(directory: Path, count: int, *, slots: int = 0) -> AsyncIterator[tuple[Cluster, Door]]:
    environ = {"QUVATLH_WORKER_SLOTS": str(slots)} if slots else {}
    async with daemons(directory, count, **environ) as nodes:  # type: ignore[arg-type]
        master = await nodes.master()
        assert isinstance(master, Daemon)
        door = await Door.open(master.place.client)
        try:
            await _all_up(door, count)
            await door.ended(await door.add([DATE] * 10))
            yield nodes, door
        finally:
            await door.close()


async def _all_up(door: Door, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while sum(worker["state"] == "up" for worker in (await door.ask("/v1/workers"))["items"]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def biddable(number: object = 0, **more: Any) -> dict[str, Any]:
    return {**TRUE, "policy": POLICY.format(number), **more}


class Bench:
    def __init__(self, rows: report.Rows, directory: Path, rounds: int) -> None:
        self._rows = rows
        self._directory = directory
        self._rounds = rounds

    async def auctions(self) -> None:
        cases = {
            "no policy": [TRUE] * AT_ONCE,
            "one policy": [biddable()] * AT_ONCE,
            f"{MANY} policies": [biddable(n % MANY) for n in range(AT_ONCE)],
        }
        took: dict[str, list[float]] = {what: [] for what in cases}
        async with opened(self._directory / "auctions", 3, slots=AT_ONCE) as (_, door):
            for _ in range(self._rounds):
                for what, tasks in cases.items():
                    took[what].append(max(await door.awards(tasks)))
                    await _idle(door)
        for what, seconds in took.items():
            rates = sorted(AT_ONCE / each for each in seconds)
            figures = {"per_s": statistics.median(rates), "least": rates[0], "most": rates[-1]}
            self._rows.add(f"awards, 3 nodes, {AT_ONCE} at once, {what}", **figures)

    async def latency(self) -> None:
        async with opened(self._directory / "latency", 5, slots=4) as (_, door):
            for what, task in {"no policy": TRUE, "5 workers bid": biddable()}.items():
                took = []
                for _ in range(ONE_BY_ONE):
                    took += await door.awards([task])
                    await asyncio.sleep(PAUSE_S)
                self._rows.add(f"ADD until awarded, 5 nodes, {what}", **times(took))

    async def hostile(self) -> None:
        good = [biddable(n) for n in range(MANY)]
        alone: list[float] = []
        beside: list[float] = []
        async with opened(self._directory / "hostile", 3, slots=MANY) as (_, door):
            for n in range(self._rounds + 1):
                plain = await door.awards(good)
                await _idle(door)
                endless = {**TRUE, "group": "hostile", "policy": f"function() while {n} do end end"}
                mixed = await door.awards([endless, *good], of=slice(1, None))
                if n:  # the first time all are compiled
                    alone, beside = alone + plain, beside + mixed
                await door.ask("/v1/events", {"event": "DELETE", "match": {"group": "hostile"}})
                await _idle(door)
        self._rows.add(f"{MANY} good policies at once, 3 nodes, until awarded", **times(alone))
        self._rows.add("  with an endless one before them", **times(beside))

    async def native(self) -> None:
        pairs = []
        async with opened(self._directory / "native", 1) as (nodes, door):
            await door.close()
            node = nodes.nodes[0]
            assert isinstance(node, Daemon)
            for n in range(self._rounds + 1):
                began = time.perf_counter()
                await asyncio.to_thread(xargs, NATIVE)
                beside = NATIVE / (time.perf_counter() - began)
                given = {"task": TRUE, "count": NATIVE, "queue": f"q{n}"}
                before_s = node.cpu_s()
                found = await loaded("runs", node.place.client, TOKEN, **given)
                ours = NATIVE / found["seconds"]
                if n:
                    pairs.append((ours, beside, ours / beside, (node.cpu_s() - before_s) / NATIVE * 1e6))
        per_s, xargs_per_s, ratio, node_us = (statistics.median(column) for column in zip(*pairs, strict=True))
        self._rows.add("true as a task, 1 node", per_s=per_s, xargs_per_s=xargs_per_s, ratio=ratio, node_us=node_us)

    async def idle(self) -> None:
        for count in (1, 3):
            async with opened(self._directory / f"idle-{count}", count) as (_, door):
                took, alone = [], []
                for _ in range(ONE_BY_ONE):
                    alone.append(alone_ms())
                    sent = time.time_ns()
                    (record,) = await door.ended(await door.add([DATE]))
                    took.append((int(record["actions"][-1]["output_tail"]) - sent) / 1e9)
                    await asyncio.sleep(PAUSE_S)
                what = f"idle, ADD until `date` tells the time, {count} nodes"
                self._rows.add(what, **times(took), alone_ms=statistics.median(alone))


async def _idle(door: Door) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for state in ("pending", "claimed", "running"):
            while (await door.ask(f"/v1/tasks?state={state}&limit=1"))["total"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def alone_ms() -> float:
    """From before the command is started until the time that it tells."""
    sent = time.time_ns()
    printed = subprocess.run(DATE["work"]["command"], check=True, capture_output=True).stdout
    return (int(printed) - sent) / 1e6


def xargs(count: int) -> None:
    lines = "\n".join(map(str, range(count))) + "\n"
    subprocess.run(["xargs", "-P", "2", "-n", "1", "true"], input=lines.encode(), check=True)


def main() -> None:
    parser = report.parser("tests.bench.market", __doc__, PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    told = parser.parse_args()
    rows = report.Rows()
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
        bench = Bench(rows, Path(directory), told.rounds)
        for part in report.chosen(told.parts, PARTS):
            asyncio.run(getattr(bench, part)())
    rows.write(told.json)


if __name__ == "__main__":
    main()
