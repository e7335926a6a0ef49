"""What a person does to tasks: delete, kill, retry, relocate, update. Each over a list, answered in numbers.

A task whose state has no such step in the transition table is matched and not done. An unknown id refuses the whole,
named, unless the ids came from a filter; one outside the scope of who asks is unknown to him.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import msgspec
from msgspec import UNSET

from quvatlh.core import limits, transitions
from quvatlh.core.commands import BeginBulk, Delete, Kill, Move, Relocate, RetryTasks, TaskChanges, Update
from quvatlh.core.model import TaskState
from quvatlh.core.rejections import FieldError, Rejection
from quvatlh.core.results import Begun, Deleted, Done, Evened
from quvatlh.core.rows import LiveRow, TaskRow, json_text
from quvatlh.core.uniqueness import FOR, HOLDS
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import ending

_REFUSED_SHOWN_MAX = 100
_OF_HISTORY = {"keep_ms"}
"""What changes of a task that is over."""
_OF_FAILED = _OF_HISTORY | {"queue", "priority", "tags", "limit", "expires_ms"}
"""Of one that may run again. Not its time: it has begun."""
_TIMES = {"at_ms", "expires_ms"}


def delete(unit: Unit, command: Delete) -> Done | Rejection:
    over = 0

    def act(_: Unit, task: TaskRow) -> bool:
        nonlocal over
        over += not _delete(unit, task, failed=command.failed)
        return True

    answer = _each(unit, command.ids, act, strict=command.strict)
    if over and command.failed and isinstance(answer, Done):
        return Deleted(answer.matched, answer.done, answer.refused, over)
    return answer


def kill(unit: Unit, command: Kill) -> Done | Rejection:
    return _each(unit, command.ids, _kill, strict=command.strict)


def retry(unit: Unit, command: RetryTasks) -> Done | Rejection:
    held = _held_by_others(unit, command) if command.exclusive else {}
    if held and command.strict and len(unit.tasks_in_scope(command.ids)) == len(set(command.ids)):
        errors = tuple(
            FieldError(f"ids[{command.ids.index(name)}]", f"the unique key of {name} is held by {holder}")
            for name, holder in held.items()
        )
        return Rejection("unique_held", errors[0].message, errors)
    return _each(
        unit, command.ids, lambda u, task: task.id not in held and _retry(u, task, command), strict=command.strict
    )


def relocate(unit: Unit, command: Relocate) -> Done | Evened | Rejection:
    wanted = dict.fromkeys(move.to for move in command.moves if move.to is not None)
    unknown = [f"there is no worker named {name}" for name in wanted if not _worker_exists(unit, name)]
    if unknown:
        return Rejection("not_found", unknown[0], tuple(FieldError("to", text) for text in unknown))
    moves = {move.id: move for move in command.moves}
    answer = _each(unit, list(moves), lambda u, task: _relocate(u, task, moves[task.id]), strict=command.strict)
    return answer if command.plan is None or isinstance(answer, Rejection) else Evened(command.plan, unit.index)


def update(unit: Unit, command: Update) -> Done | Rejection:
    changes, failed = command.changes, command.failed
    names = list(dict.fromkeys(command.ids)) if command.timely and _named(changes) & _TIMES else []
    tasks = unit.tasks_in_scope(names)
    untimely = [name for name in names if name in tasks and _only_expires(unit, tasks[name], changes)]
    if untimely and command.strict and len(tasks) == len(names):
        errors = tuple(
            FieldError(f"ids[{command.ids.index(name)}]", f"{name} would expire before its time comes")
            for name in untimely
        )
        return Rejection("invalid", errors[0].message, errors)
    return _each(
        unit,
        command.ids,
        lambda u, task: task.id not in untimely and _update(u, task, changes, failed=failed),
        strict=command.strict,
    )


def _only_expires(unit: Unit, task: TaskRow, changes: TaskChanges) -> bool:
    """Of what waits for a time, or would then: it could never start. The rest after a try is no time that anybody has given."""
    starts = task.due_at if task.state == "scheduled" else None
    if changes.at_ms is not UNSET:
        takes_it = task.state in {"scheduled", "retrying"} or (task.state == "pending" and not task.service)
        starts = changes.at_ms if takes_it and changes.at_ms > unit.now else None
    expires = task.expires_at if changes.expires_ms is UNSET else changes.expires_ms
    return starts is not None and expires is not None and expires <= starts


def begin_bulk(_unit: Unit, command: BeginBulk) -> Begun:
    return Begun(command.bulk)


def _each(unit: Unit, ids: Sequence[str], act: Callable[[Unit, TaskRow], bool], *, strict: bool) -> Done | Rejection:
    """The verb on every task, in the order asked; each id once."""
    names = list(dict.fromkeys(ids))
    tasks = unit.tasks_in_scope(names)
    unknown = [name for name in names if name not in tasks]
    if unknown and strict:
        errors = tuple(FieldError(f"ids[{ids.index(name)}]", f"there is no task {name}") for name in unknown)
        return Rejection("not_found", f"unknown: {', '.join(unknown[:10])}", errors)
    done = 0
    refused: dict[str, str] = {}
    for name in names:
        task = tasks.get(name)
        if task is None:
            continue
        if act(unit, task):
            done += 1
        elif len(refused) < _REFUSED_SHOWN_MAX:
            refused[name] = task.state
    return Done(len(tasks), done, refused)


def _actions(unit: Unit, task: TaskRow) -> list[LiveRow]:
    return unit.select_live("WHERE task = ?", task.seq) if task.live else []


def _delete(unit: Unit, task: TaskRow, *, failed: bool) -> bool:
    """Whether anything had to be done: what is over is as asked already, but for what has `failed`. A key that it still
    holds is freed. The error stays."""
    is_over = task.finished and not (failed and task.state == "failed")
    if not is_over:
        was = copy(task)
        error, text = (task.error, task.error_text) if task.finished else (None, None)
        ending.stop(unit, task, _actions(unit, task), "delete")
        ending.finish_task(unit, task, "delete", error, text)
        unit.store(task, was)
    unit.free_unique(task)
    return not is_over


def _kill(unit: Unit, task: TaskRow) -> bool:
    """A service's instances end and are replaced; a job has failed. What is over is as asked already."""
    if task.finished:
        return True
    if task.service:
        return ending.stop(unit, task, _actions(unit, task), "kill") > 0
    if (task.state, "kill") not in transitions.TASK:
        return False
    was = copy(task)
    ending.stop(unit, task, _actions(unit, task), "kill")
    ending.finish_task(unit, task, "kill", "killed", "killed by a person")
    unit.store(task, was)
    return True


def _retry(unit: Unit, task: TaskRow, command: RetryTasks) -> bool:
    """From the beginning: as many attempts as a new one. Not while its last action still lives. One that waits for its next
    attempt only waits no longer."""
    if _after_retry(task, command) is None or task.live:
        return False
    was = copy(task)
    if command.queue is not None:
        _rewrite_spec(unit, task, TaskChanges(queue=command.queue))
        task.queue = command.queue
    if command.placed:
        task.rank = unit.queue(task.queue).rank(task.priority)
    if task.state == "failed":
        task.ended = task.deaths = 0
        task.error = task.error_text = None
    task.state = transitions.TASK[task.state, "retry"]
    if task.expires_at is not None and task.expires_at <= unit.now:
        task.expires_at = None
    unit.store(task, was)
    unit.tell_task("task.ready", task)
    return True


def _after_retry(task: TaskRow, command: RetryTasks) -> TaskState | None:
    """None: it is not retried."""
    return None if task.state == "retrying" and not command.sooner else transitions.TASK.get((task.state, "retry"))


def _held_by_others(unit: Unit, command: RetryTasks) -> dict[str, str]:
    """Of tasks that may be retried and would hold their unique key then: by id, who has it, or comes before it here."""
    names = list(dict.fromkeys(command.ids))
    tasks = unit.tasks_in_scope(names)
    taken: dict[tuple[str, str], str] = {}
    held: dict[str, str] = {}
    for name in names:
        task = tasks.get(name)
        after = None if task is None else _after_retry(task, command)
        if task is None or task.live or task.unique_key is None or after not in HOLDS[task.unique_while or FOR]:
            continue
        holder = unit.unique_holder(task.grp, task.unique_key)
        other = taken.get((task.grp, task.unique_key)) if holder is None or holder[0] == task.seq else holder[1]
        if other is None:
            taken[task.grp, task.unique_key] = name
        else:
            held[name] = other
    return held


def _worker_exists(unit: Unit, name: str) -> bool:
    return unit.db.execute("SELECT 1 FROM worker WHERE name = ?", (name,)).fetchone() is not None


def _relocate(unit: Unit, task: TaskRow, move: Move) -> bool:
    if task.finished:
        return False
    if move.loose and move.to is None:
        was = copy(task)
        task.shape = unit.shape_id(msgspec.structs.replace(unit.shapes.get(task.shape), toward=None))
        unit.store(task, was)
        unit.tell_task("task.updated", task)
        return True
    actions = [
        action
        for action in _actions(unit, task)
        if move.from_worker in {None, action.worker} and move.token in {0, action.token} and action.worker != move.to
    ]
    if task.service and not actions and not move.loose and task.live >= (task.lim or 1):
        return True  # all of it is there: a pin would stay, for no award would take it off
    if task.once and any(action.started_at is not None for action in actions):
        return False
    was = copy(task)
    avoid = None if move.to is not None or not actions else actions[0].worker
    before = unit.shapes.get(task.shape)
    pin, toward = (before.pin, move.to) if move.loose else (move.to, None)
    shape = msgspec.structs.replace(before, pin=pin, avoid=avoid, toward=toward)
    task.shape = unit.shape_id(shape)
    ending.stop(unit, task, actions, "relocate")
    unit.store(task, was)
    unit.tell_task("task.updated", task)
    return True


def _update(unit: Unit, task: TaskRow, changes: TaskChanges, *, failed: bool) -> bool:
    if task.finished and not _named(changes) <= (_OF_FAILED if failed and task.state == "failed" else _OF_HISTORY):
        return False
    was = copy(task)
    _rewrite_spec(unit, task, changes)
    if changes.queue is not UNSET:
        task.queue = changes.queue
    if changes.priority is not UNSET:
        task.priority = changes.priority
    if changes.queue is not UNSET or changes.priority is not UNSET:
        task.rank = unit.queue(task.queue).rank(task.priority)
    if changes.tags is not UNSET:
        task.shape = unit.shape_id(msgspec.structs.replace(unit.shapes.get(task.shape), tags=changes.tags))
    if changes.expires_ms is not UNSET:
        task.expires_at = changes.expires_ms
    if changes.keep_ms is not UNSET:
        task.keep_ms = changes.keep_ms
    if changes.at_ms is not UNSET:
        _reschedule(unit, task, changes.at_ms)
    if changes.limit is not UNSET:
        _relimit(unit, task, changes.limit)
    unit.db.execute("UPDATE live SET plain = 0 WHERE task = ?", (task.seq,))
    unit.store(task, was)
    unit.tell_task("task.ready" if task.ready and not was.ready else "task.updated", task)
    return True


def _named(changes: TaskChanges) -> set[str]:
    return {field for field in changes.__struct_fields__ if getattr(changes, field) is not UNSET}


def _rewrite_spec(unit: Unit, task: TaskRow, changes: TaskChanges) -> None:
    """The spec says what the columns say."""
    named = {field: getattr(changes, field) for field in ("queue", "priority", "tags", "limit", "keep_ms")}
    new = {field: value for field, value in named.items() if value is not UNSET}
    if not new:
        return
    text = json_text(msgspec.structs.replace(unit.spec(task), **new))
    if task.spec is not None and text is not None and len(text) <= limits.SPEC_INLINE_BYTES_MAX:
        task.spec = text
        return
    task.spec = None
    sql = "INSERT INTO body VALUES (?, ?, NULL, 1) ON CONFLICT DO UPDATE SET spec = excluded.spec"
    unit.db.execute(sql, (task.seq, text))


def _reschedule(unit: Unit, task: TaskRow, at_ms: int) -> None:
    """A waiting task waits for another time; what is active or over has begun."""
    later = at_ms > unit.now
    task.at = at_ms if later else None
    if task.state == "retrying" or (task.state == "scheduled" and later):
        task.due_at = at_ms
    elif task.state == "pending" and later and task.live == 0 and not task.service:
        task.state = transitions.TASK[task.state, "postpone"]
        task.due_at = at_ms
    elif task.state == "scheduled":
        task.state = transitions.TASK[task.state, "promote"]


def _relimit(unit: Unit, task: TaskRow, limit: int | None) -> None:
    """Live actions count under the new limit at once. Only a service's surplus is stopped, the youngest first."""
    actions = _actions(unit, task)
    task.lim = (limit or 1) if task.service else limit
    for action in actions:
        unit.count_action(action, -1)
        action.name, action.lim = task.counted_name, task.lim
        unit.count_action(action, 1)
        sql = "UPDATE live SET name = ?, lim = ? WHERE token = ?"
        unit.db.execute(sql, (action.name, action.lim, action.token))
    if task.service:
        staying = [action for action in actions if action.state != "stopping"]
        ending.stop(unit, task, staying[task.lim or 1 :], "surplus")
        task.resting = min(task.resting, max(0, (task.lim or 1) - task.live))
