"""How things look: tables, times, states, JSON. Text of others is stripped of what a terminal would obey."""

from __future__ import annotations

import shlex
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from quvatlh.codec.urls import without_secrets

GAP = "  "
LABEL = 11
"""Columns of a label of `show`."""
SHELL = ["/bin/sh", "-c"]
COLORS = {
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "running": "cyan",
    "claimed": "cyan",
    "stopping": "yellow",
    "retrying": "yellow",
    "pending": "blue",
    "scheduled": "blue",
    "up": "green",
    "draining": "yellow",
}


def print_json(value: object) -> None:
    """One line for programs, many for people."""
    raw = msgspec.json.encode(value)
    if sys.stdout.isatty():
        raw = msgspec.json.format(raw, indent=2)
    click.echo(raw)


def plain(value: object) -> str:
    """One line without control characters, so that no name and no error text moves a cursor."""
    return "".join(" " if unicodedata.category(each)[0] in "CZ" else each for each in str(value))


def plain_lines(text: str) -> list[str]:
    return [plain(line.replace("\t", "    ")) for line in text.splitlines()]


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def styled(state: str) -> str:
    return click.style(state, fg=COLORS.get(state.strip()))


class Table:
    """Columns as wide as their widest cell; the last is cut where the terminal ends."""

    def __init__(self, heads: Sequence[str], columns: int | None) -> None:
        self._heads = list(heads)
        self._columns = columns
        self._widths = [len(head) for head in heads]
        self._is_headed = False

    def print(self, rows: Sequence[Sequence[object]]) -> None:
        """More rows; the heads stand above the first. Widths grow, so that a later page is never cut narrower."""
        cells = [[plain(cell) for cell in row] for row in rows]
        for row in cells:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        if not self._is_headed:
            click.secho(self._line(self._heads), dim=True)
            self._is_headed = True
        for row in cells:
            click.echo(self._line(row))

    def _line(self, cells: Sequence[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells[:-1], self._widths[:-1], strict=True)]
        last = cells[-1]
        if self._columns is not None:
            last = shortened(last, max(self._columns - sum(len(cell) + len(GAP) for cell in padded), len("…")))
        return GAP.join([*(styled(cell) if cell.strip() in COLORS else cell for cell in padded), last]).rstrip()


def work_words(work: object) -> str:
    """What a task runs, on one line, as one would type it."""
    match work:
        case {"command": [*argv]}:
            words = shlex.join(map(str, argv))
        case {"shell": line}:
            words = str(line)
        case {"commands": [*lines]}:
            words = " && ".join(map(_command_words, lines))
        case {"http": {"url": url, **rest}}:
            method = rest.get("method") or ("POST" if rest.get("body") else "")  # with a payload it is a POST, too
            words = f"{method} {without_secrets(str(url))}".strip()
        case {"python": function, **rest}:
            words = _call_words(function, rest)
        case {"warm": {"call": call, **rest}}:
            words = _call_words(call, rest)
        case Mapping():
            words = str(next(iter(work), ""))
        case _:
            words = str(work)
    return plain(words)


def _call_words(call: object, given: Mapping[Any, object]) -> str:
    """As in a program; where, if it says so."""
    args, kwargs, environment = given.get("args"), given.get("kwargs"), given.get("environment")
    words = [_word(each) for each in args] if isinstance(args, Sequence) else []
    words += [f"{name}={_word(each)}" for name, each in kwargs.items()] if isinstance(kwargs, Mapping) else []
    place = f" in {environment}" if environment else ""
    return f"{call}({', '.join(words)}){place}" if words else f"{call}{place}"


def _word(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _command_words(command: object) -> str:
    """A shell's text stands in a sequence as the shell's own command."""
    match command:
        case [*argv] if argv[:2] == SHELL and len(argv) == 3:
            return str(argv[2])
        case [*argv]:
            return shlex.join(map(str, argv))
    return str(command)


def labelled(label: str, value: str) -> str:
    """A line of `show`; the value is plain already."""
    return f"  {click.style(label.ljust(LABEL), dim=True)} {value}"


def age(text: str | None, now_ms: int) -> str:
    """How long ago, or in how long, in one unit: 5s, 12m, 3h, 4d."""
    if not text:
        return "-"
    seconds = now_ms / 1000 - _moment(text).timestamp()
    return f"in {span(-seconds)}" if seconds < 0 else "0s" if seconds < 1 else span(seconds)


def span(seconds: float) -> str:
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    for unit, size, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds // 86_400)}d"


def between(start: str | None, end: str | None) -> str:
    """How long something took; empty when it did not."""
    if not start or not end:
        return ""
    return taken(max((_moment(end) - _moment(start)).total_seconds(), 0.0))


def taken(seconds: float) -> str:
    """Two digits of what took some seconds; else as a span."""
    return f"{seconds:.2g}s" if 1 <= seconds < 9.95 else span(seconds)


def when(text: str | None, now_ms: int) -> str:
    """A time for people: to the second, in UTC, and how far away it is."""
    if not text:
        return ""
    distance = age(text, now_ms)
    words = distance if distance.startswith("in ") else f"{distance} ago"
    return f"{_moment(text):%Y-%m-%d %H:%M:%S}Z ({words})"


def time_text(ms: int) -> str:
    """As a node takes it."""
    return datetime.fromtimestamp(max(ms, 0) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: int | None) -> str:
    """Of bytes."""
    if number is None:
        return "-"
    value, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def say(text: str) -> None:
    """Beside the output: to standard error."""
    click.echo(text, err=True)


def value_words(value: object) -> str:
    """JSON, but for text, which needs no quotes here."""
    return plain(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def summary(task: Mapping[str, Any]) -> str:
    """What people know a task by: its name, where it has one, else what it runs."""
    name = task.get("name")
    return plain(name) if name and name != task["id"] else work_words(task.get("work"))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
