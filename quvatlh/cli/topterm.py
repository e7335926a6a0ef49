"""The terminal of `quvatlh top`: another screen, keys as they are pressed, and everything as it was at the end.

A frame is written as the lines that differ from what is there, in one piece, so that nothing flickers and little goes
over a slow line.
"""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import tty
from types import TracebackType
from typing import Final, Self

from quvatlh.cli.toplines import Line, ansi, fit_line

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The other screen, no cursor, no wrapping of what is written into the last column."""
LEAVE: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""What is between is shown at once, by terminals that know how."""


class Terminal:
    """Entered and left; what it was before is restored however it is left."""

    def __init__(self, *, colours: bool, reads: int | None = None, writes: int | None = None) -> None:
        self.reads = sys.stdin.fileno() if reads is None else reads
        self._writes = sys.stdout.fileno() if writes is None else writes
        self._colours = colours
        self._kept = termios.tcgetattr(self.reads)
        self._shown: list[str] = []
        self._size = (0, 0)

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def enter(self) -> None:
        tty.setcbreak(self.reads)  # Ctrl-C and Ctrl-Z stay signals
        self._write(ENTER)
        self.forget()

    def leave(self) -> None:
        with contextlib.suppress(OSError):  # it was closed: nobody is there who could see it
            self._write(LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.reads, termios.TCSADRAIN, self._kept)

    def forget(self) -> None:
        """What is there is not known: the next frame is written whole."""
        self._size = (0, 0)

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        size = os.get_terminal_size(self._writes)
        return (size.columns or 80, size.lines or 24)

    def read(self) -> bytes:
        """What was typed; nothing at the end."""
        try:
            return os.read(self.reads, 4096)
        except OSError:
            return b""

    def draw(self, frame: list[Line], size: tuple[int, int]) -> None:
        lines = [ansi(fit_line(line, size[0]), colours=self._colours) for line in frame[: size[1]]]
        made = [] if size == self._size else ["\x1b[2J"]
        before = self._shown if size == self._size else []
        for row, line in enumerate(lines):
            if row >= len(before) or before[row] != line:
                made.append(f"\x1b[{row + 1};1H{line}")
        if made:
            self._write(BEGIN + "".join(made) + END)
        self._shown, self._size = lines, size

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._writes, data) :]
