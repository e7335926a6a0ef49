"""Counters: what is read without scanning. Changes are collected over an entry and written once; what was read is known from
then on (memory.py).

A counter at zero has no row, so that keys and workers that come and go leave nothing behind.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from quvatlh.core.limits import NO_LIMIT

STATE: Final = "state"
"""(queue, state): tasks."""
READY: Final = "ready"
"""(queue, shape): tasks in the ready order."""
KEPT: Final = "kept"
"""(queue, kept): finished tasks by what they are kept for."""
PRIORITY: Final = "priority"
"""('', priority): tasks, for lists sorted by it."""
SHAPE: Final = "shape"
"""('', shape): tasks that have it."""
LIVE: Final = "live"
"""(queue, ''): live actions."""
LIVE_WORKER: Final = "live_worker"
"""(queue, worker): live actions."""
LIVE_KEY: Final = "live_key"
"""(queue, key): live actions."""

NAMED: Final = "named"
"""(group and name, queue): ready tasks in lines of a limited name (lines.py)."""

Counter = tuple[str, str, str | int]

_TOGETHER_MIN: Final = 3
IN_LINE: Final = "pending, in a line"
"""Stands for the state of a new task that is pending and not in the ready order."""

_READ = "SELECT n FROM tally WHERE scope = ? AND a = ? AND b = ?"
_HAS_ANY = "SELECT 1 FROM tally WHERE scope = ? LIMIT 1"
_WRITE = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?)"
_DROP = "DELETE FROM tally WHERE scope = ? AND a = ? AND b = ?"
_UPSERT_NAME = "INSERT INTO name_live VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n"
_DROP_NAME = "DELETE FROM name_live WHERE grp = ? AND name = ? AND lim = ? AND n = 0"


class Tally:
    """The counters, with what an entry has changed so far."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._changes: defaultdict[Counter, int] = defaultdict(int)
        self._new: defaultdict[tuple[str, str, int, int], int] = defaultdict(int)
        self._before: dict[Counter, int] = {}
        """What stands in the table; 0 has no row."""
        self.scopes: dict[str, bool] = {}
        """Of those that were asked for: whether the table has any counter of it."""

    @property
    def known(self) -> int:
        return len(self._before)

    def items(self) -> Iterable[tuple[Counter, int]]:
        """What is known."""
        return self._before.items()

    def forget(self) -> None:
        """What was read; nothing waits to be written."""
        self._before.clear()

    def has_any(self, scope: str) -> bool:
        """In the table, whatever has changed since the last flush."""
        found = self.scopes.get(scope)
        if found is None:
            found = self.scopes[scope] = self._db.execute(_HAS_ANY, (scope,)).fetchone() is not None
        return found

    def add(self, scope: str, a: str, b: str | int, n: int) -> None:
        self._changes[scope, a, b] += n

    def move(self, scope: str, a: str, b: str, n: int) -> int:
        """As `add`; how much it is then."""
        counter = (scope, a, b)
        before = self._before.get(counter)
        if before is None:
            before = self._read(counter)
        change = self._changes[counter] = self._changes.get(counter, 0) + n
        return before + change

    def add_new(self, queue: str, state: str, priority: int, shape: int) -> None:
        """A task came into the table: all counters of tasks, summed up before any is read."""
        self._new[queue, state, priority, shape] += 1

    def get(self, scope: str, a: str, b: str | int) -> int:
        if self._new:
            self._sum_up()
        counter = (scope, a, b)
        before = self._before.get(counter)
        return (self._read(counter) if before is None else before) + self._changes.get(counter, 0)

    def _read(self, counter: Counter) -> int:
        row = self._db.execute(_READ, counter).fetchone()
        found = self._before[counter] = int(row[0]) if row else 0
        return found

    def know(self, scope: str, a: str, several: Collection[str]) -> None:
        """Read what will be asked for, at once."""
        known = self._before
        missing = [b for b in several if (scope, a, b) not in known]
        if len(missing) < _TOGETHER_MIN:
            return
        missing = [b for b in missing if "\0" not in b]  # JSON ends there for SQLite
        sql = "SELECT b, n FROM tally WHERE scope = ? AND a = ? AND b IN (SELECT value FROM json_each(?))"
        found = self._db.execute(sql, (scope, a, msgspec.json.encode(missing).decode())).fetchall()
        self._before.update(((scope, a, b), 0) for b in missing)
        self._before.update(((scope, a, b), n) for b, n in found)

    def _sum_up(self) -> None:
        for (queue, state, priority, shape), n in self._new.items():
            if state != IN_LINE:
                self.add(STATE, queue, state, n)
            self.add(PRIORITY, "", priority, n)
            self.add(SHAPE, "", shape, n)
            if state == "pending":
                self.add(READY, queue, shape, n)
            elif state == IN_LINE:
                self.add(STATE, queue, "pending", n)
        self._new.clear()

    def flush(self) -> None:
        self._sum_up()
        known = self._before
        written: list[tuple[str, str, str | int, int]] = []
        gone: list[Counter] = []
        for counter, n in self._changes.items():
            if not n:
                continue
            before = known.get(counter)
            after = known[counter] = (self._read(counter) if before is None else before) + n
            if after:
                written.append((*counter, after))
            else:
                gone.append(counter)
        if written:
            self._db.executemany(_WRITE, written)
        if gone:
            self._db.executemany(_DROP, gone)
        for scope in {row[0] for row in written} | {counter[0] for counter in gone}:
            self.scopes.pop(scope, None)
        self._changes.clear()


class NameTally:
    """Live actions by group, name and limit.

    A task without a name of its own and without limit is not in here: it has no namesake but one that was given its id
    as a name, and for that one `others` looks it up. So ordinary tasks pay nothing for names.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._limits: dict[tuple[str, str], dict[int, int]] = {}
        self._changed: dict[tuple[str, str, int], int] = {}
        self._any: bool | None = None

    @property
    def known(self) -> int:
        return len(self._limits)

    def items(self) -> Iterable[tuple[tuple[str, str], Mapping[int, int]]]:
        """What is known."""
        return self._limits.items()

    def forget(self) -> None:
        """What was read; nothing waits to be written."""
        self._limits.clear()

    def any(self) -> bool:
        """Whether any action is counted by name at all."""
        if self._any is None:
            self._any = self._db.execute("SELECT 1 FROM name_live LIMIT 1").fetchone() is not None
        return self._any

    def live(self, group: str, name: str) -> dict[int, int]:
        """Limit -> live actions that have it."""
        found = self._limits.get((group, name))
        if found is None:
            rows = self._db.execute("SELECT lim, n FROM name_live WHERE grp = ? AND name = ?", (group, name))
            found = self._limits[group, name] = dict(rows.fetchall())
        return found

    def add(self, group: str, name: str, limit: int | None, n: int) -> None:
        key = NO_LIMIT if limit is None else limit
        counted = self.live(group, name)
        counted[key] = counted.get(key, 0) + n
        self._changed[group, name, key] = self._changed.get((group, name, key), 0) + n
        if n > 0:
            self._any = True

    def flush(self) -> None:
        changed = [(*key, n) for key, n in self._changed.items() if n]
        if changed:
            self._db.executemany(_UPSERT_NAME, changed)
            less = [row[:3] for row in changed if row[3] < 0]
            if less:
                self._db.executemany(_DROP_NAME, less)
                self._any = None
        for group, name, limit in self._changed:
            counted = self._limits[group, name]
            if counted.get(limit) == 0:
                del counted[limit]
        self._changed.clear()
