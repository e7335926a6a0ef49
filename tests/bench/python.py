"""No-op Python tasks beside other queues: python -m tests.bench.python [rate idle] [--queues …] [--count N] [--json FILE]

rate      tasks a second, from the first that is sent until the last is done, workers running meanwhile
idle      one task at a time on idle workers: from before it is sent until its function begins

All in one run, on this machine: Qu'vatlh on one node and on three, each write synced; huey, taskiq and Celery on a Redis as it
comes and on one that syncs each write; procrastinate on PostgreSQL. Others count as done when the function has run; Qu'vatlh
when each is known to have succeeded, in the log. Every queue sends as fast as its library lets it, and has its workers set
up for short tasks (pyqueues/on_*.py). What is not installed is left out, with the reason. `pip install -e '.[bench]'`,
`apt install redis-server postgresql`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tests.bench import report
from tests.bench.load import times
from tests.bench.pyqueues import jobs, servers
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.cluster.node import ROOT

PARTS: Final = ("rate", "idle")
COUNT: Final = 60_000
WARM: Final = 400
LOT: Final = 100
"""Those that send do so in parts of this."""
IDLE: Final = 200
PATIENCE_S: Final = 300.0
LOOK_S: Final = 0.005
DROPPED: Final = 10
"""Of the first ones sent to idle workers: what is loaded then is loaded once."""


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    module: str
    package: str
    server: str = ""
    durable: bool = True
    nodes: int = 0
    share: float = 1.0
    """Of the count: slower ones are given less, so that each takes some seconds."""


QUEUES: Final = (
    Queue("quvatlh", "on_quvatlh", "quvatlh", nodes=1),
    Queue("quvatlh-3", "on_quvatlh", "quvatlh", nodes=3),
    Queue("huey", "on_huey", "huey", "redis", durable=False),
    Queue("huey-synced", "on_huey", "huey", "synced", share=0.5),
    Queue("taskiq", "on_taskiq", "taskiq-redis", "redis", durable=False),
    Queue("taskiq-synced", "on_taskiq", "taskiq-redis", "synced", share=0.5),
    Queue("celery", "on_celery", "celery", "redis", durable=False, share=0.3),
    Queue("celery-synced", "on_celery", "celery", "synced", share=0.2),
    Queue("procrastinate", "on_procrastinate", "procrastinate", "postgres", share=0.2),
)
ON: Final = {"redis": "Redis", "synced": "Redis, fsync always", "postgres": "PostgreSQL"}


@dataclass(slots=True)
class Place:
    """A queue that runs."""

    queue: Queue
    directory: Path
    environ: dict[str, str]
    node: Daemon | None = None

    @property
    def title(self) -> str:
        queue = self.queue
        if queue.nodes:
            return f"Qu'vatlh, {queue.nodes} node{'s' * (queue.nodes > 1)}, fdatasync"
        name = queue.package.removesuffix("-redis")
        return f"{name} {metadata.version(name)} + {ON[queue.server]}"

    async def rate(self, count: int) -> float:
        """Tasks a second."""
        before = jobs.done(self.directory)
        known = await self._succeeded()
        async with self._sending("many", count) as sender:
            began = time.perf_counter()
            await sender.go()
            async with asyncio.timeout(PATIENCE_S):
                while not await self._are_done(before + count, known + count):  # noqa: ASYNC110 - they count in memory
                    await asyncio.sleep(LOOK_S)
            took_s = time.perf_counter() - began
        assert jobs.done(self.directory) == before + count
        return count / took_s

    async def idle(self, count: int) -> list[float]:
        """Seconds from before each was sent until it began."""
        (self.directory / jobs.MARKS).write_bytes(bytes(jobs.SIZE * count))
        async with self._sending("one", count) as sender:
            await sender.go()
            sent = await sender.end()
            async with asyncio.timeout(PATIENCE_S):
                while 0 in (began := jobs.began(self.directory)):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)
        return [(start - at) / 1e9 for at, start in zip(sent, began, strict=True)]

    async def prepare(self) -> None:
        async with self._sending("prepare", 0) as sender:
            await sender.go()
            await sender.end()

    async def _are_done(self, run: int, known: int) -> bool:
        return jobs.done(self.directory) >= run and (self.node is None or await self._succeeded() >= known)

    async def _succeeded(self) -> int:
        if self.node is None:
            return 0
        return int((await self.node.get("/v1/tasks?state=succeeded&limit=1"))["total"])

    @contextlib.asynccontextmanager
    async def _sending(self, way: str, count: int) -> AsyncIterator[Sender]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.pyqueues.produce", self.queue.module, way, str(count),
            cwd=ROOT, env={**os.environ, **self.environ},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        sender = Sender(process)
        try:
            await sender.ready()
            yield sender
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


class Sender:
    """produce.py."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ready(self) -> None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line != b"ready\n":
            raise RuntimeError(f"the sender ended before it was ready: {line!r}")

    async def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()

    async def end(self) -> list[int]:
        assert self._process.stdout is not None
        found: list[int] = json.loads(await self._process.stdout.readline())
        return found


@contextlib.asynccontextmanager
async def place(queue: Queue) -> AsyncIterator[Place]:
    """Its server and its workers, warm. servers.Missing."""
    if importlib.util.find_spec(queue.package.replace("-", "_")) is None:
        raise servers.Missing(f"{queue.package} is not installed: pip install -e '.[bench]'")
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quvatlh-bench-")))
        made = Place(queue, directory, {jobs.DIRECTORY: str(directory)})
        (directory / jobs.MARKS).write_bytes(bytes(jobs.SIZE))
        await (_nodes(made, stack) if queue.nodes else _server(made, stack))
        await made.rate(WARM)
        yield made


async def _nodes(made: Place, stack: contextlib.AsyncExitStack) -> None:
    environments = {"default": {"cwd": str(Path(jobs.__file__).parent)}}
    given: dict[str, Any] = {"QUVATLH_WORKER_ENVIRONMENTS": json.dumps(environments), **made.environ}
    cluster = await stack.enter_async_context(daemons(made.directory, made.queue.nodes, **given))
    first = cluster.nodes[0]
    assert isinstance(first, Daemon)
    made.node = first
    urls = ",".join(f"http://{node.place.client}" for node in cluster.nodes)
    made.environ |= {"PYQUEUES_URL": urls, "PYQUEUES_TOKEN": TOKEN}


async def _server(made: Place, stack: contextlib.AsyncExitStack) -> None:
    queue, directory = made.queue, made.directory
    server = servers.postgres(directory) if queue.server == "postgres" else servers.redis(
        directory, synced=queue.server == "synced"
    )  # fmt: skip
    made.environ["PYQUEUES_URL"] = await stack.enter_async_context(server)
    if queue.server == "postgres":
        await made.prepare()
    os.environ |= made.environ  # its module reads them, too
    module = importlib.import_module(f"tests.bench.pyqueues.{queue.module}")
    commands = [[_beside(name), *rest] for name, *rest in module.worker(os.cpu_count() or 1)]
    await stack.enter_async_context(
        servers.running(commands, directory / "workers.log", {**made.environ, "PYTHONPATH": str(ROOT)})
    )


def _beside(name: str) -> str:
    """A program of the environment that this runs in."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


class Bench:
    def __init__(self, rows: report.Rows, count: int, idle: int) -> None:
        self._rows = rows
        self._count = count
        self._idle = idle
        self.rates: dict[str, float] = {}

    async def run(self, queue: Queue, parts: tuple[str, ...]) -> None:
        try:
            async with place(queue) as made:
                found: dict[str, Any] = {}
                if "rate" in parts:
                    found["per_s"] = self.rates[queue.name] = await made.rate(
                        max(1, round(self._count * queue.share / LOT)) * LOT
                    )
                if "idle" in parts:
                    found |= times((await made.idle(self._idle + DROPPED))[DROPPED:])
                self._rows.add(made.title, durable="yes" if queue.durable else "no", **found)
        except servers.Missing as missing:
            self._rows.add(f"{queue.name}: left out", why=str(missing))

    def compare(self) -> None:
        for own in (each for each in QUEUES if each.nodes and each.name in self.rates):
            others = {each.name: self.rates[each.name] for each in QUEUES if not each.nodes and each.name in self.rates}
            durable = {each.name: others[each.name] for each in QUEUES if each.durable and each.name in others}
            for what, rates in (("the best durable", durable), ("the best of any", others)):
                if rates:
                    best = max(rates, key=lambda name: rates[name])
                    self._rows.add(f"{own.name} beside {what}, {best}", ratio=self.rates[own.name] / rates[best])


def main() -> None:
    parser = report.parser("tests.bench.python", __doc__, PARTS)
    names = [queue.name for queue in QUEUES]
    parser.add_argument("--queues", nargs="+", choices=names, default=names, metavar="QUEUE", help=", ".join(names))
    parser.add_argument("--count", type=int, default=COUNT, help=f"tasks of a rate; {COUNT}")
    parser.add_argument("--idle", type=int, default=IDLE, help=f"tasks sent alone; {IDLE}")
    told = parser.parse_args()
    rows = report.Rows()
    bench = Bench(rows, told.count, told.idle)
    parts = tuple(report.chosen(told.parts, PARTS))
    for queue in QUEUES:
        if queue.name in told.queues:
            asyncio.run(bench.run(queue, parts))
    bench.compare()
    rows.write(told.json)


if __name__ == "__main__":
    main()
