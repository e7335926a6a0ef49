"""Tags of fair queueing as they stand in the tables, by scope: flows of a queue, queues beside each other, classes.

Apply moves them at each award, by the arithmetic of disciplines/sfq.py, which is of integers alone: so every node has the
same, nobody has to send them, and a new master goes on where the old one stopped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

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


class Run(NamedTuple):
    """What a row of starts did to tags."""

    weights: Mapping[str, int]
    """Of flows whose weight is not 1, as they were then."""
    virtual: int
    before: Mapping[str, int]
    """The finish tags of all flows that had a say."""
    virtual_after: int
    after: Mapping[str, int]


class Tags:
    """Those of one scope, as far as they were asked for."""

    __slots__ = ("_db", "_finish", "_known", "_scope", "moved", "served", "virtual")

    def __init__(self, db: sqlite3.Connection, scope: str, known: Tags | None = None) -> None:
        """`known`: what is read of there, and not of the tables."""
        self._known = known
        if known is None:
            row = db.execute("SELECT tag FROM virtual WHERE scope = ?", (scope,)).fetchone()
            self.virtual: int = row[0] if row else 0
        else:
            self.virtual = known.virtual
        self.moved = False
        """Virtual time is another than in the table."""
        self.served: set[str] = set()
        """Flows whose tags are others."""
        self._db = db
        self._scope = scope
        self._finish: dict[str, int] = {}

    @property
    def known(self) -> int:
        return len(self._finish)

    def items(self) -> Iterable[tuple[str, int]]:
        """What is known: of flows the finish tag."""
        return self._finish.items()

    def start_tag(self, flow: str) -> int:
        finish = self._finish.get(flow)
        if finish is None:
            finish = self._read(flow)
        virtual = self.virtual
        return finish if finish > virtual else virtual  # noqa: FURB136 - max takes twice as long, several times an award

    def finish(self, flow: str) -> int:
        found = self._finish.get(flow)
        return self._read(flow) if found is None else found

    def serve(self, flow: str, cost: int, weight: int) -> int:
        """It starts something. With which tag its next one may start."""
        tag = self._finish.get(flow)
        if tag is None:
            tag = self._read(flow)
        if tag < self.virtual:  # noqa: PLR1730 - as in start_tag
            tag = self.virtual
        self.virtual = tag
        after = self._finish[flow] = tag + span(cost, weight)
        self.moved = True
        self.served.add(flow)
        return after

    def serve_in_row(self, flow: str, cost: int, weight: int, times: int) -> None:
        """As `serve` so many times, one after the other: each begins where the one before it ended."""
        if times == 1:
            self.serve(flow, cost, weight)
            return
        after, each = self.serve(flow, cost, weight), span(cost, weight)
        self.virtual = after + (times - 2) * each
        self._finish[flow] = after + (times - 1) * each

    def repeat(self, run: Run, weights: Mapping[str, int]) -> bool:
        """As those starts would move them, if all stands as it stood then."""
        if self.virtual != run.virtual or weights != run.weights:
            return False
        self.know(run.before)
        if any(self.finish(flow) != tag for flow, tag in run.before.items()):
            return False
        self.virtual = run.virtual_after
        self._finish.update(run.after)
        self.moved = True
        self.served.update(run.after)
        return True

    def refund(self, flow: str, cost: int, weight: int) -> None:
        """What it started was given back. A tag that virtual time has passed is none, and stays none: it may have been swept."""
        tag = self.finish(flow)
        if tag > self.virtual:
            self._finish[flow] = max(0, tag - span(cost, weight))
            self.served.add(flow)

    def know(self, flows: Collection[str]) -> None:
        """Read what will be asked for, at once."""
        known = self._finish
        missing = [flow for flow in flows if flow not in known]
        if self._known is not None:
            self._known.know(missing)
            return
        if len(missing) < _TOGETHER_MIN:
            return
        missing = [flow for flow in missing if "\0" not in flow]  # JSON ends there for SQLite
        sql = "SELECT flow, finish FROM turn WHERE scope = ? AND flow IN (SELECT value FROM json_each(?))"
        found = self._db.execute(sql, (self._scope, json_list(missing))).fetchall()
        self._finish.update(dict.fromkeys(missing, 0))
        self._finish.update(found)

    def ahead(self) -> dict[str, int]:
        """Who is ahead of virtual time, with its tag."""
        sql = "SELECT flow, finish FROM turn WHERE scope = ? AND finish > ?"
        found: dict[str, int] = dict(self._db.execute(sql, (self._scope, self.virtual)).fetchall())
        found.update({flow: tag for flow, tag in self._finish.items() if tag > self.virtual})
        return found

    def _read(self, flow: str) -> int:
        if self._known is not None:
            found = self._finish[flow] = self._known.finish(flow)
            return found
        sql = "SELECT finish FROM turn WHERE scope = ? AND flow = ?"
        row = self._db.execute(sql, (self._scope, flow)).fetchone()
        found = self._finish[flow] = int(row[0]) if row else 0
        return found


class Turns:
    """Of the state machine, or of a round of the master, which writes nothing."""

    def __init__(self, db: sqlite3.Connection, known: Turns | None = None) -> None:
        """`known`: the state machine's, for a round."""
        self._db = db
        self._known = known
        self._tags: dict[str, Tags] = {}

    @property
    def known(self) -> int:
        return sum(tags.known for tags in self._tags.values())

    def items(self) -> Iterable[tuple[str, Tags]]:
        """What is known, by scope."""
        return self._tags.items()

    def forget(self) -> None:
        """What was read; nothing waits to be written."""
        self._tags.clear()

    def of(self, scope: str) -> Tags:
        """Until the scope is dropped or starts over."""
        found = self._tags.get(scope)
        if found is None:
            known = None if self._known is None else self._known.of(scope)
            found = self._tags[scope] = Tags(self._db, scope, known)
        return found

    def start_tag(self, scope: str, flow: str) -> int:
        return self.of(scope).start_tag(flow)

    def serve(self, scope: str, flow: str, cost: int, weight: int) -> int:
        return self.of(scope).serve(flow, cost, weight)

    def serve_in_row(self, scope: str, flow: str, cost: int, weight: int, times: int) -> None:
        self.of(scope).serve_in_row(flow, cost, weight, times)

    def refund(self, scope: str, flow: str, cost: int, weight: int) -> None:
        self.of(scope).refund(flow, cost, weight)

    def virtual(self, scope: str) -> int:
        return self.of(scope).virtual

    def know(self, scope: str, flows: Collection[str]) -> None:
        self.of(scope).know(flows)

    def ahead(self, scope: str) -> tuple[int, dict[str, int]]:
        """Virtual time, and who of the scope is ahead of it, with its tag."""
        tags = self.of(scope)
        return tags.virtual, tags.ahead()

    def drop(self, scope: str) -> None:
        """Nobody asks for it any more."""
        for table in ("turn", "virtual"):
            self._db.execute(f"DELETE FROM {table} WHERE scope = ?", (scope,))  # noqa: S608 - text of our own
        self._tags.pop(scope, None)

    def flush(self) -> list[str]:
        """Scopes whose tags had grown so far that they start over."""
        changed = [(scope, tags) for scope, tags in sorted(self._tags.items()) if tags.served]
        if not changed:
            return []
        moved = [(scope, tags.virtual) for scope, tags in changed if tags.moved]
        self._db.executemany("INSERT OR REPLACE INTO virtual VALUES (?, ?)", moved)
        served = [(scope, flow, tags.finish(flow)) for scope, tags in changed for flow in sorted(tags.served)]
        self._db.executemany("INSERT OR REPLACE INTO turn VALUES (?, ?, ?)", served)
        for _, tags in changed:
            tags.moved = False
            tags.served.clear()
        return [scope for scope, tag in moved if tag >= TAG_MAX]

    def start_over(self, scope: str) -> int:
        """All its tags less the virtual time; how much that was."""
        tag = self.virtual(scope)
        self._db.execute("UPDATE turn SET finish = max(0, finish - ?) WHERE scope = ?", (tag, scope))
        self._db.execute("UPDATE virtual SET tag = 0 WHERE scope = ?", (scope,))
        self._tags.clear()
        return tag
