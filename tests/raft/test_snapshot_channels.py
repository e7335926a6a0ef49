"""Connections of kind snapshot: beside the links, in the hands of the owner."""

from __future__ import annotations

import asyncio

import pytest

from quvatlh.ports import Unavailable
from quvatlh.raft.wire import Channel
from tests.raft.net_parts import simulate, stop, two
from tests.sim.loop import SimLoop


def test_snapshot_channels_are_the_owners_and_no_links() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)

        async def serve(channel: Channel) -> None:
            assert await channel.receive() == ["want", 7]
            for number in range(10):
                channel.send(["chunk", number])
                await channel.drain()

        b.links.on_snapshot = serve
        channel = await a.links.open_snapshot("b:1")
        assert (channel.kind, channel.peer_doc["id"]) == ("snapshot", "b")
        channel.send(["want", 7])
        got = []
        while (message := await channel.receive()) is not None:
            got.append(message[1])
        assert got == list(range(10))
        assert (len(a.ups), a.downs, b.downs) == (1, [], [])
        with pytest.raises(Unavailable, match="nobody listens"):
            await a.links.open_snapshot("x:1")
        with pytest.raises(Unavailable, match="it is this node"):
            await a.links.open_snapshot("a:1")
        await stop(a, b)

    simulate(main)


def test_stopping_ends_snapshot_channels_too() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)

        async def serve(channel: Channel) -> None:
            await channel.receive()

        b.links.on_snapshot = serve
        channel = await a.links.open_snapshot("b:1")
        await asyncio.sleep(0.1)
        since_s = loop.time()
        await b.links.stop()
        assert loop.time() - since_s < 0.1
        assert await channel.receive() is None
        await a.links.stop()

    simulate(main)
