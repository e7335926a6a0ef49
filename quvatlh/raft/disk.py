"""The disk as the log sees it: few calls, all blocking, all of them the kinds of thing that a crash can tear.

`RealDisk` is the file system; the simulation brings one that forgets what was not synced. What is written is lost at a
crash unless `sync` of that file came after it; a name that was made, renamed or removed is lost unless `sync_dir` of its
directory came after it. Nobody else in `raft/` opens a file. Calls that may take long run on a `Lane`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


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

    async def run(self, job: Callable[[], T]) -> T: ...

    def close(self) -> None: ...
