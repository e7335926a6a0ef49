"""Queues: settings that hold from the next award on, purge, and when one may be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from msgspec import UNSET

from quvatlh.core import tally
from quvatlh.core.backoff import BEYOND, first_is_beyond
from quvatlh.core.books import QueueState
from quvatlh.core.commands import DeleteQueue, PatchQueue, PurgeQueue, PutQueue, QueueChanges, Rerank, SetRanks
from quvatlh.core.lines import flows
from quvatlh.core.model import ACTIVE, FINISHED, UNFINISHED, QueueSettings, Retry, TaskState
from quvatlh.core.plugins import unannounced
from quvatlh.core.rejections import FieldError, Rejection
from quvatlh.core.results import Done, Ok, Worked
from quvatlh.core.rows import TaskRow, json_list
from quvatlh.core.unit import GONE_SELECT, Gone, Unit
from quvatlh.core.verbs import ending
from quvatlh.core.verbs.classes import find_class

BURST_ALONE = "is of no use without a rate"


def put_queue(unit: Unit, command: PutQueue) -> Ok | Rejection:
    return _change(unit, command.name, command.settings)


def patch_queue(unit: Unit, command: PatchQueue) -> Ok | Rejection:
    queue = unit.queues.get(command.name)
    settings = command.changes.on(QueueSettings() if queue is None else queue.settings)
    fault = fault_of(command.changes, settings) if command.judged else None
    if fault is not None:
        return Rejection("invalid", f"{fault.path} {fault.message}", (fault,))
    return _change(unit, command.name, settings)


def fault_of(changes: QueueChanges, settings: QueueSettings) -> FieldError | None:
    """What is named says something against what there is then. What stood there before is left in peace."""
    if changes.burst not in {UNSET, None} and settings.rate is None:
        return FieldError("burst", BURST_ALONE)
    part = changes.retry_part
    if part is UNSET or part is None or settings.retry is None or not first_is_beyond(settings.retry):
        return None
    usual = part.first_ms is UNSET and settings.retry.first_ms == Retry().first_ms
    return None if usual else FieldError("retry.first", BEYOND)


def _change(unit: Unit, name: str, settings: QueueSettings) -> Ok | Rejection:
    if settings.class_ is not None and find_class(unit, settings.class_) is None:
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
    name = command.name
    if unit.queues.get(name) is None:
        return Rejection("not_found", f"there is no queue named {name}")
    states: tuple[TaskState, ...] = (*UNFINISHED, *FINISHED)
    counts = {state: n for state in states if (n := unit.tally.get(tally.STATE, name, state))}
    if counts:
        held = ", ".join(f"{n} {state}" for state, n in counts.items())
        return Rejection("not_empty", f"queue {name} has tasks ({held}): purge it of these states first")
    if unit.tally.get(tally.LIVE, name, ""):
        return Rejection("not_empty", f"queue {name} has actions that still end")
    unit.queues.drop(name)
    unit.turns.drop(flows(name))
    unit.tell("queue.changed", name, "deleted")
    return Ok()


def purge_queue(unit: Unit, command: PurgeQueue) -> Worked | Done | Rejection:
    """A bounded piece: the waiting become deleted, the finished leave the list, the active are left alone."""
    if unit.queues.get(command.name) is None:
        return Rejection("not_found", f"there is no queue named {command.name}")
    if command.ids is not None:
        done = _purge_ids(unit, command, command.ids)
        return Done(len(command.ids), done) if command.counted else Worked(done, more=False)
    done = 0
    for state in dict.fromkeys(command.states):
        room = command.limit - done
        if room == 0:
            break
        if state in FINISHED:
            done += _forget(unit, command.name, state, room)
        elif state not in ACTIVE:
            done += _delete(unit, _waiting(unit, command.name, state, room))
    return Worked(done, done == command.limit)


def _purge_ids(unit: Unit, command: PurgeQueue, ids: Sequence[str]) -> int:
    """Those of them that are in the queue and in these states now. Asked for deleted ones too, what waited leaves the list
    at once."""
    tasks = [
        task
        for task in unit.tasks_by_id(ids).values()
        if task.queue == command.name and task.state in command.states and task.live == 0
    ]
    over = [task for task in tasks if task.finished]
    deleted = [task for task in tasks if task.waiting]
    _delete(unit, deleted)
    gone = [*over, *deleted] if "deleted" in command.states else over
    unit.forget(_gone(unit, "seq IN (SELECT value FROM json_each(?))", json_list([task.seq for task in gone])))
    return len(over) + len(deleted)


def _forget(unit: Unit, queue: str, state: TaskState, room: int) -> int:
    unit.flush_tasks()
    gone = _gone(unit, "queue = ? AND kept IS NOT NULL AND state = ? AND live = 0 LIMIT ?", queue, state, room)
    unit.forget(gone)
    return len(gone)


def _gone(unit: Unit, where: str, *values: object) -> list[Gone]:
    """`where` is text of our own."""
    return [Gone(*row) for row in unit.db.execute(f"{GONE_SELECT} WHERE {where}", values)]


def _waiting(unit: Unit, queue: str, state: TaskState, room: int) -> list[TaskRow]:
    """Through the small indexes: what waits is in the ready order or in the due order. A service rests in the latter."""
    index = "ready = 1" if state == "pending" else "due_at IS NOT NULL"
    where = f"WHERE queue = ? AND {index} AND state = ? AND live = 0 ORDER BY seq LIMIT ?"
    tasks = unit.select_tasks(where, queue, state, room)
    if state == "pending" and len(tasks) < room:
        where = "WHERE queue = ? AND ready > 0 AND flow IS NOT NULL AND ready = 2 AND live = 0 LIMIT ?"
        tasks += unit.select_tasks(where, queue, room - len(tasks))
    if state == "pending" and len(tasks) < room:
        where = "WHERE queue = ? AND service = 1 AND ready = 0 AND state = ? AND live = 0 ORDER BY seq LIMIT ?"
        tasks += unit.select_tasks(where, queue, state, room - len(tasks))
    return tasks


def _delete(unit: Unit, tasks: Sequence[TaskRow]) -> int:
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
    unit.memory.forget_lines()  # while their queue is being reranked, they may still stand in lines
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
