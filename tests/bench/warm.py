"""Calls in warm processes: python -m tests.bench.warm [pool node start memory hostile rails] [--json FILE] [--count N]

pool      functions that do nothing, through an executor alone, by how many are ahead of their slots
node      the same as tasks through HTTP of one node, every write synced; `node_us`, `executor_us` and `children_us` are
          processor time a task
start     from the call until its end: where nothing runs yet, where a child is to be forked, where one is warm
memory    of eight children of an environment that preloads 200 MB: what each has for itself, and what all share
hostile   so many tasks of one node, of which 1 % end by a segmentation fault, 1 % by os._exit, 1 % never: how each ended
rails     an application of the machine's Rails: its first job, and one in a warm process
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quvatlh.config.environments import Environment
from quvatlh.core.calls import Call, CallAdapter
from quvatlh.core.work import Work
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted
from quvatlh.runner.connect import ProcessExecutor
from quvatlh.runner.hatch import ExecutorSettings
from quvatlh.runner.settings import RunnerSettings
from quvatlh.system.clock import RealClock
from tests.bench import report
from tests.bench.load import loaded, times
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.runner import mixture, test_rails
from tests.runner.calls import APP
from tests.support.executors import executors
from tests.support.wire import Wire, head

PARTS = ("pool", "node", "start", "memory", "hostile", "rails")
COUNT, STARTS, CHILDREN, HEAVY_MB = 20_000, 20, 8, 200
PATIENCE_S = 600.0
LOOK_S = 0.1


class Bed:
    """An executor, asked as a daemon asks it."""

    def __init__(self, executor: ProcessExecutor, directory: str) -> None:
        self.executor = executor
        self.directory = directory
        self._number = 0
        self._ends: dict[str, asyncio.Future[ActionFinished]] = {}
        executor.listen(self)

    def start(
        self,
        target: str,
        environment: str = "default",
        adapter: CallAdapter = "python",
        args: bytes = b"[]",
        width: int = 2,
    ) -> asyncio.Future[ActionFinished]:
        self._number += 1
        name = f"a{self._number}"
        end = self._ends[name] = asyncio.get_running_loop().create_future()
        work = Work((), call=Call(adapter, environment, target, args))
        self.executor.start(ActionSpec(name, name, 1, self._number, "bench", work, lease_s=3600, width=width))
        return end

    async def run(self, target: str, count: int, ahead: int) -> None:
        """So many, as many as that at a time."""
        left, done = count, asyncio.Event()

        def ended(end: asyncio.Future[ActionFinished]) -> None:
            nonlocal left
            assert end.result().error is None, end
            left -= 1
            if left >= ahead:
                self.start(target).add_done_callback(ended)
            elif not left:
                done.set()

        for _ in range(min(ahead, count)):
            self.start(target).add_done_callback(ended)
        await done.wait()

    def started(self, event: ActionStarted) -> None: ...

    def progressed(self, event: ActionProgress) -> None: ...

    def finished(self, event: ActionFinished) -> None:
        self.executor.forget([event.action_id])
        self._ends.pop(event.action_id).set_result(event)

    def gone(self, why: str) -> None:
        raise RuntimeError(why)


@asynccontextmanager
async def bed(*environments: Environment) -> AsyncIterator[Bed]:
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
        settings = RunnerSettings(f"{directory}/outputs", f"{directory}/inputs")
        executor = ProcessExecutor(
            ExecutorSettings(directory, "bench", settings, "auto", environments), RealClock(), lambda _note: None
        )
        made = Bed(executor, directory)
        await executor.open()
        try:
            yield made
        finally:
            await executor.close(0)


class Bench:
    def __init__(self, rows: report.Rows, count: int) -> None:
        self._rows = rows
        self._count = count

    async def pool(self) -> None:
        for ahead in (2, 16, 64, 256):
            async with bed(Environment("default", cwd=str(APP))) as made:
                await made.start("jobs:noop")
                count = self._count if ahead > 2 else self._count // 10
                began = time.perf_counter()
                await made.run("jobs:noop", count, ahead)
                self._rows.add(
                    f"no-op calls, {ahead} in the executor's hands", per_s=count / (time.perf_counter() - began)
                )

    async def node(self) -> None:
        async with _node() as node:
            task = {"work": {"python": "jobs:noop"}}
            await loaded("runs", node.place.client, TOKEN, task=task, count=500, queue="q")
            before = _used(node)
            found = await loaded("runs", node.place.client, TOKEN, task=task, count=self._count, queue="q")
            us = {f"{name}_us": (s - before.get(name, 0.0)) / self._count * 1e6 for name, s in _used(node).items()}
            self._rows.add("no-op tasks through HTTP, 1 node", per_s=self._count / found["seconds"], **us)

    async def start(self) -> None:
        took: dict[str, list[float]] = {"nothing runs yet": [], "a child is forked": [], "a child is warm": []}
        for _ in range(STARTS):
            async with bed(Environment("default", cwd=str(APP))) as made:
                took["nothing runs yet"].append(await _timed(made))
                first = made.start("jobs:rest", args=b"[0.3]")
                await asyncio.sleep(0.05)
                took["a child is forked"].append(await _timed(made))
                await first
                took["a child is warm"].append(await _timed(made))
        for name, found in took.items():
            self._rows.add(f"a call, {name}", **times(found))

    async def memory(self) -> None:
        with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
            Path(directory, "heavy.py").write_text(
                f"import time\nHEAVY = [bytes([n % 256]) * 1_000_000 for n in range({HEAVY_MB})]\n"
                f"MANY = [str(n) for n in range(200_000)]\ndef rest():\n    time.sleep(2)\n    return len(HEAVY)\n"
            )
            async with bed(Environment("default", cwd=directory, preload=("heavy",))) as made:
                ends = [made.start("heavy:rest", width=CHILDREN) for _ in range(CHILDREN)]
                await asyncio.sleep(1.5)
                found = [_memory(pid) for pid in _servers(made.directory)]
                await asyncio.wait(ends)
            server, children = found[0], found[1:]
            assert len(children) == CHILDREN
            self._rows.add(
                f"{CHILDREN} children, {HEAVY_MB} MB preloaded",
                server_rss_mb=server[0],
                child_rss_mb=statistics.median(rss for rss, _, _ in children),
                child_own_mb=statistics.median(own for _, own, _ in children),
                all_together_mb=sum(share for _, _, share in found),
            )

    async def hostile(self) -> None:
        async with _node() as node:
            lines = [
                {"id": f"h{n}", "work": {"python": mixture.target(n)}, "timeout": "500ms", "stop": {"grace": "0s"},
                 "retry": {"attempts": 1}}
                for n in range(self._count)
            ]  # fmt: skip
            began = time.perf_counter()
            for start in range(0, len(lines), 1000):
                await _add(node, lines[start : start + 1000])
            ends: Counter[str] = Counter()
            async with asyncio.timeout(PATIENCE_S):
                while await _ended(node) < self._count:  # noqa: ASYNC110 - asked, as a person would
                    await asyncio.sleep(0.2)
            took_s = time.perf_counter() - began
            for code in ("crash", "timeout"):
                ends[code] = await _total(node, f"error={code}")
            ends["succeeded"] = await _total(node, "state=succeeded")
            wanted = Counter(mixture.expected(n) or "succeeded" for n in range(self._count))
            assert ends == wanted, (ends, wanted)
            self._rows.add(f"{self._count} tasks with 1 % each of segfault, os._exit, endless", seconds=took_s, **ends)

    async def rails(self) -> None:
        if shutil.which("rails") is None:
            self._rows.add("rails is not installed")
            return
        with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
            shop = test_rails.made(Path(directory))
            environment = Environment(
                "shop", command=("bin/rails", "runner", "quvatlh_warm.rb"), cwd=str(shop), env=tuple(test_rails.VARIABLES.items())
            )  # fmt: skip
            async with bed(environment) as made:
                took = []
                for _ in range(50):
                    began = time.perf_counter()
                    end = await made.start("SideJob", "shop", "warm", b'["x"]')
                    took.append(time.perf_counter() - began)
                    assert end.error is None, end
            self._rows.add("a Rails job, nothing runs yet", ms=took[0] * 1000)
            self._rows.add("a Rails job, its process is warm", **times(took[1:]))


async def _timed(made: Bed) -> float:
    began = time.perf_counter()
    end = await made.start("jobs:noop")
    assert end.error is None, end
    return time.perf_counter() - began


@asynccontextmanager
async def _node() -> AsyncIterator[Daemon]:
    environments = {"default": {"cwd": str(APP)}}
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
        async with daemons(Path(directory), 1, QUVATLH_WORKER_ENVIRONMENTS=json.dumps(environments)) as nodes:
            node = nodes.nodes[0]
            assert isinstance(node, Daemon)
            yield node


async def _ended(node: Daemon) -> int:
    return await _total(node, "state=succeeded") + await _total(node, "state=failed")


async def _total(node: Daemon, which: str) -> int:
    """A node that has no time to count them says none."""
    async with asyncio.timeout(PATIENCE_S):
        while (total := (await node.get(f"/v1/tasks?{which}&limit=1"))["total"]) is None:  # noqa: ASYNC110 - as above
            await asyncio.sleep(LOOK_S)
    return int(total)


async def _add(node: Daemon, tasks: Sequence[Mapping[str, Any]]) -> None:
    body = json.dumps({"event": "ADD", "tasks": tasks}).encode()
    wire = await Wire.open(node.place.client)
    reply = await wire.ask(head(node.place.client, TOKEN, "/v1/events", length=len(body)) + body)
    wire.close()
    assert reply.status == 201, reply


def _used(node: Daemon) -> dict[str, float]:
    """Seconds of processor."""
    (executor,) = executors(node.place.data)[-1:]
    below = sum(_cpu_s(pid) for pid in _below(executor))
    return {"node": node.cpu_s(), "executor": _cpu_s(executor), "children": below}


def _servers(directory: str) -> list[int]:
    """An environment's server and its children, the server first."""
    executor = executors(Path(directory))[-1]
    return sorted(pid for pid in _below(executor) if "server.py" in _read(pid, "cmdline"))


def _below(root: int) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        below = _children(waiting.pop())
        found += below
        waiting += below
    return found


def _children(pid: int) -> list[int]:
    return [int(each) for each in _read(pid, f"task/{pid}/children").split()]


def _cpu_s(pid: int) -> float:
    fields = _read(pid, "stat").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> tuple[float, float, float]:
    """Megabytes: resident, its own alone, and its share of what several have."""
    sums: Counter[str] = Counter()
    for line in _read(pid, "smaps_rollup").splitlines():
        words = line.split()
        if words[-1] == "kB":
            sums[words[0]] += int(words[1])
    own = sums["Private_Clean:"] + sums["Private_Dirty:"]
    return sums["Rss:"] / 1000, own / 1000, sums["Pss:"] / 1000


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def main() -> None:
    parser = report.parser("tests.bench.warm", __doc__, PARTS)
    parser.add_argument("--count", type=int, default=COUNT, help=f"of calls or tasks in pool, node, hostile; {COUNT}")
    told = parser.parse_args()
    rows = report.Rows()
    bench = Bench(rows, told.count)
    for part in report.chosen(told.parts, PARTS):
        asyncio.run(getattr(bench, part)())
    rows.write(told.json)


if __name__ == "__main__":
    main()
