"""The log of a node in memory: what is added and cut, what it knows, what it keeps. Files are in test_journal_disk.py."""

from __future__ import annotations

import struct

import pysyncobj.journal
import pysyncobj.syncobj
import pytest

from quvatlh.raft import entries
from quvatlh.raft.ballot import Ballot
from quvatlh.raft.journal import JournalBug, LogCorrupt, Rows
from quvatlh.raft.segment import RECORD_BYTES, Base, pack_header
from quvatlh.raft.settings import Settings
from tests.raft.parts import (
    BASE,
    HOME,
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
)


@pytest.fixture
def machine() -> PoweredMachine:
    machine = PoweredMachine()
    new_log(machine.view)
    return machine


# --- a list of entries ------------------------------------------------------------------------------------------------


def test_a_new_log_holds_its_base_as_a_no_op(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    assert list(journal) == [(NO_OP, 0, 0)]
    assert (journal.first_index, journal.last_index, journal.last_term, journal.last_time_ms) == (0, 0, 0, 0)
    assert pysyncobj.syncobj._bchr(pysyncobj.syncobj._COMMAND_TYPE.NO_OP) == NO_OP


def test_a_log_may_go_on_from_anywhere() -> None:
    machine = PoweredMachine()
    base = Base(100, 7, 5000, membership("a", "b"))
    new_log(machine.view, base)
    journal = open_log(machine.view, applied_index=100)
    assert list(journal) == [(NO_OP, 100, 7)]
    assert journal.base_at(100) == base
    journal.add(NO_OP, 101, 7)
    assert (journal.last_index, journal.last_time_ms, journal.membership) == (101, 5000, base.membership)


async def test_it_is_a_sequence_like_pysyncobj_s_own(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=SMALL)
    model = [(NO_OP, 0, 0), *filled(journal, 20)]
    await synced(journal)
    assert len(journal) == 21
    assert [journal[n] for n in range(-21, 21)] == [model[n] for n in range(-21, 21)]
    for start in (None, 0, 3, -3, 25):
        for stop in (None, 0, 5, -2, 25):
            part = journal[start:stop]
            assert isinstance(part, Rows)
            assert (len(part), list(part)) == (len(model[start:stop]), model[start:stop])
    tail = journal[5:]
    assert (tail[0], tail[-1], list(tail[2:4])) == (model[5], model[-1], model[7:9])
    for wrong in (21, -22):
        with pytest.raises(IndexError):
            journal[wrong]
    with pytest.raises(IndexError):
        tail[16]
    with pytest.raises(ValueError, match="in order"):
        journal[::2]


async def test_a_slice_reads_nothing_before_it_is_walked(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=SMALL)
    filled(journal, 20)
    await synced(journal)
    machine.disk.fail("read", times=1)
    part = journal[1:]
    assert len(part) == 20
    with pytest.raises(OSError, match="Input/output"):
        part[0]


@pytest.mark.parametrize("index", [-1, 4])
def test_what_is_not_in_the_log_is_an_index_error(machine: PoweredMachine, index: int) -> None:
    journal = open_log(machine.view)
    filled(journal, 3)
    for ask in (journal.entry, journal.term_at, journal.base_at):
        with pytest.raises(IndexError, match="not in the log"):
            ask(index)


def test_every_method_of_pysyncobj_s_journal_is_there(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    names = [n for n in vars(pysyncobj.journal.Journal) if not n.startswith("__") or n in ("__len__", "__getitem__")]
    assert len(names) >= 13
    assert [n for n in names if not callable(getattr(journal, n, None))] == []


def test_the_engine_may_not_clear_or_shorten_it(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    added = filled(journal, 3)
    journal.deleteEntriesFrom(1)
    journal.onOneSecondTimer()
    journal._destroy()
    for forbidden in (journal.clear, lambda: journal.deleteEntriesTo(2)):
        with pytest.raises(JournalBug):
            forbidden()
    assert rows(journal) == added


def test_term_and_vote_are_the_ballot_s(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    journal.setCurrentTerm(3, "b")
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (3, "b")
    ballot = Ballot.open(machine.power_fail(), HOME)
    assert (ballot.term, ballot.voted_for) == (3, "b")


def test_a_vote_of_a_term_before_the_log_s_is_none(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    journal.setCurrentTerm(3, "b")
    journal.add(NO_OP, 1, 3)
    assert journal.getVotedForNodeId() == "b"
    journal.add(NO_OP, 2, 4)
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (3, None)


async def test_the_commit_index_begins_where_the_state_is(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    filled(journal, 5)
    await synced(journal)
    journal = open_log(machine.power_fail(), applied_index=4)
    assert (journal.getRaftCommitIndex(), journal.guard_index) == (4, 4)
    journal.setRaftCommitIndex(5)
    assert journal.getRaftCommitIndex() == 5


# --- add --------------------------------------------------------------------------------------------------------------


async def test_adding_what_is_there_changes_nothing(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    added = filled(journal, 5)
    await synced(journal)
    told: list[object] = []
    journal.on_append = lambda index, command: told.append((index, command))
    journal.on_cut = told.append
    before, ops = journal.size_bytes, machine.disk.ops
    for entry in [*added, (NO_OP, 0, 0)]:
        journal.add(*entry)
    await synced(journal)
    assert (rows(journal), told, journal.size_bytes, machine.disk.ops) == (added, [], before, ops)
    assert journal.ticket() == journal.synced_ticket


def test_a_contradiction_cuts_there_and_then_adds(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    added = filled(journal, 5)
    told: list[object] = []
    journal.on_cut = lambda index: told.append((index, rows(journal)))
    journal.on_append = lambda index, command: told.append((index, command, journal.last_index))
    journal.add(NO_OP, 3, 2)
    assert told == [(3, added[:2]), (3, NO_OP, 3)]
    assert rows(journal) == [*added[:2], (NO_OP, 3, 2)]
    assert (journal.last_term, journal.last_time_ms) == (2, 20)


@pytest.mark.parametrize(("idx", "term"), [(5, 1), (7, 9), (-1, 0)])
def test_a_gap_is_a_bug(machine: PoweredMachine, idx: int, term: int) -> None:
    journal = open_log(machine.view)
    added = filled(journal, 3)
    with pytest.raises(JournalBug, match=f"entry {idx} was added to a log of 0 to 3"):
        journal.add(NO_OP, idx, term)
    assert rows(journal) == added


@pytest.mark.parametrize("idx", [1, 2, 3])
def test_a_cut_at_or_below_the_guard_is_a_bug(machine: PoweredMachine, idx: int) -> None:
    journal = open_log(machine.view)
    added = filled(journal, 5)
    journal.guard_index = 3
    with pytest.raises(JournalBug, match=f"entry {idx} of term 2 contradicts"):
        journal.add(NO_OP, idx, 2)
    assert rows(journal) == added
    journal.add(NO_OP, 4, 2)
    assert rows(journal) == [*added[:3], (NO_OP, 4, 2)]


def test_the_base_is_never_cut(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    with pytest.raises(JournalBug, match="contradicts"):
        journal.add(NO_OP, 0, 1)


@pytest.mark.parametrize("idx", [2, 4])
def test_terms_never_fall(machine: PoweredMachine, idx: int) -> None:
    journal = open_log(machine.view)
    added = filled(journal, 3, term=5)
    with pytest.raises(JournalBug, match=f"entry {idx} of term 4 was to follow one of term 5"):
        journal.add(NO_OP, idx, 4)
    assert rows(journal) == added


@pytest.mark.parametrize("command", [b"", b"\x10short", struct.pack("<BQQ", entries.MEMBERSHIP, 1, 0) + b"\xff"])
def test_bytes_that_are_no_entry_change_nothing(machine: PoweredMachine, command: bytes) -> None:
    journal = open_log(machine.view)
    added = filled(journal, 3, term=0)
    size = journal.size_bytes
    for idx in (2, 4):
        with pytest.raises(entries.BadEntry):
            journal.add(command, idx, 1)
    assert (rows(journal), journal.size_bytes) == (added, size)


# --- what the log knows -----------------------------------------------------------------------------------------------


async def test_time_membership_and_base_are_known_at_every_index(machine: PoweredMachine) -> None:
    log = [
        (item(1, 100), 1, 1),
        (membership_entry(1, 200, "a", "b"), 2, 1),
        (NO_OP, 3, 2),
        (membership_entry(1, 999, "x"), 4, 2),  # of another term: void
        (item(1, 999), 5, 2),
        (item(2, 300), 6, 2),
        (membership_entry(2, 400, "a"), 7, 2),
    ]
    a, ab = membership("a"), membership("a", "b")
    expected = [
        Base(0, 0, 0, a),
        Base(1, 1, 100, a),
        Base(2, 1, 200, ab),
        Base(3, 2, 200, ab),
        Base(4, 2, 200, ab),
        Base(5, 2, 200, ab),
        Base(6, 2, 300, ab),
        Base(7, 2, 400, a),
    ]
    for settings in (Settings(), SMALL):
        machine = PoweredMachine()
        new_log(machine.view)
        journal = open_log(machine.view, settings=settings)
        for entry in log:
            journal.add(*entry)
            assert journal.base_at(entry[1]) == expected[entry[1]]
            assert (journal.last_time_ms, journal.membership) == (
                expected[entry[1]].time_ms,
                expected[entry[1]].membership,
            )
        await synced(journal)
        for again in (False, True):
            opened = open_log(machine.power_fail(), settings=settings) if again else journal
            assert [opened.base_at(index) for index in range(8)] == expected
            assert (opened.last_time_ms, opened.membership, opened.membership_index) == (400, a, 7)
            assert [opened.term_at(index) for index in range(8)] == [base.term for base in expected]


async def test_a_cut_takes_back_time_and_membership(machine: PoweredMachine) -> None:
    journal = open_log(machine.view)
    journal.add(item(1, 100), 1, 1)
    journal.add(membership_entry(1, 200, "a", "b"), 2, 1)
    assert (journal.membership, journal.membership_index) == (membership("a", "b"), 2)
    seen: list[bytes] = []
    journal.on_cut = lambda _index: seen.append(journal.membership)
    journal.add(NO_OP, 2, 2)
    assert seen == [membership("a")]
    await synced(journal)
    for again in (False, True):
        opened = open_log(machine.power_fail()) if again else journal
        assert (opened.last_time_ms, opened.membership, opened.membership_index) == (100, membership("a"), 0)


async def test_bytes_are_those_in_the_files(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=SMALL)
    added = filled(journal, 20)
    await synced(journal)
    assert len(log_files(machine.view)) > 3
    assert journal.size_bytes == sum(machine.view.size(path) for path in log_files(machine.view))
    sizes = [RECORD_BYTES + len(command) for command, _, _ in added]
    for first in range(1, 21):
        for last in range(first - 1, 21):
            assert journal.range_bytes(first, last) == sum(sizes[first - 1 : last])
    assert journal.appended_bytes == journal.range_bytes(1, 20)
    journal.add(NO_OP, 11, 2)
    await synced(journal)
    assert journal.size_bytes == sum(machine.view.size(path) for path in log_files(machine.view))
    assert open_log(machine.restart()).size_bytes == journal.size_bytes


# --- memory -----------------------------------------------------------------------------------------------------------


async def test_memory_is_bounded_by_the_setting_once_entries_are_durable(machine: PoweredMachine) -> None:
    settings = Settings(cache_bytes=20_000)
    journal = open_log(machine.view, settings=settings)
    added = filled(journal, 1000)
    assert len(journal._cache) == 1000, "what is not durable cannot be read anywhere else"
    await synced(journal)
    assert journal._cache.held_bytes <= 20_000
    assert 50 < len(journal._cache) < 200
    more = filled(journal, 1)
    assert journal._cache.held_bytes <= 20_000, "the bound holds between syncs too"
    assert rows(journal) == added + more


async def test_the_newest_entry_stays_in_memory_however_large(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=SMALL)
    journal.add(item(1, 1, "x" * 5000), 1, 1)
    await synced(journal)
    machine.disk.fail("read", times=1)
    assert journal[-1][1] == 1


async def test_the_index_takes_16_bytes_an_entry(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=Settings(cache_bytes=0))
    filled(journal, 1000)
    await synced(journal)
    run = journal._runs.last
    assert len(run.terms) == 1000
    assert len(run.offsets) * run.offsets.itemsize + len(run.terms) * run.terms.itemsize == 16 * 1000 + 8
    assert len(journal._cache) == 1
    journal.add(NO_OP, 11, 2)
    assert [len(run.terms) for run in journal._runs._runs] == [10, 1]


async def test_old_entries_are_read_a_block_at_a_time(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=Settings(cache_bytes=0, append_bytes_max=10_000))
    added = filled(journal, 500)
    await synced(journal)
    reads: list[int] = []
    read = machine.view.read

    def counted(path: str, offset: int = 0, size: int = -1) -> bytes:
        reads.append(size)
        return read(path, offset, size)

    machine.view.read = counted  # type: ignore[method-assign]
    assert rows(journal) == added
    assert len(reads) <= journal.size_bytes // 10_000 + 2
    assert max(reads) <= 10_000


async def test_what_another_thread_may_be_writing_is_not_read(machine: PoweredMachine) -> None:
    lane = HeldLane()
    journal = open_log(machine.view, lane, settings=Settings(cache_bytes=0))
    filled(journal, 5)
    journal.kick()
    await lane.let_go()
    filled(journal, 5)
    reads: list[int] = []
    read = machine.view.read

    def noted(path: str, offset: int = 0, size: int = -1) -> bytes:
        reads.append(offset + size)
        return read(path, offset, size)

    machine.view.read = noted  # type: ignore[method-assign]
    journal.entry(2)
    assert reads == [journal._runs.last.offset_of(6)]


async def test_damage_that_comes_later_is_found_when_the_entry_is_read(machine: PoweredMachine) -> None:
    journal = open_log(machine.view, settings=SMALL)
    filled(journal, 20)
    await synced(journal)
    path = log_files(machine.view)[0]
    offset = len(pack_header(BASE))
    machine.disk.flip_bit(path, offset + 40)
    with pytest.raises(LogCorrupt, match=rf"{path}, offset {offset}: entry 1 does not read as it was written"):
        journal.entry(1)
