"""How many `true` a second the runner carries out, output and status kept, beside `xargs -P 2 -n 1 true`.

python -m tests.bench.runner [--count N] [--rounds N] [--lanes N]

Both run in turns, so that a busy machine is busy for both; the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial

from quvatlh.core.work import Work
from quvatlh.ports import ActionFinished, ActionSpec, ActionStarted
from quvatlh.runner.native import NativeRunner
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

    def __init__(self, runner: NativeRunner, work: Work, count: int, lanes: int) -> None:
        self._runner = runner
        self._work = work
        self._count = count
        self._given = 0
        self._left = count
        self.done = asyncio.get_running_loop().create_future()
        runner.listen(self)
        for _ in range(min(lanes, count)):
            self._next()

    def _next(self) -> None:
        self._given += 1
        name = f"{self._given:08d}"
        self._runner.start(ActionSpec(name, name, attempt=1, fence=self._given, worker="bench", work=self._work))

    def started(self, event: ActionStarted) -> None: ...

    def finished(self, event: ActionFinished) -> None:
        if event.error is not None:
            self.done.set_exception(RuntimeError(event.error.text))
        self._left -= 1
        if self._given < self._count:
            self._next()
        elif not self._left:
            self.done.set_result(None)


async def carry_out(directory: str, work: Work, count: int, lanes: int) -> None:
    settings = RunnerSettings(f"{directory}/outputs", f"{directory}/inputs")
    runner = NativeRunner(settings, RealClock())
    await Lanes(runner, work, count, lanes).done
    await runner.close(0)


def measured(directory: str, work: Work, count: int, lanes: int) -> None:
    asyncio.run(carry_out(directory, work, count, lanes))


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
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {args.lanes} lanes, {args.rounds} rounds")
    for name, work in CASES.items():
        count = args.count if not work.rlimits else args.count // 10
        pairs = []
        for _ in range(args.rounds):
            beside = rate(count, partial(xargs, count))
            with tempfile.TemporaryDirectory() as directory:
                ours = rate(count, partial(measured, directory, work, count, args.lanes))
            pairs.append((ours / beside, ours, beside))
        ratio, ours, beside = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:24} {ours:6.0f}/s   xargs {beside:6.0f}/s   ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
