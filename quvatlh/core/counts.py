"""How many tasks there are of each value of a field, and when they ended: over many reads where there are many tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from quvatlh.core.filters import TaskFilter, known_counts
from quvatlh.core.model import FINISHED
from quvatlh.core.pages import OutOfTime, Place, cursor_of, finished, place_of, steps
from quvatlh.core.rows import json_list
from quvatlh.core.views import Group, Groups

GROUPS: Final = {"state": "state", "queue": "queue", "group": "grp", "name": "coalesce(name, id)", "worker": "worker",
                 "error": "error", "key": "key"}  # fmt: skip
_GROUPS_MAX: Final = 10_000
_TOGETHER_MAX: Final = 2048
"""Rows counted by one query: a millisecond."""
_COUNTING: Final = "groups"
"""The order of counting, in cursors: no other may go on there."""


class Spread(NamedTuple):
    """Equal parts of a stretch of time, by when tasks ended. The filter names the same stretch."""

    since_ms: int
    span_ms: int
    parts: int


_Counted = dict[tuple[str | None, int], int]
"""By value and part; without a spread there is one part."""


def count_groups(
    db: sqlite3.Connection,
    wanted: TaskFilter,
    by: str,
    *,
    spread: Spread | None = None,
    cursor: str | None = None,
    out_of_time: OutOfTime = lambda: False,
) -> Groups:
    """How many tasks of each value, the most first. Out of time, those of some tasks, the youngest first; `cursor` goes on
    with the others, to be added (`add_groups`)."""
    if spread is not None:
        wanted = finished(wanted)  # along the index by end, whatever states are named
    elif by in {"state", "queue"} and wanted.is_counted:
        return add_groups([Groups(tuple(Group(*each) for each in known_counts(db, wanted, by).items()), None)])
    counted, place = _counted(db, wanted, GROUPS[by], spread, cursor, out_of_time)
    width = 0 if spread is None else spread.parts
    groups: dict[str | None, list[int]] = {}
    for (value, part), n in counted.items():
        group = groups.setdefault(value, [0] * (1 + width))
        group[0] += n
        if width:
            group[1 + part] += n
    made = tuple(Group(value, n, tuple(parts)) for value, (n, *parts) in groups.items())
    return add_groups([Groups(made, None if place is None else cursor_of(place, _COUNTING))])


def add_groups(parts: Sequence[Groups]) -> Groups:
    """Counts of different tasks, as one; so far as the last of them came."""
    counted: dict[str | None, Group] = {}
    for part in parts:
        for group in part.groups:
            known = counted.get(group.value)
            counted[group.value] = group if known is None else _sum(known, group)
    ordered = sorted(counted.values(), key=lambda group: (-group.count, group.value or ""))
    cut_off = len(ordered) > _GROUPS_MAX or any(part.cut_off for part in parts)
    return Groups(tuple(ordered[:_GROUPS_MAX]), parts[-1].cursor, cut_off)


def _sum(one: Group, other: Group) -> Group:
    parts = tuple(a + b for a, b in zip(one.parts, other.parts, strict=True))
    return Group(one.value, one.count + other.count, parts)


def _counted(
    db: sqlite3.Connection,
    wanted: TaskFilter,
    column: str,
    spread: Spread | None,
    cursor: str | None,
    out_of_time: OutOfTime,
) -> tuple[_Counted, Place | None]:
    """What has ended is counted along its own small index, everything else by arrival."""
    counted: _Counted = {}
    waiting: list[int] = []
    after = None if cursor is None else place_of(cursor, _COUNTING)
    field = "finished_at" if wanted.state and set(wanted.state) <= set(FINISHED) else "created_at"
    for step in steps(db, wanted, field, after, descending=True):
        if step.wanted:
            waiting.append(step.place[1])
        is_full = len(waiting) >= _TOGETHER_MAX
        is_late = (is_full or not step.wanted) and out_of_time()
        if is_full or is_late:
            _count(db, column, spread, waiting, counted)
        if is_late:
            return counted, step.place
    _count(db, column, spread, waiting, counted)
    return counted, None


def _count(db: sqlite3.Connection, column: str, spread: Spread | None, seqs: list[int], counted: _Counted) -> None:
    part, values = "0", []
    if spread is not None:
        part = "max(0, min(? - 1, (finished_at - ?) * ? / ?))"
        values = [spread.parts, spread.since_ms, spread.parts, spread.span_ms]
    sql = f"SELECT {column}, {part}, count(*) FROM task WHERE seq IN (SELECT value FROM json_each(?)) GROUP BY 1, 2"  # noqa: S608 - text of our own
    for value, at, n in db.execute(sql, (*values, json_list(seqs))):
        counted[value, at] = counted.get((value, at), 0) + n
    seqs.clear()
