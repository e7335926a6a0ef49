"""Answers that wait for a client which does not read yet: a little in memory, the rest in a file without a name.

So that a server which must go on reading needs no more memory for a client who sends everything before he reads
anything. Files are written and read on the loop: small pieces that stay in the page cache.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from typing import IO, Final

MEMORY_BYTES_MAX: Final = 256 * 1024
FILE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Beyond it the sender waits for his own reading: 25 million ids are in there."""
READ_BYTES: Final = 64 * 1024

assert READ_BYTES <= MEMORY_BYTES_MAX < FILE_BYTES_MAX


class Spool:
    """First in, first out, of bytes; one writer, one reader."""

    def __init__(self, memory_bytes_max: int = MEMORY_BYTES_MAX, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._file_bytes_max = file_bytes_max
        self._parts: deque[bytes] = deque()
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._read_at = 0
        self._write_at = 0
        self._moved = asyncio.Event()
        self._ended = False

    @property
    def memory_bytes(self) -> int:
        return self._memory_bytes

    async def put(self, data: bytes) -> None:
        while self._write_at - self._read_at > self._file_bytes_max:
            await self._wait()
        if self._write_at == self._read_at and self._memory_bytes + len(data) <= self._memory_bytes_max:
            self._parts.append(data)
            self._memory_bytes += len(data)
        else:
            self._to_file(data)
        self._moved.set()

    def end(self) -> None:
        """Nothing more will be put."""
        self._ended = True
        self._moved.set()

    async def get(self) -> bytes:
        """Something, as soon as there is something; empty at the end."""
        while True:
            data = self._take()
            if data:
                self._moved.set()
                return data
            if self._ended:
                return b""
            await self._wait()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    async def _wait(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _to_file(self, data: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="quvatlh-answers-")  # noqa: SIM115 - closed by `close`
        self._file.seek(self._write_at)
        self._file.write(data)
        self._write_at += len(data)

    def _take(self) -> bytes:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._memory_bytes = 0
            return data
        if self._file is None or self._read_at == self._write_at:
            return b""
        self._file.seek(self._read_at)
        data = self._file.read(READ_BYTES)
        self._read_at += len(data)
        if self._read_at == self._write_at:
            self._file.truncate(0)
            self._read_at = self._write_at = 0
        return data
