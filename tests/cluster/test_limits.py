"""A service of three instances, tasks that may begin once and tasks that must end, on five nodes under random faults."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import asks
from tests.cluster.cluster import Cluster, running
from tests.cluster.daemons import daemons_in
from tests.cluster.diary import FRESH_S, Diary, Run, crowd, now_us
from tests.cluster.faults import Faults, whole
from tests.cluster.netns import needs_namespaces, network
from tests.cluster.node import until
from tests.cluster.strikes import Gaps
from tests.support.executors import end_executor

Times = Callable[[int], int]

NODES, LIMIT = 5, 3
SERVICE = "service"
WHOLE_S = 100.0
"""An instance that was killed again and again waits for up to a minute."""
TOGETHER = 4
"""Short tasks of each kind in one ADD."""
SHORT_S = 1.0
DEATHS_MAX = 3
"""So many workers may die with a task; then it is taken for their poison."""
END_S = 60.0


@dataclass
class Stream:
    """Short tasks, added without pause in spite of the faults."""

    cluster: Cluster
    diary: Diary
    delivery: str
    ids: list[str] = field(default_factory=list)

    async def run(self) -> None:
        for number in itertools.count():
            ids = [f"{self.delivery}-{number}-{each}" for each in range(TOGETHER)]
            self.ids += ids
            task = {"delivery": self.delivery, "work": self.diary.work(SHORT_S), "group": self.delivery}
            await asks.add(self.cluster, [{"id": id_, **task} for id_ in ids])
            await asyncio.sleep(SHORT_S / 2)

    async def ended(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}

        async def all_ended() -> bool:
            listed = await asks.tasks(self.cluster, f"group={self.delivery}")
            found.update({task["id"]: task for task in listed})
            return all(task["finished_at"] for task in found.values())

        await until(all_ended, lambda: str([task for task in found.values() if not task["finished_at"]][:3]), END_S)
        return found


def service_alive(diary: Diary) -> bool:
    return len(diary.alive([SERVICE])) == LIMIT


def deficits(runs: list[Run], faults: list[tuple[int, str]]) -> dict[str, list[float]]:
    """Seconds from a fault until all instances were alive for good, by its kind; those that it did not touch left out."""
    found: dict[str, list[float]] = defaultdict(list)
    changes = crowd(runs)
    for (struck, kind), (later, _) in itertools.pairwise([*faults, (now_us(), "")]):
        short = [
            end
            for (at, alive), (end, _) in itertools.pairwise(changes)
            if alive < LIMIT and struck <= end < later and at >= changes[0][0] and end > struck
        ]
        if short:
            found[kind].append((max(short) - struck) / 1e6)
    return found


@contextmanager
def ended_with(nodes: Cluster) -> Iterator[None]:
    try:
        yield
    finally:
        for node in nodes.nodes:
            if node.running:
                node.strike()
            end_executor(node.place.data)


async def test_the_limit_holds_and_nothing_begins_twice_under_random_faults(tmp_path: Path, times: Times) -> None:
    needs_namespaces()
    seed = int(os.environ.get("QUVATLH_SEED", "4"))
    with network(NODES) as net:
        made = daemons_in(net, tmp_path, {"QUVATLH_WORKER_SLOTS": "20"})
        with ended_with(made):
            async with running(made) as nodes:
                await whole(nodes)
                diary = Diary(tmp_path / "diary")
                service = {"id": SERVICE, "kind": "service", "limit": LIMIT, "work": diary.work()}
                await asks.add(nodes, [service])
                await until(lambda: service_alive(diary), lambda: "the service is whole")
                faults = Faults(nodes, net, str(diary.directory), random.Random(seed))
                struck: list[tuple[int, str]] = []
                once, surely = Stream(nodes, diary, "at-most-once"), Stream(nodes, diary, "at-least-once")
                streams = [asyncio.create_task(stream.run()) for stream in (once, surely)]
                for _ in range(times(100)):
                    at = now_us()
                    struck.append((at, await faults.one()))
                    await asyncio.sleep(FRESH_S)  # until then an instance that ended last looks alive
                    await until(lambda: service_alive(diary), lambda: str(diary.alive([SERVICE])), WHOLE_S)
                    for stream in streams:
                        if stream.done():
                            stream.result()
                for stream in streams:
                    stream.cancel()
                await asyncio.gather(*streams, return_exceptions=True)
                ends = {stream.delivery: await stream.ended() for stream in (once, surely)}
    print(f"\n{times(100)} faults, seed {seed}: {dict(Counter(kind for _, kind in struck))}")
    judge_service(diary, struck)
    judge_once(diary, ends["at-most-once"])
    judge_surely(diary, ends["at-least-once"])


def judge_service(diary: Diary, struck: list[tuple[int, str]]) -> None:
    runs = diary.of([SERVICE])[SERVICE]
    most = max(alive for _, alive in crowd(runs))
    print(f"limit {LIMIT}: most alive at once {most}, {len(runs)} instances; until whole again, where it was touched:")
    for kind, seconds in deficits(runs, struck).items():
        print(f"    {kind}: {Gaps(tuple(sorted(seconds)))}")
    assert most <= LIMIT


def judge_once(diary: Diary, tasks: dict[str, dict[str, Any]]) -> None:
    runs = diary.of(tasks)
    twice = [f"{each}" for each in runs.values() if len(each) > 1]
    silent = [id_ for id_, task in tasks.items() if task["state"] == "succeeded" and not runs[id_]]
    print(f"at-most-once: {_states(tasks)}, begun twice {len(twice)}")
    assert not twice, "\n".join(twice[:20])
    assert not silent, f"succeeded without a run: {silent}"


def judge_surely(diary: Diary, tasks: dict[str, dict[str, Any]]) -> None:
    overlaps = diary.overlaps(tasks)
    runs = diary.of(tasks)
    poison = [id_ for id_, task in tasks.items() if _is_poison(task)]
    lost = [
        id_
        for id_, task in tasks.items()
        if id_ not in poison and not (task["state"] == "succeeded" and any(run.ended for run in runs[id_]))
    ]
    again = sum(len(each) > 1 for each in runs.values())
    print(f"at-least-once: {_states(tasks)}, run again {again}, lost {len(lost)}, overlaps {len(overlaps)}")
    assert not overlaps, "\n".join(overlaps[:20])
    assert not lost, [tasks[id_] for id_ in lost[:5]]


def _is_poison(task: dict[str, Any]) -> bool:
    """So it is told, and three actions of it were lost: it happens when one fault after another meets the same task."""
    lost = {action["token"] for action in task["actions"] if action["state"] == "lost"}
    return bool(task["error"]) and task["error"]["code"] == "poison" and len(lost) >= DEATHS_MAX


def _states(tasks: dict[str, dict[str, Any]]) -> dict[str, int]:
    return dict(Counter(f"{task['state']} {(task['error'] or {}).get('code', '')}".strip() for task in tasks.values()))
