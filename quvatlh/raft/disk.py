"""The disk as the log sees it: few calls, all blocking, all of them the kinds of thing that a crash can tear.

`RealDisk` is the file system; the simulation brings one that forgets what was not synced. What is written is lost at a
crash unless `sync` of that file came after it; a name that was made, renamed or removed is lost unless `sync_dir` of its
directory came after it. Nobody else in `raft/` opens a file. Calls that may take long run on a `Lane`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")

LOCK_FILE = "lock"

UNFINISHED = ".tmp"
"""Ending of a file that is to replace another one; whatever bears it after a crash is void."""


class File(Protocol):
    """A file open for appending."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append all of `data`, or raise OSError."""
        ...

    def sync(self) -> None:
        """fdatasync: everything written so far survives a crash."""
        ...

    def close(self) -> None:
        """Without syncing."""
        ...


class Disk(Protocol):
    """Paths are absolute or relative to the process, joined with '/'."""

    def create(self, path: str) -> File:
        """A new empty file; FileExistsError when the name is taken."""
        ...

    def append(self, path: str) -> File:
        """Open an existing file, positioned at its end."""
        ...

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Up to `size` bytes from `offset`, all to the end with -1. FileNotFoundError when it is not there."""
        ...

    def size(self, path: str) -> int: ...

    def truncate(self, path: str, size: int) -> None:
        """Cut to `size` bytes and sync the file."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomically replace `new`. Durable after sync_dir."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; nothing happens when it is not there."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; nothing happens when it is there."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names, sorted; empty when there is no such directory."""
        ...

    def exists(self, path: str) -> bool: ...

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int: ...


class Lane(Protocol):
    """A thread of its own: jobs run one at a time, in the order they were given."""

    def give(self, job: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        """`then` is called on the loop, later than this returns, with what the job raised."""
        ...

    async def run(self, job: Callable[[], T]) -> T: ...

    def close(self) -> None: ...


class RealFile:
    """One descriptor in append mode. Not shared between threads at the same time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            # The kernel takes at most 2 GiB a call, and less when a signal or a full disk comes between.
            rest = rest[os.write(self._fd, rest) :]

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """The file system. What it makes is for the owner alone: the log holds payloads and secrets."""

    def create(self, path: str) -> RealFile:
        return RealFile(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600))

    def append(self, path: str) -> RealFile:
        return RealFile(os.open(path, os.O_WRONLY | os.O_APPEND))

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        with _descriptor(path, os.O_RDONLY) as fd:
            left = max(0, os.fstat(fd).st_size - offset)
            if size >= 0:
                left = min(left, size)
            parts = []
            while left and (part := os.pread(fd, left, offset)):
                parts.append(part)
                offset += len(part)
                left -= len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def truncate(self, path: str, size: int) -> None:
        with _descriptor(path, os.O_WRONLY) as fd:
            os.ftruncate(fd, size)
            os.fsync(fd)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def sync_dir(self, path: str) -> None:
        with _descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)

    def free_bytes(self, path: str) -> int:
        space = os.statvfs(path)
        return space.f_bavail * space.f_frsize


@contextlib.contextmanager
def _descriptor(path: str, flags: int) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Put `data` in place of the file at `path`, so that a crash leaves all of the old or all of the new."""
    unfinished = path + UNFINISHED
    disk.remove(unfinished)
    file = disk.create(unfinished)
    try:
        file.write(data)
        file.sync()
    finally:
        file.close()
    disk.rename(unfinished, path)
    disk.sync_dir(parent(path))


def make_directory(disk: Disk, path: str) -> None:
    """Make a directory and its parents, and the names of all that are new durable."""
    missing = []
    while not disk.exists(path):
        missing.append(path)
        path = parent(path)
    if missing:
        disk.mkdir(missing[0])
    for made in reversed(missing):
        disk.sync_dir(parent(made))


def parent(path: str) -> str:
    """The directory that holds the name `path`."""
    return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


class ThreadLane:
    """One thread, named for the operator who looks at the process."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def give(self, job: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        if self._is_closed:
            raise RuntimeError("nothing is done here any more")
        loop = asyncio.get_running_loop()

        def work() -> None:
            failure: BaseException | None = None
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - it is the giver's
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(then, failure)

        self._jobs.put(work)

    async def run(self, job: Callable[[], T]) -> T:
        return await run_on(self, job)

    def close(self) -> None:
        """Waits for the jobs that were given."""
        self._is_closed = True
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it may hold megabytes, and the next one may be long in coming


async def run_on(lane: Lane, job: Callable[[], T]) -> T:
    """`Lane.run` where there is a `give`. A job that is given up before it has begun is not done."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    results: list[T] = []

    def work() -> None:
        if not answer.cancelled():
            results.append(job())

    def then(failure: BaseException | None) -> None:
        if answer.done():
            return
        if failure is not None:
            answer.set_exception(failure)
        else:
            answer.set_result(results[0])

    lane.give(work, then)
    return await answer


class DirectoryInUse(Exception):
    """Another process holds the data directory."""

    def __init__(self, path: str, holder: str) -> None:
        by = f"process {holder}" if holder else "another process"
        super().__init__(f"the data directory {path} is in use by {by}: stop that daemon, or start with another --data")
        self.path = path


class DirectoryLock:
    """Held until closed, or until the process ends, however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_directory(path: str) -> DirectoryLock:
    """Take PATH/lock, or raise DirectoryInUse at once. The file stays; only the lock on it means anything."""
    fd = _locked(path, os.O_CREAT)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return DirectoryLock(fd)


def refuse_held(path: str) -> None:
    """DirectoryInUse, if another process holds PATH/lock; nothing is made where it is not there.

    It is held for a moment, so that this is for who does not start anyway and wants to say why.
    """
    with contextlib.suppress(OSError):
        os.close(_locked(path, 0))


def _locked(path: str, flags: int) -> int:
    fd = os.open(f"{path}/{LOCK_FILE}", os.O_RDWR | flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise DirectoryInUse(path, holder) from None
    except BaseException:
        os.close(fd)
        raise
    return fd
