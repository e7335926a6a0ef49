"""Bytes of an NDJSON body, however they arrive, into cuts of whole lines. Pure: no waiting, no sockets, no parsing.

A cut ends after LINES_MAX lines, or before a line with which it would pass CUT_BYTES_MAX; so only a line longer than that
stands in a cut that is larger, alone. A line beyond LINE_BYTES_MAX is dropped as it comes in and makes a cut of its own
that says so. Lines of nothing but white space are no lines: they have no number and no task.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quvatlh.core.limits import BATCH_MAX

LINES_MAX: Final = BATCH_MAX
CUT_BYTES_MAX: Final = 1024 * 1024
"""Of the lines of a cut, without their ends."""
LINE_BYTES_MAX: Final = 2 * 1024 * 1024

_BLANK: Final = b" \t\r"

assert CUT_BYTES_MAX <= LINE_BYTES_MAX


class Cut(NamedTuple):
    first: int
    """Number of its first line, from 0."""
    lines: list[bytes]
    too_long: bool = False
    """It stands for one line that was dropped."""

    @property
    def end(self) -> int:
        return self.first + (1 if self.too_long else len(self.lines))


class Cutter:
    def __init__(self) -> None:
        self._tail: list[bytes] = []
        """Pieces of the line that has not ended."""
        self._tail_bytes = 0
        self._lines: list[bytes] = []
        self._bytes = 0
        self._first = 0

    @property
    def held_bytes(self) -> int:
        """Never more than one cut and one line."""
        return self._bytes + min(self._tail_bytes, LINE_BYTES_MAX)

    def feed(self, data: bytes) -> list[Cut]:
        """The cuts that are complete now."""
        cuts: list[Cut] = []
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            self._line(lines[0], cuts)
            self._whole(lines[1:], cuts)
        self._keep(rest)
        return cuts

    def finish(self) -> list[Cut]:
        """The rest, when the body is over; its last line needs no end."""
        cuts: list[Cut] = []
        self._line(b"", cuts)
        self._close(cuts)
        return cuts

    def _keep(self, piece: bytes) -> None:
        self._tail_bytes += len(piece)
        if self._tail_bytes > LINE_BYTES_MAX:
            self._tail.clear()
        elif piece:
            self._tail.append(piece)

    def _line(self, last: bytes, cuts: list[Cut]) -> None:
        if self._tail_bytes:
            self._keep(last)
            size, line = self._tail_bytes, b"".join(self._tail)
            self._tail.clear()
            self._tail_bytes = 0
        else:
            size, line = len(last), last
        if size > LINE_BYTES_MAX:
            self._close(cuts)
            cuts.append(Cut(self._first, [], too_long=True))
            self._first += 1
        elif line.strip(_BLANK):
            self._take(line, size, cuts)

    def _whole(self, lines: list[bytes], cuts: list[Cut]) -> None:
        """As `_line` for each. The commonest case, lines that all fit into the cut by their bytes, is taken at once."""
        size = sum(map(len, lines))
        if self._bytes + size > CUT_BYTES_MAX:
            for line in lines:
                self._line(line, cuts)
            return
        filled = [line for line in lines if line.strip(_BLANK)]
        while filled:
            room = LINES_MAX - len(self._lines)
            taken, filled = filled[:room], filled[room:]
            self._lines += taken
            self._bytes += sum(map(len, taken))
            if len(self._lines) == LINES_MAX:
                self._close(cuts)

    def _take(self, line: bytes, size: int, cuts: list[Cut]) -> None:
        if self._bytes + size > CUT_BYTES_MAX:
            self._close(cuts)
        self._lines.append(line)
        self._bytes += size
        if len(self._lines) == LINES_MAX:
            self._close(cuts)

    def _close(self, cuts: list[Cut]) -> None:
        if self._lines:
            cut = Cut(self._first, self._lines)
            cuts.append(cut)
            self._first = cut.end
            self._lines, self._bytes = [], 0
