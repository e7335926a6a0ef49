"""DESIGN.md section 6, rows one and two: nothing counts before it is synced, and nothing that was synced is dropped."""

from __future__ import annotations

import asyncio

import pytest

from quvatlh.core.machine import Machine
from quvatlh.core.statefile import StateCorrupt
from quvatlh.ports import Applied, LogError
from quvatlh.raft.journal import Base, JournalBug, LogCorrupt
from tests.raft.nodes import SOON_S, Town, add, log_of, play
from tests.raft.parts import HeldLane, PoweredMachine, membership, new_log, open_log, turns
from tests.raft.rig import bench, cluster, rows
from tests.raft.teeth import fails_under

# --- the follower -----------------------------------------------------------------------------------------------------


@fails_under("no-sync-before-answers")
async def test_a_follower_answers_for_entries_only_when_they_are_synced() -> None:
    lane = HeldLane()
    follower = await bench(lane=lane)
    follower.append("b", 1, (0, 0), *rows(1, 3))
    await turns()
    assert follower.said("b", "next") == []
    await lane.let_go()
    assert follower.said("b", "next") == [["next", 1, 4, False, True]]


async def test_one_sync_covers_the_appends_that_come_in_one_read() -> None:
    lane = HeldLane()
    follower = await bench(lane=lane)
    follower.append("b", 1, (0, 0), *rows(1, 2))
    follower.append("b", 1, (2, 1), *rows(3, 5))
    await lane.let_go()
    assert (follower.journal.durable_index, lane.waiting) == (5, 0)


@fails_under("no-sync-before-answers")
async def test_an_answer_that_waits_is_of_entries_the_next_start_still_finds() -> None:
    lane = HeldLane()
    follower = await bench(lane=lane)
    follower.append("b", 1, (0, 0), *rows(1, 3))
    answered = follower.said("b", "next")
    follower.power_fail()
    assert [frame[2] - 1 for frame in answered if frame[2] - 1 > follower.journal.last_index] == []


@fails_under("echo-waits-for-the-sync")
async def test_a_slow_disk_does_not_end_the_lease() -> None:
    follower = await bench(lane=HeldLane())
    sent = follower.clock.boot()
    follower.append("b", 1, (0, 0), *rows(1, 3))
    assert follower.said("b", "echo") == [["echo", 1, sent, follower.clock.wall_ms()]]


@fails_under("applied-before-the-own-sync")
async def test_a_follower_applies_nothing_before_its_own_sync() -> None:
    lane = HeldLane()
    follower = await bench(lane=lane)
    follower.append("b", 1, (0, 0), *rows(1, 3), commit=3)
    await follower.tick()
    assert (follower.engine.commit_index(), follower.applied) == (3, [])
    await lane.let_go()
    await follower.tick()
    assert follower.applied == rows(1, 3)


# --- the master -------------------------------------------------------------------------------------------------------


@fails_under("proposal-counted-before-its-own-sync")
async def test_a_master_counts_itself_only_for_what_it_has_synced() -> None:
    master = await bench()
    await master.lead()
    lane = HeldLane()
    master.journal._writer._lane = lane
    index = master.propose()
    master.holds("b", index)
    await master.tick()
    assert master.engine.commit_index() == index - 1
    await lane.let_go()
    await master.tick()
    assert (master.engine.commit_index(), master.applied[-1][1]) == (index, index)


@fails_under("proposal-counted-before-its-own-sync")
async def test_a_single_node_commits_only_what_it_has_synced() -> None:
    lane = HeldLane()
    single = await bench(membership=cluster("a"), lane=lane)
    await single.tick()
    assert (single.engine.leads(), single.engine.commit_index(), single.engine.acts()) == (True, 0, False)
    await lane.let_go()
    await single.tick()
    assert (single.engine.commit_index(), single.engine.acts()) == (1, True)


@fails_under("proposal-counted-before-its-own-sync")
async def test_nothing_a_master_applied_is_missing_from_its_own_log_after_a_loss_of_power() -> None:
    master = await bench()
    await master.lead()
    master.journal._writer._lane = HeldLane()
    for _ in range(3):
        master.propose()
    master.answer("b", "c")
    await master.tick()
    applied, committed = master.applied[-1][1], master.engine.commit_index()
    assert applied <= master.journal.durable_index
    assert committed <= master.journal.durable_index


# --- term and vote ----------------------------------------------------------------------------------------------------


@fails_under("vote-not-persisted")
async def test_a_vote_is_on_the_disk_before_it_is_given() -> None:
    voter = await bench()
    voter.hear("b", "campaign", 7, 0, 0, False)
    assert voter.said("b", "vote") == [["vote", 7]]
    voter.power_fail()
    assert (voter.engine.term(), voter.engine.voted_for()) == (7, "b")
    voter.hear("c", "campaign", 7, 0, 0, False)
    assert voter.said("c", "vote") == []


@fails_under("vote-not-persisted")
async def test_a_candidate_has_voted_for_itself_on_disk_before_it_asks() -> None:
    candidate = await bench()
    await candidate.campaign("b", "c")
    assert [frame[0] for frame in candidate.said("b")] == ["campaign"]
    candidate.power_fail()
    assert (candidate.engine.term(), candidate.engine.voted_for()) == (1, "a")
    candidate.hear("c", "campaign", 1, 0, 0, False)
    assert candidate.said("c", "vote") == []


# --- a broken disk ----------------------------------------------------------------------------------------------------


@fails_under("failed-disk-ignored")
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_failed_write_or_sync_ends_the_node_and_nothing_is_promised_after_it(kind: str) -> None:
    async def story(town: Town) -> None:
        (box,) = town.boxes
        box.broken_disk = True
        await town.founded()
        log = log_of(box)
        box.disk.fail(kind, within="/log/")
        asked = asyncio.ensure_future(town.at(box, lambda log: log.propose(add("x"), deadline=SOON_S)))
        await town.until(lambda: box.dead, within_s=2.0)
        assert not log.acts()
        asked.cancel()

    play(story, nodes=1)


@fails_under("failed-disk-ignored")
def test_what_waited_for_a_failed_sync_is_unknown_at_once() -> None:
    async def story(town: Town) -> None:
        (box,) = town.boxes
        await town.founded()
        log = log_of(box)
        fatal: list[BaseException] = []
        log._on_fatal = fatal.append
        box.disk.fail("sync", within="/log/")
        began = town.loop.now_s
        try:
            outcome: Applied | LogError = await town.at(box, lambda log: log.propose(add("x"), deadline=SOON_S))
        except LogError as error:
            outcome = error
        assert (type(outcome).__name__, [type(error) for error in fatal]) == ("Unknown", [OSError])
        assert town.loop.now_s - began < 1.0
        assert not log.acts()

    play(story, nodes=1)


# --- state and log ----------------------------------------------------------------------------------------------------


@fails_under("log-cleared-at-start")
async def test_a_start_drops_nothing_of_the_log_whatever_the_state_holds() -> None:
    for applied in (0, 1, 60, 100):
        node = await bench(log=rows(1, 100), applied=applied)
        assert node.held == [(index, 1) for index in range(1, 101)]
        assert (node.engine.last_applied(), node.engine.commit_index()) == (applied, applied)


@fails_under("log-cleared-at-start")
async def test_after_a_start_entries_beyond_the_state_are_applied_from_the_log() -> None:
    node = await bench(membership=cluster("a"), log=rows(1, 10), applied=6)
    await node.tick()
    await node.tick()
    assert [index for _, index, _ in node.applied] == [7, 8, 9, 10, 11]


@fails_under("clear-clears")
async def test_clearing_the_log_is_a_bug() -> None:
    node = await bench(log=rows(1, 3))
    with pytest.raises(JournalBug):
        node.journal.clear()
    assert node.held == [(1, 1), (2, 1), (3, 1)]


@fails_under("state-and-log-not-compared")
def test_a_gap_between_state_and_log_is_refused_with_the_command_that_rejoins() -> None:
    machine = PoweredMachine()
    new_log(machine.view, Base(20, 1, 0, membership("a")))
    with pytest.raises(LogCorrupt, match=r"has applied only entry 10.*quvatlh cluster add"):
        open_log(machine.view, applied_index=10)


@fails_under("state-and-log-not-compared")
def test_a_log_that_ends_before_the_state_is_refused_with_the_command_that_rejoins() -> None:
    machine = PoweredMachine()
    new_log(machine.view)
    with pytest.raises(LogCorrupt, match=r"the state has applied entry 10.*quvatlh cluster add"):
        open_log(machine.view, applied_index=10)


def test_a_state_file_that_does_not_open_stops_the_start_with_the_way_to_rejoin(tmp_path: object) -> None:
    path = f"{tmp_path}/state"
    with open(path, "wb") as file:
        file.write(b"not a state" * 1000)
    with pytest.raises(StateCorrupt, match="admit it as a new member"):
        Machine(path)
