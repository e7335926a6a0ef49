"""A snapshot as one file, and a node made of it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from quvatlh.ports import STATE_FILE, Member, Refused, Unavailable
from quvatlh.raft import backup, entries
from quvatlh.raft.backup import BackupDamaged, NotEmpty
from quvatlh.raft.datadir import DataDir
from quvatlh.raft.journal import Journal
from quvatlh.raft.segment import Base
from quvatlh.raft.settings import Settings
from quvatlh.raft.snapshot import Source
from tests.raft.nodes import SOON_S, Town, held, log_of, play
from tests.raft.parts import InlineLane, PoweredMachine, membership
from tests.sim.clock import SimEntropy
from tests.sim.disk import DiskView

SETTINGS = Settings(snapshot_chunk_bytes=100)
BASE = Base(77, 3, 5000, membership("a", "b", "c"))
STATE = random.Random(0).randbytes(1000)
OWN = Member("own", "me", "me:1")
FILE = "/out/backup"


@pytest.fixture
def machine() -> PoweredMachine:
    made = PoweredMachine()
    made.view.mkdir("/out")
    made.view.sync_dir("/")
    return made


def written(disk: DiskView, state: bytes = STATE) -> None:
    file = disk.create("/copy")
    file.write(state)
    backup.write(Source("/copy", BASE), FILE, disk, SETTINGS)


def directory(disk: DiskView) -> DataDir:
    return DataDir.open(disk, "/data", SimEntropy(1), "machine", lock=False)


def restored(disk: DiskView, data: DataDir) -> int:
    return backup.restore(FILE, data, OWN, disk, SETTINGS)


@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_what_was_written_is_restored_into_a_cluster_of_its_own(machine: PoweredMachine, size: int) -> None:
    disk = machine.view
    written(disk, STATE[:size])
    assert restored(disk, directory(disk)) == BASE.index
    disk = machine.power_fail()
    data = directory(disk)
    path = data.generation_path()
    assert disk.read(f"{path}/{STATE_FILE}") == STATE[:size]
    journal = Journal.open(disk, f"{path}/log", InlineLane(), SETTINGS, data.ballot, applied_index=BASE.index)
    assert journal.base_at(77) == Base(77, 3, 5000, journal.membership)
    members = entries.unpack_membership(journal.membership)
    assert members.voters == (OWN,)
    assert members.cluster != "c1"


def test_a_backup_outlives_the_power_as_soon_as_it_is_written(machine: PoweredMachine) -> None:
    written(machine.view)
    disk = machine.power_fail()
    assert disk.listdir("/out") == ["backup"]
    assert restored(disk, directory(disk)) == BASE.index


def test_a_crash_while_it_is_written_leaves_no_file_of_its_name_or_a_whole_one() -> None:
    from tests.sim.process import Crashed

    finished = False
    step = 0
    while not finished:
        step += 1
        made = PoweredMachine(step)
        made.view.mkdir("/out")
        made.view.sync_dir("/")
        made.disk.crash_at_op(step)
        try:
            written(made.view)
            finished = True
        except Crashed:
            pass
        made.disk.crash_at_op(0)
        disk = made.power_fail()
        if disk.exists(FILE):
            assert restored(disk, directory(disk)) == BASE.index
    assert step > 10


@pytest.mark.parametrize("cut", [1, 32, 33, 500, 1000, 1031])
def test_a_backup_that_ends_early_is_refused(machine: PoweredMachine, cut: int) -> None:
    disk = machine.view
    written(disk)
    disk.truncate(FILE, max(0, disk.size(FILE) - cut))
    refused(disk)


@pytest.mark.parametrize("size", [0, 1, 8, 11, 12, 13, 20])
def test_the_beginning_of_a_backup_is_refused(machine: PoweredMachine, size: int) -> None:
    disk = machine.view
    written(disk)
    disk.truncate(FILE, size)
    refused(disk)


def test_a_backup_with_something_behind_it_is_refused(machine: PoweredMachine) -> None:
    disk = machine.view
    written(disk)
    disk.append(FILE).write(b"x")
    refused(disk)


def test_a_flipped_bit_anywhere_is_refused(machine: PoweredMachine) -> None:
    disk = machine.view
    written(disk)
    node = machine.disk.file(FILE)
    for offset in range(len(node.data)):
        bit = 1 << offset % 8
        node.data[offset] ^= bit
        refused(disk)
        node.data[offset] ^= bit
    assert restored(disk, directory(disk)) == BASE.index


@pytest.mark.parametrize("content", [b"", b"not a backup", b"QVATLHBK", bytes(5000), b"\x80\x05\x95" + bytes(100)])
def test_another_file_is_refused(machine: PoweredMachine, content: bytes) -> None:
    disk = machine.view
    disk.create(FILE).write(content)
    refused(disk)


def refused(disk: DiskView) -> None:
    """And the data directory is as it was: empty, and good for another try."""
    data = directory(disk)
    with pytest.raises(BackupDamaged, match=FILE):
        restored(disk, data)
    assert data.is_empty
    assert directory(disk).is_empty


def test_a_directory_that_holds_a_log_is_not_restored_into(machine: PoweredMachine) -> None:
    disk = machine.view
    written(disk)
    data = directory(disk)
    restored(disk, data)
    before = data.generation_path()
    for again in (data, directory(disk)):
        with pytest.raises(NotEmpty, match="holds a log already"):
            restored(disk, again)
        assert again.generation_path() == before


@pytest.mark.parametrize("kind", ["write", "sync", "rename"])
def test_a_disk_that_fails_leaves_no_file_of_the_name(machine: PoweredMachine, kind: str) -> None:
    disk = machine.view
    machine.disk.fail(kind, within="backup")
    with pytest.raises(OSError, match="Input/output error"):
        written(disk)
    assert disk.listdir("/out") == []


# --- of a node --------------------------------------------------------------------------------------------------------


def test_a_node_of_a_cluster_writes_one_while_it_works_and_a_new_cluster_is_made_of_it() -> None:
    async def story(town: Town) -> None:
        *founders, other = town.boxes
        master = await town.founded(*founders)
        await town.write(master, "x")
        before = log_of(master).applied_index
        index = await town.at(master, lambda log: log.backup("/data/b"))
        assert index >= before
        await town.write(master, "later")
        with pytest.raises(Refused, match="exists already"):
            await town.at(master, lambda log: log.backup("/data/b"))

        carry(master, other, "/data/b", "/backup")
        assert make_of_backup(town, other) == index
        other.peers = ()
        other.start()
        await town.until(lambda: other.log is not None and other.log.acts())
        assert held(other) == ["x"]
        membership: Any = log_of(other).membership
        assert [m.id for m in membership.voters] == [log_of(other).node_id]
        assert membership.cluster != log_of(master).membership.cluster  # type: ignore[union-attr]
        await town.write(other, "of its own", SOON_S)

    play(story, nodes=3, spares=1)


def left_over(box: Any) -> list[str]:
    """What a copy or a backup may leave."""
    names = box.disk.attach(idle(box)).listdir("/data")
    return [name for name in names if name.startswith(("copy-", "b")) and name != "ballot"]


def test_where_a_copy_has_no_room_it_is_not_begun_and_the_node_goes_on() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        master.room = -1
        with pytest.raises(Unavailable, match="beyond its reserve: make room on it") as caught:
            await town.at(master, lambda log: log.backup("/data/b"))
        assert caught.value.code == "disk_full"
        assert "copy" not in " ".join(path for path in left_over(master))
        await town.write(master, "x")

    play(story, nodes=1)


@pytest.mark.parametrize("within", ["copy-", "b.partial"])
def test_a_copy_that_fails_is_answered_leaves_nothing_and_the_node_goes_on(within: str) -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        master.disk.fail("write", within=within)
        with pytest.raises(Unavailable, match="could not be written here"):
            await town.at(master, lambda log: log.backup("/data/b"))
        assert left_over(master) == []
        await town.write(master, "x")
        assert await town.at(master, lambda log: log.backup("/data/b")) > 0

    play(story, nodes=1)


def test_a_backup_that_nobody_waits_for_any_more_leaves_nothing() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        begun = False
        for turns in range(40):
            asked = master.serve(log_of(master).backup("/data/b"))
            for _ in range(turns):
                await asyncio.sleep(0.0001)
            if asked.done():
                break
            begun = begun or bool(left_over(master))
            asked.cancel()
            await town.until(lambda: left_over(master) == [])
        assert begun
        await town.write(master, "x")

    play(story, nodes=1)


def carry(source: Any, target: Any, path: str, to: str) -> None:
    """On a stick."""
    data = bytes(source.disk.file(path).data)
    view = target.disk.attach(idle(target))
    view.create(to).write(data)


def idle(box: Any) -> Any:
    return box._loop.process(f"{box.name}-tool")


def make_of_backup(town: Town, box: Any) -> int:
    disk = box.disk.attach(idle(box))
    data = DataDir.open(disk, "/data", SimEntropy(5), box.name, lock=False)
    own = Member(data.node_id, box.name, box.address)
    return backup.restore("/backup", data, own, disk, town.settings)
