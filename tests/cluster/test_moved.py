"""Nodes that come back under another name and other addresses: the cluster knows them as they were started."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, running
from tests.cluster.daemons import Daemon, daemon, daemons
from tests.cluster.node import until
from tests.cluster.ports import Reserved


@pytest.mark.parametrize("count", [1, 3])
async def test_a_node_that_moved_is_known_where_it_is(count: int, tmp_path: Path) -> None:
    ports = [Reserved(), Reserved()]
    try:
        await moves(count, tmp_path, *(port.address for port in ports))
    finally:
        for port in ports:
            port.release()


async def moves(count: int, directory: Path, peer: str, client: str) -> None:
    async with daemons(directory, count) as nodes:
        gone = nodes.nodes[-1]
        assert isinstance(gone, Daemon)
        assert await gone.stop() == 0
        # Where there was a list of peers, it names the new address, too; the others keep theirs.
        peers = tuple(peer if each == gone.place.peer else each for each in gone.place.peers)
        place = dataclasses.replace(gone.place, name="moved", peer=peer, client=client, peers=peers)
        moved = daemon(place, {})
        async with running(Cluster([moved]), founded=False):
            await moved.start()
            told = ("moved", peer, client)

            async def is_known() -> bool:
                found = (await (moved if count == 1 else nodes.nodes[0]).status())["nodes"]
                return told in [(each["name"], each["peer"], each["http"]) for each in found] and len(found) == count

            await until(is_known, lambda: f"it is known as {told}")
