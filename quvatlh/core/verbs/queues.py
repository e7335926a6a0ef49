"""Queues and the classes above them: settings that hold from the next award on, purge, and what may be deleted."""

from __future__ import annotations

from copy import copy

import msgspec
from msgspec import UNSET

from quvatlh.core import tally
from quvatlh.core.books import QueueState
from quvatlh.core.commands import (
    DeleteClass,
    DeleteQueue,
    PatchQueue,
    PurgeQueue,
    PutClass,
    PutQueue,
    Rerank,
    SetRanks,
)
from quvatlh.core.lines import flows
from quvatlh.core.model import FINISHED, HtbClass, QueueSettings, TaskState
from quvatlh.core.plugins import unannounced
from quvatlh.core.rejections import FieldError, Rejection
from quvatlh.core.results import Ok, Worked
from quvatlh.core.transitions import TASK
from quvatlh.core.unit import GONE_SELECT, Gone, Unit
from quvatlh.core.verbs import ending

_CLASS = msgspec.json.Decoder(HtbClass)
_DEPTH_MAX = 16
"""Of the tree of classes; each level is a step of every award that borrows."""


def put_queue(unit: Unit, command: PutQueue) -> Ok | Rejection:
    return _change(unit, command.name, command.settings)


def patch_queue(unit: Unit, command: PatchQueue) -> Ok | Rejection:
    changes = {field: getattr(command.changes, field) for field in command.changes.__struct_fields__}
    named = {field: value for field, value in changes.items() if value is not UNSET}
    queue = unit.queues.get(command.name)
    before = QueueSettings() if queue is None else queue.settings
    return _change(unit, command.name, msgspec.structs.replace(before, **named))


def _change(unit: Unit, name: str, settings: QueueSettings) -> Ok | Rejection:
    if settings.class_ is not None and _class(unit, settings.class_) is None:
        error = FieldError("class", f"there is no class named {settings.class_}")
        return Rejection("invalid", "unknown class", (error,))
    queue = unit.queues.get(name)
    if queue is None or queue.settings.discipline != settings.discipline:
        fault = unannounced(unit.db, settings.discipline)
        if fault is not None:
            error = FieldError("discipline", fault)
            return Rejection("invalid", "unknown discipline", (error,))
    if queue is None:
        unit.queues.make(name, settings, unit.now)
    else:
        queue.change(settings, unit.now)
    unit.tell("queue.changed", name)
    return Ok()


def delete_queue(unit: Unit, command: DeleteQueue) -> Ok | Rejection:
    queue = unit.queues.get(command.name)
    if queue is None:
        return Rejection("not_found", f"there is no queue named {command.name}")
    states: tuple[TaskState, ...] = ("scheduled", "pending", "claimed", "running", "retrying", *FINISHED)
    tasks = sum(unit.tally.get(tally.STATE, command.name, state) for state in states)
    if tasks or unit.tally.get(tally.LIVE, command.name, ""):
        return Rejection("not_empty", f"queue {command.name} has {tasks} tasks: purge it first")
    unit.queues.drop(command.name)
    unit.turns.drop(flows(command.name))
    unit.tell("queue.changed", command.name, "deleted")
    return Ok()


def purge_queue(unit: Unit, command: PurgeQueue) -> Worked | Rejection:
    """A bounded piece: the waiting become deleted, the finished leave the list, the active are left alone."""
    if unit.queues.get(command.name) is None:
        return Rejection("not_found", f"there is no queue named {command.name}")
    done = 0
    for state in dict.fromkeys(command.states):
        room = command.limit - done
        if room == 0:
            break
        if state in FINISHED:
            done += _forget(unit, command.name, state, room)
        elif (state, "delete") in TASK and state not in {"claimed", "running"}:
            done += _delete(unit, command.name, state, room)
    return Worked(done, done == command.limit)


def _forget(unit: Unit, queue: str, state: TaskState, room: int) -> int:
    unit.flush_tasks()
    sql = f"{GONE_SELECT} WHERE queue = ? AND kept IS NOT NULL AND state = ? AND live = 0 LIMIT ?"
    gone = [Gone(*row) for row in unit.db.execute(sql, (queue, state, room))]
    unit.forget(gone)
    return len(gone)


def _delete(unit: Unit, queue: str, state: TaskState, room: int) -> int:
    """Through the small indexes: what waits is in the ready order or in the due order."""
    index = "ready = 1" if state == "pending" else "due_at IS NOT NULL"
    where = f"WHERE queue = ? AND {index} AND state = ? AND live = 0 ORDER BY seq LIMIT ?"
    tasks = unit.select_tasks(where, queue, state, room)
    if state == "pending" and len(tasks) < room:
        where = "WHERE queue = ? AND ready > 0 AND flow IS NOT NULL AND ready = 2 AND live = 0 LIMIT ?"
        tasks += unit.select_tasks(where, queue, room - len(tasks))
    for task in tasks:
        was = copy(task)
        ending.finish_task(unit, task, "delete", None, None)
        unit.store(task, was)
        unit.free_unique(task)
    return len(tasks)


def set_ranks(unit: Unit, command: SetRanks) -> Worked:
    """Of tasks that still wait in the queue; others have moved on meanwhile."""
    queue = unit.queues.get(command.queue)
    if command.discipline is not None and (queue is None or queue.settings.discipline != command.discipline):
        return Worked(0, more=False)
    unit.flush_tasks()
    cursor = unit.db.executemany(
        "UPDATE task SET rank = ? WHERE seq = ? AND queue = ? AND kept IS NULL",
        [(each.rank, each.task, command.queue) for each in command.ranks],
    )
    return Worked(cursor.rowcount, more=False)


def rerank(unit: Unit, command: Rerank) -> Worked | Rejection:
    """The next tasks of the queue, by arrival, get the place that its discipline gives them."""
    queue = unit.queues.get(command.queue)
    if queue is None:
        return Rejection("not_found", f"there is no queue named {command.queue}")
    if queue.rerank_from is None:
        return Worked(0, more=False)
    return _rerank(unit, queue, command.limit)


def _rerank(unit: Unit, queue: QueueState, limit: int) -> Worked:
    where = "WHERE queue = ? AND seq > ? AND kept IS NULL ORDER BY seq LIMIT ?"
    tasks = unit.select_tasks(where, queue.name, queue.rerank_from, limit)
    for task in tasks:
        was = copy(task)
        task.rank = queue.rank(task.priority)
        unit.line_up(task)
        unit.store(task, was)
    more = len(tasks) == limit
    queue.rerank_from, queue.changed = (tasks[-1].seq if more else None), True
    return Worked(len(tasks), more)


def put_class(unit: Unit, command: PutClass) -> Ok | Rejection:
    fault = _tree_fault(unit, command)
    if fault is not None:
        return Rejection("invalid", "the class does not fit into the tree", (fault,))
    text = msgspec.json.encode(command.settings).decode()
    unit.db.execute("INSERT OR REPLACE INTO class VALUES (?, ?)", (command.name, text))
    unit.tell("class.changed", command.name)
    return Ok()


def delete_class(unit: Unit, command: DeleteClass) -> Ok | Rejection:
    if _class(unit, command.name) is None:
        return Rejection("not_found", f"there is no class named {command.name}")
    if _children(unit, command.name):
        return Rejection("not_empty", f"class {command.name} has children")
    unit.queues.flush()
    sql = "SELECT name FROM queue WHERE settings ->> 'class' = ? LIMIT 1"
    queue = unit.db.execute(sql, (command.name,)).fetchone()
    if queue is not None:
        return Rejection("not_empty", f"queue {queue[0]} is in class {command.name}")
    unit.db.execute("DELETE FROM class WHERE name = ?", (command.name,))
    unit.tell("class.changed", command.name, "deleted")
    return Ok()


def _class(unit: Unit, name: str) -> HtbClass | None:
    row = unit.db.execute("SELECT settings FROM class WHERE name = ?", (name,)).fetchone()
    return None if row is None else _CLASS.decode(row[0])


def _children(unit: Unit, name: str) -> dict[str, HtbClass]:
    sql = "SELECT name, settings FROM class WHERE settings ->> 'parent' = ? ORDER BY name"
    return {row[0]: _CLASS.decode(row[1]) for row in unit.db.execute(sql, (name,))}


def _tree_fault(unit: Unit, command: PutClass) -> FieldError | None:
    """Parents exist, no circle, a ceiling not below the rate, children not assured more than their parent."""
    new = command.settings
    if new.ceil_milli is not None and new.ceil_milli < new.rate_milli:
        return FieldError("ceil", "is below the rate")
    children = _children(unit, command.name)
    if sum(child.rate_milli for child in children.values()) > new.rate_milli and children:
        return FieldError("rate", "its children are assured more")
    name, depth = new.parent, 0
    while name is not None:
        parent = _class(unit, name)
        if parent is None:
            return FieldError("parent", f"there is no class named {name}")
        if name == command.name or depth == _DEPTH_MAX:
            return FieldError("parent", "makes a circle, or the tree too deep")
        if name == new.parent:
            siblings = {key: child for key, child in _children(unit, name).items() if key != command.name}
            if sum(child.rate_milli for child in siblings.values()) + new.rate_milli > parent.rate_milli:
                return FieldError("rate", f"the children of {name} would be assured more than it is")
        name, depth = parent.parent, depth + 1
    return None
