"""Wires that carry nothing, or only one way: at most one side goes on, no answer is taken back, and the rest follows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, running
from tests.cluster.load import Load
from tests.cluster.netns import Net, needs_namespaces, network, nodes_in
from tests.cluster.strikes import Gaps, cut_the_master_off

Times = Callable[[int], int]

pytestmark = pytest.mark.usefixtures("namespaces")


@pytest.fixture
def namespaces() -> None:
    needs_namespaces()


@asynccontextmanager
async def wired(directory: Path, count: int = 3) -> AsyncIterator[tuple[Cluster, Net]]:
    with network(count) as net:
        async with running(nodes_in(net, directory)) as nodes:
            yield nodes, net


async def test_the_master_is_cut_off_and_comes_back(tmp_path: Path, times: Times) -> None:
    async with wired(tmp_path) as (nodes, net), Load(nodes) as load:
        gaps = [await cut_the_master_off(nodes, net, load) for _ in range(times(20))]
        seen = await load.end()
        await nodes.settled()
        print(f"\nmaster cut off, {Gaps(tuple(sorted(gaps)))}; {seen}")
        assert seen.sound, seen


async def test_the_smaller_part_answers_no_write(tmp_path: Path) -> None:
    async with wired(tmp_path) as (nodes, net):
        master = await nodes.master()
        follower = nodes.others(master)[0]
        number = nodes.nodes.index(follower)
        net.cut([number], [each for each in range(3) if each != number])
        await follower.until(lambda status: status["master"] is None, "knows no master")
        answer = await follower.ask("write", name="r", value=1, patience_s=0.5)
        assert answer["error"] in {"no_master", "unknown"}, answer
        assert (await follower.ask("read", name="r", patience_s=0.5))["error"] in {"no_master", "unknown"}
        # Cut off it must not drive up terms: healed, it deposes nobody.
        term = (await master.status())["term"]
        net.heal()
        await nodes.caught_up(follower)
        await follower.until(lambda status: status["master"] == master.id, "follows the old master")
        assert (await master.status())["term"] == term


async def test_five_nodes_in_two_parts(tmp_path: Path, times: Times) -> None:
    async with wired(tmp_path, 5) as (nodes, net), Load(nodes, clients_per_node=1) as load:
        for turn in range(times(20)):
            await load.goes_on()
            master = nodes.nodes.index(await nodes.master())
            # In turns the master is in the smaller part and in the larger one.
            order = [master, *(each for each in range(5) if each != master)]
            small, large = (order[:2], order[2:]) if turn % 2 == 0 else (order[3:], order[:3])
            net.cut(small, large)
            await nodes.master([nodes.nodes[each] for each in large])
            await load.goes_on()
            net.heal()
            await nodes.master()
            for each in small:
                await nodes.caught_up(nodes.nodes[each])
        seen = await load.end()
        await nodes.settled()
        print(f"\nfive nodes in two parts {times(20)} times; {seen}")
        assert seen.sound, seen


async def test_frames_are_lost_one_way(tmp_path: Path, times: Times) -> None:
    """The master is not heard, or hears nothing: by all others, or by one of them."""
    async with wired(tmp_path) as (nodes, net), Load(nodes) as load:
        for turn in range(times(20) * 2):
            await load.goes_on()
            master = nodes.nodes.index(await nodes.master())
            others = [each for each in range(3) if each != master]
            for other in others if turn % 4 < 2 else others[:1]:
                net.cut_way(*((master, other) if turn % 2 == 0 else (other, master)))
            # Some two of the three can always talk.
            await load.goes_on(within_s=60)
            net.heal()
            await nodes.master()
            await load.goes_on()
        seen = await load.end()
        await nodes.settled()
        print(f"\nframes lost one way {times(20) * 2} times; {seen}")
        assert seen.sound, seen
