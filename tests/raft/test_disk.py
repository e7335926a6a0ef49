"""The file system as the log has it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quvatlh.raft.disk import (
    DirectoryInUse,
    RealDisk,
    ThreadLane,
    lock_directory,
    make_directory,
    parent,
    refuse_held,
    replace_file,
)


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path)


def written(disk: RealDisk, path: str, data: bytes) -> str:
    file = disk.create(path)
    file.write(data)
    file.close()
    return path


def test_what_is_written_is_read_whole_or_in_part(disk: RealDisk, home: str) -> None:
    path = written(disk, f"{home}/f", b"0123456789")
    assert disk.read(path) == b"0123456789"
    assert disk.read(path, 4) == b"456789"
    assert disk.read(path, 4, 3) == b"456"
    assert disk.read(path, 8, 100) == b"89"
    assert disk.read(path, 11) == b""
    assert disk.read(path, 2, 0) == b""
    assert disk.size(path) == 10


def test_a_short_write_is_continued(disk: RealDisk, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    path = written(disk, f"{home}/f", b"0123456789")
    assert disk.read(path) == b"0123456789"


def test_a_short_read_is_continued(disk: RealDisk, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(disk, f"{home}/f", b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 3), offset))
    assert disk.read(path, 1, 8) == b"12345678"


def test_other_views_of_bytes_are_written_too(disk: RealDisk, home: str) -> None:
    file = disk.create(f"{home}/f")
    file.write(bytearray(b"ab"))
    file.write(memoryview(b"xcdx")[1:3])
    file.write(b"")
    file.close()
    assert disk.read(f"{home}/f") == b"abcd"


def test_create_refuses_a_name_that_is_taken(disk: RealDisk, home: str) -> None:
    path = written(disk, f"{home}/f", b"old")
    with pytest.raises(FileExistsError):
        disk.create(path)
    assert disk.read(path) == b"old"


def test_append_goes_on_at_the_end_and_needs_the_file(disk: RealDisk, home: str) -> None:
    path = written(disk, f"{home}/f", b"one")
    file = disk.append(path)
    file.write(b"two")
    file.sync()
    file.close()
    file.close()
    assert disk.read(path) == b"onetwo"
    with pytest.raises(FileNotFoundError):
        disk.append(f"{home}/none")


def test_files_are_for_the_owner_alone(disk: RealDisk, home: str) -> None:
    path = written(disk, f"{home}/f", b"")
    disk.mkdir(f"{home}/d")
    assert os.stat(path).st_mode & 0o077 == 0
    assert os.stat(f"{home}/d").st_mode & 0o077 == 0


def synced_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def call(fd: int, name: str = name, real: object = real) -> None:
            calls.append(f"{name} {os.readlink(f'/proc/self/fd/{fd}')}")
            assert callable(real)
            real(fd)

        monkeypatch.setattr(os, name, call)
    return calls


def test_sync_truncate_and_sync_dir_reach_the_disk(disk: RealDisk, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = synced_calls(monkeypatch)
    file = disk.create(f"{home}/f")
    file.write(b"0123")
    file.sync()
    file.close()
    disk.truncate(f"{home}/f", 2)
    disk.sync_dir(home)
    assert calls == [f"fdatasync {home}/f", f"fsync {home}/f", f"fsync {home}"]
    assert disk.read(f"{home}/f") == b"01"


def test_replacing_a_file_syncs_it_before_the_name_moves_and_the_name_after(
    disk: RealDisk, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = synced_calls(monkeypatch)
    written(disk, f"{home}/f.tmp", b"left by a crash")
    replace_file(disk, f"{home}/f", b"one")
    replace_file(disk, f"{home}/f", b"two")
    assert calls == [f"fdatasync {home}/f.tmp", f"fsync {home}"] * 2
    assert disk.read(f"{home}/f") == b"two"
    assert disk.listdir(home) == ["f"]


def test_names_are_listed_sorted_and_a_missing_directory_is_empty(disk: RealDisk, home: str) -> None:
    for name in ("b", "c", "a"):
        written(disk, f"{home}/{name}", b"")
    assert disk.listdir(home) == ["a", "b", "c"]
    assert disk.listdir(f"{home}/none") == []
    assert disk.exists(f"{home}/a")
    assert not disk.exists(f"{home}/none")


def test_remove_takes_files_trees_and_what_is_not_there(disk: RealDisk, home: str) -> None:
    disk.mkdir(f"{home}/d/e")
    written(disk, f"{home}/d/e/f", b"")
    written(disk, f"{home}/g", b"")
    for name in ("d", "g", "g"):
        disk.remove(f"{home}/{name}")
    assert disk.listdir(home) == []


def test_remove_takes_a_link_and_not_what_it_names(disk: RealDisk, home: str) -> None:
    disk.mkdir(f"{home}/kept")
    os.symlink(f"{home}/kept", f"{home}/link")
    disk.remove(f"{home}/link")
    assert disk.listdir(home) == ["kept"]


def test_rename_replaces(disk: RealDisk, home: str) -> None:
    written(disk, f"{home}/a", b"new")
    written(disk, f"{home}/b", b"old")
    disk.rename(f"{home}/a", f"{home}/b")
    assert disk.read(f"{home}/b") == b"new"


def test_free_bytes_is_a_number_of_this_file_system(disk: RealDisk, home: str) -> None:
    assert 0 < disk.free_bytes(home) <= os.statvfs(home).f_blocks * os.statvfs(home).f_frsize


def test_make_directory_syncs_every_new_name(disk: RealDisk, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = synced_calls(monkeypatch)
    make_directory(disk, f"{home}/a/b")
    make_directory(disk, f"{home}/a/b")
    assert calls == [f"fsync {home}", f"fsync {home}/a"]


@pytest.mark.parametrize(("path", "above"), [("/a/b", "/a"), ("/a", "/"), ("a", "."), ("a/b/", "a"), ("/", "/")])
def test_the_parent_of_a_path(path: str, above: str) -> None:
    assert parent(path) == above


async def test_a_lane_does_jobs_in_order_on_one_other_thread() -> None:
    lane = ThreadLane("log")
    done: list[int] = []

    def job(number: int) -> threading.Thread:
        done.append(number)
        return threading.current_thread()

    threads = await asyncio.gather(*(lane.run(lambda n=n: job(n)) for n in range(50)))  # type: ignore[misc]
    lane.close()
    assert done == list(range(50))
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


async def test_what_a_job_raises_comes_to_who_asked() -> None:
    lane = ThreadLane("log")

    def job() -> None:
        raise OSError(28, "full")

    with pytest.raises(OSError, match="full"):
        await lane.run(job)
    lane.close()


async def test_a_job_that_nobody_waits_for_any_more_is_not_begun() -> None:
    lane, go, done = ThreadLane("log"), threading.Event(), list[str]()
    first = asyncio.ensure_future(lane.run(go.wait))
    second = asyncio.ensure_future(lane.run(lambda: done.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    go.set()
    assert await first
    await lane.run(lambda: done.append("third"))
    lane.close()
    assert done == ["third"]


async def test_a_lane_that_is_closed_refuses_instead_of_being_silent() -> None:
    lane = ThreadLane("log")
    lane.close()
    with pytest.raises(RuntimeError, match="any more"):
        async with asyncio.timeout(60):
            await lane.run(lambda: None)


def test_a_locked_directory_is_refused_until_it_is_let_go(home: str) -> None:
    held = lock_directory(home)
    with pytest.raises(DirectoryInUse, match=f"{home} is in use by process {os.getpid()}: stop that daemon"):
        lock_directory(home)
    held.close()
    held.close()
    lock_directory(home).close()


def test_who_asks_whether_a_directory_is_held_makes_nothing(home: str) -> None:
    refuse_held(f"{home}/nowhere")
    refuse_held(home)
    assert os.listdir(home) == []
    held = lock_directory(home)
    with pytest.raises(DirectoryInUse, match=f"by process {os.getpid()}:"):
        refuse_held(home)
    held.close()
    refuse_held(home)
    lock_directory(home).close()


def test_the_lock_ends_with_the_process_that_held_it(home: str) -> None:
    code = f"from quvatlh.raft.disk import lock_directory; lock_directory({home!r}); print('held')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"held\n"
    lock_directory(home).close()
