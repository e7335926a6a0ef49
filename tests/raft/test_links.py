"""Who gets a link: one current link a pair, both sides agreeing, whoever dials, restarts or is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from quvatlh.raft.handshake import SEQ_MAX
from quvatlh.raft.newest import Numbers
from quvatlh.raft.settings import Settings
from tests.raft.net_parts import MemNet, Node, raw_of, simulate, stop, two
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop

SETTINGS = Settings()


def test_a_link_carries_messages_both_ways() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)
        assert a.ups[0].send(["m", 1])
        assert b.ups[0].send(["m", 2])
        await b.until(lambda: b.messages)
        await a.until(lambda: a.messages)
        assert (a.messages, b.messages) == ([["m", 2]], [["m", 1]])
        assert (a.ups[0].node_id, b.ups[0].node_id) == ("b", "a")
        assert (a.ups[0].address, b.ups[0].address) == ("b:1", "a:1")
        assert b.ups[0].doc["cluster"] == "c"
        await stop(a, b)

    simulate(main)


@pytest.mark.parametrize("seed", range(150))
def test_nodes_that_dial_each_other_at_once_agree_on_one_link(seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet(seed)
        nodes = [Node(net, loop, name, seed=seed, wall_offset_ms=net.random.randrange(3)) for name in "abc"]
        for node in nodes:
            await node.start("a:1", "b:1", "c:1")
            if seed % 2:
                await asyncio.sleep(net.delay_s())
        await asyncio.sleep(0.5)
        for round_ in range(3):
            agree(net, nodes)
            before = [len(node.ups) for node in nodes]
            await asyncio.sleep(2)
            assert [len(node.ups) for node in nodes] == before, "links that are agreed upon stay"
            for end in [end for end in net.ends if not end.closed]:
                if (seed + round_) % 2 or net.random.random() < 0.5:
                    end.abort()
            await asyncio.sleep(0.8)
        agree(net, nodes)
        await stop(*nodes)

    simulate(main)


def agree(net: MemNet, nodes: list[Node]) -> None:
    for node in nodes:
        for other in nodes:
            if other is not node:
                here, there = node.links.get(other.name), other.links.get(node.name)
                assert here is not None
                assert there is not None
                assert here.key == there.key
                assert here._channel._writer.other is there._channel._writer  # type: ignore[attr-defined]
    still_open = [end for end in net.ends if not end.closed]
    assert len(still_open) == len(nodes) * (len(nodes) - 1), "no connection is left beside the current ones"


def test_the_same_seed_sends_the_same_bytes() -> None:
    async def main(loop: SimLoop) -> list[bytes]:
        net = MemNet(7)
        nodes = [Node(net, loop, name) for name in "abc"]
        for node in nodes:
            await node.start("a:1", "b:1", "c:1")
        await asyncio.sleep(3)
        net.kill("c")
        await asyncio.sleep(3)
        await stop(*nodes)
        return [bytes(end.sent) for end in net.ends]

    assert simulate(main) == simulate(main)


def test_callbacks_of_a_link_come_in_order_and_once() -> None:
    async def main(loop: SimLoop) -> None:
        for seed in range(20):
            net = MemNet(seed)
            a, b = Node(net, loop, f"a{seed}", seed=seed), Node(net, loop, f"b{seed}", seed=seed)
            await a.start(b.address)
            await b.start(a.address)
            for _ in range(5):
                await a.linked(b.name)
                for end in net.between(a.name, b.name):
                    end.abort()
                await asyncio.sleep(0.2)
            await stop(a, b)
            for node in (a, b):
                assert len(node.ups) >= 5
                expected = [what for link in node.ups for what in (f"up {link.serial}", f"down {link.serial}")]
                assert [" ".join(line.split()[:2]) for line in node.story] == expected
                assert [link.serial for link in node.ups] == sorted({link.serial for link in node.ups})

    simulate(main)


def test_a_peer_that_is_killed_is_a_reset_and_its_successor_is_linked() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        net.kill("b")
        await a.until(lambda: a.downs)
        assert a.downs[0][1].reset
        again = Node(net, loop, "b", process="b2", wall_offset_ms=-3_600_000)
        await again.start()
        await a.until(lambda: len(a.ups) == 2)
        assert a.ups[1].doc["incarnation"] == again.links.incarnation
        await stop(a, again, b)

    simulate(main)


def test_a_restarted_peer_replaces_its_half_open_link_at_once_though_its_clock_is_behind() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        net.vanish("b")
        a.links.set_addresses([])
        again = Node(net, loop, "b", process="b2", wall_offset_ms=-3_600_000)
        since_s = loop.time()
        await again.start("a:1")
        await a.until(lambda: len(a.ups) == 2)
        assert loop.time() - since_s < SETTINGS.ping_s
        assert [how.how for _, how in a.downs] == ["replaced"]
        assert a.story == ["up 1", "down 1 replaced", "up 2"]
        link = await again.linked("a")
        assert link.key == a.ups[1].key
        await asyncio.sleep(3)
        assert len(a.ups) == 2
        await stop(a, again, b)

    simulate(main)


def test_one_side_that_lost_the_connection_replaces_it_on_the_other() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        raw = raw_of(net, "a", "b")
        net.silent.add(("a", "b"))
        raw.finish(ConnectionResetError())
        await a.until(lambda: a.downs)
        net.silent.clear()
        await b.until(lambda: len(b.ups) == 2)
        assert [how.how for _, how in b.downs] == ["replaced"]
        assert a.downs[0][1].reset
        await stop(a, b)

    simulate(main)


def test_a_dialer_whose_number_is_behind_is_told_and_comes_back_above_it() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a, b = Node(net, loop, "a"), Node(net, loop, "b")
        a.links._numbers.saw("b", 2**50)
        await b.start()
        await a.start()
        await a.links._dial("b:1", "b")
        await b.linked("a")
        a.links._numbers = Numbers(SimClock(loop))
        net.silent.add(("a", "b"))
        raw_of(net, "a", "b").finish(ConnectionResetError())
        await a.until(lambda: a.downs)
        net.silent.clear()
        a.links.set_addresses(["b:1"])
        await b.until(lambda: len(b.ups) == 2)
        assert [link.key.seq for link in b.ups] == [2**50 + 1, 2**50 + 2]
        assert [how.how for _, how in b.downs] == ["replaced"]
        await stop(a, b)

    simulate(main)


def test_a_late_acceptance_does_not_take_the_place_of_a_newer_link() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a, b = Node(net, loop, "a"), Node(net, loop, "b", wall_offset_ms=60_000)
        await a.start("b:1")
        await b.start()
        older = await net.first_words("b", "a")
        older._arrives_s = loop.time() + 0.4
        await b.until(lambda: b.ups)
        crossing = asyncio.ensure_future(b.links._dial("a:1", "a"))
        while (newer := net.between("a", "b")[-1]) is older.other or not newer.sent:
            net.spoken.clear()
            await net.spoken.wait()
        newer._arrives_s = loop.time() + 0.8
        await a.until(lambda: a.ups)
        assert a.ups[0].key > b.ups[0].key
        await crossing
        await asyncio.sleep(2)
        assert (len(a.ups), a.downs) == (1, [])
        assert [how.how for _, how in b.downs] == ["bye"], "the loser is no death of its peer"
        agree(net, [a, b])
        await stop(a, b)

    simulate(main)


def test_a_node_of_another_cluster_is_refused_and_both_sides_know() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a, b = Node(net, loop, "a"), Node(net, loop, "b")
        a.doc["cluster"] = "other"
        await b.start()
        await a.start("b:1")
        await a.until(lambda: a.noted("dial_failed"))
        assert a.noted("dial_failed") == ["refused there: of cluster other"]
        assert b.noted("refused_not_admitted")[0] == "of cluster other"
        assert (a.hellos[0][0]["id"], a.hellos[0][1]) == ("b", "b:1")
        assert (b.hellos[0][0]["id"], b.hellos[0][1]) == ("a", "a:1")
        assert a.ups == b.ups == []
        a.doc["cluster"] = "c"
        await a.linked("b")
        await stop(a, b)

    simulate(main)


def test_the_dialer_too_may_refuse() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a, b = Node(net, loop, "a"), Node(net, loop, "b")
        b.links._admit = lambda _doc: None
        b.doc["cluster"] = "other"
        await b.start()
        await a.start("b:1")
        await a.until(lambda: a.noted("dial_failed"))
        assert a.noted("dial_failed") == ["refused here: of cluster other"]
        await b.until(lambda: b.downs)
        assert (b.downs[0][1].how, a.ups) == ("bye", [])
        await stop(a, b)

    simulate(main)


def test_the_document_is_asked_for_anew_at_each_handshake() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        a.doc = {**a.doc, "term": 5}
        b.doc = {**b.doc, "term": 6}
        raw_of(net, "a", "b").abort()
        await a.until(lambda: len(a.ups) == 2)
        await b.until(lambda: len(b.ups) == 2)
        assert (a.ups[1].doc["term"], b.ups[1].doc["term"]) == (6, 5)
        await stop(a, b)

    simulate(main)


def test_unproved_connections_are_bounded_and_the_door_opens_again() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        few = replace(SETTINGS, handshakes_max=5)
        b = Node(net, loop, "b", settings=few)
        await b.start()
        stranger = net.view("stranger")
        held = [await stranger.dial("b:1") for _ in range(20)]
        await asyncio.sleep(0.1)
        assert b.links._unproved == 5
        assert len(b.links._channels) == 5
        assert len([end for end in net.between("b", "stranger") if not end.closed]) == 5
        assert b.noted("refused_full") == ["5 connections have yet to prove the secret"]
        await asyncio.sleep(SETTINGS.handshake_s)
        assert b.links._unproved == 0
        assert b.links._channels == {}
        assert b.noted("refused_timeout")[0] == "the secret was not proved within 5 s"
        a = Node(net, loop, "a")
        await a.start("b:1")
        await a.linked("b")
        for _, writer in held:
            writer.close()
        await stop(a, b)

    simulate(main)


def test_an_acceptor_that_says_nothing_does_not_hold_up_the_dialer() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()

        async def mute(_reader: object, _writer: object) -> None:
            await asyncio.sleep(100)

        await net.view("mute").listen("m:1", mute)
        a = Node(net, loop, "a")
        await a.start("m:1")
        await a.until(lambda: a.noted("dial_failed"))
        assert a.noted("dial_failed") == ["no handshake within 5 s"]
        await stop(a)
        assert all(end.closed for end in net.ends if end.owner == "a")

    simulate(main)


def test_the_greatest_number_is_still_one_that_others_take() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        a.links._numbers.saw("b", SEQ_MAX)
        raw_of(net, "a", "b").abort()
        await a.until(lambda: len(a.ups) == 2)
        assert a.ups[1].key.seq == SEQ_MAX
        await stop(a, b)

    simulate(main)
