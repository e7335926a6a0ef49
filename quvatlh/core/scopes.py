"""What a narrowed token may touch: tasks by their queue and group, as globs. One meaning, in Python and in SQL.

Only `*` (any text) and `?` (one character) are special, and case counts; `[` and all else stand for themselves, since
Python and SQLite differ about it. A scope of everything is no scope at all: None, wherever one is asked for.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from msgspec import Struct

from quvatlh.core.model import Names
from quvatlh.core.rows import json_list

Condition = tuple[str, tuple[object, ...]]


class Scope(Struct, frozen=True, array_like=True):
    """A task is in it if its queue matches one of `queues`, and its group one of `groups`. Without patterns: nothing is."""

    queues: Names = ("*",)
    groups: Names = ("*",)

    def has(self, queue: str, group: str) -> bool:
        return self.has_queue(queue) and self.has_group(group)

    def has_queue(self, name: str) -> bool:
        return matches_any(name, self.queues)

    def has_group(self, name: str) -> bool:
        return matches_any(name, self.groups)

    @property
    def is_all(self) -> bool:
        return self.has_all_queues and self.has_all_groups

    @property
    def has_all_queues(self) -> bool:
        return "*" in self.queues

    @property
    def has_all_groups(self) -> bool:
        return "*" in self.groups


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, _escaped(pattern)) for pattern in patterns)


def narrowed(patterns: Sequence[str], bounds: Sequence[str]) -> tuple[str, ...]:
    """What is left of globs (of a worker, of a claim) inside others: never more than both, and less where neither of two
    is the narrower one. What no scope can hold (`[`) is left only where there is no bound."""
    if "*" in bounds:
        return tuple(patterns)
    found: dict[str, None] = {}
    for pattern in patterns:
        for bound in bounds:
            if "[" not in pattern and _covers(bound, pattern):
                found[pattern] = None
            elif "[" not in bound and _covers(pattern, bound):
                found[bound] = None
    return tuple(found)


def _covers(wide: str, narrow: str) -> bool:
    """Whether what the one stands for is surely in the other: the narrow one read as a text in which `*` is a letter that
    only a `*` of the wide one takes, and `?` one that its `?` takes too."""
    if "[" in wide:
        return False
    places = _reached(wide, {0})
    for letter in narrow:
        stays = {place for place in places if wide[place : place + 1] == "*"}
        moves = {place + 1 for place in places if letter != "*" and wide[place : place + 1] in {"?", letter}}
        places = _reached(wide, stays | moves)
    return len(wide) in places


def _reached(wide: str, places: set[int]) -> set[int]:
    """With those behind a `*` that takes nothing."""
    found = set(places)
    for place in places:
        end = place
        while wide[end : end + 1] == "*":
            end += 1
            found.add(end)
    return found


def condition(scope: Scope, queue: str = "queue", group: str = "grp") -> Condition:
    """An SQL condition over the columns of these names, and its values."""
    parts = [of_column(queue, scope.queues), of_column(group, scope.groups)]
    return " AND ".join(sql for sql, _ in parts), tuple(value for _, values in parts for value in values)


def of_column(column: str, patterns: Sequence[str]) -> Condition:
    """Exact names as a list, which an index can use, and the others as globs."""
    if "*" in patterns:
        return "1", ()
    exact = [pattern for pattern in patterns if not _is_glob(pattern)]
    globs = [_escaped(pattern) for pattern in patterns if _is_glob(pattern)]
    parts = [f"{column} GLOB ?"] * len(globs)
    values = globs
    if len(exact) == 1:
        parts, values = [f"{column} = ?", *parts], [*exact, *values]
    elif exact:
        parts = [f"{column} IN (SELECT value FROM json_each(?))", *parts]  # noqa: S608 - text of our own
        values = [json_list(exact), *values]
    return f"({' OR '.join(parts) or '0'})", tuple(values)


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


def _escaped(pattern: str) -> str:
    return pattern.replace("[", "[[]")
