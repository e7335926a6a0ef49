"""Outputs as files: written under a cap, read from any offset, removed when nobody lists them any more.

A stream's files are named after the stream and the offset of their first byte (`stdout.0`, `stdout.8388608`), so that a
directory explains itself to whoever reads it later, without a record beside it. The first file keeps the first half of
the cap for good. What follows goes into files of a quarter, of which the newest two stay. Between them is the gap, and a
reader sees it as an offset that jumps.

Files are made by the first byte: a silent action leaves nothing. Nothing is synced: an output is no promise.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection

from quvatlh.core.limits import PACKED_RESULT
from quvatlh.runner.settings import CHUNK_BYTES

KEPT_TAILS = 2
RESULT_FILES = ("result.json", "result.msgpack")
"""Of a call's result that is too large for the record: one of them."""
RESULT_PIECE_BYTES = 1024 * 1024
YOUNG_S = 60.0


class StreamWriter:
    """One stream of one live action. Writing may fail (a full disk): then it stops for good and says why."""

    def __init__(self, directory: str, stream: str, bytes_max: int) -> None:
        self._directory = directory
        self._stream = stream
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max // 4
        self._fd: int | None = None
        self._room = 0
        """Left in the open file."""
        self._offset = 0
        self._tails: list[int] = []
        self.error = ""

    def write(self, data: bytes) -> None:
        if self.error:
            return
        try:
            while data:
                if not self._room:
                    self._next_file()
                assert self._fd is not None
                written = os.write(self._fd, data[: self._room])
                self._room -= written
                self._offset += written
                data = data[written:]
        except OSError as error:
            self.error = f"{self._stream}: {error.strerror}"
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._room = None, 0

    def _next_file(self) -> None:
        self.close()
        if self._offset:
            self._tails.append(self._offset)
            if len(self._tails) > KEPT_TAILS:
                os.unlink(self._path(self._tails.pop(0)))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            self._fd = os.open(self._path(self._offset), flags, 0o600)
        except FileNotFoundError:
            os.makedirs(self._directory, 0o700, exist_ok=True)
            self._fd = os.open(self._path(self._offset), flags, 0o600)
        self._room = self._tail_max if self._offset else self._head_max

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{self._stream}.{offset}"


def write(directory: str, stdout: bytes, bytes_max: int) -> None:
    """All at once, of what nobody else writes. Blocking: for a thread."""
    writer = StreamWriter(directory, "stdout", bytes_max)
    writer.write(stdout)
    writer.close()


def read(directory: str, stream: str, offset: int) -> tuple[int, bytes]:
    """The first bytes kept at or after `offset`, at most a chunk, and where they stand; no bytes when there are none."""
    for start in _starts(directory, stream):
        try:
            with open(f"{directory}/{stream}.{start}", "rb", buffering=0) as file:
                at = max(offset, start)
                if at - start >= os.fstat(file.fileno()).st_size:
                    continue  # a file system need not know how to seek as far as somebody asks
                file.seek(at - start)
                data = file.read(CHUNK_BYTES)
        except FileNotFoundError:
            continue  # rotated or removed since the listing: what it held is left out
        if data:
            return at, data
    return offset, b""


def _starts(directory: str, stream: str) -> list[int]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    prefix = f"{stream}."
    return sorted(int(n[len(prefix) :]) for n in names if n.startswith(prefix) and n[len(prefix) :].isdecimal())


def named_result(result: bytes) -> tuple[str, bytes]:
    """The name of its file, which tells what it is, and what stands in it."""
    plain, packed = RESULT_FILES
    return (packed, result[1:]) if result[:1] == PACKED_RESULT else (plain, result)


def read_result(directory: str, offset: int) -> tuple[bytes, int] | None:
    """Of a result that is a file: what comes at `offset`, some of it, and the size of the whole. Blocking: for a thread."""
    for name in RESULT_FILES:
        try:
            with open(f"{directory}/{name}", "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(min(offset, size))
                return file.read(RESULT_PIECE_BYTES), size
        except FileNotFoundError:
            continue
    return None


def prune(outputs_dir: str, keep: Collection[str]) -> int:
    """Remove the outputs of actions that are not to be kept; how many.

    What was made in the last minute stays: its action may be younger than the caller's list. Blocking: for a thread.
    """
    young = time.time() - YOUNG_S
    removed = 0
    with os.scandir(outputs_dir) as entries:
        for entry in entries:
            try:
                old = entry.name not in keep and entry.stat(follow_symlinks=False).st_mtime < young
            except FileNotFoundError:
                continue
            if old:
                shutil.rmtree(entry.path, ignore_errors=True)
                removed += 1
    return removed
