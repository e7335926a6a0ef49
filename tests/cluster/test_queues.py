"""A hundred thousand tasks through a thousand queues of limit 1, on three nodes that are lost one after another: in each
queue they run in the order in which they came, never two at once, and none is lost."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import asks
from tests.cluster.cluster import Cluster, now
from tests.cluster.daemons import Daemon, daemons
from tests.cluster.faults import lose_machine
from tests.cluster.node import Node
from tests.cluster.test_owners import end_all

Times = Callable[[int], int]

EACH, QUEUES = 100, 1000
GROUP = "through"
AT_ONCE = 2500
AWAY_S, BETWEEN_S = (0.3, 3.0), (2.0, 6.0)
IDLE_S = 120.0
"""Without an end for so long, something hangs."""
_SCRIPT = (
    'printf "%s begin %s %s\\n" "$EPOCHREALTIME" "$QUVATLH_TASK_ID" "$QUVATLH_FENCE" >> "$1";'
    'printf "%s end %s %s\\n" "$EPOCHREALTIME" "$QUVATLH_TASK_ID" "$QUVATLH_FENCE" >> "$1"'
)


@dataclass
class Run:
    """By the one clock of this machine; a run that was killed ends with its last word."""

    number: int
    first: float
    last: float


def task(number: int, queue: int, lines: Path) -> dict[str, Any]:
    work = {"command": ["bash", "-c", _SCRIPT, "-", str(lines)]}
    return {
        "id": f"q{queue:04}-{number:04}", "group": GROUP, "queue": f"q{queue:04}", "queue_limit": 1, "work": work
    }  # fmt: skip


def runs_of(lines: Path) -> dict[str, list[Run]]:
    """By queue, in the order in which they began."""
    found: defaultdict[str, dict[tuple[str, str], Run]] = defaultdict(dict)
    for line in lines.read_text().splitlines():
        at, _, id_, fence = line.split()
        queue, _, number = id_.partition("-")
        run = found[queue].setdefault((id_, fence), Run(int(number), float(at), float(at)))
        run.last = max(run.last, float(at))
    return {queue: sorted(runs.values(), key=lambda run: run.first) for queue, runs in found.items()}


def out_of_order(runs: list[Run]) -> list[str]:
    """Where one began before another that came before it, for the first time or again."""
    return [f"{a} before {b}" for a, b in itertools.pairwise(runs) if b.number < a.number]


def most_at_once(runs: list[Run]) -> int:
    changes = sorted(
        [(run.first, 1) for run in runs] + [(run.last, -1) for run in runs], key=lambda each: (each[0], -each[1])
    )
    return max(itertools.accumulate(change for _, change in changes), default=0)


async def count(nodes: Cluster, state: str) -> int:
    path = f"/v1/tasks?group={GROUP}&group_by=state"
    groups = (await asks.anywhere(nodes.nodes, path))["groups"]
    return sum(each["count"] for each in groups if each["value"] == state)


async def lose_now_and_then(nodes: Cluster, chance: random.Random, struck: Counter[str]) -> None:
    """Daemons with their executors, and daemons alone, whichever node it is."""
    while True:
        await asyncio.sleep(chance.uniform(*BETWEEN_S))
        node = chance.choice(nodes.nodes)
        alone = chance.random() < 0.5
        struck["daemon" if alone else "machine"] += 1
        if alone:
            node.strike()
        else:
            lose_machine(node)
        await node.ended()
        await asyncio.sleep(chance.uniform(*AWAY_S))
        await back(node)


async def back(node: Node) -> None:
    await node.start()
    assert isinstance(node, Daemon)
    await node.ready()


async def test_each_queue_of_limit_1_runs_its_tasks_in_order_one_at_a_time(tmp_path: Path, times: Times) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    each = times(EACH)
    lines = tmp_path / "lines"
    lines.touch()
    chance, struck = random.Random(1), Counter[str]()
    async with daemons(tmp_path, QUVATLH_WORKER_SLOTS="8") as nodes:
        try:
            began = now()
            losses = asyncio.create_task(lose_now_and_then(nodes, chance, struck))
            for part in parts([task(n, queue, lines) for n in range(each) for queue in range(QUEUES)]):
                await asks.add(nodes, part)
            await until_done(nodes, each * QUEUES, lines, losses)
            took_s = now() - began
            losses.cancel()
            await asyncio.gather(losses, return_exceptions=True)
            succeeded = await count(nodes, "succeeded")
        finally:
            await nodes.stop()
            end_all(nodes)
    runs = runs_of(lines)
    wrong = [fault for found in runs.values() for fault in out_of_order(found)]
    most = max(most_at_once(found) for found in runs.values())
    again = sum(len(found) for found in runs.values()) - each * QUEUES
    print(
        f"\n{each * QUEUES} tasks through {QUEUES} queues of limit 1 in {took_s:.0f} s, lost {dict(struck)}: "
        f"out of order {len(wrong)}, most at once in a queue {most}, run again {again}, lost {each * QUEUES - succeeded}"
    )
    assert not wrong, wrong[:10]
    assert most == 1
    assert succeeded == each * QUEUES
    assert {queue: {run.number for run in found} for queue, found in runs.items()} == {
        f"q{queue:04}": set(range(each)) for queue in range(QUEUES)
    }


def parts(tasks: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(tasks), AT_ONCE):
        yield tasks[first : first + AT_ONCE]


async def until_done(nodes: Cluster, wanted: int, lines: Path, losses: asyncio.Task[None]) -> None:
    """By what the tasks have written themselves. The cluster is asked only once that may be all: to count a hundred thousand
    twice a second would be half of the load."""
    done, moved, told = -1, now(), 0
    with lines.open() as file:
        while done < wanted:
            assert not losses.done(), losses
            await asyncio.sleep(0.5)
            news = sum(" end " in line for line in file)
            told += news
            if told >= wanted:
                found = await count(nodes, "succeeded")
                news, done = found - done, found
            moved = now() if news else moved
            assert now() - moved < IDLE_S, f"{max(done, told)} of {wanted} for {IDLE_S:g} s"


def test_the_judge_sees_what_would_be_wrong() -> None:
    late, early = Run(2, 3, 4), Run(1, 5, 6)
    assert out_of_order([Run(0, 1, 2), late, early]) == [f"{late} before {early}"]
    assert out_of_order([Run(0, 1, 2), Run(0, 3, 4), Run(1, 5, 6)]) == []
    assert most_at_once([Run(0, 1, 3), Run(1, 2, 4)]) == 2
    assert most_at_once([Run(0, 1, 2), Run(1, 3, 4)]) == 1
