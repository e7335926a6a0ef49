"""What the master proposes so that time takes effect: each a bounded piece, repeated while there is more."""

from __future__ import annotations

from copy import copy

import msgspec

from quvatlh.core import limits, tally
from quvatlh.core.commands import CheckDigest, ClockJumped, Elected, Expire, Forget, Nothing, Promote, Sweep
from quvatlh.core.model import Keep
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Digested, Diverged, Ok, Worked
from quvatlh.core.rows import json_list
from quvatlh.core.schema import SCHEMA_VERSION
from quvatlh.core.tables_digest import rolling_digest
from quvatlh.core.transitions import TASK
from quvatlh.core.unit import GONE_SELECT, Gone, Unit
from quvatlh.core.verbs import ending
from quvatlh.core.views import ClockJump


def promote(unit: Unit, command: Promote) -> Worked:
    """What is due becomes pending, in the order of its time; a service's instances have rested."""
    where = "WHERE due_at IS NOT NULL AND due_at <= ? ORDER BY due_at, seq LIMIT ?"
    due = unit.select_tasks(where, unit.now, command.limit)
    for task in due:
        was = copy(task)
        if (task.state, "promote") in TASK:
            task.state = TASK[task.state, "promote"]
        task.due_at, task.resting = None, 0
        unit.store(task, was)
        unit.tell_task("task.ready", task)
    return Worked(len(due), len(due) == command.limit)


def expire(unit: Unit, command: Expire) -> Worked:
    """Not awarded in time, whatever held it."""
    where = "WHERE expiry IS NOT NULL AND expiry <= ? ORDER BY expiry, seq LIMIT ?"
    late = unit.select_tasks(where, unit.now, command.limit)
    for task in late:
        was = copy(task)
        ending.finish_task(unit, task, "expire", "expired", "was not awarded before it expired")
        unit.store(task, was)
    return Worked(len(late), len(late) == command.limit)


def forget(unit: Unit, command: Forget) -> Worked | Rejection:
    """Finished tasks of a queue that are too old or too many, the oldest first."""
    queue = unit.queues.get(command.queue)
    if queue is None:
        return Rejection("not_found", f"there is no queue named {command.queue}")
    unit.flush_tasks()
    done = 0
    for kept, keep in ((0, queue.settings.keep), (1, queue.settings.keep_failed)):
        done += _forget_range(unit, command.queue, kept, keep, command.limit - done)
    done += _forget_own(unit, command.queue, queue.settings.keep.count, command.limit - done)
    return Worked(done, done >= command.limit)


def _forget_range(unit: Unit, queue: str, kept: int, keep: Keep, room: int) -> int:
    """One range of the index: everything before an instant, and the surplus after it."""
    surplus = min(room, max(0, unit.tally.get(tally.KEPT, queue, kept) - keep.count))
    sql = f"{GONE_SELECT} WHERE queue = ? AND kept = ? AND live = 0 "
    order = "ORDER BY finished_at, seq LIMIT ?"
    old = unit.db.execute(f"{sql} AND finished_at <= ? {order}", (queue, kept, unit.now - keep.age_ms, room))
    gone = {row[0]: Gone(*row) for row in old}
    if surplus > len(gone):
        gone |= {row[0]: Gone(*row) for row in unit.db.execute(f"{sql} {order}", (queue, kept, surplus))}
    unit.forget(list(gone.values()))
    return len(gone)


def _forget_own(unit: Unit, queue: str, count: int, room: int) -> int:
    """Those with a keep of their own: by the time they go, and no more than the queue keeps of the others."""
    if room <= 0:
        return 0
    sql = (
        f"{GONE_SELECT} JOIN own_keep ON own_keep.task = task.seq "
        "WHERE own_keep.gone_at <= ? AND queue = ? AND live = 0 ORDER BY own_keep.gone_at LIMIT ?"
    )
    gone = {row[0]: Gone(*row) for row in unit.db.execute(sql, (unit.now, queue, room))}
    surplus = min(room, max(0, unit.tally.get(tally.KEPT, queue, 2) - count))
    if surplus > len(gone):
        sql = f"{GONE_SELECT} WHERE queue = ? AND kept = 2 AND live = 0 ORDER BY finished_at, seq LIMIT ?"
        gone |= {row[0]: Gone(*row) for row in unit.db.execute(sql, (queue, surplus))}
    unit.forget(list(gone.values()))
    return len(gone)


_DEAD_TURN = "finish <= (SELECT tag FROM virtual WHERE virtual.scope = turn.scope)"
"""A finish tag that virtual time has passed means the same as none."""


def sweep(unit: Unit, command: Sweep) -> Worked:
    """Rows that mean nothing any more. Each kind is walked in the order of its key, a piece a time."""
    dead_tombstone = "at <= ? OR ordinal <= ?"
    tombstones = (unit.now - limits.KNOWN_MS, unit.last("tombstone") - limits.KNOWN_MAX)
    dead_request = "at <= ? OR ordinal <= ? OR bytes_before <= ?"
    requests = (
        unit.now - limits.KNOWN_MS,
        unit.last("request") - limits.KNOWN_MAX,
        unit.last("request_bytes") - limits.ANSWER_BYTES_MAX,
    )
    done = _sweep(unit, "tombstone", ("id",), dead_tombstone, tombstones, command.limit)
    done += _sweep(unit, "request", ("token", "route", "id"), dead_request, requests, command.limit)
    done += _sweep(unit, "unique_key", ("grp", "key"), "until <= ?", (unit.now,), command.limit)
    done += _sweep(unit, "turn", ("scope", "flow"), _DEAD_TURN, (), command.limit)
    return Worked(done, more=False)


def _sweep(unit: Unit, table: str, key: tuple[str, ...], dead: str, values: tuple[int, ...], limit: int) -> int:
    """The next `limit` rows after where the last sweep ended; from the start again after the end."""
    columns, marks = ", ".join(key), ", ".join("?" for _ in key)
    fact = f"sweep.{table}"
    row = unit.db.execute("SELECT value FROM fact WHERE name = ?", (fact,)).fetchone()
    after = msgspec.json.decode(row[0]) if row else [""] * len(key)
    sql = f"SELECT {columns} FROM {table} WHERE ({columns}) > ({marks}) ORDER BY {columns} LIMIT 1 OFFSET ?"  # noqa: S608 - text of our own
    last = unit.db.execute(sql, (*after, limit - 1)).fetchone()
    sql = f"DELETE FROM {table} WHERE ({dead}) AND ({columns}) > ({marks})"  # noqa: S608 - text of our own
    if last is None:
        done = unit.db.execute(sql, (*values, *after)).rowcount
    else:
        done = unit.db.execute(f"{sql} AND ({columns}) <= ({marks})", (*values, *after, *last)).rowcount
    place = json_list(last or [""] * len(key))
    unit.db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (fact, place))
    return int(done)


def check_digest(unit: Unit, command: CheckDigest) -> Digested | Diverged:
    """Compare what this node had at the last check with what the master had, and take the next one."""
    unit.flush()
    mine = unit.db.execute("SELECT at_index, value FROM own_digest").fetchone()
    if mine is not None and mine[0] == command.index and command.schema == SCHEMA_VERSION and mine[1] != command.digest:
        return Diverged(command.index, mine[1], command.digest)
    value = rolling_digest(unit.db, unit.take("digest"))
    unit.db.execute("INSERT OR REPLACE INTO own_digest VALUES (1, ?, ?)", (unit.index, value))
    return Digested(unit.index, value)


def elected(unit: Unit, command: Elected) -> Ok:
    sql = "INSERT INTO fact VALUES ('master', ?) ON CONFLICT DO UPDATE SET value = excluded.value"
    unit.db.execute(sql, (command.node,))
    unit.tell("master.changed", command.node)
    return Ok()


def clock_jumped(unit: Unit, command: ClockJumped) -> Ok:
    """The last one stays to be shown."""
    jump = ClockJump(unit.now, command.node, command.by_ms, command.behind_ms)
    text = msgspec.json.encode(jump).decode()
    unit.db.execute("INSERT OR REPLACE INTO fact VALUES ('clock', ?)", (text,))
    way = "ahead" if command.by_ms > 0 else "back"
    unit.tell("clock.jumped", command.node, way, more={"by_ms": abs(command.by_ms), "behind_ms": command.behind_ms})
    return Ok()


def nothing(_unit: Unit, _command: Nothing) -> Ok:
    return Ok()
