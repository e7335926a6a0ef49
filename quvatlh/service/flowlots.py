"""Who is next in a queue that is fair by key, many at once: the order of lanes.Stream, by no more than a lot needs of each task.
Limits of keys are held against counters of the round, and tags move on as apply will move them.

It ends before the first task that is not plain (a limit or a lease of its own, a service, a name that may be full). The next round
begins with that one, and takes the ordinary way.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from itertools import islice
from typing import Final

from msgspec import Struct

from quvatlh.core import market, tally
from quvatlh.core.ahead import Line
from quvatlh.core.limits import INTEGER_MAX
from quvatlh.core.lines import flow_of_key, flows
from quvatlh.core.memory import Memory
from quvatlh.core.model import QueueSettings
from quvatlh.core.rows import Flowing, FlowTask, Lined
from quvatlh.core.turns import Run
from quvatlh.service.holds import FlowLot, Holds
from quvatlh.service.lanes import LOOKED_AT_MAX, PIECE_MAX

PIECE_MIN: Final = 4
TOGETHER_MIN: Final = 3
_START: Final = (-INTEGER_MAX - 1, 0)
_NOTHING: Final[Iterator[Lined]] = iter(())


class _Flow(Struct, gc=False):
    """The tasks of a key, as far as they were read."""

    key: str
    line: Line
    task: Flowing
    """The next one; or, where the heap says so, the last one before it."""
    known: Iterator[Lined]
    """Those behind its first that are known without reading them."""
    weight: int
    is_limited: bool
    """So many of it may run, and no more."""
    piece: list[Flowing] = []
    """What was read and not looked at, the next one last."""
    read_to: tuple[int, int] | None = _START
    """Turn and seq; None: to the end of its line."""


_Next = tuple[int, int, _Flow]
"""Tag and seq of the next task of a flow; minus the seq of the last one, where the next one has not been looked for."""


class _Order:
    """Who is next. Flows that take turns come back behind all others: those stand in a row, and a heap has the rest."""

    __slots__ = ("_heap", "_row")

    def __init__(self) -> None:
        self._row: deque[_Next] = deque()
        self._heap: list[_Next] = []

    def __len__(self) -> int:
        return len(self._row) + len(self._heap)

    def put(self, each: _Next) -> None:
        row = self._row
        if not row or each > row[-1]:
            row.append(each)
        else:
            heapq.heappush(self._heap, each)

    def is_behind(self, place: tuple[int, int]) -> bool:
        """All of it."""
        row, heap = self._row, self._heap
        return (not row or row[0] > place) and (not heap or heap[0] > place)

    def pop(self) -> _Next | None:
        row, heap = self._row, self._heap
        if heap and (not row or heap[0] < row[0]):
            return heapq.heappop(heap)
        return row.popleft() if row else None

    def soonest(self, most: int) -> list[_Next]:
        return heapq.nsmallest(most, [*self._row, *self._heap])


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
        self._virtual = self._tags.virtual
        self._before: dict[str, int] = {}
        """As tags stood when this began."""
        self._live = holds.counts(tally.LIVE_KEY, self._queue)
        self._free: set[tuple[str, str]] = set()
        """Names of which nothing live has a limit."""
        self._order = _Order()
        """As the heap of a Stream."""
        self._keys: set[str] = set()
        self._twice: set[str] = set()
        """Keys that stand more than once in the order, since some of their tasks are in no line: each moves the tag of all."""
        self._read_to: tuple[int, int] | None = _START
        """Rank and seq in the ready order; None: to its end."""
        self._firsts: list[FlowTask] = []
        self.is_odd = False
        """It has ended before a task that is not plain."""

    def next(self, most: int) -> list[Flowing]:
        """Up to so many, in their order."""
        found: list[Flowing] = []
        order, most_of_key = self._order, self._settings.limit_per_key or 0
        tags, live, unwanted = self._tags, self._live, self._unwanted
        with closing(market.flow_firsts(self._db, self._queue, self._shape, limit=LOOKED_AT_MAX)) as firsts:
            while len(found) < most and (soonest := self._soonest(firsts)) is not None:
                rank, seq, flow = soonest
                task = flow.task
                if seq < 0:
                    self._follow(flow, most - len(found))
                elif flow.key in self._twice and (tag := tags.start_tag(flow.key)) > rank:
                    order.put((tag, seq, flow))
                elif flow.is_limited and live[flow.key] >= most_of_key:
                    pass  # and so are all behind it
                elif seq in unwanted:
                    self._go_on(flow, rank, tags.start_tag(flow.key))
                elif (task.name is not None or not task.plain) and self._is_odd(task):
                    self.is_odd = True
                    break
                elif not order and self._read_to is None:
                    found += (row := self._row(flow, most - len(found)))
                    self._go_on(flow, rank, self._serve(flow, row))
                else:
                    found.append(task)
                    if flow.is_limited:
                        live[flow.key] += 1
                    self._go_on(flow, rank, tags.serve(flow.key, task.cost, flow.weight))
        return found

    def run(self) -> Run:
        """What all that it has given out did to tags."""
        tags, before = self._tags, self._before
        after = {flow: tags.finish(flow) for flow in before}
        return Run(self._settings.key_weights, self._virtual, before, tags.virtual, after)

    def _soonest(self, firsts: sqlite3.Cursor) -> _Next | None:
        """It is out of the order then."""
        while self._read_to is not None and self._order.is_behind(self._read_to):
            self._read(firsts)
        return self._order.pop()

    def _go_on(self, flow: _Flow, rank: int, tag: int) -> None:
        """Whoever is behind its first takes its place."""
        task = flow.piece.pop() if flow.piece else next(flow.known, None)
        if task is not None:
            flow.task = task
            self._order.put((tag, task.seq, flow))
        elif flow.task.lined and flow.read_to is not None:
            self._order.put((max(rank, tag), -flow.task.seq, flow))

    def _serve(self, flow: _Flow, row: Sequence[Flowing]) -> int:
        """One after the other. With which tag the next one may start."""
        if flow.is_limited:
            self._live[flow.key] += len(row)
        self._tags.serve_in_row(flow.key, row[0].cost, flow.weight, len(row))
        return self._tags.finish(flow.key)

    def _row(self, flow: _Flow, most: int) -> list[Flowing]:
        """Nobody else has a turn: its next task, and those behind it that are like it, as far as they were read."""
        if flow.is_limited:
            most = min(most, (self._settings.limit_per_key or 0) - self._live[flow.key])
        if not flow.piece:
            flow.piece += [*islice(flow.known, most)][::-1]
        row, piece, cost = [flow.task], flow.piece, flow.task.cost
        while piece and len(row) < most and piece[-1].cost == cost and not self._is_odd(piece[-1]):
            row.append(piece.pop())
        flow.task = row[-1]
        return row

    def _is_odd(self, task: Flowing) -> bool:
        return not task.plain or (task.name is not None and not self._is_free(task.grp, task.name))

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
        flow = _Flow(key, line, task, _NOTHING, settings.key_weights.get(key, 1), is_limited)
        front = self._ahead.of(line) if task.lined else None
        if front is not None:  # it begins with this one
            unwanted = self._unwanted
            flow.known = (each for each in islice(front.tasks, 1, None) if each.seq not in unwanted)
            flow.read_to = None if front.is_whole else _place(front.tasks[-1])
        self._before.setdefault(key, self._tags.finish(key))
        self._order.put((max(task.rank, self._tags.start_tag(key)), task.seq, flow))

    def _follow(self, flow: _Flow, wanted: int) -> None:
        """The next one of its line stands in its place."""
        is_full = flow.is_limited and self._live[flow.key] >= (self._settings.limit_per_key or 0)
        if not is_full and not flow.piece:
            self._read_piece(flow, wanted)
        if flow.piece and not is_full:
            flow.task = flow.piece.pop()
            self._order.put((self._tags.start_tag(flow.key), flow.task.seq, flow))

    def _read_lines(self, flow: _Flow, size: int, most: int) -> None:
        """So much of it, and of each line that will soon have its turn: to ask for them at once takes a third of the time."""
        soon = [flow, *(each[2] for each in self._order.soonest(most - 1))]
        several = {
            each.key: each for each in soon if each.task.lined and each.read_to is _START and "\0" not in each.key
        }
        lines = [flow_of_key(key) for key in several]
        pieces: dict[str, list[FlowTask]] = {key: [] for key in several}
        for task in market.lines_tasks(self._db, self._queue, self._shape, lines, limit=size, without=self._unwanted):
            pieces[task.key or ""].append(task)
        for key, each in several.items():
            row = sorted(pieces[key], key=_place)
            each.read_to = _place(row[-1]) if len(row) == size else None
            each.piece = [task for task in reversed(row) if task.seq != each.task.seq]

    def _read_piece(self, flow: _Flow, wanted: int) -> None:
        """The more lines there are, the less of each is wanted."""
        several = len(self._order) + 1
        size = max(PIECE_MIN, wanted // several)
        after = flow.read_to
        if after is _START:
            after = _place(flow.task)
            if several > TOGETHER_MIN:
                self._read_lines(flow, size, wanted // size)
                if flow.piece:
                    return
                after = after if flow.read_to is _START else flow.read_to
        without = () if after is None else self._given(flow.key)
        while not flow.piece and after is not None:
            rows = market.flow_tasks(self._db, flow.line, limit=size, after=after, without=without)
            flow.piece = [task for task in reversed(rows) if task.seq not in self._unwanted]
            after = _place(rows[-1]) if len(rows) == size else None
        flow.read_to = after

    def _given(self, key: str) -> Sequence[int]:
        """What of it is under way."""
        if self._by_key is None:
            self._by_key = defaultdict(list)
            for lot in self._under_way:
                for seq, task in lot.tasks.items():
                    self._by_key[task.key or ""].append(seq)
        return self._by_key.get(key, ())


def _place(task: Flowing) -> tuple[int, int]:
    return task.turn, task.seq
