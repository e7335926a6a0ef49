"""The log of a node on its disk: what is written when, cuts, what is dropped. Crashes are in test_journal_crash.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quvatlh.raft.ballot import Ballot
from quvatlh.raft.disk import RealDisk, ThreadLane
from quvatlh.raft.journal import Journal, JournalClosed
from quvatlh.raft.segment import Base
from quvatlh.raft.settings import Settings
from tests.raft.parts import (
    BASE,
    LOG,
    NO_OP,
    SMALL,
    HeldLane,
    PoweredMachine,
    filled,
    item,
    log_files,
    membership,
    membership_entry,
    new_log,
    open_log,
    rows,
    synced,
    turns,
)


@pytest.fixture
def machine() -> PoweredMachine:
    machine = PoweredMachine()
    new_log(machine.view)
    return machine


# --- the disk ---------------------------------------------------------------------------------------------------------


async def test_adding_touches_no_file(machine: PoweredMachine) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane, settings=SMALL)
    ops = machine.disk.ops
    filled(journal, 20)
    journal.add(NO_OP, 10, 2)
    await turns()
    assert (machine.disk.ops, lane.waiting) == (ops, 0), "without a kick nothing is written"
    assert (journal.durable_index, journal.last_index) == (0, 10)


async def test_one_sync_covers_all_that_waits_and_the_next_job_what_came_meanwhile(machine: PoweredMachine) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane)
    told: list[tuple[int, int]] = []
    journal.on_synced = lambda: told.append((journal.durable_index, journal.synced_ticket))
    filled(journal, 3)
    first = journal.ticket()
    journal.kick()
    journal.kick()
    await lane.until_waiting()
    filled(journal, 2)
    second = journal.ticket()
    journal.kick()
    await turns()
    assert (lane.waiting, journal.durable_index) == (1, 0)
    syncs: list[str] = []
    machine.disk.on_op = lambda kind, _path: syncs.append(kind)
    await lane.let_go()
    assert (syncs, told) == (["write", "sync"], [(3, first)])
    assert lane.waiting == 1, "what queued meanwhile goes on its way at once"
    await lane.let_go()
    assert (told, lane.waiting) == ([(3, first), (5, second)], 0)
    assert second > first


async def test_durable_is_what_a_loss_of_power_leaves() -> None:
    for seed in range(10):
        machine = PoweredMachine(seed)
        new_log(machine.view)
        journal = open_log(machine.view, settings=SMALL)
        added = filled(journal, 10)
        await synced(journal)
        assert journal.durable_index == 10
        filled(journal, 3)
        assert rows(open_log(machine.power_fail(), applied_index=10)) == added


async def test_a_file_is_synced_before_the_next_one_is_made_and_that_one_before_its_first_record() -> None:
    machine = PoweredMachine()
    new_log(machine.view)
    journal = open_log(machine.view, settings=SMALL)
    filled(journal, 5)
    ops: list[str] = []
    machine.disk.on_op = lambda kind, path: ops.append(f"{kind} {path.removeprefix(LOG)}")
    await synced(journal)
    first, second = "/0000000001.log", "/0000000002.log"
    assert ops == [
        f"write {first}",
        f"sync {first}",
        f"create {second}",
        f"write {second}",
        f"sync {second}",
        "sync_dir ",
        f"write {second}",
        f"sync {second}",
    ]


@pytest.mark.parametrize("kind", ["write", "sync", "create", "sync_dir"])
async def test_a_failed_job_is_told_once_and_the_journal_takes_nothing_more(machine: PoweredMachine, kind: str) -> None:
    journal = open_log(machine.view, settings=SMALL)
    told: list[Exception] = []
    journal.on_failure = told.append
    journal.on_synced = lambda: pytest.fail("nothing was synced")
    filled(journal, 10)
    machine.disk.fail(kind)
    journal.kick()
    await turns()
    assert [type(exc) for exc in told] == [OSError]
    assert (journal.durable_index, journal.synced_ticket) == (0, 0)
    with pytest.raises(JournalClosed):
        filled(journal, 1)
    ops = machine.disk.ops
    journal.kick()
    await turns()
    await journal.close()
    assert (machine.disk.ops, len(told)) == (ops, 1)


async def test_closing_writes_what_was_added_and_takes_nothing_more(machine: PoweredMachine) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane)
    added = filled(journal, 4)
    journal.kick()
    await lane.until_waiting()
    added += filled(journal, 4)
    closing = asyncio.get_running_loop().create_task(journal.close())
    await turns()
    with pytest.raises(JournalClosed):
        filled(journal, 1)
    await lane.let_go()
    await lane.let_go()
    await closing
    with pytest.raises(JournalClosed):
        filled(journal, 1)
    assert rows(open_log(machine.power_fail())) == added


async def test_who_closes_at_once_with_others_or_gives_up_meanwhile_lets_all_of_them_go_on(
    machine: PoweredMachine,
) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane)
    added = filled(journal, 4)
    journal.kick()
    await lane.until_waiting()
    added += filled(journal, 4)
    loop = asyncio.get_running_loop()
    first, gone, last = (loop.create_task(journal.close()) for _ in range(3))
    await turns()
    gone.cancel()
    await lane.let_go()
    assert not first.done()
    assert not last.done()
    await lane.let_go()
    async with asyncio.timeout(60):
        await first
        await last
    assert gone.cancelled()
    await journal.close()
    assert rows(open_log(machine.power_fail())) == added


# --- cuts -------------------------------------------------------------------------------------------------------------


async def test_a_cut_survives_the_reopening(machine: PoweredMachine) -> None:
    for settings in (Settings(), SMALL):
        machine = PoweredMachine()
        new_log(machine.view)
        journal = open_log(machine.view, settings=settings)
        model = filled(journal, 20)
        await synced(journal)
        for at, term in ((15, 2), (15, 3), (4, 4), (5, 5), (1, 6)):
            journal.add(NO_OP, at, term)
            model = [*model[: at - 1], (NO_OP, at, term), *filled(journal, 4, term)]
            if at != 5:
                model = model[: at + 4]
            assert rows(journal) == model
            await synced(journal)
            assert rows(open_log(machine.restart(), settings=settings)) == model
            journal = open_log(machine.power_fail(), settings=settings)
            assert rows(journal) == model


async def test_a_sync_that_began_before_a_cut_does_not_make_durable_what_came_after(machine: PoweredMachine) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane)
    filled(journal, 10)
    journal.kick()
    await lane.until_waiting()
    journal.add(NO_OP, 5, 2)
    filled(journal, 8, term=2)
    ticket = journal.ticket()
    await lane.let_go()
    assert journal.durable_index == 4
    assert journal.synced_ticket < ticket
    assert rows(open_log(machine.disk.attach(machine.view.process)))[4][2] == 1, "on disk is still the old entry 5"
    await lane.let_go()
    assert (journal.durable_index, journal.synced_ticket) == (13, ticket)


async def test_a_cut_lowers_what_is_durable_at_once(machine: PoweredMachine) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane)
    filled(journal, 10)
    journal.kick()
    await lane.let_go()
    assert journal.durable_index == 10
    seen: list[int] = []
    journal.on_cut = lambda _index: seen.append(journal.durable_index)
    journal.add(NO_OP, 5, 2)
    assert (seen, journal.durable_index) == ([4], 4)
    journal.add(NO_OP, 6, 2)
    journal.add(NO_OP, 6, 3)
    assert journal.durable_index == 4
    journal.kick()
    await lane.let_go()
    assert journal.durable_index == 6


async def test_until_a_cut_is_synced_a_loss_of_power_brings_back_what_was_durable(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    added = filled(journal, 10)
    await synced(journal)
    journal.add(NO_OP, 5, 2)
    assert rows(open_log(machine.power_fail())) == added


# --- compaction -------------------------------------------------------------------------------------------------------


async def test_compaction_drops_whole_files_and_keeps_the_entry_before(machine: PoweredMachine) -> None:
    for keep_from in range(1, 22):
        machine = PoweredMachine()
        new_log(machine.view)
        journal = open_log(machine.view, settings=SMALL)
        added = filled(journal, 20)
        await synced(journal)
        bases = [0, *(r.base.index for r in journal._runs._runs[1:])]
        before = log_files(machine.view)
        gone = journal.compact(keep_from)
        assert journal.first_index == max(b for b in bases if b < keep_from)
        assert gone == before[: len(gone)]
        await journal.close()
        assert log_files(machine.view) == before[len(gone) :]
        assert journal.size_bytes == sum(machine.view.size(path) for path in log_files(machine.view))
        for again in (False, True):
            opened = open_log(machine.power_fail(), applied_index=20, settings=SMALL) if again else journal
            first = opened.first_index
            assert list(opened) == [(NO_OP, first, added[first - 1][2] if first else 0), *added[first:]]
            assert opened.base_at(first) == Base(first, 1 if first else 0, first * 10, BASE.membership)


async def test_compaction_moves_the_beginning_at_once_and_removes_on_the_lane(machine: PoweredMachine) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane, settings=SMALL)
    filled(journal, 12)
    journal.kick()
    await lane.let_go()
    before, ops = log_files(machine.view), machine.disk.ops
    gone = journal.compact(9)
    assert len(gone) >= 2
    assert (journal.first_index > 0, machine.disk.ops, log_files(machine.view)) == (True, ops, before)
    with pytest.raises(IndexError):
        journal.entry(1)
    steps: list[str] = []
    machine.disk.on_op = lambda kind, path: steps.append(f"{kind} {path}")
    await lane.let_go()
    assert steps == [step for path in gone for step in (f"remove {path}", f"sync_dir {LOG}")]


async def test_nothing_is_dropped_in_favour_of_a_file_that_is_not_on_the_disk(machine: PoweredMachine) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane, settings=SMALL)
    filled(journal, 12)
    assert journal.compact(12) == []
    journal.kick()
    await lane.until_waiting()
    assert journal.compact(12) == []
    await lane.let_go()
    filled(journal, 12)
    files = log_files(machine.view)
    assert journal.compact(24) == files[:-1], "as far as there are files"
    assert journal.first_index < 12


async def test_a_log_cut_to_its_base_keeps_its_old_files_until_the_cut_is_durable(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    filled(journal, 5)
    await synced(journal)
    old = log_files(machine.view)
    journal.add(NO_OP, 1, 2)
    assert journal.compact(1) == []
    await synced(journal)
    assert journal.compact(1) == old


async def test_what_was_dropped_is_not_found_in_memory(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=Settings(segment_bytes=200))
    filled(journal, 12)
    await synced(journal)
    journal.compact(12)
    for index in range(journal.first_index):
        with pytest.raises(IndexError):
            journal.entry(index)


async def test_files_that_a_cut_left_empty_go_with_those_before_them(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=SMALL)
    filled(journal, 20)
    await synced(journal)
    journal.add(NO_OP, 2, 2)
    filled(journal, 10, term=2)
    assert journal.compact(11) == [], "the cut is not yet on the disk"
    await synced(journal)
    expected = rows(journal)
    journal.compact(11)
    await journal.close()
    assert rows(journal) == expected[journal.first_index :]
    assert journal.size_bytes == sum(machine.view.size(path) for path in log_files(machine.view))
    assert rows(open_log(machine.power_fail(), applied_index=11)) == rows(journal)


async def test_the_membership_in_force_outlives_the_entry_that_made_it(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=SMALL)
    journal.add(membership_entry(1, 5, "a", "b"), 1, 1)
    filled(journal, 20)
    await synced(journal)
    journal.compact(15)
    assert (journal.membership, journal.membership_index) == (membership("a", "b"), journal.first_index)
    await journal.close()
    again = open_log(machine.power_fail(), applied_index=15)
    assert again.membership == membership("a", "b")


async def test_a_failed_removal_is_a_failure(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=SMALL)
    told: list[Exception] = []
    journal.on_failure = told.append
    filled(journal, 12)
    await synced(journal)
    machine.disk.fail("remove")
    journal.compact(12)
    await turns()
    assert [type(exc) for exc in told] == [OSError]


# --- the real thing ---------------------------------------------------------------------------------------------------


async def test_on_the_real_disk_with_a_real_thread(tmp_path: Path) -> None:
    disk, lane, log = RealDisk(), ThreadLane("log"), f"{tmp_path}/log"
    ballot = Ballot.open(disk, str(tmp_path))
    Journal.create(disk, log, BASE)
    journal = Journal.open(disk, log, lane, SMALL, ballot, applied_index=0)
    done = asyncio.Event()
    journal.on_synced = done.set
    filled(journal, 50)
    while journal.synced_ticket < journal.ticket():
        done.clear()
        journal.kick()
        await done.wait()
    journal.add(NO_OP, 31, 2)
    filled(journal, 10, term=2)
    expected = rows(journal)
    journal.kick()
    journal.compact(20)
    await journal.close()
    again = Journal.open(disk, log, lane, SMALL, ballot, applied_index=20)
    assert 0 < again.first_index < 20
    assert rows(again) == expected[again.first_index :]
    await again.close()
    lane.close()


async def test_what_a_failed_sync_left_in_the_page_cache_is_written_anew_before_it_is_believed() -> None:
    for seed in range(40):
        machine = PoweredMachine(seed)
        new_log(machine.view)
        journal = open_log(machine.view)
        journal.add(item(1, 10, "a"), 1, 1)
        await synced(journal)
        machine.disk.fail("sync")
        failed: list[Exception] = []
        journal.on_failure = failed.append
        journal.add(item(1, 20, "b"), 2, 1)
        journal.kick()
        await turns()
        assert failed

        # The process ends by it; the next one finds the entry in the page cache, goes on from it, and loses the power.
        journal = open_log(machine.restart())
        assert journal.last_index == 2
        journal.add(item(1, 30, "c"), 3, 1)
        await synced(journal)
        journal.add(item(1, 40, "d"), 4, 1)
        await synced(journal)
        assert open_log(machine.power_fail()).last_index == 4
