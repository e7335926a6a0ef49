"""What is live, whose it is: actions by worker, group or queue, and lists of them. Read from `live`, which is small: nothing
here looks at a task that waits or is over.
"""

from __future__ import annotations

import sqlite3
from typing import Final, Literal

from msgspec import Struct

from quvatlh.core.model import Name
from quvatlh.core.queries import live_view
from quvatlh.core.rows import LIVE_COLUMNS, LiveRow, live_row
from quvatlh.core.scopes import Condition, Scope
from quvatlh.core.scopes import condition as in_scope
from quvatlh.core.views import Group, OwnedPage, OwnedView

OwnedBy = Literal["worker", "group", "queue"]
_COLUMNS: Final = {"worker": "worker", "group": "grp", "queue": "queue"}
_NAME: Final = "(SELECT coalesce(task.name, task.id) FROM task WHERE seq = live.task)"


class OwnedFilter(Struct, frozen=True, kw_only=True):
    """All that is named must hold. Queue and group are those it was awarded in: that is where it counts."""

    group: Name | None = None
    queue: Name | None = None
    worker: Name | None = None
    kind: Literal["job", "service"] | None = None
    scope: Scope | None = None


def count_owned(db: sqlite3.Connection, wanted: OwnedFilter, by: OwnedBy) -> list[Group]:
    """The most first; exact."""
    where, values = _condition(wanted)
    column = _COLUMNS[by]
    sql = f"SELECT {column}, count(*) FROM live WHERE {where} GROUP BY 1 ORDER BY 2 DESC, 1"  # noqa: S608 - text of our own
    return [Group(value, n) for value, n in db.execute(sql, values)]


def list_owned(db: sqlite3.Connection, wanted: OwnedFilter, *, limit: int, after: int = 0) -> OwnedPage:
    """In the order of their awards; `after` is the token of the last one of the page before. The total is exact."""
    where, values = _condition(wanted)
    sql = f"SELECT {', '.join(LIVE_COLUMNS)}, {_NAME} FROM live WHERE {where} AND token > ? ORDER BY token LIMIT ?"  # noqa: S608 - text of our own
    rows = db.execute(sql, (*values, after, limit + 1)).fetchall()
    items = tuple(_owned(live_row(columns), name) for *columns, name in rows[:limit])
    total = db.execute(f"SELECT count(*) FROM live WHERE {where}", values).fetchone()[0]  # noqa: S608 - text of our own
    return OwnedPage(items, items[-1].action.token if len(rows) > limit else None, total)


def _owned(row: LiveRow, name: str) -> OwnedView:
    return OwnedView(live_view(row), name, row.grp, row.queue, "service" if row.service else "job")


def _condition(wanted: OwnedFilter) -> Condition:
    parts = ["1"]
    values: list[object] = []
    for field, column in _COLUMNS.items():
        value = getattr(wanted, field)
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if wanted.kind is not None:
        parts.append(f"service = {int(wanted.kind == 'service')}")
    if wanted.scope is not None:
        sql, its = in_scope(wanted.scope)
        parts.append(sql)
        values += its
    return " AND ".join(parts), tuple(values)
