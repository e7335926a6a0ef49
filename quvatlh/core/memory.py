"""What the tables say of what nearly every entry asks, kept from one entry to the next: counters, queues, shapes, tags, serial
numbers, who is first of a line, and what came into lines lately.

It belongs to one connection, and is what stands there whenever an entry has been flushed: these tables are written through it
alone. What is known and what would have to be read are the same, so a node that has just started, and knows nothing, makes
the same of the next entry. How much is known is bounded: beyond that all of a kind is read anew.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from quvatlh.core.ahead import Ahead
from quvatlh.core.books import Queues, Shapes
from quvatlh.core.tally import NameTally, Tally
from quvatlh.core.turns import Turns

if TYPE_CHECKING:
    from quvatlh.core.ahead import Line
    from quvatlh.core.lines import First

KNOWN_MAX: Final = 10_000
"""Of each kind: some 2 MB where there are so many keys, names and queues."""


class Memory:
    """Of one connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.tally = Tally(db)
        self.names = NameTally(db)
        self.queues = Queues(db)
        self.shapes = Shapes(db, self.tally)
        self.turns = Turns(db)
        self.ahead = Ahead()
        self.firsts: dict[Line, First | None] = {}
        """None: the line is empty."""
        self.serials: dict[str, int] = dict(db.execute("SELECT name, n FROM serial").fetchall())

    def trim(self) -> None:
        """After an entry: nothing waits to be written."""
        for kind in (self.tally, self.names, self.queues, self.shapes, self.turns):
            if kind.known > KNOWN_MAX:
                kind.forget()
        if len(self.firsts) > KNOWN_MAX or self.ahead.known > KNOWN_MAX:
            self.forget_lines()

    def forget_lines(self) -> None:
        self.firsts.clear()
        self.ahead.forget()
