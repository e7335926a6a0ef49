"""What RealDisk and SimDisk both promise: one suite, run on each.

Only what does not need a crash: what a crash leaves is in test_world.py, and the real one's is the kernel's word.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quvatlh.raft.disk import Disk, Lane, RealDisk, ThreadLane
from tests.sim.world import Env, World


@dataclass(frozen=True)
class Place:
    disk: Disk
    root: str
    lane: Lane
    run: Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["real", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "real":
        lane = ThreadLane("contract")
        yield Place(RealDisk(), str(tmp_path), lane, asyncio.run)
        lane.close()
        return
    with World(1) as world:

        async def idle(_: Env) -> None:
            await asyncio.Event().wait()

        env = world.host("a").start(idle)
        env.disk.mkdir("/data")

        def run(coro: Coroutine[Any, Any, Any]) -> object:
            return world.loop.run_until_complete(env.process.spawn(coro))

        yield Place(env.disk, "/data", env.lane(), run)


def fill(disk: Disk, path: str, data: bytes) -> None:
    file = disk.create(path)
    file.write(data)
    file.sync()
    file.close()


def test_writes_append_and_reads_take_parts(place: Place) -> None:
    disk, path = place.disk, f"{place.root}/file"
    fill(disk, path, b"0123")
    file = disk.append(path)
    file.write(bytearray(b"45"))
    file.write(memoryview(b"67"))
    file.write(b"")
    assert disk.size(path) == 8
    assert disk.read(path) == b"01234567"
    assert disk.read(path, 2, 3) == b"234"
    assert disk.read(path, 6, 100) == b"67"
    assert disk.read(path, 8) == disk.read(path, 100, 5) == disk.read(path, 3, 0) == b""
    file.close()
    file.close()


def test_a_closed_file_takes_nothing(place: Place) -> None:
    file = place.disk.create(f"{place.root}/file")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write(b"late")
    with pytest.raises(ValueError, match="file descriptor"):
        file.sync()


def test_a_name_is_made_once(place: Place) -> None:
    fill(place.disk, f"{place.root}/file", b"first")
    with pytest.raises(FileExistsError):
        place.disk.create(f"{place.root}/file")
    assert place.disk.read(f"{place.root}/file") == b"first"


@pytest.mark.parametrize("call", ["append", "read", "size", "truncate", "rename", "sync_dir", "create"])
def test_what_is_not_there_is_said_to_be_missing(place: Place, call: str) -> None:
    more = {"truncate": (0,), "rename": (f"{place.root}/other",)}.get(call, ())
    with pytest.raises(FileNotFoundError):
        getattr(place.disk, call)(f"{place.root}/no/such", *more)


def test_truncating_cuts_or_fills_with_zeros_and_appending_goes_on_there(place: Place) -> None:
    disk, path = place.disk, f"{place.root}/file"
    fill(disk, path, b"0123456789")
    file = disk.append(path)
    disk.truncate(path, 4)
    assert disk.read(path) == b"0123"
    file.write(b"x")
    disk.truncate(path, 7)
    assert disk.read(path) == b"0123x\0\0"


def test_a_rename_replaces_and_open_files_keep_their_own(place: Place) -> None:
    disk, old, new = place.disk, f"{place.root}/old", f"{place.root}/new"
    fill(disk, old, b"old")
    fill(disk, new, b"new")
    replaced, moved = disk.append(new), disk.append(old)
    disk.rename(old, new)
    replaced.write(b" unseen")
    moved.write(b" seen")
    assert not disk.exists(old)
    assert disk.read(new) == b"old seen"


def test_directories_move_with_what_is_in_them(place: Place) -> None:
    disk, root = place.disk, place.root
    disk.mkdir(f"{root}/a/b")
    fill(disk, f"{root}/a/b/file", b"x")
    disk.mkdir(f"{root}/empty")
    disk.rename(f"{root}/a", f"{root}/empty")
    assert disk.read(f"{root}/empty/b/file") == b"x"
    assert disk.listdir(root) == ["empty"]


def test_a_rename_does_not_mix_files_and_directories(place: Place) -> None:
    disk, root = place.disk, place.root
    disk.mkdir(f"{root}/full/inner")
    disk.mkdir(f"{root}/other")
    fill(disk, f"{root}/file", b"")
    with pytest.raises(IsADirectoryError):
        disk.rename(f"{root}/file", f"{root}/other")
    with pytest.raises(NotADirectoryError):
        disk.rename(f"{root}/other", f"{root}/file")
    with pytest.raises(OSError, match="not empty") as caught:
        disk.rename(f"{root}/other", f"{root}/full")
    assert caught.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError, match="Invalid"):
        disk.rename(f"{root}/full", f"{root}/full/inner/deeper")


def test_removing_takes_trees_and_misses_nothing(place: Place) -> None:
    disk, root = place.disk, place.root
    disk.mkdir(f"{root}/a/b/c")
    fill(disk, f"{root}/a/b/file", b"x")
    open_file = disk.append(f"{root}/a/b/file")
    disk.remove(f"{root}/a")
    disk.remove(f"{root}/a")
    disk.remove(f"{root}/a/b/file")
    assert disk.listdir(root) == []
    open_file.write(b"to nobody")
    open_file.sync()


def test_directories_are_made_with_parents_and_listed_in_order(place: Place) -> None:
    disk, root = place.disk, place.root
    disk.mkdir(f"{root}/d/e")
    disk.mkdir(f"{root}/d/e")
    for name in ("b", "a", "c"):
        disk.create(f"{root}/d/{name}").close()
    disk.sync_dir(f"{root}/d")
    assert disk.listdir(f"{root}/d") == ["a", "b", "c", "e"]
    assert disk.listdir(f"{root}/nothing") == []
    assert disk.exists(f"{root}/d")
    assert not disk.exists(f"{root}/nothing")
    with pytest.raises(FileExistsError):
        disk.mkdir(f"{root}/d/a")
    assert disk.free_bytes(root) > 0


def test_directories_are_not_files(place: Place) -> None:
    with pytest.raises(IsADirectoryError):
        place.disk.read(place.root)
    with pytest.raises(IsADirectoryError):
        place.disk.append(place.root)


def test_a_lane_does_jobs_in_order_and_hands_back_what_they_give_or_raise(place: Place) -> None:
    did: list[int] = []

    def job(number: int) -> int:
        did.append(number)
        if number == 2:
            raise KeyError(number)
        return number * 10

    async def main() -> list[object]:
        asked = [asyncio.ensure_future(place.lane.run(lambda n=number: job(n))) for number in range(4)]  # type: ignore[misc]
        return await asyncio.gather(*asked, return_exceptions=True)

    given = place.run(main())
    assert did == [0, 1, 2, 3]
    assert [given[0], given[1], type(given[2]), given[3]] == [0, 10, KeyError, 30]


def test_a_closed_lane_has_done_its_jobs_and_takes_no_more(place: Place) -> None:
    did: list[int] = []

    async def main() -> None:
        asked = [asyncio.ensure_future(place.lane.run(lambda n=number: did.append(n))) for number in range(3)]  # type: ignore[misc]
        await asyncio.sleep(0)
        place.lane.close()
        assert did == [0, 1, 2]
        await asyncio.gather(*asked)
        with pytest.raises(RuntimeError):
            await place.lane.run(lambda: None)

    place.run(main())
