"""What happened, one line an event, with a running digest: the same seed must give the same trace, byte for byte."""

from __future__ import annotations

import hashlib
from collections import deque
from pathlib import Path

LINES_KEPT = 2_000
"""Of the newest lines, for the report of a failure."""


class Trace:
    def __init__(self, path: Path | None = None, lines_kept: int = LINES_KEPT) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._file = path.open("w", encoding="utf-8", newline="\n") if path is not None else None
        self.tail: deque[str] = deque(maxlen=lines_kept)
        self.count = 0

    def add(self, now_s: float, process: str, text: str) -> None:
        line = f"{now_s:.9f} {process} {text}\n"
        self._digest.update(line.encode())
        self.tail.append(line)
        self.count += 1
        if self._file is not None:
            self._file.write(line)

    def hash(self) -> str:
        """Of all lines so far."""
        return self._digest.hexdigest()

    def last(self, lines: int = LINES_KEPT) -> str:
        return "".join(list(self.tail)[-lines:])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
