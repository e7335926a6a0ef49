"""Pull workers as processes of their own, killed, while masters are: nothing lost, nothing owned twice at once by the workers'
own count, and what may begin once begins once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.cluster import asks
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import TOKEN, daemons
from tests.cluster.node import until
from tests.cluster.puller import LEASE_S

Times = Callable[[int], int]

PULLER = Path(__file__).with_name("puller.py")
TASKS, WORKERS, ONCE_EACH = 2000, 6, 5
QUEUES = ("pulled0", "pulled1", "pulled2")
MEAN_S = 0.7
"""Of a task. A worker holds four at once, for some of which it has to renew."""
MASTER_S, WORKER_S = 2.0 * LEASE_S, 1.5
"""Between two kills. A new master counts every lease anew, so if they died more often no lease would ever be over."""
FIRST_S = 2.0
END_S = 300.0


@dataclass
class Crew:
    """Workers, each with a diary; one that is killed comes back under its name."""

    directory: Path
    nodes: list[str]
    at_work: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: int = 0

    def start(self, name: str) -> None:
        command = [sys.executable, str(PULLER), name, str(self.directory / f"{name}.diary"), TOKEN, *self.nodes]
        self.at_work[name] = subprocess.Popen(command)

    def kill(self, name: str) -> None:
        self.at_work[name].kill()
        self.at_work[name].wait()

    def kill_one(self, chance: random.Random) -> None:
        """But not one that holds what another has died with: a third one would make it poison."""
        risky = {its[-1].worker for its in self.runs().values() if len(its) > 1 and not its[-1].ended}
        name = chance.choice(sorted(self.at_work.keys() - risky) or [""])
        if not name:
            return
        assert self.at_work[name].poll() is None, f"{name} has ended by itself"
        self.kill(name)
        self.killed += 1
        self.start(name)

    def end(self) -> None:
        for name in self.at_work:
            self.kill(name)

    def runs(self) -> dict[str, list[Run]]:
        """Of each task, in the order that they began."""
        runs: dict[tuple[str, int], Run] = {}
        for path in self.directory.glob("*.diary"):
            for line in path.read_text().splitlines():
                what, task, token, *times = line.split()
                key = task, int(token)
                if what == "begin":
                    assert key not in runs, f"{key} began twice"
                    runs[key] = Run(path.stem, int(token), float(times[0]), float(times[1]))
                else:
                    runs[key].until, runs[key].ended = float(times[0]), what == "end"
        found: dict[str, list[Run]] = defaultdict(list)
        for (task, _), run in sorted(runs.items(), key=lambda item: item[1].begun):
            found[task].append(run)
        return found


@dataclass
class Run:
    worker: str
    token: int
    begun: float
    until: float
    """By its worker's own count: when it ended it, or its lease, if it was killed."""
    ended: bool = False


async def _masters_die(nodes: Cluster, killed: list[str]) -> None:
    wait_s = FIRST_S
    while True:
        await asyncio.sleep(wait_s)
        wait_s = MASTER_S
        master = await nodes.master(within_s=60.0)
        master.strike()
        killed.append(master.name)
        await master.ended()
        await asyncio.sleep(0.5)
        await nodes.start()


async def _workers_die(crew: Crew) -> None:
    chance = random.Random(5)
    while True:
        await asyncio.sleep(WORKER_S)
        await asyncio.to_thread(crew.kill_one, chance)


async def test_nothing_is_lost_or_owned_twice_though_masters_and_workers_are_killed(
    tmp_path: Path, times: Times
) -> None:
    count = times(TASKS)
    chance = random.Random(7)
    masters: list[str] = []
    async with daemons(tmp_path / "nodes", QUVATLH_WORKER_SLOTS="0") as nodes:
        crew = Crew(tmp_path, [node.place.client for node in nodes.nodes])
        try:
            for n in range(WORKERS):
                crew.start(f"p{n}")
            for first in range(0, count, 200):
                many = [
                    {
                        "id": f"t{n}",
                        "queue": QUEUES[n % len(QUEUES)],
                        "work": {"pull": True},
                        "payload": round(chance.uniform(0.1, 2 * MEAN_S - 0.1), 3),
                        "delivery": "at-most-once" if n % ONCE_EACH == 0 else "at-least-once",
                    }
                    for n in range(first, min(count, first + 200))
                ]
                await asks.add(nodes, many)
            dying = [asyncio.create_task(_masters_die(nodes, masters)), asyncio.create_task(_workers_die(crew))]
            try:
                await until(lambda: _all_ended(nodes, count), lambda: "all tasks have ended", END_S)
            finally:
                for task in dying:
                    task.cancel()
                await asyncio.gather(*dying, return_exceptions=True)
                await nodes.start()
            ended = [task for queue in QUEUES for task in await asks.tasks(nodes, f"queue={queue}")]
        finally:
            crew.end()
    runs = crew.runs()
    overlaps = [
        (task, one, other)
        for task, its in runs.items()
        for one, other in pairwise(its)
        if other.begun < one.until or other.token <= one.token
    ]
    once = [task["id"] for task in ended if task["delivery"] == "at-most-once"]
    twice = [task for task in once if len(runs[task]) > 1]
    states = Counter(f"{task['state']} {(task['error'] or {}).get('code', '')}".strip() for task in ended)
    lost = [
        task["id"]
        for task in ended
        if task["state"] != "succeeded"
        and not (task["delivery"] == "at-most-once" and (task["error"] or {}).get("code") == "lost")
    ]
    again = sum(len(its) > 1 for its in runs.values())
    print(
        f"\n{count} tasks, masters killed {len(masters)}, workers killed {crew.killed}: {dict(states)}; begun again {again}, "
        f"lost {len(lost) + count - len(ended)}, overlaps {len(overlaps)}, at-most-once begun twice {len(twice)}"
    )
    assert len(ended) == count
    assert lost == []
    assert overlaps == []
    assert twice == []
    assert masters
    assert crew.killed > 0


async def _all_ended(nodes: Cluster, count: int) -> bool:
    ended = 0
    for queue in QUEUES:
        try:
            groups = (await asks.anywhere(nodes.nodes, f"/v1/tasks?group_by=state&queue={queue}"))["groups"]
        except AssertionError:
            return False
        ended += sum(int(group["count"]) for group in groups if group["value"] in {"succeeded", "failed"})
    return ended == count
