"""Nodes that are killed, stopped and started again under load: nothing acknowledged is lost, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.cluster.cluster import cluster
from tests.cluster.load import Load
from tests.cluster.strikes import Gaps, freeze_the_master, kill_the_master

Times = Callable[[int], int]


async def test_the_master_is_killed_again_and_again(tmp_path: Path, times: Times) -> None:
    async with cluster(tmp_path) as nodes, Load(nodes) as load:
        gaps = [await kill_the_master(nodes, load) for _ in range(times(50))]
        seen = await load.end()
        await nodes.settled()
        print(f"\nkill -9 of the master, {Gaps(tuple(sorted(gaps)))}; {seen}")
        assert seen.sound, seen


async def test_the_master_is_stopped_and_goes_on_later(tmp_path: Path, times: Times) -> None:
    async with cluster(tmp_path) as nodes, Load(nodes) as load:
        gaps = [await freeze_the_master(nodes, load) for _ in range(times(20))]
        seen = await load.end()
        await nodes.settled()
        print(f"\nSIGSTOP of the master, {Gaps(tuple(sorted(gaps)))}; {seen}")
        assert seen.sound, seen


async def test_all_are_killed_at_once_and_started_again(tmp_path: Path, times: Times) -> None:
    async with cluster(tmp_path) as nodes, Load(nodes) as load:
        for _ in range(times(20)):
            await load.goes_on()
            for node in nodes.nodes:
                node.strike()
            await asyncio.gather(*(node.ended() for node in nodes.nodes))
            await nodes.start()
            await nodes.master()
        await load.goes_on()
        seen = await load.end()
        await nodes.settled()
        print(f"\nall killed at once, {times(20)} times; {seen}")
        assert seen.sound, seen


async def test_a_node_alone_is_killed_and_started_again(tmp_path: Path, times: Times) -> None:
    async with cluster(tmp_path, 1) as nodes, Load(nodes, clients_per_node=6) as load:
        for _ in range(times(50)):
            await load.goes_on()
            nodes.nodes[0].strike()
            await nodes.nodes[0].ended()
            await nodes.start()
        await load.goes_on()
        seen = await load.end()
        print(f"\na node alone killed, {times(50)} times; {seen}")
        assert seen.sound, seen
