"""Lines: ready tasks that wait for each other stand in one, and only its first is in the ready order.

A line is made of what is equal to every limit that holds up tasks one by one: those of one key in a queue that shares by
key (sfq, or a limit for each key), and those of one group, name and limit elsewhere; by queue and shape. `ready` is 1 in
the ready order, 2 in a line behind it. The first of a line is in the ready order unless its key or name has as many live
actions as may be: so what a limit holds up is looked at by nobody, however many there are. In a queue of limit 1 the
first is always there, since it holds up the rest.

Which one is visible follows from the tables alone: `refill` makes it so for every line that an entry has touched. Who is
first of a line, and whether he is seen, is remembered from entry to entry (memory.py).
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from quvatlh.core import limits, schema, tally
from quvatlh.core.ahead import Front, Line
from quvatlh.core.disciplines import BUILT_IN, FAIR
from quvatlh.core.model import QueueSettings
from quvatlh.core.rows import json_list

if TYPE_CHECKING:
    from quvatlh.core.books import QueueState
    from quvatlh.core.rows import Candidate, TaskRow
    from quvatlh.core.turns import Tags
    from quvatlh.core.unit import Unit

VISIBLE: Final = 1
BEHIND: Final = 2
FLOWS: Final = "flows/"
_KEY: Final = "k"
_NAME: Final = "n"
_END: Final = "\x1f"
"""Of a part; no name may hold it, and what comes after it is greater."""
_FIRST: Final = """
SELECT seq, ready, rank, turn, key, grp, coalesce(name, id), lim FROM task
WHERE ready > 0 AND flow = ? AND queue = ? AND shape = ? ORDER BY turn, seq LIMIT 1"""
_FIRSTS: Final = """
SELECT wanted.value, task.seq, ready, rank, turn, task.key, grp, coalesce(name, task.id), lim
FROM json_each(?) wanted JOIN task ON task.seq = (
    SELECT seq FROM task WHERE ready > 0 AND flow = wanted.value AND queue = ? AND shape = ? ORDER BY turn, seq LIMIT 1)"""
_SHAPES: Final = (
    "SELECT shape FROM task WHERE ready > 0 AND queue = ? AND flow = ? AND shape > ? ORDER BY shape LIMIT 1"
)
_NAMED: Final = """
SELECT flow, shape FROM task WHERE ready > 0 AND queue = ? AND flow >= ? AND flow < ? AND (flow, shape) > (?, ?)
ORDER BY flow, shape LIMIT 1"""
_SHOW: Final = "UPDATE task SET ready = 1, rank = ? WHERE seq = ?"
_SHOW_MANY: Final = """
UPDATE task SET ready = 1, rank = shown.value FROM json_each(?) shown WHERE seq = CAST(shown.key AS INTEGER)"""
"""The same of many: the rank of each, by its number."""


class First(Struct, gc=False):
    """What is needed of the first of a line. Changed where it stands, as its row is."""

    seq: int
    ready: int
    rank: int
    turn: int
    key: str | None
    grp: str
    name: str
    """Its id, where it has none."""
    lim: int | None


def flow_of(settings: QueueSettings, key: str | None, group: str, name: str, lim: int | None) -> str | None:
    """What a job waits with; None: with nobody. Under a plug-in all are in the ready order, since it places each."""
    if settings.discipline == FAIR:
        return _KEY + (key or "")  # as flow_of_key; a call less for each that comes
    if settings.discipline not in BUILT_IN:
        return None
    if settings.limit_per_key is not None and key is not None:
        return _KEY + key
    return None if lim is None else f"{_names(group, name)}{lim}"


def flow_of_key(key: str | None) -> str:
    return _KEY + (key or "")


def _names(group: str, name: str) -> str:
    return f"{_NAME}{group}{_END}{name}{_END}"


def by_flow(settings: QueueSettings) -> bool:
    """Whether keys of the queue are lines."""
    return settings.discipline == FAIR or (settings.limit_per_key is not None and settings.discipline in BUILT_IN)


class Lines:
    """Those of one entry."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._db: sqlite3.Connection = unit.db
        self.ahead = unit.memory.ahead
        self._firsts = unit.memory.firsts
        """Of lines that are known, as of the last refill; of those touched since, while nobody else can have become first."""
        self._visible: dict[Line, int | None] = {}
        """Touched lines, and who of them was in the ready order before."""
        self._shown: dict[int, int] = {}
        """Rank of each that comes into the ready order, or moves in it, by seq."""
        self._named: dict[str, list[str]] = {}
        """Queues in which ready tasks of a limited name wait, by that name, by the tables."""

    def of(self, task: TaskRow) -> Line | None:
        return None if task.flow is None else (task.flow, task.queue, task.shape)

    def touch(self, line: Line) -> None:
        """Before anything of it changes."""
        self._look_at(line)
        self._firsts.pop(line, None)
        self.ahead.drop(line)

    def _look_at(self, line: Line) -> First | None:
        """It is looked at by `refill`, who may be first of it or not. Who is now, where that is known or was not asked before."""
        if line in self._visible:
            return self._firsts.get(line)
        first = self._firsts[line] if line in self._firsts else self.first(line)
        self._firsts[line] = first
        self._visible[line] = first.seq if first is not None and first.ready == VISIBLE else None
        return first

    def leave(self, line: Line, seq: int, *, visible: bool) -> None:
        """Before one of it is awarded; `visible`: it is in the ready order, and its award takes it out of that."""
        if not visible:
            self._look_at(line)
        elif self._visible.get(line, seq) == seq:
            self._visible[line] = None
        self._firsts.pop(line, None)

    def join(
        self, line: Line, place: tuple[int, int], key: str | None, named: tuple[str, str, int | None]
    ) -> tuple[int, int]:
        """Of a new task that is about to be written: whether it is seen at once, as the first of its line, and its rank;
        `place` is its seq and turn, `named` its group, name and limit."""
        (seq, turn), (group, name, lim) = place, named
        first = self._firsts.get(line) if line in self._visible else self._look_at(line)
        flow, queue, _ = line
        if flow[0] == _NAME:
            self._unit.tally.add(tally.NAMED, _names(group, name), queue, 1)
        if first is not None:
            if turn < first.turn:
                self._firsts.pop(line)
        elif line in self._firsts:  # it was empty
            if flow[0] == _KEY:
                self.ahead.begin(line)
            new = self._firsts[line] = First(seq, BEHIND, turn, turn, key, group, name, lim)
            if self.may_start(self._unit.queue(queue), new, flow):
                new.ready, new.rank = VISIBLE, self.rank(queue, turn, key)
                self._visible[line] = seq
            return new.ready, new.rank
        return BEHIND, turn

    def count(self, task: TaskRow | Candidate, n: int) -> None:
        """Waiting tasks of a limited name are found by queue."""
        if task.ready and task.flow is not None and task.flow.startswith(_NAME):
            self._unit.tally.add(tally.NAMED, _names(task.grp, task.name or task.id), task.queue, n)

    def know(self, keys: Mapping[str, Collection[str | None]]) -> None:
        """By queue: what will be asked of these keys, read at once."""
        for queue, several in keys.items():
            state = self._unit.queues.get(queue)
            if state is None or not by_flow(state.settings):
                continue
            if state.settings.limit_per_key is not None:
                self._unit.tally.know(tally.LIVE_KEY, queue, {key for key in several if key is not None})
            if state.settings.discipline == FAIR:
                self._unit.turns.know(flows(queue), {key or "" for key in several})

    def name_changes(self, group: str, name: str) -> None:
        """Other live actions count for a name."""
        self._touch_named(_names(group, name))

    def count_keys(self, queue: str, counts: Mapping[str, int], sign: int) -> None:
        """So many live actions more count for each key, or less. For lines only those matter that make it full, or not full any
        more; also where the same entry takes that back, since whoever is first of a touched line gets its place anew."""
        state, unit = self._unit.queues.get(queue), self._unit
        most = None if state is None or not by_flow(state.settings) else state.settings.limit_per_key
        if most is None:
            for key, n in counts.items():
                unit.tally.add(tally.LIVE_KEY, queue, key, sign * n)
            return
        for key, n in counts.items():
            live = unit.tally.move(tally.LIVE_KEY, queue, key, sign * n)
            if (live >= most) != (live - sign * n >= most):
                self.touch_key(queue, key)

    def touch_key(self, queue: str, key: str | None) -> None:
        """All lines of a key: one a shape."""
        flow = flow_of_key(key)
        shape = -1
        while (row := self._db.execute(_SHAPES, (queue, flow, shape)).fetchone()) is not None:
            shape = row[0]
            self._look_at((flow, queue, shape))

    def _touch_named(self, names: str) -> None:
        end = names[:-1] + chr(ord(_END) + 1)
        for queue in self._queues_of(names):
            flow, shape = "", -1
            while (row := self._db.execute(_NAMED, (queue, names, end, flow, shape)).fetchone()) is not None:
                flow, shape = row
                self._look_at((flow, queue, shape))

    def _queues_of(self, names: str) -> list[str]:
        """Counters are written when lines have been refilled: until then the tables say the same."""
        if not self._unit.tally.has_any(tally.NAMED):
            return []
        found = self._named.get(names)
        if found is None:
            rows = self._db.execute("SELECT b FROM tally WHERE scope = ? AND a = ?", (tally.NAMED, names)).fetchall()
            found = self._named[names] = [row[0] for row in rows]
        return found

    def refill(self) -> None:
        """The first of every line that was touched is visible if it may start, and nobody else of it."""
        lines, self._visible = self._visible, {}
        self._named.clear()
        self._read_firsts([line for line in lines if line not in self._firsts])
        queues: dict[str, tuple[QueueState, Tags | None]] = {}
        for line, before in lines.items():
            first, (flow, queue, _) = self._firsts[line], line
            if queue not in queues:
                tags = self._unit.turns.of(flows(queue)) if self._is_fair(queue) else None
                queues[queue] = (self._unit.queue(queue), tags)
            state, tags = queues[queue]
            if first is None or not self.may_start(state, first, flow):
                if before is not None:
                    self._hide(line, before)
                if first is not None:
                    first.ready = BEHIND
                continue
            if before is not None and first.seq != before:
                self._hide(line, before)
            self._show(line, first, tags)
        if len(self._shown) >= schema.TOGETHER_MIN:
            self._db.execute(_SHOW_MANY, (json_list(self._shown),))
        elif self._shown:
            self._db.executemany(_SHOW, [(rank, seq) for seq, rank in self._shown.items()])
        self._shown.clear()

    def _show(self, line: Line, first: First, tags: Tags | None) -> None:
        """`tags`: of the flows of its queue, where that is fair."""
        rank = first.turn if tags is None else tags.start_tag(first.key or "")
        if first.ready == VISIBLE:
            rank = rank if tags is None else max(rank, first.rank)
            if rank == first.rank:
                return
        else:
            self._unit.tally.add(tally.READY, *line[1:], 1)
        self._shown[first.seq] = first.rank = rank
        first.ready = VISIBLE
        row = self.ahead.row(first.seq)
        if row is not None:
            row.ready = VISIBLE

    def _hide(self, line: Line, seq: int) -> None:
        row = self.ahead.row(seq)
        if row is not None:
            row.ready = BEHIND
        sql = "UPDATE task SET ready = 2 WHERE seq = ? AND ready = 1 AND flow = ? AND queue = ? AND shape = ?"
        if self._db.execute(sql, (seq, *line)).rowcount:
            self._unit.tally.add(tally.READY, *line[1:], -1)

    def rank(self, queue: str, turn: int, key: str | None) -> int:
        """The place of the first of a line in the order of its queue."""
        return self._unit.turns.start_tag(flows(queue), key or "") if self._is_fair(queue) else turn

    def _is_fair(self, queue: str) -> bool:
        return self._unit.queue(queue).settings.discipline == FAIR

    def first(self, line: Line) -> First | None:
        """As the tables have it."""
        row = self._db.execute(_FIRST, line).fetchone()
        return None if row is None else First(*row)

    def _read_firsts(self, lines: Collection[Line]) -> None:
        """Of many lines of a queue and shape at once: a statement costs more than a line."""
        alike: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for line in lines:
            front = self.ahead.of(line)
            self._firsts[line] = None if front is None else self._first_of(front)
            if front is not None and (self._firsts[line] is not None or (front.is_whole and not front.tasks)):
                continue
            if "\0" not in line[0]:
                alike[line[1:]].append(line[0])
            else:  # SQLite ends a text of JSON there
                self._firsts[line] = self.first(line)
        for (queue, shape), several in alike.items():
            for row in self._db.execute(_FIRSTS, (json_list(several), queue, shape)):
                self._firsts[row[0], queue, shape] = First(*row[1:])

    def _first_of(self, front: Front) -> First | None:
        """Unless it is seen already: its rank is not known here."""
        task = front.tasks[0] if front.tasks else None
        if task is None or task.ready == VISIBLE:
            return None
        return First(task.seq, BEHIND, task.turn, task.turn, task.key, task.grp, task.name or task.id, task.lim)

    def may_start(self, state: QueueState, first: First, flow: str) -> bool:
        """The first of a line of this flow."""
        settings = state.settings
        if settings.limit == 1:
            return True
        if flow[0] == _KEY:
            if settings.limit_per_key is None or first.key is None:
                return True
            return self._unit.tally.get(tally.LIVE_KEY, state.name, first.key) < settings.limit_per_key
        counted = self._unit.names.live(first.grp, first.name)
        smallest = min((lim for lim, n in counted.items() if n), default=limits.NO_LIMIT)
        return sum(counted.values()) < min(smallest, first.lim or limits.NO_LIMIT)


def misplaced(unit: Unit) -> list[str]:
    """Lines in which another than the first is seen, or the first is not and might be; but for queues that are being
    reranked. Reads all of them: for tests."""
    found = []
    sql = """SELECT DISTINCT flow, queue, shape FROM task JOIN queue ON queue.name = task.queue
        WHERE ready > 0 AND flow IS NOT NULL AND rerank_from IS NULL"""
    for flow, queue, shape in unit.db.execute(sql).fetchall():
        line = (flow, queue, shape)
        rows = unit.db.execute(f"{_FIRST.removesuffix(' LIMIT 1')}", line).fetchall()
        seen = [row[0] for row in rows if row[1] == VISIBLE]
        first = First(*rows[0])
        if seen != ([first.seq] if unit.lines.may_start(unit.queue(queue), first, flow) else []):
            found.append(f"line {line}: {seen} seen of {[row[0] for row in rows[:5]]}")
    return found


def flows(queue: str) -> str:
    """The scope of tags of a queue's flows (turns.py)."""
    return FLOWS + queue
