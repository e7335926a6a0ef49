"""Standard output and error of a child. See child.py."""

from __future__ import annotations

import io
from typing import Any

from quvatlh import task


class Stream(io.TextIOBase):
    """Standard output or error: of the task that writes, where several share the process; else the file itself."""

    def __init__(self, fd: int, name: str) -> None:
        self._file = open(  # noqa: SIM115 - as long as the process
            fd, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1, newline="\n"
        )
        self._name = name
        self.name = f"<{name}>"
        self.is_used = self._is_exposed = False
        """Something may wait in it to be written. Whoever has its buffer may write there at any time."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def buffer(self) -> Any:
        self.is_used = self._is_exposed = True
        return self._file.buffer

    def fileno(self) -> int:
        return self._file.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        context: Any = task.running.get()
        shared = None if context is None else getattr(context, "shared", None)
        if shared is None:
            try:
                return self._file.write(text)
            finally:  # after it, since a flush by another thread may come between; and where it was broken off
                self.is_used = True
        whole, end, rest = (shared[self._name] + text).rpartition("\n")
        shared[self._name] = rest
        if end:
            context.tell(self._name, whole + end)
        return len(text)

    def flush(self) -> None:
        self.is_used = self._is_exposed
        try:
            self._file.flush()
        except BaseException:
            self.is_used = True
            raise
