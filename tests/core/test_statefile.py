from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from quvatlh.core import statefile
from quvatlh.core.machine import Machine
from quvatlh.core.statefile import StateCorrupt, StateFile, StateTooNew
from tests.core.entries import entry
from tests.support.register import RegisterMachine, write


@contextlib.contextmanager
def opened(path: Path) -> Iterator[RegisterMachine]:
    machine = RegisterMachine(str(path))
    try:
        yield machine
    finally:
        machine.close()


def put(machine: RegisterMachine, index: int, value: object, register: str = "r") -> None:
    machine.begin()
    machine.apply(entry(index, write(register, value)))
    machine.commit()


def copied_from_outside(path: Path, to: Path) -> None:
    """By another process: closing the file in this one would drop SQLite's locks."""
    subprocess.run(["cp", str(path), str(to)], check=True)


def test_the_file_is_set_up_as_the_contract_says(tmp_path: Path) -> None:
    file = StateFile(str(tmp_path / "state"))
    pragmas = {name: file.db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert pragmas == {"journal_mode": "wal", "synchronous": 1}
    assert file.db.execute("PRAGMA wal_autocheckpoint").fetchone()[0] == 0
    file.close()


def test_a_checkpoint_says_the_index_that_is_in_the_file_without_its_write_ahead_part(tmp_path: Path) -> None:
    """The worst power failure: all that was not synced is gone, so here the whole write-ahead file."""
    with opened(tmp_path / "state") as machine:
        for index in range(1, 51):
            put(machine, index, index)
        assert machine.checkpoint() == 50
        survivor = tmp_path / "survivor"
        copied_from_outside(tmp_path / "state", survivor)
        put(machine, 51, 51)
    with opened(survivor) as after:
        assert (after.applied_index, after.read("r")) == (50, 50)


def test_a_checkpoint_beside_a_reader_of_an_older_state_is_honest(tmp_path: Path) -> None:
    with opened(tmp_path / "state") as machine:
        put(machine, 1, 1)
        with contextlib.closing(sqlite3.connect(tmp_path / "state", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM meta").fetchall()
            put(machine, 2, 2)
            index = machine.checkpoint()
            for name in ("state", "state-wal"):
                copied_from_outside(tmp_path / name, tmp_path / f"survivor{name[5:]}")
    with opened(tmp_path / "survivor") as after:
        assert after.applied_index >= index == 2


def test_checkpoints_and_copies_beside_a_busy_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes never fall and never pass the writer; a copy holds exactly what its index says; the file stays bounded."""
    monkeypatch.setattr(statefile, "WAL_BYTES_MAX", 256 * 1024)
    monkeypatch.setattr(statefile, "WAL_BYTES_HELD", 512 * 1024)
    done = threading.Event()
    seen: list[int] = []
    copies: list[tuple[int, Path]] = []
    failed: list[BaseException] = []

    def beside(machine: RegisterMachine) -> None:
        try:
            while not done.is_set():
                seen.append(machine.checkpoint())
                if len(copies) < 5:
                    path = tmp_path / f"copy{len(copies)}"
                    copies.append((machine.copy_to(str(path)), path))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    with opened(tmp_path / "state") as machine:
        thread = threading.Thread(target=beside, args=(machine,))
        thread.start()
        index = 0
        wal_bytes_greatest = 0

        def is_all_seen() -> bool:
            """The write-ahead file, too, has begun anew: how soon, hangs on how the threads have their turns."""
            began_anew = wal_bytes_greatest < index * 3 * 4096
            return index >= 2000 and len(copies) == 5 and bool(seen) and began_anew

        while not is_all_seen() and index < 10_000 and not failed:
            index += 1
            put(machine, index, index.to_bytes(4) * 500, f"r{index % 50}")
            wal_bytes_greatest = max(wal_bytes_greatest, os.path.getsize(tmp_path / "state-wal"))
        done.set()
        thread.join()
        assert not failed
        assert seen == sorted(seen)
        assert seen[-1] <= index
        assert is_all_seen()
    for copied, path in copies:
        assert not path.with_name(path.name + "-wal").exists()
        with opened(path) as copy:
            assert copy.applied_index == copied
            assert copied == 0 or copy.read(f"r{copied % 50}") == copied.to_bytes(4) * 500
            assert copy.read(f"r{(copied + 1) % 50}") != (copied + 1).to_bytes(4) * 500


def test_a_copy_is_a_plain_file_that_carries_the_digest(tmp_path: Path) -> None:
    with opened(tmp_path / "state") as machine:
        put(machine, 1, "one")
        assert machine.copy_to(str(tmp_path / "copy")) == 1
        digest = machine.digest
    assert sorted(os.listdir(tmp_path)) == ["copy", "state"]
    header = (tmp_path / "copy").read_bytes()[18:20]
    assert header == b"\x01\x01"  # read and written without a write-ahead file
    with opened(tmp_path / "copy") as copy:
        assert (copy.applied_index, copy.read("r"), copy.digest) == (1, "one", digest)
        put(copy, 2, "two")


def test_a_copy_never_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("mine")
    with opened(tmp_path / "state") as machine, pytest.raises(FileExistsError):
        machine.copy_to(str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "mine"


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    with opened(tmp_path / "state") as machine:
        monkeypatch.setattr(statefile, "_sync", full)
        with pytest.raises(OSError, match="No space"):
            machine.copy_to(str(tmp_path / "copy"))
        assert not (tmp_path / "copy").exists()


def test_a_copy_that_sqlite_cannot_write_fails_as_any_file_does(tmp_path: Path) -> None:
    """The state itself is not harmed by it."""
    with opened(tmp_path / "state") as machine:
        for number in range(1, 200):
            put(machine, number, "x" * 1000, f"r{number}")
        machine.checkpoint()
        with files_end_at(64 * 1024), pytest.raises(OSError, match="copy") as caught:
            machine.copy_to(str(tmp_path / "copy"))
        assert caught.value.errno in {errno.ENOSPC, errno.EIO}
        assert [name for name in os.listdir(tmp_path) if name.startswith("copy")] == []
        put(machine, 200, "goes on")


@contextlib.contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """What is written beyond it fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def closed_state(path: Path) -> bytes:
    with opened(path) as machine:
        for index in range(1, 200):
            put(machine, index, b"x" * 200, f"r{index}")
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["garbage", "half", "header"])
def test_a_damaged_file_is_refused_with_the_way_back(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    good = closed_state(path)
    bad = {"garbage": b"garbage" * 1000, "half": good[: len(good) // 2], "header": b"\0" * 100 + good[100:]}[damage]
    path.write_bytes(bad)
    with pytest.raises(StateCorrupt, match="move its data directory away"):
        RegisterMachine(str(path))
    assert path.read_bytes() == bad


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "state")) as other:
        other.execute("CREATE TABLE meta (x)")
    before = (tmp_path / "state").read_bytes()
    with pytest.raises(StateCorrupt, match="another program"):
        Machine(str(tmp_path / "state"))
    assert (tmp_path / "state").read_bytes() == before


@pytest.mark.parametrize("damage", ["DELETE FROM meta", "DROP TABLE meta"])
def test_a_state_without_its_index_is_refused(damage: str, tmp_path: Path) -> None:
    closed_state(tmp_path / "state")
    with contextlib.closing(sqlite3.connect(tmp_path / "state")) as db:
        db.execute(damage)
        db.commit()
    with pytest.raises(StateCorrupt, match="meta"):
        RegisterMachine(str(tmp_path / "state"))


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    closed_state(tmp_path / "state")
    with contextlib.closing(sqlite3.connect(tmp_path / "state")) as db:
        db.execute("PRAGMA user_version=99")
    before = (tmp_path / "state").read_bytes()
    with pytest.raises(StateTooNew, match="has format 99"):
        RegisterMachine(str(tmp_path / "state"))
    assert (tmp_path / "state").read_bytes() == before


def test_a_missing_directory_is_not_damage(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        Machine(str(tmp_path / "none" / "state"))
