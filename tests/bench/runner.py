"""How many `true` a second an executor carries out, output and status kept, beside `xargs -P 2 -n 1 true`.

python -m tests.bench.runner [--count N] [--rounds N] [--lanes N] [--isolation auto|userns|plain]

Asked and answered over the socket, as a daemon does, each end forgotten. Both run in turns, so that a busy machine is busy
for both; the ratio is the median of the rounds' ratios. Then, with nothing else going on: how long an executor takes to be
there, and one command from start to end, seen from this side.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from quvatlh.core.work import Work
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted, Executor
from quvatlh.runner.connect import ProcessExecutor
from quvatlh.runner.hatch import ExecutorSettings, Wish
from quvatlh.runner.settings import RunnerSettings
from quvatlh.system.clock import RealClock

CASES = {
    "true": Work((("true",),)),
    "true, cwd and env": Work((("true",),), env=(("A", "b"),), cwd="/"),
    "echo hello": Work((("echo", "hello"),)),
    "nofile 64": Work((("true",),), rlimits=(("nofile", 64),)),
}


class Lanes:
    """Keeps so many actions going until all have finished."""

    def __init__(self, executor: Executor, work: Work, count: int, lanes: int) -> None:
        self._executor = executor
        self._work = work
        self._count = count
        self._given = 0
        self._left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        executor.listen(self)
        for _ in range(min(lanes, count)):
            self._next()

    def _next(self) -> None:
        self._given += 1
        name = f"{self._given:08d}"
        spec = ActionSpec(name, name, attempt=1, fence=self._given, worker="bench", work=self._work, lease_s=3600)
        self._executor.start(spec)

    def again(self, number: int) -> asyncio.Future[None]:
        """One more, of this token."""
        self._given, self._count, self._left = number - 1, number, 1
        self.done = asyncio.get_running_loop().create_future()
        self._next()
        return self.done

    def started(self, event: ActionStarted) -> None: ...

    def progressed(self, event: ActionProgress) -> None: ...

    def finished(self, event: ActionFinished) -> None:
        if event.error is not None:
            self.done.set_exception(RuntimeError(event.error.text))
        self._executor.forget([event.action_id])
        self._left -= 1
        if self._given < self._count:
            self._next()
        elif not self._left:
            self.done.set_result(None)

    def gone(self, why: str) -> None:
        raise RuntimeError(why)


@asynccontextmanager
async def executor(isolation: Wish) -> AsyncIterator[Executor]:
    with tempfile.TemporaryDirectory() as directory:
        outputs = RunnerSettings(f"{directory}/outputs", f"{directory}/inputs")
        made = ProcessExecutor(ExecutorSettings(directory, "bench", outputs, isolation), RealClock(), print)
        await made.open()
        yield made
        await made.close(0)


async def carry_out(isolation: Wish, work: Work, count: int, lanes: int) -> float:
    """Commands a second, from the first start to the last end."""
    async with executor(isolation) as made:
        began = time.perf_counter()
        await Lanes(made, work, count, lanes).done
        return count / (time.perf_counter() - began)


async def one_at_a_time(isolation: Wish, count: int) -> list[float]:
    """Seconds from start to end."""
    took = []
    async with executor(isolation) as made:
        lanes = Lanes(made, CASES["true"], 1, 1)
        await lanes.done
        for number in range(2, count + 2):
            began = time.perf_counter()
            done = lanes.again(number)
            await done
            took.append(time.perf_counter() - began)
    return took


async def opening(isolation: Wish) -> float:
    began = time.perf_counter()
    async with executor(isolation):
        return time.perf_counter() - began


def xargs(count: int) -> None:
    lines = "\n".join(str(each) for each in range(count)) + "\n"
    subprocess.run(["xargs", "-P", "2", "-n", "1", "true"], input=lines.encode(), check=True)


def rate(count: int, run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return count / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--isolation", default="auto")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {args.lanes} lanes, {args.rounds} rounds")
    for name, work in CASES.items():
        pairs = []
        for _ in range(args.rounds):
            beside = rate(args.count, partial(xargs, args.count))
            ours = asyncio.run(carry_out(args.isolation, work, args.count, args.lanes))
            pairs.append((ours / beside, ours, beside))
        ratio, ours, beside = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:24} {ours:6.0f}/s   xargs {beside:6.0f}/s   ratio {ratio:.2f}", flush=True)
    took = sorted(asyncio.run(one_at_a_time(args.isolation, 200)))
    print(f"one at a time: p50 {took[100] * 1e3:.2f} ms, p99 {took[198] * 1e3:.2f} ms")
    opened = [asyncio.run(opening(args.isolation)) for _ in range(args.rounds)]
    print(f"an executor is there after {statistics.median(opened) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
