"""Whom a node dials, how often, and what it learns of addresses."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from quvatlh.raft.settings import Settings
from tests.raft.net_parts import DELAY_MAX_S, MemNet, Node, raw_of, simulate, stop, two
from tests.sim.loop import SimError, SimLoop

SETTINGS = Settings()


def test_no_one_is_dialled_who_has_a_link() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a, b = Node(net, loop, "a"), Node(net, loop, "b")
        await a.start()
        await b.start("a:1")
        await a.linked("b")
        a.links.set_addresses(["b:1"])
        await asyncio.sleep(5)
        assert net.dials == [("b", "a:1")]
        assert len(a.ups) == len(b.ups) == 1
        await stop(a, b)

    simulate(main)


def test_a_second_name_of_a_linked_node_is_learned_without_breaking_the_link() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        net.listening["alias:1"] = net.listening["b:1"]
        a.links.set_addresses(["alias:1", "b:1"])
        await asyncio.sleep(5)
        assert net.dials.count(("a", "alias:1")) == 1
        assert (len(a.ups), len(b.ups), a.downs, b.downs) == (1, 1, [], [])
        await stop(a, b)

    simulate(main)


def test_an_address_with_a_new_owner_is_found_when_the_addresses_change() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        c = Node(net, loop, "c")
        await c.start()
        net.listening["b:1"], net.listening["b:2"] = net.listening["c:1"], net.listening["b:1"]
        b.doc["peer"] = "b:2"
        a.links.set_addresses(["b:1", "b:2"])
        a.ups[0].close("moved")
        await a.until(lambda: a.links.get("b") and a.links.get("c"))
        await stop(a, b, c)

    simulate(main)


def test_a_node_that_dials_itself_notices_and_leaves_it_until_addresses_change() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a = Node(net, loop, "a")
        await a.start("a:1")
        await asyncio.sleep(5)
        assert net.dials == [("a", "a:1")]
        assert [(doc["id"], address) for doc, address in a.hellos] == [("a", "a:1")]
        assert (a.ups, a.notes) == ([], [])
        a.links.set_addresses(["a:1", "b:1"])
        await a.until(lambda: len(a.hellos) == 2)
        await stop(a)

    simulate(main)


def test_another_process_with_our_id_is_never_linked_and_noted() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a, twin = Node(net, loop, "a"), Node(net, loop, "a", process="twin")
        await a.start()
        twin.address = "twin:1"
        await twin.start("a:1")
        await twin.until(lambda: twin.noted("dial_failed"))
        assert twin.noted("dial_failed") == ["another process has the id of this node"]
        assert twin.ups == a.ups == []
        await stop(a, twin)

    simulate(main)


def test_redialling_backs_off_with_jitter_up_to_its_limit() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a = Node(net, loop, "a")
        await a.start("b:1")
        await asyncio.sleep(60)
        gaps_s = [later - earlier for earlier, later in itertools.pairwise(net.dialled_s)]
        assert gaps_s[0] <= SETTINGS.redial_min_s + DELAY_MAX_S
        assert SETTINGS.redial_max_s - 0.1 < max(gaps_s) <= SETTINGS.redial_max_s + DELAY_MAX_S
        assert min(gaps_s[10:]) >= SETTINGS.redial_max_s / 2
        assert max(gaps_s[10:]) - min(gaps_s[10:]) > SETTINGS.redial_max_s / 4
        assert a.noted("dial_failed") == ["nobody listens at b:1"], "said once, as it stays the same"
        await stop(a)
        attempts = len(net.dials)
        await asyncio.sleep(5)
        assert len(net.dials) == attempts

    simulate(main)


def test_after_a_link_that_lasted_redialling_begins_anew() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a, b = Node(net, loop, "a"), Node(net, loop, "b")
        await a.start("b:1")
        await asyncio.sleep(20)
        await b.start()
        await a.linked("b")
        await asyncio.sleep(5)
        raw_of(net, "b", "a").abort()
        await a.until(lambda: a.downs)
        lost_s = loop.time()
        await a.until(lambda: len(a.ups) == 2)
        assert loop.time() - lost_s <= SETTINGS.redial_min_s + 10 * DELAY_MAX_S
        await stop(a, b)

    simulate(main)


def test_what_is_learned_of_nodes_that_come_and_go_is_forgotten_with_them() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a = Node(net, loop, "a")
        await a.start()
        for number in range(20):
            guest = Node(net, loop, f"guest{number}")
            await guest.start("a:1")
            await a.linked(guest.name)
            await stop(guest)
        assert len(a.links._dialer._node_at) <= 2
        await stop(a)

    simulate(main)


def test_a_fault_in_our_own_document_reaches_the_loop() -> None:
    async def main(loop: SimLoop) -> None:
        net = MemNet()
        a, b = Node(net, loop, "a"), Node(net, loop, "b")
        a.doc["huge"] = bytes(SETTINGS.hello_bytes_max)
        await b.start()
        await a.start("b:1")
        await asyncio.sleep(1)
        await stop(a, b)

    with pytest.raises(SimError, match="our hello document"):
        simulate(main)
