"""One queue's part in a round of the market: its ready tasks in order, over all shapes that somebody may take.

The tables have one of each line in the ready order (core/lines.py). When a round has taken it, or sees that it is under way,
those behind it come up here, as they will in the tables once that is applied: so a round can give out many of one flow.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quvatlh.core import market, tally
from quvatlh.core.disciplines import FAIR
from quvatlh.core.lines import flows
from quvatlh.core.model import QueueSettings
from quvatlh.core.rows import Queued
from quvatlh.core.views import QueueView
from quvatlh.service.bids import Bid
from quvatlh.service.holds import Holds

LOOKED_AT_MAX: Final = 2000
"""Ready tasks of one queue and shape that a round looks at, passed-over ones included."""
PIECE_MAX: Final = 64
"""Rows read at once. Of the last piece most are often not wanted: a row costs three microseconds, a question ten."""

Place = tuple[int, int]


class Stream:
    """Tasks of one queue and shape in their order, without those that are under way, refused, or held by a limit."""

    def __init__(
        self, rows: Iterator[Queued], behind: Callable[[Queued], Iterator[list[Queued]]], queue: QueueView, holds: Holds,
        is_wanted: Callable[[Queued], bool],
    ) -> None:  # fmt: skip
        """`rows` are those of the ready order; `behind` those that stand behind one in its line, in pieces, each turned round."""
        self._rows = rows
        self._behind = behind
        self._holds = holds
        self._most = queue.settings.limit_per_key
        self._live = holds.counts(tally.LIVE_KEY, queue.name)
        self._is_wanted = is_wanted
        self._tags = holds.turns.of(flows(queue.name)) if queue.settings.discipline == FAIR else None
        self._heap: list[tuple[int, int, Queued]] = []
        """Place, seq, task; with its seq below zero one that stands for whoever is behind it in its line: nobody asks before it
        is their turn, and then before their equals are looked at."""
        self._lines: dict[str, Iterator[list[Queued]]] = {}
        self._pieces: dict[str, list[Queued]] = {}
        """What of them was read, the next one last."""
        self._is_open = True
        self._next()

    def head(self) -> Queued | None:
        """First by rank, then by arrival; of those whose flow has been served meanwhile, the new place counts."""
        while self._is_open and self._heap:
            rank, seq, row = self._heap[0]
            if seq < 0:
                self._follow(row)
                self._fill()
                continue
            place = self._rank(row, rank)
            if place > rank:
                heapq.heapreplace(self._heap, (place, seq, row))
                self._fill()
            elif self._is_full(row):
                self._drop()
            elif not self._is_wanted(row) or self._holds.name_is_full(row):
                self.pass_over()
            else:
                return row
        return None

    def _is_full(self, row: Queued) -> bool:
        """As many of its key are live as may be."""
        return self._most is not None and row.key is not None and self._live[row.key] >= self._most

    def place(self) -> Place | None:
        """Of the head."""
        row = self.head()
        return None if row is None else (self._heap[0][0], row.seq)

    def _rank(self, row: Queued, least: int) -> int:
        if self._tags is None:
            return least
        tag = self._tags.start_tag(row.key or "")
        return max(least, tag)

    def pass_over(self) -> None:
        """This task cannot be placed now, or has just been; the next of its line, or of its shape, may."""
        rank, seq, row = self._heap[0]
        if row.flow is None:
            self._drop()
            return
        if self._pieces.get(row.flow):
            self._follow(row)
        else:
            heapq.heapreplace(self._heap, (self._rank(row, rank), -seq, row))
        self._fill()

    def _follow(self, gone: Queued) -> None:
        """The next one of its line stands in its place."""
        flow = gone.flow or ""
        piece = self._pieces.get(flow) or ([] if self._is_full(gone) else self._piece(gone, flow))
        if piece:
            following = piece.pop()
            rank = following.turn if self._tags is None else self._tags.start_tag(following.key or "")
            heapq.heapreplace(self._heap, (rank, following.seq, following))
        else:
            heapq.heappop(self._heap)

    def _piece(self, gone: Queued, flow: str) -> list[Queued]:
        line = self._lines.get(flow)
        if line is None:
            line = self._lines[flow] = self._behind(gone)
        piece = self._pieces[flow] = next(line, [])
        return piece

    def close(self) -> None:
        """Nobody can take one of this shape now."""
        self._is_open = False

    def _drop(self) -> None:
        heapq.heappop(self._heap)
        self._fill()

    def _fill(self) -> None:
        """One of the ready order has fallen behind: so those that may be before it now have to be known as well."""
        while self._last is not None and (not self._heap or self._heap[0][:2] > self._last):
            self._next()

    def _next(self) -> None:
        row = next(self._rows, None)
        self._last = None if row is None else (row.rank, row.seq)
        if row is not None:
            heapq.heappush(self._heap, (row.rank, row.seq, row))

    _last: Place | None = None
    """How far the ready order was read; None: to its end."""


class Entrants(NamedTuple):
    """Tasks of one shape, and the workers that may have them, slots aside."""

    rows: Stream
    bids: Sequence[Bid]
    policy: bool
    """They ask for a policy, and `rows` are those that somebody bids for."""


class Plain(NamedTuple):
    """A lane in which nothing but slots has a say, or that is fair by key: its shape, and the workers that may have it."""

    queue: str
    shape: int
    slots: int
    bids: Sequence[Bid]


def is_plain(settings: QueueSettings) -> bool:
    """Whether all that they say of what may start next is how much."""
    rules = (settings.limit_per_key, settings.limit_per_worker, settings.class_)
    return settings.limit != 1 and settings.discipline != FAIR and all(rule is None for rule in rules)


def is_fair(settings: QueueSettings) -> bool:
    """Whether flows and limits of keys and workers are all that has a say beside that."""
    return settings.limit != 1 and settings.discipline == FAIR and settings.class_ is None


class Lane:
    """`could`: whether anybody has room for what is smallest in it. `load` finds who stands in it, when that is asked first: all
    of it, or what comes after a place."""

    def __init__(
        self,
        queue: QueueView,
        room: int,
        holds: Holds,
        could: Callable[[], bool],
        load: Callable[[Place | None], Mapping[int, Entrants]],
    ) -> None:
        self.plain: Callable[[], Plain | None] = lambda: None
        self.after: Place | None = None
        """Up to there all of it was given out or is not wanted."""
        self.queue = queue
        self.room = room
        self.holds = holds
        self._could = could
        self._load = load
        self._entrants: Mapping[int, Entrants] | None = None
        self._at = 0

    @property
    def is_new(self) -> bool:
        """Nobody has looked into it."""
        return self._entrants is None and self.after is None

    def next(self) -> tuple[Queued, Entrants] | None:
        """It is taken by `turned`, left where it is by `pass_over` or `skip`."""
        if self.room <= 0 or not self._could():
            return None
        if self._entrants is None:
            self._entrants = self._load(self.after)
        if len(self._entrants) == 1:
            (self._at,) = self._entrants
        else:
            heads = self._entrants.items()
            places = [(place, shape) for shape, each in heads if (place := each.rows.place()) is not None]
            if not places:
                return None
            self._at = min(places)[1]
        entrants = self._entrants[self._at]
        row = entrants.rows.head()
        return None if row is None else (row, self._of_workers(entrants))

    def _of_workers(self, entrants: Entrants) -> Entrants:
        """Without the workers that have as many of the queue as one may have."""
        most = self.queue.settings.limit_per_worker
        if most is None:
            return entrants
        live = self.holds.counts(tally.LIVE_WORKER, self.queue.name)
        free = [bid for bid in entrants.bids if live[bid.name] < most]
        return entrants if len(free) == len(entrants.bids) else entrants._replace(bids=free)

    def turned(self, task: Queued, workers: Sequence[str]) -> None:
        """Those have it now."""
        self.room -= len(workers)
        for worker in workers:
            self.holds.took(task, self.queue.settings, worker)
        self.pass_over()

    def pass_over(self) -> None:
        """This task cannot be placed now; the next one may."""
        assert self._entrants is not None
        self._entrants[self._at].rows.pass_over()

    def skip(self) -> None:
        """Nobody can take one of this shape now."""
        assert self._entrants is not None
        self._entrants[self._at].rows.close()


class HeadLane(Lane):
    """Of a queue of limit 1: its head holds up the rest, whatever it waits for."""

    def pass_over(self) -> None:
        self.room = 0

    def skip(self) -> None:
        self.room = 0


def ready(
    db: sqlite3.Connection, queue: QueueView, shape: int, holds: Holds, after: Place | None = None
) -> Iterator[Queued]:
    """The ready order from the table, in pieces; all of it, or what comes after a place."""
    looked_at, size = 0, 4
    while looked_at < LOOKED_AT_MAX:
        rows = market.ready_tasks(db, queue.name, shape, limit=size, after=after)
        holds.know(queue.name, queue.settings, rows)
        yield from rows
        if len(rows) < size:
            return
        after = (rows[-1].rank, rows[-1].seq)
        looked_at, size = looked_at + len(rows), min(4 * size, PIECE_MAX)


def behind(db: sqlite3.Connection, first: Queued) -> Iterator[list[Queued]]:
    """Those that stand behind a task in its line, in pieces, each turned round."""
    after: Place = (first.turn, first.seq)
    size = 4
    while True:
        rows = market.line_tasks(db, first, limit=size, after=after)
        yield rows[::-1]
        if len(rows) < size:
            return
        after, size = (rows[-1].turn, rows[-1].seq), min(4 * size, PIECE_MAX)


def alone(_: Queued) -> Iterator[list[Queued]]:
    return iter(())


def by_key(rows: Iterable[Queued], holds: Holds) -> Iterator[Queued]:
    """Tasks with bids of a queue that is fair by key: they stand in no lines, and are few."""
    keys: defaultdict[str, deque[Queued]] = defaultdict(deque)
    for row in rows:
        keys[row.key or ""].append(row)
    while keys:
        key = min(keys, key=lambda each: (holds.start_tag(keys[each][0]), keys[each][0].seq))
        yield keys[key].popleft()
        if not keys[key]:
            del keys[key]
