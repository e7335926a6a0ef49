"""The program itself, asked over HTTP while its nodes are killed, frozen and cut off: answered in time, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.cluster.adds import Adds, Outcome
from tests.cluster.cluster import Cluster, running
from tests.cluster.daemons import daemons, daemons_in
from tests.cluster.netns import needs_namespaces, network
from tests.cluster.strikes import Gaps, cut_the_master_off, freeze_the_master, kill_the_master

Times = Callable[[int], int]


async def judged(nodes: Cluster, load: Adds) -> Outcome:
    await nodes.master()
    for node in nodes.nodes:
        await nodes.caught_up(node)
    return await load.end()


async def test_the_master_is_killed_and_no_client_sees_an_error(tmp_path: Path, times: Times) -> None:
    async with daemons(tmp_path) as nodes, Adds(nodes) as load:
        gaps = [await kill_the_master(nodes, load) for _ in range(times(50))]
        seen = await judged(nodes, load)
        print(f"\nover HTTP, kill -9 of the master, {Gaps(tuple(sorted(gaps)))}; {seen}")
        assert seen.sound, seen
        assert not seen.no, seen
        assert not seen.late, seen


async def test_the_master_is_frozen_and_goes_on_later(tmp_path: Path, times: Times) -> None:
    """Its own clients wait for it, or ask another node; nobody is told that anything is done that is not."""
    async with daemons(tmp_path) as nodes, Adds(nodes) as load:
        gaps = [await freeze_the_master(nodes, load) for _ in range(times(20))]
        seen = await judged(nodes, load)
        print(f"\nover HTTP, SIGSTOP of the master, {Gaps(tuple(sorted(gaps)))}; {seen}")
        assert seen.sound, seen
        assert not seen.no, seen


async def test_all_are_killed_at_once_and_every_node_has_everything(tmp_path: Path, times: Times) -> None:
    async with daemons(tmp_path) as nodes, Adds(nodes) as load:
        for _ in range(times(20)):
            await load.goes_on()
            for node in nodes.nodes:
                node.strike()
            await asyncio.gather(*(node.ended() for node in nodes.nodes))
            await nodes.start()
            await nodes.master()
        await load.goes_on()
        seen = await judged(nodes, load)
        print(f"\nover HTTP, all killed at once, {times(20)} times; {seen}")
        assert seen.sound, seen
        assert not seen.no, seen


async def test_the_master_is_cut_off_and_comes_back(tmp_path: Path, times: Times) -> None:
    """Its own clients may hear that there is no master, or that nothing is known, and nothing else."""
    needs_namespaces()
    with network(3) as net:
        async with running(daemons_in(net, tmp_path)) as nodes, Adds(nodes) as load:
            gaps = [await cut_the_master_off(nodes, net, load) for _ in range(times(20))]
            seen = await judged(nodes, load)
            print(f"\nover HTTP, master cut off, {Gaps(tuple(sorted(gaps)))}; {seen}")
            assert seen.sound, seen
            assert all(": 503 no_master" in no or ": 504 unknown" in no for no in seen.no), seen
