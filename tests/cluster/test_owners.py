"""Two hundred running tasks while nodes are lost, frozen and cut off: each runs elsewhere in time, none twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import asks
from tests.cluster.cluster import Cluster, running
from tests.cluster.daemons import Daemon, daemons, daemons_in
from tests.cluster.diary import FRESH_S, Diary, Run, now_us
from tests.cluster.faults import cut_off, lose_machine
from tests.cluster.netns import needs_namespaces, network
from tests.cluster.node import Node, until
from tests.cluster.strikes import Gaps
from tests.support.executors import end_executor

Times = Callable[[int], int]

RUNNING = 200
SLOTS = str(RUNNING + 10)
"""Any one node could carry all of them."""
ATTEMPTS_MAX = 2
"""A third worker that dies with a task would make it poison, which is not what is looked at here."""
FROZEN_S = 10.0
LONG_LEASE_S = 30


@dataclass
class Held:
    """The tasks of a test, and what became of them at each strike."""

    cluster: Cluster
    diary: Diary
    ids: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Deleted ones."""
    plain: list[float] = field(default_factory=list)
    """Seconds from a strike at a node that was not the master until a task of it ran elsewhere."""
    master: list[float] = field(default_factory=list)

    async def add(self, count: int = RUNNING, **task: object) -> None:
        first = len(self.ids) + len(self.done)
        many = [{"id": f"t{n}", "work": self.diary.work(), **task} for n in range(first, first + count)]
        self.ids += await asks.add(self.cluster, many)
        await self.all_run()

    async def renew(self) -> None:
        """Replace tasks that have been lost too often by new ones."""
        old = [task for task, run in self.holders().items() if run.attempt > ATTEMPTS_MAX]
        if old:
            await asks.anywhere(self.cluster.nodes, "/v1/tasks/delete", {"ids": old})
            self.done += old
            self.ids = [task for task in self.ids if task not in set(old)]
            await self.add(len(old))

    def holders(self) -> dict[str, Run]:
        """The youngest run of each."""
        return {task: runs[-1] for task, runs in self.diary.of(self.ids).items() if runs}

    async def all_run(self, within_s: float = 60.0) -> None:
        await until(lambda: len(self.diary.alive(self.ids)) == len(self.ids), self._missing, within_s)

    def on(self, node: Node) -> list[Run]:
        return [run for run in self.holders().values() if run.worker == node.name and run.alive]

    async def victim(self, turn: int) -> tuple[Node, bool]:
        """In turns the master and another, if they have any tasks; and whether it is the master."""
        await self.renew()
        master = await self.cluster.master()
        others = sorted(self.cluster.others(master), key=lambda node: -len(self.on(node)))
        order = [master, *others] if turn % 2 else [*others, master]
        chosen = next(node for node in order if len(self.on(node)) > RUNNING // 10)
        return chosen, chosen is master

    async def strike(self, node: Node, was_master: bool, hit: Callable[[], object]) -> None:
        """And wait until everything that ran there runs elsewhere."""
        lost = {run.task: run for run in self.on(node)}
        struck_us = now_us()
        hit()

        def moved() -> bool:
            holders = self.holders()
            return all(holders[task].fence > run.fence for task, run in lost.items())

        await until(moved, self._missing, 60.0)
        holders = self.holders()
        took = [(holders[task].first_us - struck_us) / 1e6 for task in lost]
        (self.master if was_master else self.plain).extend(took)

    async def back(self, node: Node) -> None:
        assert isinstance(node, Daemon)
        await node.ready()
        await self.cluster.master()
        await self.cluster.caught_up(node)

        async def up() -> bool:
            found = await asks.anywhere(self.cluster.nodes, "/v1/workers")
            return all(worker["state"] == "up" for worker in found["items"]) and len(found["items"]) == len(
                self.cluster.nodes
            )

        await until(up, lambda: "all workers are up")

    async def judge(self, what: str) -> None:
        await self.all_run()
        found = {task["id"]: task["state"] for task in await asks.tasks(self.cluster, "state=running")}
        lost = [task for task in self.ids if task not in found]
        overlaps = self.diary.overlaps([*self.ids, *self.done])
        print(
            f"\n{what}, until each runs elsewhere: not the master {Gaps(tuple(sorted(self.plain)))}; "
            f"the master {Gaps(tuple(sorted(self.master)))}; lost {len(lost)}, overlaps {len(overlaps)}"
        )
        assert not lost, lost
        assert not overlaps, "\n".join(overlaps[:20])

    def _missing(self) -> str:
        alive = {run.task for run in self.diary.alive(self.ids)}
        holders = self.holders()
        return f"not alive: {[(task, holders.get(task)) for task in self.ids if task not in alive][:10]}"


@asynccontextmanager
async def held(directory: Path) -> AsyncIterator[Held]:
    async with daemons(directory, QUVATLH_WORKER_SLOTS=SLOTS) as nodes:
        try:
            yield Held(nodes, Diary(directory / "diary"))
        finally:
            await nodes.stop()
            end_all(nodes)


def end_all(nodes: Cluster) -> None:
    for node in nodes.nodes:
        end_executor(node.place.data)


async def killed(held: Held, times: int, hit: Callable[[Node], object]) -> None:
    for turn in range(times):
        node, was_master = await held.victim(turn)
        await held.strike(node, was_master, lambda node=node: hit(node))  # type: ignore[misc]
        await node.ended()
        await node.start()
        await held.back(node)


async def test_a_machine_is_lost_with_what_it_runs(tmp_path: Path, times: Times) -> None:
    async with held(tmp_path) as all_held:
        await all_held.add()
        await killed(all_held, times(30), lose_machine)
        await all_held.judge(f"machine lost {times(30)} times")


async def test_a_daemon_is_killed_and_its_executor_lives_until_the_leases_end(tmp_path: Path, times: Times) -> None:
    async with held(tmp_path) as all_held:
        await all_held.add()
        await killed(all_held, times(30), lambda node: node.strike())
        await all_held.judge(f"daemon alone killed {times(30)} times")


async def test_a_daemon_is_frozen_and_comes_back_to_nothing(tmp_path: Path, times: Times) -> None:
    async with held(tmp_path) as all_held:
        await all_held.add()
        for turn in range(times(30)):
            node, was_master = await all_held.victim(turn)
            await _out(all_held, node, was_master, node.freeze, node.thaw)
        await all_held.judge(f"daemon alone frozen for {FROZEN_S:g} s, {times(30)} times")


async def test_a_node_is_cut_off_and_comes_back_to_nothing(tmp_path: Path, times: Times) -> None:
    needs_namespaces()
    with network(3) as net:
        async with running(daemons_in(net, tmp_path, {"QUVATLH_WORKER_SLOTS": SLOTS})) as nodes:
            try:
                await asyncio.gather(*(node.ready() for node in nodes.nodes if isinstance(node, Daemon)))
                all_held = Held(nodes, Diary(tmp_path / "diary"))
                await all_held.add()
                for turn in range(times(30)):
                    node, was_master = await all_held.victim(turn)
                    await _out(all_held, node, was_master, lambda node=node: cut_off(net, nodes, node), net.heal)  # type: ignore[misc]
                await all_held.judge(f"node cut off for {FROZEN_S:g} s, {times(30)} times")
            finally:
                await nodes.stop()
                end_all(nodes)


async def test_a_daemon_that_is_back_in_time_leaves_its_actions_alone(tmp_path: Path, times: Times) -> None:
    async with held(tmp_path) as all_held:
        await all_held.add(lease=f"{LONG_LEASE_S}s")
        before = all_held.holders()
        struck = 0
        for turn in range(times(30)):
            node, _ = await all_held.victim(turn)
            struck += len(all_held.on(node))
            node.strike()
            await node.ended()
            await asyncio.sleep(turn % 4)  # at times long enough to be lost to the market
            await node.start()
            await all_held.back(node)
            await all_held.all_run()
        await asyncio.sleep(FRESH_S)
        after = all_held.holders()
        touched = [f"{before[task]} became {run}" for task, run in after.items() if run.fence != before[task].fence]
        print(f"\n{struck} actions under {times(30)} restarts: untouched {struck - len(touched)}, ended {len(touched)}")
        assert not touched, "\n".join(touched[:20])
        await all_held.judge("lease 30s, daemon killed and restarted")


async def _out(
    held: Held, node: Node, was_master: bool, hit: Callable[[], object], heal: Callable[[], Awaitable[None] | None]
) -> None:
    struck_us = now_us()
    await held.strike(node, was_master, hit)
    await asyncio.sleep(max(0.0, FROZEN_S - (now_us() - struck_us) / 1e6))
    alive = held.on(node)
    heal()
    assert not alive, f"alive on {node.name} though it could renew nothing: {alive[:5]}"
    await held.back(node)
