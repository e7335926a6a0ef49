"""Lines of a terminal of so many columns: pieces of text, each in a style; tables; bars. Pure.

Widths are columns, not characters: a wide character takes two, a combining one none. What a style looks like is known
here alone, so that a frame can be read as text where there are no colours.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quvatlh.cli.printing import plain

BLOCKS: Final = "▁▂▃▄▅▆▇█"
GAP: Final = "  "
GROW_MIN: Final = 14
"""Below so many columns for the column that takes the rest, others are left out."""
SHAPES: Final = {"bold": "1", "dim": "2", "reverse": "7"}
COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class Span(NamedTuple):
    text: str
    style: str = ""
    """Words of SHAPES and COLOURS."""


Line = list[Span]


@dataclass(frozen=True, slots=True)
class Column:
    head: str
    right: bool = False
    grows: bool = False
    """Takes what the others leave. One of a table."""
    spare: bool = False
    """Left out where there is no room, the last first."""


@dataclass(frozen=True, slots=True)
class Row:
    cells: Sequence[str | Span]
    marked: bool = field(default=False)


def width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """At most so wide; what was longer ends with a mark."""
    if width(text) <= columns:
        return text
    kept, left = [], columns - 1
    for char in text:
        left -= _columns(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + "…" if columns > 0 else ""


def wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns, cut where they end: no word is lost."""
    made, line, left = [], "", columns
    for char in text:
        if left < _columns(char):
            made.append(line)
            line, left = "", columns
        line, left = line + char, left - _columns(char)
    return [*made, line]


def fit(text: str, columns: int, *, right: bool = False) -> str:
    """Exactly so wide."""
    text = cut(text, columns)
    space = " " * (columns - width(text))
    return space + text if right else text + space


def line_width(line: Line) -> int:
    return sum(width(span.text) for span in line)


def fit_line(line: Line, columns: int) -> Line:
    """Exactly so wide."""
    made: Line = []
    left = columns
    for span in line:
        text = cut(span.text, left)
        left -= width(text)
        if text:
            made.append(Span(text, span.style))
    return [*made, Span(" " * left)] if left > 0 else made


def ends(left: Line, right: Line, columns: int) -> Line:
    """One at each side; the left one gives way."""
    room = columns - line_width(right) - 1
    return fit_line(right, columns) if room < 0 else [*fit_line(left, room), Span(" "), *right]


def text_of(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def ansi(line: Line, *, colours: bool) -> str:
    """As a terminal takes it; every line ends without a style."""
    known = SHAPES | (COLOURS if colours else {})
    made = []
    for span in line:
        codes = ";".join(known[word] for word in span.style.split() if word in known)
        made.append(f"\x1b[{codes}m{span.text}\x1b[0m" if codes else span.text)
    return "".join(made)


def bars(values: Sequence[float | None], columns: int) -> str:
    """The last so many values, a character each, the highest of them full; a gap where nothing is known."""
    shown = list(values)[-columns:] if columns > 0 else []
    top = max((value for value in shown if value is not None), default=0.0)
    return "".join(_block(value, top) for value in shown).rjust(columns)


def _block(value: float | None, top: float) -> str:
    if value is None:
        return " "
    if value <= 0 or top <= 0:
        return BLOCKS[0] if top > 0 else "·"
    return BLOCKS[min(round(value / top * (len(BLOCKS) - 1)), len(BLOCKS) - 1)]


def gauge(part: float, whole: float, columns: int) -> str:
    filled = round(min(max(part / whole, 0.0), 1.0) * columns) if whole > 0 else 0
    return "█" * filled + "░" * (columns - filled)


def table(columns: Sequence[Column], rows: Sequence[Row], room: int) -> list[Line]:
    """A line of heads, and one a row. Cells are made plain here: most hold what a producer wrote."""
    cells = [[_plain(cell) for cell in row.cells] for row in rows]
    widths = [max([width(column.head), *(width(row[i].text) for row in cells)]) for i, column in enumerate(columns)]
    shown = _shown(columns, widths, room)
    fixed = sum(widths[i] for i in shown if not columns[i].grows) + len(GAP) * (len(shown) - 1) + 2
    for i in shown:
        if columns[i].grows:
            widths[i] = max(min(widths[i], room - fixed), 1) if i == shown[-1] else max(room - fixed, 1)
    heads = [Span(fit(columns[i].head, widths[i], right=columns[i].right), "dim") for i in shown]
    made = [fit_line([Span("  "), *_gapped(heads)], room)]
    for row, own in zip(rows, cells, strict=True):
        spans = [Span(fit(own[i].text, widths[i], right=columns[i].right), own[i].style) for i in shown]
        line = fit_line([Span("> " if row.marked else "  "), *_gapped(spans)], room)
        made.append([Span(span.text, "reverse") for span in line] if row.marked else line)
    return made


def _plain(cell: str | Span) -> Span:
    return Span(plain(cell.text), cell.style) if isinstance(cell, Span) else Span(plain(cell))


def _shown(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    shown = list(range(len(columns)))

    def needed() -> int:
        return 2 + sum((min(widths[i], GROW_MIN) if columns[i].grows else widths[i]) + len(GAP) for i in shown)

    for i in reversed(range(len(columns))):
        if needed() > room + len(GAP) and columns[i].spare:
            shown.remove(i)
    return shown


def _gapped(spans: Sequence[Span]) -> Line:
    made: Line = []
    for i, span in enumerate(spans):
        made += [Span(GAP), span] if i else [span]
    return made
