"""Whatever comes to the peer port of a live cluster: the node says why it closed, holds little, and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import random
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from quvatlh.raft import handshake
from quvatlh.raft.handshake import Ours
from quvatlh.raft.network import TcpNetwork
from quvatlh.raft.settings import MIB, Settings
from quvatlh.raft.wire import Channel, WireError, encode
from quvatlh.system.clock import RealClock
from tests.cluster.cluster import Cluster, cluster
from tests.cluster.load import Load
from tests.cluster.node import Node, until

GROWTH_BYTES_MAX = 32 * MIB
"""Far less than what is sent in all, and than one frame that a length promises; more than what a busy node varies by."""
AT_ONCE = 100
"""More than handshakes_max."""
ROUNDS = 5

Stranger = Callable[[Node], Awaitable[None]]


def sends(data: bytes) -> Stranger:
    async def act(node: Node) -> None:
        host, _, port = node.place.peer.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(data)
            await writer.drain()
            while await reader.read(65536):
                pass
        finally:
            writer.transport.abort()

    return act


async def guesses(node: Node) -> None:
    """A handshake in all forms, with another secret."""
    network, clock = TcpNetwork(), RealClock()
    reader, writer = await network.dial(node.place.peer)
    channel = Channel(reader, writer, Settings(), clock)
    doc = {"id": "x", "incarnation": "1", "seq": 1, "peer": "127.0.0.1:1"}
    try:
        await handshake.dial(channel, Ours(b"guessed", os.urandom(32), lambda: doc), "link", Settings())
        raise AssertionError("a wrong secret was taken")
    except WireError:
        pass
    finally:
        channel.abort("over")


STRANGERS: dict[str, Stranger] = {
    "wrong secret": guesses,
    "garbage": sends(random.Random(1).randbytes(4 * MIB)),
    "pickles": sends(pickle.dumps({"type": "append_entries", "entries": list(range(1000))}) * 100),
    "huge length": sends(struct.pack(">II", 2**32 - 1, 0) + bytes(4 * MIB)),
    "a length that is just allowed": sends(struct.pack(">II", Settings().hello_bytes_max, 0) + bytes(4 * MIB)),
    "http": sends(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "half a handshake": sends(encode(["QVTL", 1, bytes(32), "link"])[:-3]),
    "nested": sends(encode(["QVTL", 1, bytes(32), [[[[[[]]] * 9] * 9] * 9]])),
}


@pytest.mark.parametrize("name", STRANGERS)
async def test_a_live_cluster_goes_on_whatever_strangers_send(name: str, tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes, Load(nodes) as load:
        master = await nodes.master()
        await load.goes_on(300)
        term = (await master.status())["term"]
        before = {node.name: node.memory_bytes() for node in nodes.nodes}
        for _ in range(ROUNDS):
            await asyncio.gather(*(_storm(STRANGERS[name], node) for node in nodes.nodes))
            await load.goes_on()
        grown = {node.name: node.memory_bytes("VmHWM") - before[node.name] for node in nodes.nodes}
        print(
            f"\n{name}: {ROUNDS * AT_ONCE} connections a node, memory grew by at most {max(grown.values()) >> 20} MiB"
        )
        assert max(grown.values()) < GROWTH_BYTES_MAX, grown
        for node in nodes.nodes:
            await until(lambda: _refusals(node), lambda: f"{node.name} says that it refused {name}")  # noqa: B023
            # One line a second and kind, not one a connection.
            assert len(_refusals(node)) < AT_ONCE
        seen = await load.end()
        status = await nodes.settled()
        assert seen.sound, seen
        assert (status["term"], status["master"]) == (term, master.id)


async def _storm(stranger: Stranger, node: Node) -> None:
    async def one() -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(Settings().handshake_s * 3):
                await stranger(node)

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))


def _refusals(node: Node) -> list[str]:
    return [line["event"] for line in node.told() if str(line.get("event", "")).startswith("refused")]


async def test_a_node_of_another_cluster_is_refused_by_name(tmp_path: Path) -> None:
    async with cluster(tmp_path / "one") as nodes, cluster(tmp_path / "two", 1) as others:
        lone = others.nodes[0]
        await _join_list(lone, nodes)
        await until(lambda: lone.heard("dial failed"), lambda: "the stranger is told")
        assert "it belongs to cluster" in str(lone.heard("dial failed")[0]["reason"])
        await nodes.settled()


async def _join_list(lone: Node, nodes: Cluster) -> None:
    """Give a founded node the peer list of another cluster."""
    await lone.kill()
    lone.place = replace(lone.place, peers=nodes.nodes[0].place.peers)
    await lone.start()
