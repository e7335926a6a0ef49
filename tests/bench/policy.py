"""What policies cost: evaluations a second, a hostile one among a hundred good ones, the start of their process, its memory.

python -m tests.bench.policy [--rounds N]

Figures are medians of the rounds, with the worst beside them where somebody waits for it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from quvatlh.policy.judge import LuaJudge
from quvatlh.ports import Question
from quvatlh.system.clock import RealClock
from tests.policy.parts import state, task
from tests.support.gauge import Ticker

POLICY = """
function(state, task)
  if not glob('linux', state.worker.facts.os) or count(task.name) >= 3 then return false end
  return state.worker.free / state.worker.slots - state.worker.cpu_load
end"""
BATCHES = (1, 10, 100, 5000)
MANY = 100


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def show(what: str, seconds: Sequence[float], per: int = 1) -> None:
    middle, worst = statistics.median(seconds), max(seconds)
    rate = f"{per / middle:>10,.0f}/s" if per > 1 else " " * 12
    print(f"{what:<58}{rate}  {middle * 1000:>8.2f} ms, worst {worst * 1000:.2f} ms")


async def starts(rounds: int) -> None:
    took = []
    for _ in range(rounds):
        judge = LuaJudge(RealClock())
        took.append(await timed(lambda judge=judge: judge.check(POLICY, "policy")))  # type: ignore[misc]
        await judge.close()
    show("start of the process, first answer", took)


async def rates(judge: LuaJudge, rounds: int) -> None:
    for size in BATCHES:
        questions = [Question(POLICY, task(id=f"t-{n}")) for n in range(size)]
        took = [await timed(lambda questions=questions: judge.judge(state(), questions)) for _ in range(rounds)]  # type: ignore[misc]
        show(f"{size} tasks, one policy", took, size)
    several = [Question(f"{POLICY} -- {n}", task(id=f"t-{n}")) for n in range(MANY)]
    took = [await timed(lambda: judge.judge(state(), several)) for _ in range(rounds)]
    show(f"{MANY} tasks, {MANY} policies", took, MANY)
    fresh = [[Question(f"{POLICY} -- {round_} {n}", task()) for n in range(MANY)] for round_ in range(rounds)]
    took = [await timed(lambda batch=batch: judge.judge(state(), batch)) for batch in fresh]  # type: ignore[misc]
    show(f"{MANY} tasks, {MANY} policies never seen", took, MANY)


async def hostile(judge: LuaJudge, rounds: int) -> None:
    """Each round another hostile one: the same would be marked."""
    good = [Question(f"{POLICY} -- {n}", task(id=f"t-{n}")) for n in range(MANY)]
    alone, beside = [], []
    ticker = Ticker()
    for n in range(rounds):
        bad = Question(f"function() while {n} do end end", task())
        await judge.judge(state(), good)  # compiled again, after the last round's end
        alone.append(await timed(lambda: judge.judge(state(), good)))
        batch = [*good[: MANY // 2], bad, *good[MANY // 2 :]]
        beside.append(await timed(lambda batch=batch: judge.judge(state(), batch)))  # type: ignore[misc]
    ticker.stop()
    show(f"{MANY} good ones alone", alone)
    show(f"{MANY} good ones and an endless one", beside)
    show(
        "  cost of the endless one, its end and the others compiled again",
        [b - a for a, b in zip(alone, beside, strict=True)],
    )
    marked = [
        await timed(lambda: judge.judge(state(), [*good, Question("function() while 0 do end end", task())]))
        for _ in range(rounds)
    ]
    show("  the third time: marked", marked[2:])
    print(f"{'longest stall of the loop that asked':<58}{'':>12}  {ticker.worst.held_ms:>8.2f} ms")


async def ends(judge: LuaJudge, rounds: int) -> None:
    """Nothing but endless ones: what one takes of a processor, and how soon the next cell answers."""
    assert judge.pid is not None
    await judge.judge(state(), [Question("function() while 'first' do end end", task())])
    before_s, took = _ended_s(judge.pid), []
    for n in range(rounds):
        bad = Question(f"function() while 'alone {n}' do end end", task())
        took.append(await timed(lambda bad=bad: judge.judge(state(), [bad])))  # type: ignore[misc]
    show("an endless one alone, till its verdict", took)
    each_ms = (_ended_s(judge.pid) - before_s) / rounds * 1000
    print(f"{'  processor time that it got':<58}{'':>12}  {each_ms:>8.2f} ms")


def memory(judge: LuaJudge) -> None:
    assert judge.pid is not None
    group = [each for each in os.listdir("/proc") if each.isdigit() and _group(int(each)) == judge.pid]
    for pid in group:
        sizes = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        role = "warden" if int(pid) == judge.pid else "cell"
        print(f"{role:<58}RSS {sizes['Rss'].strip()}, its share {sizes['Pss'].strip()}")


def _ended_s(warden: int) -> float:
    """Processor time of its cells that have ended."""
    fields = Path(f"/proc/{warden}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


async def main(rounds: int) -> None:
    await starts(rounds)
    judge = LuaJudge(RealClock())
    try:
        await judge.check(POLICY, "policy")
        memory(judge)
        await rates(judge, rounds)
        await hostile(judge, rounds)
        await ends(judge, rounds)
        memory(judge)
    finally:
        await judge.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    asyncio.run(main(parser.parse_args().rounds))
