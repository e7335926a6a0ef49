"""Tags of fair queueing as they stand in the tables, by scope: flows of a queue, queues beside each other, classes.

Apply moves them at each award, by the arithmetic of disciplines/sfq.py, which is of integers alone: so every node has the
same, nobody has to send them, and a new master goes on where the old one stopped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Final

from quvatlh.core.disciplines.sfq import TAG_MAX, span
from quvatlh.core.rows import json_list

_TOGETHER_MIN: Final = 3
QUEUES: Final = "queues"
"""The scope of queues without a class."""


def of_class(name: str) -> str:
    """The scope of the queues of a class."""
    return f"class/{name}"


def lent_by(scope: str) -> str:
    """The scope of classes that may have the same: what they are assured, or what one class lends."""
    return f"lent/{scope}"


class Turns:
    """Of one entry, or of a round of the master, which writes nothing."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._virtual: dict[str, int] = {}
        self._finish: dict[tuple[str, str], int] = {}
        self._moved: set[str] = set()
        self._served: set[tuple[str, str]] = set()

    def start_tag(self, scope: str, flow: str) -> int:
        return max(self.virtual(scope), self.finish(scope, flow))

    def serve(self, scope: str, flow: str, cost: int, weight: int) -> int:
        """It starts something; with which tag."""
        tag = self.start_tag(scope, flow)
        self._virtual[scope] = tag
        self._finish[scope, flow] = tag + span(cost, weight)
        self._moved.add(scope)
        self._served.add((scope, flow))
        return tag

    def serve_in_row(self, scope: str, flow: str, cost: int, weight: int, times: int) -> None:
        """As `serve` so many times, one after the other: each begins where the one before it ended."""
        first = self.serve(scope, flow, cost, weight)
        each = span(cost, weight)
        self._virtual[scope] = first + (times - 1) * each
        self._finish[scope, flow] = first + times * each

    def refund(self, scope: str, flow: str, cost: int, weight: int) -> None:
        """What it started was given back."""
        self._finish[scope, flow] = max(0, self.finish(scope, flow) - span(cost, weight))
        self._served.add((scope, flow))

    def virtual(self, scope: str) -> int:
        found = self._virtual.get(scope)
        if found is None:
            row = self._db.execute("SELECT tag FROM virtual WHERE scope = ?", (scope,)).fetchone()
            found = self._virtual[scope] = row[0] if row else 0
        return found

    def finish(self, scope: str, flow: str) -> int:
        found = self._finish.get((scope, flow))
        if found is None:
            sql = "SELECT finish FROM turn WHERE scope = ? AND flow = ?"
            row = self._db.execute(sql, (scope, flow)).fetchone()
            found = self._finish[scope, flow] = row[0] if row else 0
        return found

    def know(self, scope: str, flows: Collection[str]) -> None:
        """Read what will be asked for, at once."""
        missing = [flow for flow in flows if (scope, flow) not in self._finish]
        if len(missing) < _TOGETHER_MIN:
            return
        self._finish.update(((scope, flow), 0) for flow in missing)
        sql = "SELECT flow, finish FROM turn WHERE scope = ? AND flow IN (SELECT value FROM json_each(?))"
        for flow, finish in self._db.execute(sql, (scope, json_list(missing))):
            self._finish[scope, flow] = finish

    def ahead(self, scope: str) -> tuple[int, dict[str, int]]:
        """Virtual time, and who of the scope is ahead of it, with its tag."""
        now = self.virtual(scope)
        sql = "SELECT flow, finish FROM turn WHERE scope = ? AND finish > ?"
        found: dict[str, int] = dict(self._db.execute(sql, (scope, now)).fetchall())
        found.update({flow: tag for (within, flow), tag in self._finish.items() if within == scope and tag > now})
        return now, found

    def drop(self, scope: str) -> None:
        """Nobody asks for it any more."""
        for table in ("turn", "virtual"):
            self._db.execute(f"DELETE FROM {table} WHERE scope = ?", (scope,))  # noqa: S608 - text of our own
        self._virtual.pop(scope, None)
        self._finish = {place: tag for place, tag in self._finish.items() if place[0] != scope}
        self._moved.discard(scope)
        self._served = {place for place in self._served if place[0] != scope}

    def flush(self) -> list[str]:
        """Scopes whose tags had grown so far that they start over."""
        if not self._served:
            return []
        moved = [(scope, self._virtual[scope]) for scope in sorted(self._moved)]
        self._db.executemany("INSERT OR REPLACE INTO virtual VALUES (?, ?)", moved)
        served = [(*place, self._finish[place]) for place in sorted(self._served)]
        self._db.executemany("INSERT OR REPLACE INTO turn VALUES (?, ?, ?)", served)
        self._moved.clear()
        self._served.clear()
        return [scope for scope, tag in moved if tag >= TAG_MAX]

    def start_over(self, scope: str) -> int:
        """All its tags less the virtual time; how much that was."""
        tag = self.virtual(scope)
        self._db.execute("UPDATE turn SET finish = max(0, finish - ?) WHERE scope = ?", (tag, scope))
        self._db.execute("UPDATE virtual SET tag = 0 WHERE scope = ?", (scope,))
        self._virtual.clear()
        self._finish.clear()
        return tag
