"""Workers without a vote or a replica, while the nodes that they are connected to are killed, frozen and cut off from them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import asks
from tests.cluster.cluster import Cluster, now, running
from tests.cluster.daemons import TOKEN, Daemon, daemons, daemons_in
from tests.cluster.diary import FRESH_S, Diary
from tests.cluster.netns import Net, needs_namespaces, network
from tests.cluster.node import Node, until
from tests.cluster.strikes import Gaps
from tests.daemon.program import Program
from tests.support.executors import end_executor

Times = Callable[[int], int]

NAMES = ("w0", "w1")
ACTIONS = 20
LEASE = "10s"
"""Longer than any move from one node to another."""
AWAY_S = 4.0
"""Longer than the usual lease, with all that is added to it."""


@dataclass
class Outposts:
    cluster: Cluster
    diary: Diary
    made: list[Program]

    def told(self, outpost: Program, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in outpost.told().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def server_of(self, outpost: Program) -> Node:
        """The node that it is, or was last, connected to."""
        url = self.told(outpost, "connected")[-1]["url"]
        return next(node for node in self.cluster.nodes if _address(node) == url.removeprefix("http://"))

    def moves(self, outpost: Program) -> int:
        return len(self.told(outpost, "connected"))

    async def up(self) -> None:
        async def look() -> bool:
            found = await asks.anywhere(self.cluster.nodes, "/v1/workers")
            return {worker["name"] for worker in found["items"] if worker["state"] == "up"} >= set(NAMES)

        await until(look, lambda: "".join(each.told()[-2000:] for each in self.made))

    async def all_free(self) -> bool:
        found = await asks.anywhere(self.cluster.nodes, "/v1/workers")
        return all(worker["free"] == worker["slots"] for worker in found["items"])

    async def add(self, prefix: str, count: int = ACTIONS, **task: object) -> list[str]:
        many = [{"id": f"{prefix}{n}", "work": self.diary.work(), **task} for n in range(count)]
        ids = await asks.add(self.cluster, many)
        await until(lambda: len(self.diary.alive(ids)) == count, lambda: f"all of {count} run")
        return ids

    def fences(self, ids: Sequence[str]) -> dict[str, int]:
        return {task: runs[-1].fence for task, runs in self.diary.of(ids).items()}


def _address(node: Node) -> str:
    host = node.place.peer.rpartition(":")[0]
    return f"{host}:{node.place.client.rpartition(':')[2]}" if node.place.prefix else node.place.client


@contextlib.contextmanager
def outposts(
    cluster: Cluster, directory: Path, prefixes: Sequence[Sequence[str]] = ((), ())
) -> Iterator[list[Program]]:
    servers = ",".join(f"http://{_address(node)}" for node in cluster.nodes[:3])
    environ = {
        "QUVATLH_TOKEN": TOKEN,
        "QUVATLH_WORKER_SLOTS": str(2 * ACTIONS),
        "QUVATLH_LOG_FORMAT": "json",
        "QUVATLH_HTTP_INSECURE": "true",
    }
    made = [
        Program(directory / name, "--name", name, "--role", "worker", "--server", servers, prefix=prefix, **environ)
        for name, prefix in zip(NAMES, prefixes, strict=True)
    ]
    try:
        yield made
    finally:
        for each in made:
            each.kill()
            end_executor(each.data)


@contextlib.asynccontextmanager
async def on_loopback(directory: Path) -> AsyncIterator[Outposts]:
    async with daemons(directory, QUVATLH_WORKER_SLOTS="0") as nodes:
        with outposts(nodes, directory) as made:
            found = Outposts(nodes, Diary(directory / "diary"), made)
            await found.up()
            yield found


async def test_its_node_is_killed_or_frozen_and_its_actions_go_on(tmp_path: Path, times: Times) -> None:
    moved: list[float] = []
    async with on_loopback(tmp_path) as found:
        ids = await found.add("t", lease=LEASE)
        before = found.fences(ids)
        for turn in range(times(30)):
            outpost = found.made[turn % 2]
            node, moves = found.server_of(outpost), found.moves(outpost)
            struck = now()
            (node.freeze if turn % 3 == 2 else node.strike)()
            await until(lambda outpost=outpost, moves=moves: found.moves(outpost) > moves, outpost.told)  # type: ignore[misc]
            moved.append(now() - struck)
            await _restored(found, node)
        await asyncio.sleep(FRESH_S)
        assert len(found.diary.alive(ids)) == ACTIONS
        touched = [task for task, fence in found.fences(ids).items() if fence != before[task]]
        print(f"\nnode of a worker killed or frozen {times(30)} times, until it is connected elsewhere: "
              f"{Gaps(tuple(sorted(moved)))}; actions ended {len(touched)} of {ACTIONS}")  # fmt: skip
        assert not touched


async def _restored(found: Outposts, node: Node) -> None:
    assert isinstance(node, Daemon)
    if node.frozen:
        node.thaw()
    else:
        await node.ended()
        await node.start()
    await node.ready()
    await found.cluster.master()
    await found.up()


def _prefix(net: Net, number: int) -> tuple[str, ...]:
    return ("ip", "netns", "exec", net.namespace(number))


@contextlib.asynccontextmanager
async def in_namespaces(directory: Path) -> AsyncIterator[tuple[Net, Outposts]]:
    """Nodes are 0 to 2, workers 3 and 4."""
    needs_namespaces()
    open_to_all = {
        "QUVATLH_HTTP_LISTEN": "0.0.0.0:7400",
        "QUVATLH_HTTP_ADVERTISE": "{host}:7400",
        "QUVATLH_HTTP_INSECURE": "true",
        "QUVATLH_WORKER_SLOTS": "0",
    }
    with network(5) as net:
        async with running(daemons_in(net, directory, open_to_all, 3)) as nodes:
            await asyncio.gather(*(node.ready() for node in nodes.nodes if isinstance(node, Daemon)))
            with outposts(nodes, directory, (_prefix(net, 3), _prefix(net, 4))) as made:
                found = Outposts(nodes, Diary(directory / "diary"), made)
                await found.up()
                yield net, found


async def test_cut_off_from_its_node_it_goes_to_another_and_its_actions_go_on(tmp_path: Path, times: Times) -> None:
    moved: list[float] = []
    async with in_namespaces(tmp_path) as (net, found):
        ids = await found.add("t", lease=LEASE)
        before = found.fences(ids)
        for _ in range(times(20)):
            outpost = found.made[0]
            moves, number = found.moves(outpost), found.cluster.nodes.index(found.server_of(outpost))
            cut = now()
            net.cut([3], [number])
            await until(lambda moves=moves: found.moves(found.made[0]) > moves, outpost.told)  # type: ignore[misc]
            moved.append(now() - cut)
            net.heal()
            await found.up()
        await asyncio.sleep(FRESH_S)
        touched = [task for task, fence in found.fences(ids).items() if fence != before[task]]
        print(f"\nworker cut off from its node {times(20)} times, until it is connected elsewhere: "
              f"{Gaps(tuple(sorted(moved)))}; actions ended {len(touched)} of {ACTIONS}")  # fmt: skip
        assert not touched
        assert len(found.diary.alive(ids)) == ACTIONS


async def test_cut_off_from_all_nodes_its_actions_end_before_they_run_elsewhere(tmp_path: Path, times: Times) -> None:
    async with in_namespaces(tmp_path) as (net, found):
        done: list[str] = []
        for turn in range(times(10)):
            ids = await found.add(f"t{turn}-")
            number = turn % 2
            mine = {run.task for run in found.diary.alive(ids) if run.worker == NAMES[number]}
            assert mine
            net.cut([3 + number], range(3))
            await asyncio.sleep(AWAY_S)
            alive = {run.task: run.worker for run in found.diary.alive(ids)}
            net.heal()
            assert alive == dict.fromkeys(ids, NAMES[1 - number]), "each runs at the other, and nowhere else"
            await found.up()
            await asks.anywhere(found.cluster.nodes, "/v1/tasks/delete", {"ids": ids})
            await until(found.all_free, lambda: "all end")
            done += ids
        overlaps = found.diary.overlaps(done)
        print(f"\nworker cut off from all nodes for {AWAY_S:g} s, {times(10)} times: overlaps {len(overlaps)}")
        assert not overlaps, overlaps
