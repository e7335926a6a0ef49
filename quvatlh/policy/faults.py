"""What Lua says of a source, as line, column and message. Lua names a line and the token it stumbled at; where in the line that
token stands is found by asking which prefix of the source is the first that is wrong, not merely unfinished.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

MEMORY: Final = "not enough memory"

_PLACED = re.compile(r"policy:(\d+): (.*)", re.DOTALL)
_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\n\r|\r|\n|\Z)")
"""As Lua counts them."""
_NEAR = re.compile(r"(.*) near (?:'(.*)'|(<eof>))", re.DOTALL)


class Fault(NamedTuple):
    line: int
    column: int
    message: str


Compile = Callable[[str], str | None]
"""The message of why a source does not compile, or None."""


def of_running(message: str) -> Fault:
    """Of what was raised, not of what does not compile."""
    found = _PLACED.fullmatch(message)
    return Fault(int(found[1]), 1, found[2]) if found else Fault(1, 1, message)


def for_people(message: str) -> str:
    """`policy:3: no` as `line 3: no`; what names no line as it is."""
    found = _PLACED.fullmatch(message)
    return f"line {found[1]}: {found[2]}" if found else message


def of_source(source: str, message: str, compile_: Compile) -> Fault:
    """Where a source does not compile. `compile_` is asked of a few prefixes."""
    line, _, text = of_running(message)
    near = _NEAR.fullmatch(text)
    row = next(islice(_LINE.finditer(source), line - 1, None), None)
    if near is None or row is None:
        return Fault(line, 1, text)
    if near[3]:
        return Fault(line, len(row[1].rstrip()) + 1, text)
    return Fault(line, _column(source, row.start(), row[1], near[2], compile_), text)


def _column(source: str, start: int, row: str, token: str, compile_: Compile) -> int:
    """Bisects the places of the token: up to one that is too early the source is only unfinished."""
    places = [found.start() for found in re.finditer(re.escape(token), row)] if token else []
    if not places:
        return 1
    low, high = 0, len(places) - 1
    while low < high:
        middle = (low + high) // 2
        said = compile_(source[: start + places[middle] + len(token)])
        if said is not None and not said.endswith("near <eof>"):
            high = middle
        else:
            low = middle + 1
    return places[low] + 1
