"""How many ready tasks go before one, under the discipline of its queue: counted so far, and no further."""

from __future__ import annotations

import sqlite3
from typing import Final

from quvatlh.core.disciplines import FAIR
from quvatlh.core.disciplines.sfq import span
from quvatlh.core.limits import POSITION_MAX
from quvatlh.core.lines import VISIBLE, flows
from quvatlh.core.model import QueueSettings
from quvatlh.core.rows import TaskRow
from quvatlh.core.turns import Turns

FLOWS_MAX: Final = 1000
"""Flows that are looked at; each is counted by itself."""
_LINE: Final = "SELECT count(*) FROM (SELECT 1 FROM task WHERE ready > 0 AND flow = ? AND queue = ? AND shape = ? AND"
_READY: Final = "SELECT count(*) FROM (SELECT 1 FROM task WHERE ready = 1 AND queue = ? AND shape = ? AND"
# Asked together with those of a smaller place, SQLite would walk over all equals, those behind included.


def place_of(db: sqlite3.Connection, task: TaskRow, settings: QueueSettings) -> int | None:
    """Ready tasks of the queue before it, over all shapes; None beyond what is counted. Those that a limit holds up are
    behind nobody and before nobody, but for their own line."""
    ahead = _in_line(db, task)
    if ahead > POSITION_MAX:
        return None
    found = _fair(db, task, settings, ahead) if settings.discipline == FAIR else _ranked(db, task, ahead)
    return found if found <= POSITION_MAX else None


def _in_line(db: sqlite3.Connection, task: TaskRow) -> int:
    if task.flow is None:
        return 0
    line = (task.flow, task.queue, task.shape)
    smaller = db.execute(f"{_LINE} turn < ? LIMIT ?)", (*line, task.turn, POSITION_MAX + 1)).fetchone()[0]
    equals = f"{_LINE} turn = ? AND seq < ? LIMIT ?)"
    return int(smaller + db.execute(equals, (*line, task.turn, task.seq, POSITION_MAX + 1)).fetchone()[0])


def _ranked(db: sqlite3.Connection, task: TaskRow, ahead: int) -> int:
    """Those of the ready order, and those of its own line that are not there."""
    rank = task.turn if task.flow is not None else task.rank
    before = ahead
    if ahead:
        seen = "SELECT 1 FROM task WHERE ready > 0 AND flow = ? AND queue = ? AND shape = ? AND ready = 1"
        before -= db.execute(seen, (task.flow, task.queue, task.shape)).fetchone() is not None
    for (shape,) in _shapes(db, task.queue):
        place = (task.queue, shape, rank)
        room = POSITION_MAX + 1
        before += db.execute(f"{_READY} rank < ? LIMIT ?)", (*place, room)).fetchone()[0]
        before += db.execute(f"{_READY} rank = ? AND seq < ? LIMIT ?)", (*place, task.seq, room)).fetchone()[0]
        if before > POSITION_MAX:
            break
    return before


def _fair(db: sqlite3.Connection, task: TaskRow, settings: QueueSettings, ahead: int) -> int:
    """As many of each other flow as its tags let start before, equals by their age: reckoned as if all cost what this one
    costs."""
    key, weights = task.key or "", settings.key_weights
    tags = Turns(db).of(flows(task.queue))
    mine = tags.start_tag(key) + ahead * span(task.cost, weights.get(key, 1))
    if task.ready == VISIBLE:
        mine = max(mine, task.rank)
    before, looked_at = ahead, 0
    for (shape,) in _shapes(db, task.queue):
        sql = "SELECT key, flow, rank, seq FROM task WHERE ready = 1 AND queue = ? AND shape = ? AND rank <= ? ORDER BY rank, seq"
        firsts = db.execute(f"{sql} LIMIT ?", (task.queue, shape, mine, FLOWS_MAX - looked_at)).fetchall()
        tags.know({other or "" for other, *_ in firsts})
        looked_at += len(firsts)
        for other, flow, rank, seq in firsts:
            tag = max(rank, tags.start_tag(other or ""))
            if (other or "") == key or flow is None or tag > mine:
                continue
            turns, rest = divmod(mine - tag, span(task.cost, weights.get(other or "", 1)))
            before += _of_line(db, (flow, task.queue, shape), seq, turns + (rest > 0), None if rest else task.seq)
            if before > POSITION_MAX:
                return before
    return before if looked_at < FLOWS_MAX else POSITION_MAX + 1


def _of_line(db: sqlite3.Connection, line: tuple[str, str, int], first: int, turns: int, equal: int | None) -> int:
    """Its first so many, and one more if it is older than `equal`: it has the same tag. `first`: seq of its first."""
    turns = min(turns, POSITION_MAX + 1)
    before = turns if turns <= 1 else int(db.execute(f"{_LINE} 1 LIMIT ?)", (*line, turns)).fetchone()[0])
    if equal is None:
        return before
    sql = "SELECT seq FROM task WHERE ready > 0 AND flow = ? AND queue = ? AND shape = ? ORDER BY turn, seq LIMIT 1 OFFSET ?"
    row = db.execute(sql, (*line, turns)).fetchone() if turns else (first,)
    return before + (row is not None and row[0] < equal)


def _shapes(db: sqlite3.Connection, queue: str) -> list[tuple[int]]:
    return db.execute("SELECT b FROM tally WHERE scope = 'ready' AND a = ?", (queue,)).fetchall()
