"""What the master reads in order to act: who is next, what is due, and why a task is not there yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from quvatlh.core import commands as c
from quvatlh.core import limits
from quvatlh.core.classes import read_tree
from quvatlh.core.disciplines.htb import Full
from quvatlh.core.model import QueueSettings
from quvatlh.core.places import place_of
from quvatlh.core.queries import get_task, queues
from quvatlh.core.rows import QUEUED_SELECT, FlowTask, Queued, TaskRow, json_list, queued
from quvatlh.core.tally import LIVE_KEY
from quvatlh.core.views import ExplainFacts, QueueView, TaskView

_HOLDERS_MAX: Final = 100
_OWN_KEEP: Final = 2
_SETTINGS: Final = msgspec.json.Decoder(QueueSettings)


class Ready(NamedTuple):
    """Tasks of one queue and shape that may be awarded: equal to the market but for their order."""

    queue: str
    shape: int
    tasks: int


def ready(db: sqlite3.Connection, queue: str | None = None, *, limit: int = -1) -> list[Ready]:
    """Every (queue, shape) with something in it, or those of one queue, or some of these. From the counters: it costs what it returns."""
    if queue is not None:
        sql = "SELECT a, b, n FROM tally WHERE scope = 'ready' AND a = ? ORDER BY a, b LIMIT ?"
        return [Ready(*row) for row in db.execute(sql, (queue, limit))]
    return [Ready(*row) for row in db.execute("SELECT a, b, n FROM tally WHERE scope = 'ready' ORDER BY a, b")]


def ready_shapes(db: sqlite3.Connection) -> list[tuple[str, int]]:
    """(queue, shape) of all that has something ready, plainly: a round of the market asks it of every queue."""
    return db.execute("SELECT a, b FROM tally WHERE scope = 'ready'").fetchall()


def ready_tasks(
    db: sqlite3.Connection, queue: str, shape: int, *, limit: int, after: tuple[int, int] | None = None
) -> list[Queued]:
    """The next ones in order; `after` is the (rank, seq) of the last one seen."""
    sql = f"{QUEUED_SELECT} WHERE ready = 1 AND queue = ? AND shape = ? AND "
    rank, seq = after or (-limits.INTEGER_MAX - 1, 0)
    # Equals of the last one first: asked together, SQLite would walk over all that were seen.
    equals = db.execute(f"{sql} rank = ? AND seq > ? ORDER BY seq LIMIT ?", (queue, shape, rank, seq, limit)).fetchall()
    others = db.execute(f"{sql} rank > ? ORDER BY rank, seq LIMIT ?", (queue, shape, rank, limit - len(equals)))
    return [queued(row) for row in (*equals, *others)]


class PlainTask(NamedTuple):
    """A ready task as the market sees it where nothing but slots has a say."""

    seq: int
    rank: int
    cost: int
    once: int
    grp: str
    name: str | None
    plain: int
    """0: a line, a limit or a lease of its own has one, or it is a service."""


def plain_tasks(
    db: sqlite3.Connection, queue: str, shape: int, *, limit: int, without: Iterable[int]
) -> list[PlainTask]:
    """The next ones in order but for some, with nothing of them but what it takes to give out plain ones."""
    sql = (
        "SELECT seq, rank, cost, once, grp, name, flow IS NULL AND lim IS NULL AND lease_ms IS NULL AND service = 0 "
        "FROM task WHERE ready = 1 AND queue = ? AND shape = ? AND seq NOT IN (SELECT value FROM json_each(?)) "
        "ORDER BY rank, seq LIMIT ?"
    )
    return [*map(PlainTask._make, db.execute(sql, (queue, shape, json_list(list(without)), limit)))]


_FLOW_TASK: Final = (
    "seq, rank, cost, once, grp, name, flow IS NOT NULL AND lim IS NULL AND lease_ms IS NULL AND service = 0, "
    "flow IS NOT NULL, task.key, turn"
)


def flow_firsts(db: sqlite3.Connection, queue: str, shape: int, *, limit: int) -> sqlite3.Cursor:
    """FlowTasks of the ready order, to be read as they are wanted."""
    sql = f"SELECT {_FLOW_TASK} FROM task WHERE ready = 1 AND queue = ? AND shape = ? ORDER BY rank, seq LIMIT ?"  # noqa: S608 - text of our own
    return db.execute(sql, (queue, shape, limit))


def flow_tasks(
    db: sqlite3.Connection, line: tuple[str, str, int], *, limit: int, after: tuple[int, int], without: Collection[int]
) -> list[FlowTask]:
    """The next ones in a line (its flow, queue and shape) but for some; `after` is the (turn, seq) of the last one seen."""
    turn, seq = after
    sql = f"SELECT {_FLOW_TASK} FROM task WHERE ready > 0 AND flow = ? AND queue = ? AND shape = ?"  # noqa: S608 - text of our own
    left_out: tuple[str, ...] = ()
    if without:
        sql += " AND seq NOT IN (SELECT value FROM json_each(?))"
        left_out = (json_list(list(without)),)
    equals = f"{sql} AND turn = ? AND seq > ? ORDER BY seq LIMIT ?"
    found = db.execute(equals, (*line, *left_out, turn, seq, limit)).fetchall()
    if len(found) < limit:
        others = f"{sql} AND turn > ? ORDER BY turn, seq LIMIT ?"
        found += db.execute(others, (*line, *left_out, turn, limit - len(found))).fetchall()
    return [FlowTask(*row) for row in found]


def lines_tasks(
    db: sqlite3.Connection, queue: str, shape: int, flows: Sequence[str], *, limit: int, without: Collection[int]
) -> list[FlowTask]:
    """So many of each of these lines, the first ones but for some, in no order. No flow may hold a NUL."""
    sql = f"""SELECT {_FLOW_TASK} FROM json_each(?) line JOIN task ON seq IN (
        SELECT seq FROM task WHERE ready > 0 AND flow = line.value AND queue = ? AND shape = ?
        AND seq NOT IN (SELECT value FROM json_each(?)) ORDER BY turn, seq LIMIT ?)"""  # noqa: S608 - text of our own
    values = (json_list(list(flows)), queue, shape, json_list(list(without)), limit)
    return [FlowTask(*row) for row in db.execute(sql, values)]


def line_tasks(
    db: sqlite3.Connection, first: Queued, *, limit: int, after: tuple[int, int] | None = None
) -> list[Queued]:
    """The next ones in the line of a task; `after` is the (turn, seq) of the last one seen."""
    sql = f"{QUEUED_SELECT} WHERE ready > 0 AND flow = ? AND queue = ? AND shape = ? AND "
    line = (first.flow, first.queue, first.shape)
    turn, seq = after or (-limits.INTEGER_MAX - 1, 0)
    equals = db.execute(f"{sql} turn = ? AND seq > ? ORDER BY seq LIMIT ?", (*line, turn, seq, limit)).fetchall()
    if len(equals) == limit:
        return [queued(row) for row in equals]
    others = db.execute(f"{sql} turn > ? ORDER BY turn, seq LIMIT ?", (*line, turn, limit - len(equals)))
    return [queued(row) for row in (*equals, *others)]


def next_due_ms(db: sqlite3.Connection) -> int | None:
    """When time changes something next: a task due, a task that expires. Schedules have a duty of their own."""
    sql = (
        "SELECT min(at) FROM (SELECT min(due_at) at FROM task WHERE due_at IS NOT NULL "
        "UNION ALL SELECT min(expiry) FROM task WHERE expiry IS NOT NULL)"
    )
    found = db.execute(sql).fetchone()[0]
    return None if found is None else int(found)


def chores_due(db: sqlite3.Connection, now_ms: int) -> list[c.AnyCommand]:
    """What there is to propose now; cheap, and asked again when these are done."""
    found: list[c.AnyCommand] = []
    if db.execute("SELECT 1 FROM task WHERE due_at IS NOT NULL AND due_at <= ? LIMIT 1", (now_ms,)).fetchone():
        found.append(c.Promote())
    if db.execute("SELECT 1 FROM task WHERE expiry IS NOT NULL AND expiry <= ? LIMIT 1", (now_ms,)).fetchone():
        found.append(c.Expire())
    for (name,) in db.execute("SELECT name FROM queue WHERE rerank_from IS NOT NULL ORDER BY name"):
        found.append(c.Rerank(name))
    sql = (
        "SELECT 1 FROM fact JOIN worker ON fact.name = 'lost/' || worker.name WHERE CAST(value AS INTEGER) <= ? "
        "AND session IS NULL AND worker.name NOT IN (SELECT worker FROM live) LIMIT 1"
    )
    if db.execute(sql, (now_ms - limits.LOST_MS,)).fetchone():
        found.append(c.ForgetWorkers())
    return [*found, *(c.Forget(name) for name in _forgettable(db, now_ms))]


SWEPT: Final = ("request", "tombstone", "task")
"""Serials of what brings rows to the tables that Sweep walks: unique keys and tags of fair queueing come with tasks."""


def came(db: sqlite3.Connection, before: dict[str, int]) -> int:
    """Rows that one of those tables has got at most since then; `before` becomes now. Of tasks they are none while one
    piece holds all of what they bring."""
    now = dict(db.execute("SELECT name, n FROM serial WHERE name IN (?, ?, ?)", SWEPT).fetchall())
    grown = {name: n - before.get(name, n) for name, n in now.items()}
    before.update(now)
    sql = "SELECT EXISTS (SELECT 1 FROM unique_key LIMIT 1 OFFSET ?1) OR EXISTS (SELECT 1 FROM turn LIMIT 1 OFFSET ?1)"
    if grown.get("task") and not db.execute(sql, (limits.BATCH_MAX,)).fetchone()[0]:
        grown["task"] = 0
    return max(grown.values(), default=0)


def _forgettable(db: sqlite3.Connection, now_ms: int) -> list[str]:
    """Queues with finished tasks that are too many, too old, or past a keep of their own."""
    sql = "SELECT a, b, n, settings FROM tally JOIN queue ON queue.name = a WHERE scope = 'kept' ORDER BY a, b"
    oldest = "SELECT finished_at FROM task WHERE queue = ? AND kept = ? ORDER BY finished_at LIMIT 1"
    names: dict[str, None] = {}
    for name, kept, n, settings in db.execute(sql).fetchall():
        queue = _SETTINGS.decode(settings)
        keep = queue.keep_failed if kept == 1 else queue.keep
        first = db.execute(oldest, (name, kept)).fetchone() if kept != _OWN_KEEP else None
        if n > keep.count or (first is not None and first[0] <= now_ms - keep.age_ms):
            names[name] = None
    sql = "SELECT DISTINCT queue FROM own_keep JOIN task ON task.seq = own_keep.task WHERE gone_at <= ? AND live = 0"
    return sorted({*names, *(row[0] for row in db.execute(sql, (now_ms,)))})


# --- explain ---


def explain_facts(db: sqlite3.Connection, task_id: str, now_ms: int) -> ExplainFacts | None:
    """Position, limits that are full and by whom, and times that it waits for."""
    task = get_task(db, task_id)
    if task is None:
        return None
    queue = queues(db, now_ms, task.row.queue)[0]
    full = _full_class(db, task.row, queue, now_ms)
    held_by, holders = _held(db, task, queue, now_ms, is_class_full=full is not None)
    until = task.row.due_at
    if until is None and "rate" in held_by:
        until = queue.rate_free_at
    position = place_of(db, task.row, queue.settings) if task.row.ready else None
    return ExplainFacts(task, queue, position, tuple(holders[:_HOLDERS_MAX]), tuple(held_by), until, full)


def _held(
    db: sqlite3.Connection, task: TaskView, queue: QueueView, now_ms: int, *, is_class_full: bool
) -> tuple[list[str], list[str]]:
    row = task.row
    held_by: list[str] = []
    holders: list[str] = []
    if row.due_at is not None and row.due_at > now_ms:
        held_by.append({"scheduled": "schedule", "retrying": "retry"}.get(row.state, "rest"))
    if queue.settings.paused:
        held_by.append("paused")
    if queue.settings.limit == 1 and row.ready:
        head = head_of(db, row.queue)
        if head is not None and head.seq != row.seq and queue.live == 0:
            held_by.append("head")
            holders.append(head.id)
    if is_class_full:
        held_by.append("class")
    if queue.rate_free_at is not None and queue.rate_free_at > now_ms:
        held_by.append("rate")
    for word, where, values in _full(db, row, queue):
        held_by.append(word)
        found = db.execute(f"SELECT DISTINCT id FROM live WHERE {where}", values)  # noqa: S608 - text of our own
        holders.extend(each[0] for each in found)
    sql = "SELECT id FROM unique_key WHERE grp = ? AND key = ? AND task <> ?"
    holder = db.execute(sql, (row.grp, row.unique_key, row.seq)).fetchone() if row.unique_while == "active" else None
    if holder is not None:
        held_by.append("unique")
        holders.append(holder[0])
    return held_by, holders


def head_of(db: sqlite3.Connection, queue: str) -> Queued | None:
    """Who is first of all that is ready in it, over all shapes."""
    shapes = db.execute("SELECT b FROM tally WHERE scope = 'ready' AND a = ?", (queue,)).fetchall()
    firsts = [row for (shape,) in shapes for row in ready_tasks(db, queue, shape, limit=1)]
    return min(firsts, key=lambda row: (row.rank, row.seq), default=None)


def _full_class(db: sqlite3.Connection, row: TaskRow, queue: QueueView, now_ms: int) -> Full | None:
    name = queue.settings.class_
    return None if name is None or not row.ready else read_tree(db, now_ms).full_at(name, row.slots)


def _full(db: sqlite3.Connection, row: TaskRow, queue: QueueView) -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """The limits that are reached, and which live actions fill them."""
    settings = queue.settings
    if settings.limit is not None and queue.live >= settings.limit:
        yield "queue_limit", "queue = ?", (row.queue,)
    if settings.limit_per_key is not None and row.key is not None:
        sql = "SELECT n FROM tally WHERE scope = ? AND a = ? AND b = ?"
        counted = db.execute(sql, (LIVE_KEY, row.queue, row.key)).fetchone()
        if (counted[0] if counted else 0) >= settings.limit_per_key:
            yield "key_limit", "queue = ? AND key = ?", (row.queue, row.key)
    name = row.name or row.id
    sql = "SELECT count(*), min(lim) FROM live WHERE grp = ? AND coalesce(name, id) = ?"
    live, smallest = db.execute(sql, (row.grp, name)).fetchone()
    if live + 1 > min(smallest or limits.NO_LIMIT, row.lim or limits.NO_LIMIT):
        yield "limit", "grp = ? AND coalesce(name, id) = ?", (row.grp, name)
