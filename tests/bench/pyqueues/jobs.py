"""What is run. It tells by memory that is shared with the bench, so that it costs next to nothing and asks no queue.

Standard library only: the workers of each queue import it.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

DIRECTORY = "PYQUEUES_DIRECTORY"
MARKS, COUNT = "marks", "count-"
SIZE = 8

_pid = 0
_count = 0
_own: mmap.mmap
_marks: mmap.mmap | None = None


def tally() -> None:
    """Counts itself: each process in a file of its own."""
    global _pid, _count, _own  # noqa: PLW0603 - a process has one
    if _pid != os.getpid():
        _pid, _count = os.getpid(), 0
        # Not by its number: in namespaces of their own, several processes have the same.
        path = Path(os.environ[DIRECTORY], f"{COUNT}{os.urandom(8).hex()}")
        path.write_bytes(bytes(SIZE))
        _own = _mapped(path)
    _count += 1
    struct.pack_into("q", _own, 0, _count)


def mark(number: int) -> None:
    """Says when it began, by the monotonic clock, which all processes share."""
    began = time.monotonic_ns()
    global _marks  # noqa: PLW0603
    if _marks is None:
        _marks = _mapped(Path(os.environ[DIRECTORY], MARKS))
    struct.pack_into("q", _marks, number * SIZE, began)


def done(directory: Path) -> int:
    """How many were counted, by all processes."""
    return sum(struct.unpack("q", path.read_bytes())[0] for path in directory.glob(f"{COUNT}*") if path.stat().st_size)


def began(directory: Path) -> list[int]:
    data = (directory / MARKS).read_bytes()
    return list(struct.unpack(f"{len(data) // SIZE}q", data))


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)
