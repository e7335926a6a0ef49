"""The log of a node and what befalls its disk: lost power at every step, torn ends, changed bytes, lost files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import pytest

from quvatlh.raft.journal import Journal, LogCorrupt
from quvatlh.raft.segment import Base, pack_header, pack_record
from quvatlh.raft.settings import Settings
from tests.raft.parts import (
    BASE,
    LOG,
    SMALL,
    PoweredMachine,
    item,
    log_files,
    membership,
    new_log,
    open_log,
    rows,
    synced,
    turns,
)
from tests.sim.process import Crashed

Row = tuple[bytes, int, int]


def row(index: int, term: int = 1) -> Row:
    return (item(term, index * 10, f"e{index}"), index, term)


async def written(machine: PoweredMachine, groups: list[int], settings: Settings | None = None) -> Journal:
    """Entries 1, 2, ...: those of a group share a sync."""
    new_log(machine.view)
    journal = open_log(machine.view, settings=settings or Settings())
    for count in groups:
        for _ in range(count):
            journal.add(*row(journal.last_index + 1))
        await synced(journal)
    return journal


def put(machine: PoweredMachine, path: str, data: bytes) -> None:
    """A file as it is found, durable."""
    machine.view.remove(path)
    file = machine.view.create(path)
    file.write(data)
    file.sync()
    machine.view.sync_dir(LOG)


def opening_is_refused(machine: PoweredMachine, file: str, offset: int, applied_index: int = 0) -> str:
    """The words of the refusal, which names file and offset, says what to do, and has changed nothing."""
    before = {path: machine.view.read(path) for path in log_files(machine.view)}
    with pytest.raises(LogCorrupt) as caught:
        open_log(machine.view, applied_index=applied_index)
    words = str(caught.value)
    assert words.startswith(f"{file}, offset {offset}: ")
    assert "`quvatlh cluster remove ID`" in words
    assert "`quvatlh cluster add ID HOST:PORT`" in words
    assert (caught.value.file, caught.value.offset) == (file, offset)
    assert {path: machine.view.read(path) for path in log_files(machine.view)} == before
    return words


# --- torn ends and changed bytes --------------------------------------------------------------------------------------


async def test_the_last_file_torn_anywhere_is_cut_there_or_refused_where_the_state_needs_more() -> None:
    machine = PoweredMachine()
    journal = await written(machine, [1] * 8, SMALL)
    path = log_files(machine.view)[-1]
    data = machine.view.read(path)
    run = journal._runs.last
    ends = [run.offset_of(index + 1) for index in range(run.base.index, journal.last_index + 1)]
    assert len(ends) >= 3
    for size in range(len(data)):
        whole = run.base.index + max(0, sum(end <= size for end in ends) - 1)
        sound = max((end for end in ends if end <= size), default=0)
        put(machine, path, data[:size])
        if whole < 8:
            opening_is_refused(machine, path, sound, applied_index=whole + 1)
        again = open_log(machine.view, applied_index=whole, settings=SMALL)
        assert rows(again) == [row(index) for index in range(1, whole + 1)]
        torn = size != sound or not sound
        words = [f"{path}: {size - sound} bytes of a torn write cut at offset {sound}"] if torn else []
        assert again.recovered == words
        assert (machine.view.size(path) if sound else machine.view.exists(path)) == sound
        again.add(*row(whole + 1))
        await synced(again)
        assert rows(open_log(machine.power_fail())) == [row(index) for index in range(1, whole + 2)]
        for file in log_files(machine.view)[1:]:
            if file >= path:
                machine.view.remove(file)


async def test_a_changed_byte_anywhere_before_the_last_sync_is_refused_by_file_and_offset() -> None:
    machine = PoweredMachine()
    journal = await written(machine, [1] * 8, SMALL)
    files = log_files(machine.view)
    assert len(files) == 3
    for run, path in zip(journal._runs._runs, files, strict=True):
        data = machine.view.read(path)
        starts = [0, *run.offsets]
        last = run is journal._runs.last
        for offset in range(starts[-2] if last else len(data)):
            put(machine, path, data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
            opening_is_refused(machine, path, max(start for start in starts if start <= offset))
        put(machine, path, data)
    assert rows(open_log(machine.view)) == [row(index) for index in range(1, 9)]


async def test_a_changed_byte_in_what_was_never_synced_is_a_torn_end() -> None:
    machine = PoweredMachine()
    journal = await written(machine, [2, 3])
    path = log_files(machine.view)[0]
    data = machine.view.read(path)
    third, fourth = journal._runs.last.offset_of(3), journal._runs.last.offset_of(4)
    for offset in range(third, len(data)):
        put(machine, path, data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
        again = open_log(machine.view, applied_index=2)
        assert again.last_index == (2 if offset < fourth else 3 if offset < journal._runs.last.offset_of(5) else 4)
        assert len(again.recovered) == 1


async def test_a_short_file_that_is_not_the_last_is_refused() -> None:
    machine = PoweredMachine()
    journal = await written(machine, [1] * 8, SMALL)
    path = log_files(machine.view)[1]
    data = machine.view.read(path)
    starts = [0, *journal._runs._runs[1].offsets]
    for size in range(len(data)):
        put(machine, path, data[:size])
        sound = max(start for start in starts if start <= size)
        if size in starts[1:]:
            # Whole records: what follows is what is missing.
            opening_is_refused(machine, log_files(machine.view)[2], 0)
        else:
            opening_is_refused(machine, path, sound)


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_missing_file_is_refused(number: int) -> None:
    machine = PoweredMachine()
    await written(machine, [1] * 8, SMALL)
    files = log_files(machine.view)
    machine.view.remove(files[number])
    if number == 0:
        assert "the log begins after entry" in opening_is_refused(machine, files[1], 0)
    elif number == 1:
        assert "the file is missing" in opening_is_refused(machine, files[1], 0)
    else:
        size = machine.view.size(files[1])
        assert "the log ends with entry" in opening_is_refused(machine, files[1], size, applied_index=8)


def test_an_empty_directory_is_refused() -> None:
    machine = PoweredMachine()
    machine.view.mkdir(LOG)
    assert "there is no log file" in opening_is_refused(machine, LOG, 0)


def test_the_only_file_must_have_a_head() -> None:
    machine = PoweredMachine()
    new_log(machine.view)
    path = log_files(machine.view)[0]
    for size in range(len(pack_header(BASE))):
        put(machine, path, pack_header(BASE)[:size])
        opening_is_refused(machine, path, 0)


@pytest.mark.parametrize("applied_index", [0, 9])
def test_a_log_that_begins_after_the_state_is_refused(applied_index: int) -> None:
    machine = PoweredMachine()
    new_log(machine.view, Base(10, 2, 5, membership("a")))
    words = opening_is_refused(machine, f"{LOG}/0000000001.log", 0, applied_index=applied_index)
    assert f"the log begins after entry 10, but the state has applied only entry {applied_index}" in words
    assert open_log(machine.view, applied_index=10).first_index == 10


async def test_a_file_that_goes_on_from_another_term_is_refused() -> None:
    machine = PoweredMachine()
    await written(machine, [3])
    put(machine, f"{LOG}/0000000002.log", pack_header(Base(3, 2, 30, BASE.membership)))
    words = opening_is_refused(machine, f"{LOG}/0000000002.log", 0)
    assert "it goes on after entry 3 of term 2, which has term 1" in words


async def test_other_names_in_the_directory_are_left_alone() -> None:
    machine = PoweredMachine()
    await written(machine, [3])
    machine.view.create(f"{LOG}/notes.txt").close()
    assert open_log(machine.view).last_index == 3
    assert machine.view.exists(f"{LOG}/notes.txt")


async def test_what_was_only_in_the_page_cache_is_synced_before_it_is_trusted() -> None:
    for seed in range(20):
        machine = PoweredMachine(seed)
        await written(machine, [2])
        file = machine.view.append(log_files(machine.view)[0])
        for index in (3, 4):
            command = row(index)[0]
            file.write(pack_record(index, 1, 2, command) + command)
        journal = open_log(machine.restart())
        assert journal.durable_index == 4
        assert rows(open_log(machine.power_fail(), applied_index=4)) == [row(index) for index in range(1, 5)]


def test_a_log_that_was_made_is_there_after_a_loss_of_power() -> None:
    for seed in range(20):
        machine = PoweredMachine(seed)
        new_log(machine.view)
        assert open_log(machine.power_fail()).last_index == 0


async def test_the_name_of_a_file_is_made_durable_before_the_file_is_trusted() -> None:
    """The process dies between making a file and syncing the directory; the power goes after the next one went on."""
    for seed in range(20):
        machine = PoweredMachine(seed)
        journal = await written(machine, [6], SMALL)
        dies_before(machine, "sync_dir")
        journal.add(*row(7))
        with pytest.raises(Crashed):
            journal.kick()
        machine.disk.on_op = None
        assert len(log_files(machine.restart())) == 3
        journal = open_log(machine.view, settings=SMALL)
        journal.add(*row(7))
        await synced(journal)
        assert rows(open_log(machine.power_fail())) == [row(index) for index in range(1, 8)]


def dies_before(machine: PoweredMachine, operation: str) -> None:
    def asked(kind: str, _path: str) -> None:
        if kind == operation:
            machine.view.crash()

    machine.disk.on_op = asked


# --- lost power, at every step ----------------------------------------------------------------------------------------


@dataclass
class Story:
    """A log and what is known of it: `log` as it was last, `durable` as told, `ever` what stood at an index at all."""

    machine: PoweredMachine
    journal: Journal
    log: list[Row] = field(default_factory=list)
    durable: list[Row] = field(default_factory=list)
    ever: set[Row] = field(default_factory=set)
    cut_at: int = 0
    """While a cut is not durable, the old entries from here on may come back."""
    applied_index: int = 0

    def add(self, index: int, term: int) -> None:
        entry = row(index, term)
        if index <= len(self.log) and self.log[index - 1][2] != term:
            self.durable = self.durable[: index - 1]
        self.journal.add(*entry)
        self.log = [*self.log[: index - 1], entry]
        self.ever.add(entry)

    async def sync(self) -> None:
        await synced(self.journal)
        self.durable = list(self.log)

    def compact(self, keep_from: int) -> None:
        self.applied_index = max(self.applied_index, keep_from)
        self.journal.compact(keep_from)

    def found_after(self) -> Journal:
        """What lost power leaves: all that is durable, and behind it nothing that was never there."""
        again = open_log(self.machine.power_fail(), applied_index=self.applied_index, settings=SMALL)
        found = {entry[1]: entry for entry in rows(again)}
        kept = [entry for entry in self.durable if entry[1] > again.first_index]
        assert [found.get(entry[1]) for entry in kept] == kept
        assert again.last_index >= len(self.durable)
        assert set(found.values()) <= self.ever
        assert [entry[1] for entry in rows(again)] == list(range(again.first_index + 1, again.last_index + 1))
        assert again.term_at(again.first_index) in {t for _, i, t in self.ever if i == again.first_index} | {0}
        return again


async def growing(story: Story) -> None:
    for index in range(1, 13):
        story.add(index, 1)
        if index % 2 == 0:
            await story.sync()


async def cutting(story: Story) -> None:
    await growing(story)
    for at, term, count in ((11, 2, 3), (6, 3, 6), (6, 4, 1)):
        for index in range(at, at + count):
            story.add(index, term)
        await story.sync()


async def compacting(story: Story) -> None:
    await cutting(story)
    story.compact(4)
    await story.sync()
    for index in range(7, 20):
        story.add(index, 5)
    await story.sync()
    story.compact(10)
    story.add(20, 5)
    await story.sync()
    story.compact(20)
    await story.journal.close()


@pytest.mark.parametrize("tell", [growing, cutting, compacting])
def test_power_lost_at_any_step_leaves_a_log_with_all_that_was_durable(
    tell: Callable[[Story], Coroutine[None, None, None]],
) -> None:
    for seed in range(8):
        step = 0
        crashed = True
        while crashed:
            step += 1
            machine = PoweredMachine(seed)
            new_log(machine.view)
            story = Story(machine, open_log(machine.view, settings=SMALL))
            machine.disk.crash_at_op(step)
            crashed = asyncio.run(crashes(tell, story))
            machine.disk.crash_at_op(0)
            asyncio.run(goes_on(story, story.found_after()))
        assert step > 15


async def crashes(tell: Callable[[Story], Coroutine[None, None, None]], story: Story) -> bool:
    """Crashed is no Exception: it goes up through the loop, out of whichever task was at the disk."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    process = story.machine.view.process
    telling = loop.create_task(tell(story))
    try:
        while not telling.done() and process.alive:
            await turns(1)
    finally:
        telling.cancel()
    return not process.alive


async def goes_on(story: Story, again: Journal) -> None:
    """The log that was found is a log: it grows and is found again."""
    term = again.last_term + 1
    again.add(*row(again.last_index + 1, term))
    await synced(again)
    expected = rows(again)
    assert rows(open_log(story.machine.power_fail(), applied_index=story.applied_index)) == expected
