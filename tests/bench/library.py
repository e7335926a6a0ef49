"""Functions as tasks: python -m tests.bench.library [calls enqueue end latency] [--json FILE] [--count N]

calls     a function's arguments checked and made JSON, nothing sent: what each task costs before it is on its way
enqueue   durable enqueues into one node, where nothing runs, by who does it: one thread after the other, 16 threads, 200
          coroutines, many at once, without waiting; beside them the same tasks as plain HTTP of 1,000
end       no-op tasks until all have succeeded on one node: through the library, through plain HTTP of 1,000, and with a
          handle's result waited for, each
latency   one task at a time, from `enqueue` until its result is there

`client_us` is processor time a task of this process, the motor's thread included; plain HTTP has a process of its own and
tells the same of it. Every write is synced. Rates on a machine that does other things are worth less than the processor
times beside them.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quvatlh import App
from tests.bench import report
from tests.bench.load import loaded, times
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.runner.app import jobs

PARTS = ("calls", "enqueue", "end", "latency")
COUNT = 10_000
WAITING = {"tags": ["nobody-has-this"]}
PATIENCE_S = 300.0


class Bench:
    def __init__(self, rows: report.Rows, count: int) -> None:
        self._rows = rows
        self._count = count

    async def calls(self) -> None:
        app = App()
        noop, usual = _task(app, jobs.noop), _task(app, _resize).options(queue="images", priority=3, key="tenant-7")
        for what, make in (
            ("no arguments", noop.call),
            ("five arguments and options", lambda: usual.call(8_123_456, 1024, 768, crop=[1, 2, 3, 4], format="webp")),
        ):
            began = time.process_time()
            for _ in range(self._count):
                make()
            self._rows.add(f"a call made, {what}", client_us=(time.process_time() - began) / self._count * 1e6)

    async def enqueue(self) -> None:
        async with _node() as node:
            app = App(f"http://{node.place.client}", token=TOKEN)
            task = _task(app, jobs.noop).options(**WAITING)
            task.enqueue()

            def threads() -> None:
                with ThreadPoolExecutor(16) as pool:
                    list(pool.map(lambda _: task.enqueue(), range(self._count)))

            async def coroutines() -> None:
                async def some() -> None:
                    for _ in range(self._count // 200):
                        await task.aenqueue()

                await asyncio.gather(*(some() for _ in range(200)))

            def unwatched() -> None:
                for _ in range(self._count):
                    task.enqueue_nowait()
                app.flush()

            few = self._count // 20
            await self._timed("one after the other", lambda: [task.enqueue() for _ in range(few)], few)
            await self._timed("16 threads", threads)
            await self._timed("200 coroutines", coroutines)
            await self._timed("enqueue_many", lambda: app.enqueue_many(task.call() for _ in range(self._count)))
            await self._timed("enqueue_nowait, then flush", unwatched)
            found = await loaded(
                "lines",
                node.place.client,
                TOKEN,
                task={"work": {"python": "jobs:noop"}, **WAITING},
                count=self._count,
            )
            client_us = found["load_cpu"] * found["seconds"] / found["count"] * 1e6
            self._rows.add("durable: plain NDJSON", per_s=found["count"] / found["seconds"], client_us=client_us)
            app.close()

    async def _timed(self, what: str, do: Callable[[], object | Awaitable[object]], count: int | None = None) -> None:
        count = count or self._count
        began, used = time.perf_counter(), time.process_time()
        if asyncio.iscoroutinefunction(do):
            await do()
        else:
            do()
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - used
        self._rows.add(f"durable: {what}", per_s=count / took_s, client_us=cpu_s / count * 1e6)

    async def end(self) -> None:
        async with _node() as node:
            app = App(f"http://{node.place.client}", token=TOKEN)
            task = _task(app, jobs.noop)
            app.enqueue_many(task.options(queue="first").call() for _ in range(500))
            await _succeeded(node, "first", 500)
            plain: dict[str, Any] = {"task": {"work": {"python": "jobs:noop"}}, "count": self._count, "queue": "plain"}
            found = await loaded("runs", node.place.client, TOKEN, **plain)
            client_us = found["load_cpu"] * found["seconds"] / self._count * 1e6
            self._rows.add("until all succeeded: plain HTTP", per_s=self._count / found["seconds"], client_us=client_us)

            began, used = time.perf_counter(), time.process_time()
            many = task.options(queue="many")
            await app.aenqueue_many(many.call() for _ in range(self._count))
            cpu_s = time.process_time() - used
            await _succeeded(node, "many", self._count)
            rate = self._count / (time.perf_counter() - began)
            self._rows.add("until all succeeded: enqueue_many", per_s=rate, client_us=cpu_s / self._count * 1e6)

            few = self._count // 5
            began, used = time.perf_counter(), time.process_time()

            async def one() -> None:
                for _ in range(few // 100):
                    await (await task.aenqueue()).aresult(PATIENCE_S)

            await asyncio.gather(*(one() for _ in range(100)))
            rate, cpu_s = few / (time.perf_counter() - began), time.process_time() - used
            self._rows.add("100 coroutines, enqueue and result", per_s=rate, client_us=cpu_s / few * 1e6)
            app.close()

    async def latency(self) -> None:
        async with _node() as node:
            app = App(f"http://{node.place.client}", token=TOKEN)
            task = _task(app, jobs.noop)
            took: dict[str, list[float]] = {"enqueue": [], "enqueue and result": []}
            for _ in range(200):
                began = time.perf_counter()
                handle = task.enqueue()
                took["enqueue"].append(time.perf_counter() - began)
                handle.result(PATIENCE_S)
                took["enqueue and result"].append(time.perf_counter() - began)
                await asyncio.sleep(0.005)
            for what, seconds in took.items():
                self._rows.add(f"one at a time: {what}", **times(seconds[10:]))
            app.close()


def _resize(photo: int, width: int, height: int, *, crop: list[int], format: str) -> None: ...  # noqa: A002


def _task(app: App, function: Callable[..., None]) -> Any:
    """As the node's environment knows it: by the directory of its module."""
    made = app.task(function)
    made.target = f"jobs:{function.__name__}"
    return made


async def _succeeded(node: Daemon, queue: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await node.get(f"/v1/tasks?queue={queue}&state=succeeded&limit=1"))["total"] < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _node() -> AsyncIterator[Daemon]:
    environments = {"default": {"cwd": str(Path(jobs.__file__).parent)}}
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
        async with daemons(Path(directory), 1, QUVATLH_WORKER_ENVIRONMENTS=json.dumps(environments)) as nodes:
            node = nodes.nodes[0]
            assert isinstance(node, Daemon)
            yield node


def main() -> None:
    parser = report.parser("tests.bench.library", __doc__, PARTS)
    parser.add_argument("--count", type=int, default=COUNT)
    told = parser.parse_args()
    rows = report.Rows()
    bench = Bench(rows, told.count)
    for part in report.chosen(told.parts, PARTS):
        asyncio.run(getattr(bench, part)())
    rows.write(told.json)


if __name__ == "__main__":
    main()
