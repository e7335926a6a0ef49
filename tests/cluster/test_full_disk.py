"""A disk that is full ends the node that has it, and nothing else: given room again, it comes back and catches up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, cluster
from tests.cluster.line import NoAnswer, NotSent
from tests.cluster.load import NOT_DONE, Load
from tests.cluster.node import Node, Place

SMALL_MIB, LARGE_MIB = 24, 400
VALUE_BYTES = 64 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a file system of its own needs root to be mounted")
    path = tmp_path / "small"
    path.mkdir()
    made = _mount("-t", "tmpfs", "-o", f"size={SMALL_MIB}m", "none", str(path))
    if made.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def _mount(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *words], capture_output=True, text=True, check=False)


async def fill(nodes: Cluster, node: Node) -> None:
    """Write large values, ever the same ones, until that node has ended."""
    through = next(other for other in nodes.nodes if other is not node)
    for number in range(10_000):
        if not node.running:
            return
        try:
            text = f"{number}:".ljust(VALUE_BYTES, "x")
            answer = await through.ask("write", name=f"heavy{number % 16}", value=text, patience_s=10)
        except (NotSent, NoAnswer):
            continue
        assert answer.get("ok") is True or answer["error"] in {"unknown"} | NOT_DONE, answer
    raise AssertionError(f"{node.name} has not noticed that its disk is full")


@pytest.mark.parametrize("role", ["master", "follower"])
async def test_a_full_disk_ends_one_node_and_not_the_cluster(role: str, tmp_path: Path, small_disk: Path) -> None:
    def place(place: Place) -> Place:
        return replace(place, data_in=small_disk) if place.name == "n0" else place

    async with cluster(tmp_path, change=place) as nodes, Load(nodes) as load:
        node = nodes.nodes[0]
        master = await nodes.master()
        if (node is master) != (role == "master"):
            heir = node if role == "master" else nodes.nodes[1]
            assert (await master.ask("transfer", to=heir.id)).get("ok") == heir.id
            assert await nodes.master() is heir
        await fill(nodes, node)
        assert await node.ended() == 3
        assert "No space left on device" in node.log.read_text() or "database or disk is full" in node.log.read_text()
        await nodes.master(nodes.others(node))
        await load.goes_on()
        remounted = _mount("-o", f"remount,size={LARGE_MIB}m", str(small_disk))
        assert remounted.returncode == 0, remounted.stderr
        await node.start()
        await nodes.caught_up(node)
        seen = await load.end()
        await nodes.settled()
        print(f"\nfull disk of the {role}; {seen}")
        assert seen.sound, seen
