"""The newest entries of the log in memory, as many as fit.

What is not durable stays whatever it takes, since only here it can be read; the newest entry stays too, since the engine
looks at it all the time. Only entries that follow each other are held, up to the end of the log.
"""

from __future__ import annotations

import sys
from collections import deque

LogEntry = tuple[bytes, int, int]
"""(command, index, term), as pysyncobj has them."""

_TUPLE_BYTES = sys.getsizeof((b"", 0, 0)) + 2 * sys.getsizeof(2**40)
"""What an entry takes beside its command."""


class Cache:
    """`held_bytes` is what it takes of the process, not of the disk: small entries are mostly overhead."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: deque[LogEntry] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, index: int) -> LogEntry | None:
        held = self._entries
        if not held or not held[0][1] <= index <= held[-1][1]:
            return None
        return held[index - held[0][1]]

    def add(self, entry: LogEntry) -> None:
        self._entries.append(entry)
        self.held_bytes += _size(entry)

    def shrink(self, durable_index: int) -> None:
        """To the bound, as far as what goes can be read from the disk."""
        held = self._entries
        while self.held_bytes > self._bytes_max and len(held) > 1 and held[0][1] <= durable_index:
            self.held_bytes -= _size(held.popleft())

    def cut(self, index: int) -> None:
        """Entries from `index` on are no more."""
        held = self._entries
        while held and held[-1][1] >= index:
            self.held_bytes -= _size(held.pop())

    def drop_to(self, index: int) -> None:
        """Entries up to `index` are no more."""
        held = self._entries
        while held and held[0][1] <= index:
            self.held_bytes -= _size(held.popleft())


def _size(entry: LogEntry) -> int:
    return sys.getsizeof(entry[0]) + _TUPLE_BYTES
