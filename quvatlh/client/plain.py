"""Whether values have a form in JSON, and where not, in words for people. Pure.

Stricter than the encoder, which would pass times, sets and dataclasses as something else than they were: what a task gets
is what it was given. Tuples arrive as lists; that alone is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

DEPTH_MAX: Final = 60
"""Below what a node takes, by what a task is around its arguments."""
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
_SIMPLE: Final = frozenset({str, bool, type(None)})


def fault(arguments: Mapping[str, object]) -> str | None:
    """Of the first argument that cannot be sent: its place, and why."""
    for name, value in arguments.items():
        if type(value) not in _SIMPLE:
            found = _fault(name, value, 0)
            if found is not None:
                return found
    return None


def _fault(place: str, value: object, depth: int) -> str | None:
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, int | float):
        return _number(place, value)
    if depth >= DEPTH_MAX:
        return f"{place[:100]}…: nested deeper than {DEPTH_MAX}, or within itself"
    if isinstance(value, list | tuple):
        return _first(_fault(f"{place}[{number}]", each, depth + 1) for number, each in enumerate(value))
    if isinstance(value, dict):
        return _first(_member(place, name, each, depth + 1) for name, each in value.items())
    return f"{place}: {_named(type(value))} has no form in JSON"


def _number(place: str, value: float) -> str | None:
    if isinstance(value, int):
        return None if INT_MIN <= value <= INT_MAX else f"{place}: an int of more than 64 bits; give it as text"
    return None if math.isfinite(value) else f"{place}: {value} has no form in JSON"


def _member(place: str, name: object, value: object, depth: int) -> str | None:
    if not isinstance(name, str):
        return f"{place}: the key {name!r} is no text"
    return _fault(f"{place}.{name}", value, depth)


def _first(found: Iterable[str | None]) -> str | None:
    return next((each for each in found if each is not None), None)


def _named(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
