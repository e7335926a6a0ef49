"""The tree of classes as the tables have it: settings, slots in use, buckets. Read when a queue in a class starts something."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

import msgspec

from quvatlh.core.disciplines.htb import Bucket, Tree
from quvatlh.core.model import HtbClass

if TYPE_CHECKING:
    from quvatlh.core.unit import Unit

_CLASS: Final = msgspec.json.Decoder(HtbClass)
_USED: Final = """
SELECT queue.settings ->> 'class' class, sum(live.slots) FROM live JOIN queue ON queue.name = live.queue
WHERE class IS NOT NULL GROUP BY 1"""


def read_tree(db: sqlite3.Connection, now_ms: int) -> Tree:
    """`live` is small, so slots in use are counted there; no counter has to follow a queue from class to class."""
    classes = {name: _CLASS.decode(text) for name, text in db.execute("SELECT name, settings FROM class ORDER BY name")}
    used: dict[str, int] = dict(db.execute(_USED).fetchall())
    buckets = {name: Bucket(*row) for name, *row in db.execute("SELECT class, rate_units, ceil_units, at FROM bucket")}
    return Tree(classes, used, buckets, now_ms)


class Classes:
    """Of one entry."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._tree: Tree | None = None

    @property
    def is_read(self) -> bool:
        return self._tree is not None

    @property
    def tree(self) -> Tree:
        """As of all that the entry has done so far. Queues and actions must stand in the tables when it is first read."""
        if self._tree is None:
            self._unit.queues.flush()
            self._tree = read_tree(self._unit.db, self._unit.now)
        return self._tree

    def ended(self, queue: str, slots: int, *, started: bool = False) -> None:
        """An action of a queue is live no more, and the tree has counted it; `started`: it never began, and the start is
        given back."""
        if self._tree is None and not started:
            return
        state = self._unit.queues.get(queue)
        if state is not None and state.settings.class_ is not None:
            self.tree.give_back(state.settings.class_, slots, started=started)

    def forget(self) -> None:
        """Classes or their queues have changed."""
        self.flush()
        self._tree = None

    def flush(self) -> None:
        if self._tree is None or not self._tree.changed:
            return
        rows = [(name, each.rate_units, each.ceil_units, each.at_ms) for name, each in self._tree.changed.items()]
        self._unit.db.executemany("INSERT OR REPLACE INTO bucket VALUES (?, ?, ?, ?)", sorted(rows))
        self._tree.changed.clear()
