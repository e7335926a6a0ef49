"""One queue's part in a round of the market: its ready tasks in order, over all shapes that somebody may take."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quvatlh.core import market
from quvatlh.core.rows import TaskRow
from quvatlh.core.views import QueueView
from quvatlh.service.bids import Bid

LOOKED_AT_MAX: Final = 2000
"""Ready tasks of one queue and shape that a round looks at, passed-over ones included."""


class Entrants(NamedTuple):
    """Tasks of one shape, and the workers that may have them, slots aside."""

    rows: Iterator[TaskRow]
    bids: Sequence[Bid]
    policy: bool
    """They ask for a policy, and `rows` are those that somebody bids for."""


class Lane:
    def __init__(self, queue: QueueView, room: int, shapes: Mapping[int, Entrants]) -> None:
        self.queue = queue
        self.turn = 0.0
        self._room = room
        self._shapes = shapes
        self._heads: dict[int, TaskRow | None] = {n: next(each.rows, None) for n, each in shapes.items()}
        self._at = 0

    def next(self) -> tuple[TaskRow, Entrants] | None:
        """First by rank, then by arrival. It is taken by `turned`, left where it is by `pass_over` or `skip`."""
        if self._room <= 0:
            return None
        heads = [(row.rank, row.seq, shape) for shape, row in self._heads.items() if row is not None]
        if not heads:
            return None
        self._at = min(heads)[2]
        row = self._heads[self._at]
        assert row is not None
        return row, self._shapes[self._at]

    @property
    def room(self) -> int:
        return self._room

    def turned(self, starts: int = 1) -> None:
        self._room -= starts
        self.turn += starts / self.queue.settings.weight
        self.pass_over()

    def pass_over(self) -> None:
        """This task cannot be placed now; the next of its shape may."""
        self._heads[self._at] = next(self._shapes[self._at].rows, None)

    def skip(self) -> None:
        """Nobody can take one of this shape now."""
        self._heads[self._at] = None


def ready(db: sqlite3.Connection, queue: str, shape: int, wanted: Callable[[TaskRow], bool]) -> Iterator[TaskRow]:
    """From the table, in pieces."""
    after: tuple[int, int] | None = None
    looked_at, size = 0, 16
    while looked_at < LOOKED_AT_MAX:
        rows = market.ready_tasks(db, queue, shape, limit=size, after=after)
        yield from filter(wanted, rows)
        if len(rows) < size:
            return
        after = (rows[-1].rank, rows[-1].seq)
        looked_at, size = looked_at + len(rows), min(2 * size, 256)
