"""Killed while the state is checkpointed, the log shortened, or a snapshot on its way: nothing is lost, and it ends well."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, cluster
from tests.cluster.load import Load
from tests.cluster.node import Node, until

Times = Callable[[int], int]

RESTLESS = "checkpoint_bytes=1,segment_bytes=4096,keep_bytes=4096,pin_s=5"
"""Always at a checkpoint, and always dropping a file of the log."""
SHORT_LOG = "checkpoint_bytes=65536,segment_bytes=65536,keep_bytes=65536,pin_s=1,snapshot_chunk_bytes=8192"

IN_FORCE = "snapshot in force"

VALUE_BYTES = 256 * 1024
VALUES = 96
"""Of that size in the state: a transfer takes long enough to be hit."""


def first_file(node: Node) -> str:
    return min((each.name for each in node.place.data.glob("gen-*/log/*.log")), default="")


async def test_killed_while_the_log_is_shortened(tmp_path: Path, times: Times) -> None:
    async with cluster(tmp_path, settings=RESTLESS) as nodes, Load(nodes) as load:
        for number in range(times(20)):
            await load.goes_on()
            master = await nodes.master()
            victims = [[master], nodes.others(master)[:1], nodes.nodes][number % 3]
            watched = victims[0]
            before = first_file(watched)
            # Files go oldest first, right after a checkpoint; the next one follows at once.
            await until(lambda: first_file(watched) > before, lambda: f"{watched.name} drops files of its log")  # noqa: B023
            for node in victims:
                node.strike()
            await asyncio.gather(*(node.ended() for node in victims))
            await nodes.start()
            await nodes.master()
        await load.goes_on()
        seen = await load.end()
        status = await nodes.settled()
        print(f"\nkilled during compaction {times(20)} times; {seen}; log {status['log']}")
        assert status["log"]["first"] > 0
        assert seen.sound, seen


async def fill(nodes: Cluster, values: int = VALUES, size: int = VALUE_BYTES) -> None:
    """Give the state weight; again and again the same registers, so that it does not grow without end."""
    master = await nodes.master()
    for number in range(values):
        text = f"{number}:".ljust(size, "x")
        answer = await master.ask("write", name=f"heavy{number}", value=text)
        assert answer.get("ok") is True, answer


async def leave_behind(nodes: Cluster, node: Node) -> None:
    """Kill this one, and let the log of all others begin after its end."""
    status = await node.status()
    await node.kill()
    others = nodes.others(node)
    await nodes.master(others)

    async def shortened() -> bool:
        await fill(nodes, 4)
        firsts = [found["log"]["first"] for _, found in await nodes.statuses(others)]
        return bool(min(firsts) > status["log"]["last"])

    # For pin_s it is kept for the follower that had the last snapshot.
    await until(shortened, lambda: f"the log of {[other.name for other in others]} begins after {status['log']}")


def arriving(node: Node) -> int:
    """Bytes of the state of a generation that is not in force yet."""
    current = (node.place.data / "current").read_text()
    states = [each for each in node.place.data.glob("gen-*/state") if each.parent.name not in current]
    try:
        return sum(each.stat().st_size for each in states)
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("struck", ["sender", "receiver"])
async def test_killed_during_a_snapshot(struck: str, tmp_path: Path, times: Times) -> None:
    async with cluster(tmp_path, settings=SHORT_LOG) as nodes:
        await fill(nodes)
        async with Load(nodes, clients_per_node=1) as load:
            turns = itertools.cycle(nodes.nodes)
            hit = 0
            for number in range(times(20)):
                await load.goes_on()
                receiver = next(turns)
                await leave_behind(nodes, receiver)
                had = len(receiver.heard(IN_FORCE))
                await receiver.start()
                # From the first bytes on to the last.
                wanted = 1 + VALUES * VALUE_BYTES * number // (times(20) + 1)
                await until(
                    lambda: arriving(receiver) >= wanted or len(receiver.heard(IN_FORCE)) > had,  # noqa: B023
                    lambda: f"a snapshot of {wanted} bytes arrives at {receiver.name}",  # noqa: B023
                )
                hit += bool(arriving(receiver))
                sender = await sender_to(nodes, receiver)
                victim = receiver if struck == "receiver" else sender
                victim.strike()
                await victim.ended()
                await victim.start()
                await nodes.master()
                await nodes.caught_up(receiver)
            seen = await load.end()
        await nodes.settled()
        leftovers = [str(each) for node in nodes.nodes for each in node.place.data.glob("copy-*")]
        print(f"\n{struck} killed during a snapshot {times(20)} times, {hit} while it was under way; {seen}")
        assert leftovers == []
        assert hit > 0
        assert seen.sound, seen


async def sender_to(nodes: Cluster, receiver: Node) -> Node:
    """The node that last said it sends to this one."""
    for node in nodes.others(receiver):
        told = any(line["to"] == receiver.name for line in node.heard("snapshot goes out"))
        if told and any(node.place.data.glob("copy-*")):
            return node
    return await nodes.master(nodes.others(receiver))
