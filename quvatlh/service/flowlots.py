"""Who is next in a queue that is fair by key, many at once: the order of lanes.Stream, by no more than a lot needs of each task.
Limits of keys are held against counters of the round, and tags move on as apply will move them.

It ends before the first task that is not plain (a limit or a lease of its own, a service, a name that may be full). The next round
begins with that one, and takes the ordinary way.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import Final

from quvatlh.core import market, tally
from quvatlh.core.limits import INTEGER_MAX
from quvatlh.core.lines import flow_of_key, flows
from quvatlh.core.market import FlowTask
from quvatlh.core.model import QueueSettings
from quvatlh.service.holds import Holds
from quvatlh.service.lanes import LOOKED_AT_MAX, PIECE_MAX

PIECE_MIN: Final = 4
TOGETHER_MIN: Final = 3
_START: Final = (-INTEGER_MAX - 1, 0)

UnderWay = Mapping[str, Collection[int]]
"""Of one queue: what lots have given out, by key; "" is none."""


class Walk:
    """Of a round. What it gives out counts in `holds`, but for the counter of the whole queue."""

    def __init__(
        self, db: sqlite3.Connection, queue: tuple[str, int, QueueSettings], holds: Holds, unwanted: AbstractSet[int],
        under_way: UnderWay,
    ) -> None:  # fmt: skip
        """`queue`: name, shape and settings; `under_way` is among the `unwanted`."""
        self._db = db
        self._queue, self._shape, self._settings = queue
        self._holds = holds
        self._unwanted = unwanted
        self._under_way = under_way
        self._tags = holds.turns.of(flows(self._queue))
        self._live = holds.counts(tally.LIVE_KEY, self._queue)
        self._free: set[tuple[str, str]] = set()
        """Names of which nothing live has a limit."""
        self._heap: list[tuple[int, int, FlowTask]] = []
        """As that of a Stream."""
        self._pieces: dict[str, list[FlowTask]] = {}
        """What of a line was read and not looked at, the next one last."""
        self._after: dict[str, tuple[int, int] | None] = {}
        """How far a line was read; None: to its end."""
        self._read_to: tuple[int, int] | None = _START
        """Rank and seq in the ready order; None: to its end."""
        self._firsts: list[FlowTask] = []
        self.is_odd = False
        """It has ended before a task that is not plain."""

    def next(self, most: int) -> list[FlowTask]:
        """Up to so many, in their order."""
        found: list[FlowTask] = []
        heap, weights, per_key = self._heap, self._settings.key_weights, self._settings.limit_per_key
        tags, live, unwanted = self._tags, self._live, self._unwanted
        with closing(market.flow_firsts(self._db, self._queue, self._shape, limit=LOOKED_AT_MAX)) as firsts:
            while len(found) < most:
                while self._read_to is not None and (not heap or heap[0][:2] > self._read_to):
                    self._read(firsts)
                if not heap:
                    break
                rank, seq, task = heap[0]
                key = task.key or ""
                place = tags.start_tag(key)
                if seq < 0:
                    self._follow(task, most - len(found))
                elif place > rank:
                    heapq.heapreplace(heap, (place, seq, task))
                elif per_key is not None and task.key is not None and live[key] >= per_key:
                    heapq.heappop(heap)
                elif seq in unwanted:
                    self._pass(task, rank)
                elif self._is_odd(task):
                    self.is_odd = True
                    break
                else:
                    row = [task] if self._read_to or len(heap) > 1 else self._row(task, most - len(found))
                    found += row
                    tags.serve_in_row(key, task.cost, weights.get(key, 1), len(row))
                    if per_key is not None and task.key is not None:
                        live[key] += len(row)
                    self._pass(row[-1], rank)
        return found

    def _row(self, task: FlowTask, most: int) -> list[FlowTask]:
        """Nobody else has a turn: it, and those behind it that are like it, as far as they were read."""
        key, per_key = task.key, self._settings.limit_per_key
        if per_key is not None and key is not None:
            most = min(most, per_key - self._live[key])
        row, piece, cost = [task], self._pieces.get(key or "", []), task.cost
        while piece and len(row) < most and piece[-1].cost == cost and not self._is_odd(piece[-1]):
            row.append(piece.pop())
        return row

    def _is_odd(self, task: FlowTask) -> bool:
        if not task.plain:
            return True
        named = (task.group, task.name or "")
        if task.name is None or named in self._free:
            return False
        if self._holds.name_is_free(task.group, task.name):
            self._free.add(named)
            return False
        return True

    def _read(self, firsts: sqlite3.Cursor) -> None:
        """The next one of the ready order."""
        if not self._firsts:
            size = PIECE_MIN if self._read_to is _START else PIECE_MAX
            rows = [*map(FlowTask._make, firsts.fetchmany(size))]
            self._holds.know(self._queue, self._settings, rows)
            self._firsts = rows[::-1]
        if not self._firsts:
            self._read_to = None
            return
        task = self._firsts.pop()
        self._read_to = (task.rank, task.seq)
        heapq.heappush(self._heap, (task.rank, task.seq, task))

    def _pass(self, task: FlowTask, rank: int) -> None:
        """Whoever is behind it takes its place."""
        if not task.lined:
            heapq.heappop(self._heap)
            return
        key = task.key or ""
        tag = self._tags.start_tag(key)
        piece = self._pieces.get(key)
        if piece:
            following = piece.pop()
            heapq.heapreplace(self._heap, (tag, following.seq, following))
        else:
            heapq.heapreplace(self._heap, (max(rank, tag), -task.seq, task))

    def _follow(self, gone: FlowTask, wanted: int) -> None:
        """The next one of its line stands in its place."""
        key, most = gone.key or "", self._settings.limit_per_key
        is_full = most is not None and gone.key is not None and self._live[key] >= most
        piece = [] if is_full else self._pieces.get(key) or self._piece(gone, key, wanted)
        if piece:
            following = piece.pop()
            heapq.heapreplace(self._heap, (self._tags.start_tag(key), following.seq, following))
        else:
            heapq.heappop(self._heap)

    def _read_lines(self, size: int, most: int) -> None:
        """So much of each line that will soon have its turn: to ask for them at once takes a third of the time."""
        firsts: dict[str, FlowTask] = {}
        for _, _, task in heapq.nsmallest(most, self._heap):
            key = task.key or ""
            if task.lined and key not in self._after and "\0" not in key:
                firsts[key] = task
        rows: dict[str, list[FlowTask]] = {key: [] for key in firsts}
        lines = [flow_of_key(key) for key in firsts]
        found = market.lines_tasks(self._db, self._queue, self._shape, lines, limit=size, without=self._unwanted)
        for task in found:
            rows[task.key or ""].append(task)
        for key, first in firsts.items():
            row = sorted(rows[key], key=_place)
            self._after[key] = _place(row[-1]) if len(row) == size else None
            self._pieces[key] = [task for task in reversed(row) if task.seq != first.seq]

    def _piece(self, gone: FlowTask, key: str, wanted: int) -> list[FlowTask]:
        """The more lines there are, the less of each is wanted."""
        size = max(PIECE_MIN, wanted // len(self._heap))
        if key not in self._after and len(self._heap) > TOGETHER_MIN:
            self._read_lines(size, wanted // size)
            if piece := self._pieces.get(key, []):
                return piece
        after: tuple[int, int] | None = self._after.get(key, (gone.turn, gone.seq))
        line = (flow_of_key(key), self._queue, self._shape)
        piece = []
        while not piece and after is not None:
            without = self._under_way.get(key, ())
            rows = market.flow_tasks(self._db, line, limit=size, after=after, without=without)
            piece = [task for task in reversed(rows) if task.seq not in self._unwanted]
            after = (rows[-1].turn, rows[-1].seq) if len(rows) == size else None
        self._after[key] = after
        self._pieces[key] = piece
        return piece


def _place(task: FlowTask) -> tuple[int, int]:
    return task.turn, task.seq
