"""What the kernel saw: no answer to a write leaves before the fdatasync that covers the write is done."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import FrameDecoder, WireError
from tests.cluster.calls import TRACED, Call, calls_in
from tests.cluster.cluster import Cluster, cluster
from tests.cluster.node import Node, Place

WRITES = 20
"""One after the other, on each connection."""
CONNECTIONS = 4

SLOW = "n0"
"""Its syncs take longer than everything else does, so that an answer which does not wait for them is early, and seen."""
SLOW_US = 15_000

pytestmark = pytest.mark.usefixtures("strace")


@pytest.fixture
def strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"strace may not trace here: {tried.stderr.strip()}")


def trace_of(node: Node) -> Path:
    return node.place.directory / "trace"


def traced(place: Place) -> Place:
    flags = ("-f", "-ttt", "-T", "-y", "-xx", "-s", str(1 << 20), "-e", f"trace={TRACED}", "-e", "signal=none")
    slow = ("-e", f"inject=fdatasync:delay_enter={SLOW_US}") if place.name == SLOW else ()
    return replace(place, prefix=("strace", *flags, *slow, "-o", str(place.directory / "trace")))


def marker(number: int) -> str:
    """Found as it is in the bytes of log and messages, and part of no other one."""
    return f"<marker {number}>"


async def write_through(node: Node, first: int) -> dict[int, int]:
    """Number of each marker written to the index that its answer named."""
    line = node.line()
    indexes = {}
    try:
        for number in range(first, first + WRITES):
            request = {"op": "write", "name": f"r{number}", "value": marker(number)}
            answer = await line.ask(request, 30)
            assert answer.get("ok") is True, answer
            indexes[number] = answer["index"]
    finally:
        line.close()
    return indexes


async def write_everywhere(nodes: Cluster) -> dict[int, int]:
    jobs = [
        write_through(node, (turn * len(nodes.nodes) + each) * WRITES)
        for turn in range(CONNECTIONS)
        for each, node in enumerate(nodes.nodes)
    ]
    indexes: dict[int, int] = {}
    for part in await asyncio.gather(*jobs):
        indexes |= part
    return indexes


@dataclass
class Seen:
    """Of one node, as far as it matters."""

    synced: dict[int, float] = field(default_factory=dict)
    """Marker to the return of the fdatasync that covers it."""
    told: list[tuple[float, int]] = field(default_factory=list)
    """Answers to clients, and to the doors of other nodes: when the first byte may have left, and the index."""
    claims: list[tuple[float, int]] = field(default_factory=list)
    """A follower's word that it holds all up to an index."""


def look(node: Node, markers: list[int]) -> Seen:
    seen = Seen()
    calls = calls_in(trace_of(node))
    log = [call for call in calls if call.file.endswith(".log")]
    for number in markers:
        text = marker(number).encode()
        # In the log of this node, not in messages; what is written twice was cut in between, which does not happen here.
        writes = [(at, call) for at, call in enumerate(log) if call.name == "write" and text in call.data]
        assert len(writes) == 1, (node.name, number, len(writes))
        at, write = writes[0]
        covering = (call for call in log[at:] if call.name == "fdatasync" and call.entered >= write.returned)
        sync = next(call for call in covering if call.file == write.file)
        assert sync.result == 0
        seen.synced[number] = sync.returned
    streams: dict[str, list[Call]] = {}
    for call in calls:
        if call.file.startswith("socket:") and call.name != "fdatasync":
            streams.setdefault(call.file, []).append(call)
    for sends in streams.values():
        if sends[0].data.startswith(b"{"):
            seen.told += answers_in(sends)
        else:
            for at_s, message in frames_in(sends):
                match message:
                    case ["next", int(), int(following), bool(), True]:
                        seen.claims.append((at_s, following - 1))
                    case ["answer", *rest]:
                        seen.told += [(at_s, index) for index in map(index_in, rest) if index]
    return seen


def answers_in(sends: list[Call]) -> Iterator[tuple[float, int]]:
    rest = b""
    for call in sends:
        *lines, rest = (rest + call.data).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if answer.get("ok") is True and "node" not in answer:
                yield call.entered, answer["index"]


def frames_in(sends: list[Call]) -> Iterator[tuple[float, Any]]:
    decoder = FrameDecoder(Settings().frame_bytes_max)
    for call in sends:
        try:
            for message in decoder.feed(call.data):
                yield call.entered, message
        except WireError:
            return


def index_in(part: object) -> int:
    """Of a door's answer inside a message."""
    if isinstance(part, bytes):
        try:
            inside = msgpack.unpackb(part)
        except ValueError:
            return 0
        if isinstance(inside, dict) and inside.get("ok") is True:
            return int(inside["index"])
    return 0


def check_order(seen: list[Seen], indexes: dict[int, int]) -> int:
    """How many answers and claims were compared with the syncs that they had to wait for."""
    compared = 0
    majority = len(seen) // 2 + 1
    at_index: dict[int, list[int]] = {}
    for number, index in indexes.items():
        at_index.setdefault(index, []).append(number)
    for each in seen:
        for at_s, index in each.told:
            for number in at_index.get(index, ()):
                synced = sorted(other.synced[number] for other in seen)
                assert synced[majority - 1] <= at_s, (number, index, at_s, synced)
                compared += 1
        for at_s, index in each.claims:
            for number, stands_at in indexes.items():
                if stands_at <= index:
                    assert each.synced[number] <= at_s, (number, stands_at, index)
                    compared += 1
    return compared


async def lead(nodes: Cluster, wanted: Node) -> Node:
    """Hand leadership to this node, if it has it not."""
    master = await nodes.master()
    if master is not wanted:
        assert (await master.ask("transfer", to=wanted.id)).get("ok") == wanted.id
        assert await nodes.master() is wanted
    return wanted


@pytest.mark.parametrize(("count", "leads"), [(1, "n0"), (3, "n0"), (3, "n1")])
async def test_no_answer_leaves_before_the_sync_that_covers_it(count: int, leads: str, tmp_path: Path) -> None:
    """Where the one with the slow disk is master, and where it is not."""
    async with cluster(tmp_path, count, change=traced) as nodes:
        master = await lead(nodes, next(node for node in nodes.nodes if node.name == leads))
        indexes = await write_everywhere(nodes)
        await nodes.settled()
        assert await nodes.master() is master
        for node in nodes.nodes:
            await node.stop()
        seen = [look(node, list(indexes)) for node in nodes.nodes]
        of_master = seen[nodes.nodes.index(master)]
        # The master counts itself only for what it has synced: its own sync is before every answer too.
        for at_s, index in of_master.told:
            for number in (number for number, stands_at in indexes.items() if stands_at == index):
                assert of_master.synced[number] <= at_s
        compared = check_order(seen, indexes)
        answers = sum(len(each.told) for each in seen)
        claims = sum(len(each.claims) for each in seen)
        print(
            f"\n{count} nodes: {len(indexes)} writes, {answers} answers, {claims} claims of followers, {compared} comparisons"
        )
        assert {index for each in seen for _, index in each.told} >= set(indexes.values())
        assert (claims > 0) == (count > 1)


async def test_the_check_sees_an_answer_that_came_too_early() -> None:
    """Teeth: the same figures with one answer moved before its sync."""
    sound = Seen(synced={0: 1.0}, told=[(2.0, 7)], claims=[(1.5, 7)])
    assert check_order([sound], {0: 7}) == 2
    for early in (Seen({0: 1.0}, told=[(0.9, 7)]), Seen({0: 1.0}, claims=[(0.9, 7)])):
        with pytest.raises(AssertionError):
            check_order([early], {0: 7})
