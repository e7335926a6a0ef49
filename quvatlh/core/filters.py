"""Which tasks are meant: the filters of section 9 as SQL conditions, and which of them the counters can answer."""

from __future__ import annotations

import sqlite3
from typing import Final, Literal

from msgspec import Struct

from quvatlh.core.model import Id, Name, TaskState, Text, TimeMs
from quvatlh.core.rows import json_list
from quvatlh.core.scopes import Condition, Scope, of_column
from quvatlh.core.scopes import condition as in_scope


class TaskFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is named must hold. Empty: every task."""

    state: tuple[TaskState, ...] = ()
    queue: Name | None = None
    group: Name | None = None
    name: Name | None = None
    worker: Name | None = None
    """Of the last award, or of a live action."""
    tag: Name | None = None
    """As a pattern of the task, word for word."""
    key: Name | None = None
    error: Name | None = None
    """The code."""
    q: Text | None = None
    """Text in id, name, key, error or spec; letters of ASCII in either case."""
    id: tuple[Id, ...] = ()
    created_after: TimeMs | None = None
    created_before: TimeMs | None = None
    at_after: TimeMs | None = None
    at_before: TimeMs | None = None
    finished_after: TimeMs | None = None
    finished_before: TimeMs | None = None
    kind: Literal["job", "service"] | None = None
    scope: Scope | None = None
    """Of who asks, and nobody's to write: what is outside of it is not there."""

    @property
    def is_empty(self) -> bool:
        return self == TaskFilter()

    @property
    def is_counted(self) -> bool:
        """Whether the counters know how many: only state and queue are named, and no group is out of scope."""
        if self.scope is not None and not self.scope.has_all_groups:
            return False
        return self == TaskFilter(state=self.state, queue=self.queue, scope=self.scope)


_EQUAL: Final = {"queue": "queue = ?", "group": "grp = ?", "name": "coalesce(name, id) = ?", "key": "key = ?",
                 "error": "error = ?"}  # fmt: skip
_RANGES: Final = {
    "created_after": "created_at > ?",
    "created_before": "created_at < ?",
    "at_after": "coalesce(at, created_at) > ?",
    "at_before": "coalesce(at, created_at) < ?",
    "finished_after": "finished_at > ?",
    "finished_before": "finished_at < ?",
}
_WORKER: Final = "(worker = ? OR seq IN (SELECT task FROM live WHERE worker = ?))"
_TAG: Final = "shape IN (SELECT shape.id FROM shape, json_each(shape.body, '$.tags') WHERE json_each.value = ?)"
_SEEN: Final = "CASE WHEN instr({0}, '\"env\":') = 0 THEN {0} ELSE json_remove({0}, '$.work.env') END"
"""Of a spec: what an environment holds is found by nobody."""
_TEXT: Final = f"""(instr(lower(id || char(10) || coalesce(name, '') || char(10) || coalesce(key, '') || char(10)
    || coalesce(error_text, '') || char(10) || coalesce({_SEEN.format("spec")}, '')), ?) > 0
    OR (spec IS NULL AND instr(lower((SELECT {_SEEN.format("body.spec")} FROM body WHERE task = seq)), ?) > 0))"""  # noqa: S608 - text of our own


def condition(wanted: TaskFilter) -> Condition:
    """An SQL condition over the columns of task, and its values."""
    parts: list[str] = []
    values: list[object] = []
    for field, sql in (_EQUAL | _RANGES).items():
        value = getattr(wanted, field)
        if value is not None:
            parts.append(sql)
            values.append(value)
    for field, names in (("state", wanted.state), ("id", wanted.id)):
        if names:
            parts.append(f"{field} IN (SELECT value FROM json_each(?))")  # noqa: S608 - text of our own
            values.append(json_list(names))
    if wanted.kind is not None:
        parts.append(f"service = {int(wanted.kind == 'service')}")
    if wanted.worker is not None:
        parts.append(_WORKER)
        values += [wanted.worker, wanted.worker]
    if wanted.tag is not None:
        parts.append(_TAG)
        values.append(wanted.tag)
    if wanted.q is not None:
        sql, its = has_text(wanted.q)
        parts.append(sql)
        values += its
    if wanted.scope is not None:
        sql, its = in_scope(wanted.scope)
        parts.append(sql)
        values += its
    return " AND ".join(parts) or "1", tuple(values)


def has_text(q: str) -> Condition:
    """The one condition that may have to read much: a spec has up to 128 KiB."""
    text = _ascii_lower(q)
    return _TEXT, (text, text)


def known_counts(db: sqlite3.Connection, wanted: TaskFilter, by: str) -> dict[str | None, int]:
    """By state or queue, of a filter that `is_counted`."""
    column = "b" if by == "state" else "a"
    of_queue, values = queues(wanted, "a")
    sql = f"SELECT {column}, sum(n) FROM tally WHERE scope = 'state' AND {of_queue} "  # noqa: S608 - text of our own
    sql += "AND (? = '[]' OR b IN (SELECT value FROM json_each(?))) GROUP BY 1"
    states = json_list(wanted.state)
    return dict(db.execute(sql, (*values, states, states)).fetchall())


def queues(wanted: TaskFilter, column: str) -> Condition:
    """The queues that may be meant: for small indexes and counters, which know nothing else."""
    named = ("1", ()) if wanted.queue is None else (f"{column} = ?", (wanted.queue,))
    scoped = ("1", ()) if wanted.scope is None else of_column(column, wanted.scope.queues)
    return f"{named[0]} AND {scoped[0]}", (*named[1], *scoped[1])


def _ascii_lower(text: str) -> str:
    """As SQLite's lower()."""
    return "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in text)
