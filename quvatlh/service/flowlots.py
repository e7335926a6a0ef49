"""Who is next in a queue that is fair by key, many at once: the order of lanes.Stream, by no more than a lot needs of each task.
Limits of keys are held against counters of the round, and tags move on as apply will move them.

It ends before the first task that is not plain (a limit or a lease of its own, a service, a name that may be full). The next round
begins with that one, and takes the ordinary way.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from itertools import islice
from typing import Final

from msgspec import Struct

from quvatlh.core import market, tally
from quvatlh.core.ahead import Front, Line
from quvatlh.core.limits import INTEGER_MAX
from quvatlh.core.lines import flow_of_key, flows
from quvatlh.core.memory import Memory
from quvatlh.core.model import QueueSettings
from quvatlh.core.rows import FlowTask
from quvatlh.service.holds import FlowLot, Holds
from quvatlh.service.lanes import LOOKED_AT_MAX, PIECE_MAX

PIECE_MIN: Final = 4
TOGETHER_MIN: Final = 3
_START: Final = (-INTEGER_MAX - 1, 0)


class _Flow(Struct, gc=False):
    """The tasks of a key, as far as they were read."""

    key: str
    line: Line
    task: FlowTask
    """The next one; or, where the heap says so, the last one before it."""
    front: Front | None
    """What is known of its line without reading it."""
    weight: int
    is_limited: bool
    """So many of it may run, and no more."""
    at: int = 0
    """So many of the front were looked at."""
    piece: list[FlowTask] = []
    """What was read and not looked at, the next one last."""
    read_to: tuple[int, int] | None = _START
    """Turn and seq; None: to the end of its line."""


class Walk:
    """Of a round. What it gives out counts in `holds`, but for the counter of the whole queue."""

    def __init__(
        self, memory: Memory, queue: tuple[str, int, QueueSettings], holds: Holds, unwanted: AbstractSet[int],
        under_way: Sequence[FlowLot],
    ) -> None:  # fmt: skip
        """`queue`: name, shape and settings; `under_way`: of it, and among the `unwanted`."""
        self._db = memory.db
        self._ahead = memory.ahead
        self._queue, self._shape, self._settings = queue
        self._holds = holds
        self._unwanted = unwanted
        self._under_way = under_way
        self._by_key: defaultdict[str, list[int]] | None = None
        """What is under way."""
        self._tags = holds.turns.of(flows(self._queue))
        self._live = holds.counts(tally.LIVE_KEY, self._queue)
        self._free: set[tuple[str, str]] = set()
        """Names of which nothing live has a limit."""
        self._heap: list[tuple[int, int, _Flow]] = []
        """As that of a Stream: tag and seq of the next task of each flow; minus the seq of the last one, where the next one has
        not been looked for."""
        self._keys: set[str] = set()
        self._twice: set[str] = set()
        """Keys that stand more than once in the heap, since some of their tasks are in no line: each moves the tag of all."""
        self._read_to: tuple[int, int] | None = _START
        """Rank and seq in the ready order; None: to its end."""
        self._firsts: list[FlowTask] = []
        self.is_odd = False
        """It has ended before a task that is not plain."""

    def next(self, most: int) -> list[FlowTask]:
        """Up to so many, in their order."""
        found: list[FlowTask] = []
        heap, most_of_key = self._heap, self._settings.limit_per_key or 0
        tags, live, unwanted = self._tags, self._live, self._unwanted
        with closing(market.flow_firsts(self._db, self._queue, self._shape, limit=LOOKED_AT_MAX)) as firsts:
            while len(found) < most and self._is_any(firsts):
                rank, seq, flow = heap[0]
                if seq < 0:
                    self._follow(flow, most - len(found))
                elif flow.key in self._twice and (tag := tags.start_tag(flow.key)) > rank:
                    heapq.heapreplace(heap, (tag, seq, flow))
                elif flow.is_limited and live[flow.key] >= most_of_key:
                    heapq.heappop(heap)
                elif seq in unwanted:
                    self._go_on(flow, rank, tags.start_tag(flow.key))
                elif self._is_odd(flow.task):
                    self.is_odd = True
                    break
                elif len(heap) == 1 and self._read_to is None:
                    found += (row := self._row(flow, most - len(found)))
                    self._go_on(flow, rank, self._serve(flow, row))
                else:
                    found.append(flow.task)
                    if flow.is_limited:
                        live[flow.key] += 1
                    self._go_on(flow, rank, tags.serve(flow.key, flow.task.cost, flow.weight))
        return found

    def _is_any(self, firsts: sqlite3.Cursor) -> bool:
        """The next one is known, if there is one."""
        heap = self._heap
        while self._read_to is not None and (not heap or heap[0] > self._read_to):
            self._read(firsts)
        return bool(heap)

    def _go_on(self, flow: _Flow, rank: int, tag: int) -> None:
        """Whoever is behind its first takes its place."""
        if flow.piece:
            task = flow.task = flow.piece.pop()
            heapq.heapreplace(self._heap, (tag, task.seq, flow))
        elif flow.task.lined:
            heapq.heapreplace(self._heap, (max(rank, tag), -flow.task.seq, flow))
        else:
            heapq.heappop(self._heap)

    def _serve(self, flow: _Flow, row: Sequence[FlowTask]) -> int:
        """One after the other. With which tag the next one may start."""
        if flow.is_limited:
            self._live[flow.key] += len(row)
        self._tags.serve_in_row(flow.key, row[0].cost, flow.weight, len(row))
        return self._tags.finish(flow.key)

    def _row(self, flow: _Flow, most: int) -> list[FlowTask]:
        """Nobody else has a turn: its next task, and those behind it that are like it, as far as they were read."""
        if flow.is_limited:
            most = min(most, (self._settings.limit_per_key or 0) - self._live[flow.key])
        row, piece, cost = [flow.task], flow.piece, flow.task.cost
        while piece and len(row) < most and piece[-1].cost == cost and not self._is_odd(piece[-1]):
            row.append(piece.pop())
        flow.task = row[-1]
        return row

    def _is_odd(self, task: FlowTask) -> bool:
        return not task.plain or (task.name is not None and not self._is_free(task.group, task.name))

    def _is_free(self, group: str, name: str) -> bool:
        named = (group, name)
        if named not in self._free:
            if not self._holds.name_is_free(group, name):
                return False
            self._free.add(named)
        return True

    def _read(self, firsts: sqlite3.Cursor) -> None:
        """The next one of the ready order. Nothing starts before virtual time: so its tag stays what it is until its turn, but
        where others of its key have turns."""
        if not self._firsts:
            size = PIECE_MIN if self._read_to is _START else PIECE_MAX
            rows = [FlowTask(*row) for row in firsts.fetchmany(size)]
            self._holds.know(self._queue, self._settings, rows)
            self._firsts = rows[::-1]
        if not self._firsts:
            self._read_to = None
            return
        task = self._firsts.pop()
        self._read_to = (task.rank, task.seq)
        key, settings = task.key or "", self._settings
        (self._twice if key in self._keys else self._keys).add(key)
        is_limited = settings.limit_per_key is not None and task.key is not None
        line = (flow_of_key(key), self._queue, self._shape)
        front = self._ahead.of(line) if task.lined else None
        flow = _Flow(key, line, task, front, settings.key_weights.get(key, 1), is_limited)
        heapq.heappush(self._heap, (max(task.rank, self._tags.start_tag(key)), task.seq, flow))

    def _follow(self, flow: _Flow, wanted: int) -> None:
        """The next one of its line stands in its place."""
        is_full = flow.is_limited and self._live[flow.key] >= (self._settings.limit_per_key or 0)
        if not is_full and not flow.piece:
            self._read_piece(flow, wanted)
        if flow.piece and not is_full:
            flow.task = flow.piece.pop()
            heapq.heapreplace(self._heap, (self._tags.start_tag(flow.key), flow.task.seq, flow))
        else:
            heapq.heappop(self._heap)

    def _read_lines(self, size: int, most: int) -> None:
        """So much of each line that will soon have its turn: to ask for them at once takes a third of the time."""
        soon = (each[2] for each in heapq.nsmallest(most, self._heap))
        several = {
            each.key: each
            for each in soon
            if each.task.lined and each.read_to is _START and each.front is None and "\0" not in each.key
        }
        lines = [flow_of_key(key) for key in several]
        pieces: dict[str, list[FlowTask]] = {key: [] for key in several}
        for task in market.lines_tasks(self._db, self._queue, self._shape, lines, limit=size, without=self._unwanted):
            pieces[task.key or ""].append(task)
        for key, flow in several.items():
            row = sorted(pieces[key], key=_place)
            flow.read_to = _place(row[-1]) if len(row) == size else None
            flow.piece = [task for task in reversed(row) if task.seq != flow.task.seq]

    def _read_piece(self, flow: _Flow, wanted: int) -> None:
        """The more lines there are, the less of each is wanted."""
        size = max(PIECE_MIN, wanted // len(self._heap))
        if flow.front is not None:
            self._look_ahead(flow, flow.front, size)
        after = flow.read_to
        if after is _START and not flow.piece:
            after = _place(flow.task)
            if len(self._heap) > TOGETHER_MIN:
                self._read_lines(size, wanted // size)
                if flow.piece:
                    return
                after = after if flow.read_to is _START else flow.read_to
        without = () if after is None else self._given(flow.key)
        while not flow.piece and after is not None:
            rows = market.flow_tasks(self._db, flow.line, limit=size, after=after, without=without)
            flow.piece = [task for task in reversed(rows) if task.seq not in self._unwanted]
            after = _place(rows[-1]) if len(rows) == size else None
        flow.read_to = after

    def _look_ahead(self, flow: _Flow, front: Front, size: int) -> None:
        """The next ones of what is known; at its end it is read on from there."""
        piece: list[FlowTask] = []
        first = front.tasks[0].seq if front.tasks else 0  # of the line, and so where the walk along it began
        for task in islice(front.tasks, flow.at, None):
            flow.at += 1
            if task.seq not in self._unwanted and task.seq != first:
                piece.append(task)
                if len(piece) == size:
                    break
        piece.reverse()
        flow.piece = piece
        if not piece:
            flow.front = None
            if front.tasks:
                flow.read_to = None if front.is_whole else _place(front.tasks[-1])

    def _given(self, key: str) -> Sequence[int]:
        """What of it is under way."""
        if self._by_key is None:
            self._by_key = defaultdict(list)
            for lot in self._under_way:
                for seq, task in lot.tasks.items():
                    self._by_key[task.key or ""].append(seq)
        return self._by_key.get(key, ())


def _place(task: FlowTask) -> tuple[int, int]:
    return task.turn, task.seq
