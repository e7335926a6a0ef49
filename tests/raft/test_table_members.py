"""DESIGN.md section 6: who is a member, how that changes, and how a cluster begins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quvatlh.ports import Member, Membership, Refused, Unavailable, Unknown
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import WireError
from tests.raft.nodes import SOON_S, Town, engine_of, held, log_of, member, play
from tests.raft.rig import bench, cluster, membership_row, row, rows
from tests.raft.teeth import fails_under

# --- in the log -------------------------------------------------------------------------------------------------------


@fails_under("membership-not-from-append")
async def test_a_membership_is_in_force_from_append() -> None:
    follower = await bench()
    follower.append("b", 1, (0, 0), row(1, 1), membership_row(2, 1, cluster("abcd")))
    assert follower.engine.membership == cluster("abcd")
    assert follower.engine.membership_pending()


@fails_under("membership-not-from-append")
async def test_the_majority_that_commits_a_membership_is_its_own() -> None:
    master = await bench(membership=cluster("abc", learners="d"))
    await master.lead()
    index = master.engine.append(membership_row(0, master.engine.term(), cluster("abcd"))[0])
    await master.tick()
    master.holds("b", index)
    await master.tick()
    assert master.engine.commit_index() == index - 1
    master.holds("d", index)
    await master.tick()
    assert (master.engine.commit_index(), master.engine.membership_pending()) == (index, False)


@fails_under("membership-not-undone")
async def test_a_membership_goes_with_the_entry_that_is_cut() -> None:
    follower = await bench(log=rows(1, 2))
    follower.append("b", 1, (2, 1), membership_row(3, 1, cluster("abcd")))
    assert follower.engine.membership == cluster("abcd")
    follower.append("c", 2, (2, 1), row(3, 2))
    assert follower.engine.membership == cluster("abc")


@fails_under("membership-forgotten-at-restart")
async def test_the_membership_is_found_in_the_log_at_the_start() -> None:
    node = await bench(log=[row(1, 1), membership_row(2, 1, cluster("abcd")), row(3, 1)])
    await node.tick()
    node.power_fail()
    assert node.engine.membership == cluster("abcd")


async def test_what_came_after_the_last_membership_says_nothing_of_it() -> None:
    node = await bench(log=[membership_row(1, 1, cluster("ab")), row(2, 1), membership_row(3, 1, cluster("abd"))])
    assert (node.engine.membership, node.journal.membership_index) == (cluster("abd"), 3)


@fails_under("strangers-answers-passed-on", raises=(KeyError,))
async def test_the_late_answer_of_a_node_that_was_removed_harms_nobody() -> None:
    master = await bench()
    await master.lead()
    index = master.engine.append(membership_row(0, master.engine.term(), cluster("ab"))[0])
    await master.tick()
    master.holds("c", index)
    master.hear("c", "next", master.engine.term(), 1, True, False)
    master.echo("c")
    await master.tick()
    assert (master.engine.commit_index(), master.engine.match_index("c")) == (index - 1, 0)


async def test_who_was_removed_gets_no_more_appends() -> None:
    master = await bench()
    await master.lead()
    index = master.engine.append(membership_row(0, master.engine.term(), cluster("ab"))[0])
    await master.tick()
    master.holds("b", index)
    await master.tick()
    master.said("c")
    await master.tick(master.settings.heartbeat_s * 1.1)
    assert (master.said("c"), master.engine.commit_index()) == ([], index)


# --- asked for --------------------------------------------------------------------------------------------------------


@fails_under("voter-at-once")
def test_a_new_node_is_a_learner_first_and_a_voter_when_it_has_caught_up() -> None:
    async def story(town: Town) -> None:
        *founders, spare = town.boxes
        master = await town.founded(*founders)
        for number in range(50):
            await town.write(master, str(number))
        spare.start()
        await town.until(lambda: spare.log is not None and spare.log.waiting_for)
        seen: list[tuple[bool, int]] = []
        real = log_of(master)._broadcast_membership

        def see(index: int, membership: Membership) -> None:
            own = log_of(spare).node_id
            seen.append((membership.is_voter(own), engine_of(master).match_index(own)))
            real(index, membership)

        log_of(master)._applier.on_membership = see  # type: ignore[union-attr]
        new = member(spare)
        after = await town.at(master, lambda log: log.add_member(new, deadline=SOON_S))
        assert [voter for voter, _ in seen] == [False, True]
        assert after.is_voter(new.id)
        assert after.learners == ()
        await town.write(master, "after")
        await town.all_hold("0", "49", "after")

    play(story, nodes=3, spares=1)


@fails_under("voter-at-once")
def test_a_node_that_cannot_be_reached_stays_a_learner_and_takes_no_majority_away() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        with pytest.raises(Unknown):
            await town.at(master, lambda log: log.add_member(Member("new", "new", "n9:7421"), deadline=0.5))
        membership = log_of(master).membership
        assert membership is not None
        assert ([m.id for m in membership.learners], len(membership.voters)) == (["new"], 1)
        await town.write(master, "x")

    play(story, nodes=1)


@fails_under("two-membership-changes-at-once")
def test_one_change_at_a_time() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        ids = [log_of(box).node_id for box in town.others(master)[:2]]

        async def both(_: object) -> list[object]:
            log = log_of(master)
            asked = [log.remove_member(node_id, deadline=SOON_S) for node_id in ids]
            return list(await asyncio.gather(*asked, return_exceptions=True))

        outcomes = await town.at(master, both)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Membership", "Refused"]
        membership = log_of(master).membership
        assert membership is not None
        assert len(membership.voters) == 4

    play(story, nodes=5)


@fails_under("master-removes-itself")
def test_a_master_that_is_to_leave_hands_over_first() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        leaving = log_of(master).node_id
        with pytest.raises(Refused, match="hand over first"):
            await town.at(master, lambda log: log.remove_member(leaving, deadline=SOON_S))
        await town.at(master, lambda log: log.transfer(deadline=SOON_S))
        following = await town.master(other_than=master)
        after = await town.at(following, lambda log: log.remove_member(leaving, deadline=SOON_S))
        assert after.get(leaving) is None
        await town.write(following, "x")
        await town.all_hold("x", boxes=town.others(master))

    play(story)


def test_a_node_that_was_removed_says_so_and_disturbs_nobody() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        gone = town.others(master)[0]
        gone_id = log_of(gone).node_id
        await town.at(master, lambda log: log.remove_member(gone_id, deadline=SOON_S))
        await town.until(lambda: "removed from the cluster" in town.noted(gone))
        term = engine_of(master).term()
        await asyncio.sleep(3.0)
        assert (town.masters(), engine_of(master).term()) == ([master], term)
        assert not log_of(gone).acts()
        await town.write(master, "x")
        assert "x" not in held(gone)

    play(story)


def test_a_node_that_was_removed_knows_no_master_and_none_serves_it() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        gone = town.others(master)[0]
        was, cluster_of = member(gone), engine_of(master).membership.cluster

        async def answer(_asker: str, body: bytes) -> bytes:
            return body

        async def ask() -> bytes:
            return await town.at(gone, lambda log: log.request(log_of(master).node_id, "echo", b"x", deadline=SOON_S))

        log_of(master).handle("echo", answer)
        assert await ask() == b"x"
        await town.at(master, lambda log: log.remove_member(was.id, deadline=SOON_S))
        with pytest.raises(Unavailable, match="is no member of this cluster"):
            await ask()
        await town.until(lambda: log_of(gone).role.master is None)
        gone.crash(power=False)
        gone.start()
        await town.until(lambda: gone.log is not None and gone.log.waiting_for)
        assert f"`quvatlh cluster add {was.id} {was.peer}`" in log_of(gone).waiting_for
        assert (log_of(gone).role.master, engine_of(gone).membership.cluster) == (None, cluster_of)
        await town.at(master, lambda log: log.add_member(was, deadline=SOON_S))
        await town.until(lambda: log_of(gone).role.master == log_of(master).node_id)
        assert log_of(gone).waiting_for == ""
        assert await ask() == b"x"

    play(story)


def test_the_address_of_a_member_is_brought_up_to_date() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        other = member(town.others(master)[0])
        moved = Member(other.id, "moved", "elsewhere:1", "elsewhere:2")
        after = await town.at(master, lambda log: log.add_member(moved, deadline=SOON_S))
        assert (after.get(moved.id), len(after.voters), after.learners) == (moved, 3, ())

    play(story)


def test_the_address_of_the_master_is_brought_up_to_date_by_itself() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        own = member(master)
        moved = Member(own.id, "moved", "elsewhere:1", "elsewhere:2")
        after = await town.at(master, lambda log: log.add_member(moved, deadline=SOON_S))
        assert after.get(own.id) == moved

    play(story)


def test_an_even_number_of_voters_works_and_each_node_warns_of_it_once() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        assert not [name for name, event in town.story.notes if event == "even number of voters"]
        gone = town.others(master)[0]
        gone_id = log_of(gone).node_id
        await town.at(master, lambda log: log.remove_member(gone_id, deadline=SOON_S))
        for number in range(20):
            await town.write(master, f"{number}")
        left = [box for box in town.boxes if box is not gone]
        await town.all_hold("19", boxes=left)
        assert [town.noted(box).count("even number of voters") for box in left] == [1, 1]
        left[0].crash(power=False)
        left[0].start()
        await town.until(lambda: town.noted(left[0]).count("even number of voters") == 2)

    play(story)


def test_there_are_at_most_seven_voters() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        with pytest.raises(Refused, match="at most 3 voters"):
            await town.at(master, lambda log: log.add_member(Member("new", "new", "n9:1"), deadline=SOON_S))

    play(story, settings=Settings(voters_max=3))


def test_a_membership_outlives_every_process() -> None:
    async def story(town: Town) -> None:
        *founders, spare = town.boxes
        master = await town.founded(*founders)
        spare.start()
        await town.until(lambda: spare.log is not None and spare.log.waiting_for)
        new = member(spare)
        after = await town.at(master, lambda log: log.add_member(new, deadline=SOON_S))
        await town.until(lambda: all(log_of(box).membership == after for box in town.boxes))
        await town.write(master, "x")
        for box in town.boxes:
            box.crash(power=True)
        following = await town.founded()
        await town.until(lambda: all(box.log is not None and box.log.membership == after for box in town.boxes))
        await town.write(following, "y")
        await town.all_hold("x", "y")

    play(story, nodes=3, spares=1)


@pytest.mark.parametrize("message", [["members", 1, b"\xff"], ["members", 1, "x"], ["members"], ["members", "1", b""]])
def test_a_membership_that_cannot_be_read_ends_the_link_and_not_the_node(message: list[object]) -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        other = log_of(town.others(master)[0]).node_id
        link = log_of(master).link(other)
        assert link is not None
        with pytest.raises(WireError):
            log_of(master)._received(link, message)
        await town.write(master, "x")

    play(story)


# --- founding ---------------------------------------------------------------------------------------------------------


@fails_under("founding-by-a-part-of-the-peers")
def test_a_part_of_the_peers_founds_nothing() -> None:
    async def story(town: Town) -> None:
        here, late = town.boxes[:2], town.boxes[2]
        for box in here:
            box.start()
        await town.until(lambda: all(box.log is not None and late.address in box.log.waiting_for for box in here))
        await asyncio.sleep(5.0)
        assert [log_of(box).membership for box in here] == [None, None]
        late.start()
        await town.master()
        memberships = {log_of(box).membership for box in town.boxes}
        assert len(memberships) == 1
        (membership,) = memberships
        assert membership is not None
        assert {m.id for m in membership.voters} == {log_of(box).node_id for box in town.boxes}

    play(story)


def test_peers_with_another_list_found_nothing_and_say_so() -> None:
    async def story(town: Town) -> None:
        one, two, three = town.boxes
        one.peers = (one.address, two.address)
        for box in (one, two, three):
            box.start()
        await asyncio.sleep(5.0)
        assert all(log_of(box).membership is None for box in town.boxes)
        assert "has another peer list" in log_of(one).waiting_for

    play(story)


@fails_under("empty-disk-that-votes")
def test_an_empty_node_in_the_place_of_a_member_has_no_vote_and_says_how_to_add_it() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        lost = town.others(master)[0]
        lost.crash(power=True)
        lost.wipe()
        lost.start()
        await town.until(lambda: lost.log is not None and (lost.log.waiting_for or lost.log.membership))
        await asyncio.sleep(2.0)
        log = log_of(lost)
        assert log.membership is None
        assert f"quvatlh cluster add {log.node_id} {lost.address}" in log.waiting_for

    play(story)


def test_an_empty_node_takes_over_the_membership_that_its_id_stands_in() -> None:
    """It was admitted while it was down: its data directory was made and nothing else."""

    async def story(town: Town) -> None:
        *founders, spare = town.boxes
        spare.start()
        await town.until(lambda: spare.log)
        new = member(spare)
        spare.crash(power=False)
        master = await town.founded(*founders)
        with pytest.raises(Unknown):
            await town.at(master, lambda log: log.add_member(new, deadline=0.3))
        spare.start()
        await town.until(lambda: spare.log is not None and spare.log.membership is not None)
        assert log_of(spare).node_id == new.id
        after = await town.at(master, lambda log: log.add_member(new, deadline=SOON_S))
        assert after.is_voter(new.id)

    play(story, nodes=3, spares=1)


@fails_under("other-clusters-admitted")
def test_a_node_of_another_cluster_is_refused() -> None:
    async def story(town: Town) -> None:
        one, two = town.boxes
        one.peers, two.peers = (), ()
        await town.founded(one)
        await town.founded(two)
        await town.until(lambda: two.log is not None and two.log.membership is not None)
        foreign = member(two)
        with pytest.raises(Unknown):
            await town.at(one, lambda log: log.add_member(foreign, deadline=1.0))
        assert (log_of(one).link(foreign.id), log_of(two).link(log_of(one).node_id)) == (None, None)
        assert log_of(two).membership != log_of(one).membership

    play(story, nodes=2)


def test_nodes_found_alone_where_there_are_no_peers() -> None:
    async def story(town: Town) -> None:
        (box,) = town.boxes
        box.peers = ()
        await town.founded()
        membership: Any = log_of(box).membership
        assert [m.id for m in membership.voters] == [log_of(box).node_id]

    play(story, nodes=1)
