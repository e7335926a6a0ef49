"""How an action ends, and what becomes of its task: one place for finish, loss, give-back and what stops them."""

from __future__ import annotations

from copy import copy
from typing import Any

from quvatlh.core import limits, transitions
from quvatlh.core.backoff import delay_ms, is_permanent, rest_ms
from quvatlh.core.books import QueueState
from quvatlh.core.commands import EndDetail
from quvatlh.core.disciplines import FAIR
from quvatlh.core.lines import flows
from quvatlh.core.model import FINISHED, ActionState, Retry, StopReason
from quvatlh.core.rows import Ending, LiveRow, TaskRow
from quvatlh.core.turns import QUEUES, lent_by, of_class
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import deaths
from quvatlh.core.verbs.telling import tell_of_end

_SUCCEEDED, _FAILED, _STOPPED = 0, 1, 2
_VERB_OF_HOW = {_SUCCEEDED: "succeed", _FAILED: "fail", _STOPPED: "stopped"}
_STRONGER: tuple[StopReason, ...] = ("kill", "delete")
_FORGET_EARLIEST = """DELETE FROM action WHERE task = ?1 AND token =
    (SELECT token FROM action WHERE task = ?1 ORDER BY finished_at DESC, token DESC LIMIT 1 OFFSET ?2)"""
"""By when they ended, not by their tokens: of a service, one that ran for a month is told of as the last that ended."""


def ended(unit: Unit, action: LiveRow, task: TaskRow, how: int, detail: EndDetail | None) -> None:
    """The worker's report of an end."""
    detail = detail or EndDetail()
    was = copy(task)
    _leave(unit, action, task)
    state = transitions.ACTION[action.state, _VERB_OF_HOW[how]]
    if state != "succeeded" or detail != EndDetail() or action.progress is not None or task.service or task.finished:
        _record(unit, action, task, state, detail)
    if task.finished:
        unit.tell_task("action.ended", task, action.token, action.worker)
    elif task.service:
        _instance_ended(unit, action, task, how)
    elif how == _SUCCEEDED:
        _end(unit, task, action, "succeed")
    elif how == _FAILED:
        _failed(unit, task, action, detail)
    elif task.once and action.started_at is not None:
        finish_task(unit, task, "fail", "stopped", "an at-most-once task that had begun was stopped", action)
    else:
        _requeue(unit, task, action, action.stop or "drain")
    unit.store(task, was)


def lost(unit: Unit, action: LiveRow, task: TaskRow, *, died: bool) -> None:
    """The lease of an action is over: nobody owns it any more."""
    was = copy(task)
    _leave(unit, action, task)
    _record(unit, action, task, transitions.ACTION[action.state, "lose"], EndDetail())
    if task.finished:
        unit.tell_task("action.ended", task, action.token, action.worker)
    elif task.service:
        _service_state(task)
        unit.tell_task("task.relocated", task, action.token, action.worker, why="lost")
    elif task.once:
        finish_task(unit, task, "fail", "lost", f"worker {action.worker} was lost with it", action)
    else:
        if died:
            task.deaths += 1
            deaths.charge(unit, action)
        if task.deaths >= limits.DEATHS_MAX:
            text = f"{task.deaths} workers died with it, the last one was {action.worker}"
            finish_task(unit, task, "fail", "poison", text, action)
        else:
            _requeue(unit, task, action, "lost")
    unit.store(task, was)


def given_back(unit: Unit, action: LiveRow, task: TaskRow) -> None:
    """A claim that did not begin: as if it had not been."""
    was = copy(task)
    _leave(unit, action, task)
    queue = unit.queues.get(action.queue)
    if queue is not None:
        queue.give_back(unit.now)
        _refund(unit, queue, action, task)
    task.attempts -= 1
    if task.finished:
        unit.tell_task("action.ended", task, action.token, action.worker)
    else:
        if not task.service:
            task.state = transitions.TASK[task.state, "requeue"]
        unit.tell_task("task.ready", task, action.token, action.worker)
    unit.store(task, was)


def _refund(unit: Unit, queue: QueueState, action: LiveRow, task: TaskRow) -> None:
    """The turn is given back to its flow, its queue, its class. Who lent for it is not written down: it is taken for the one who
    would lend for it now."""
    settings = queue.settings
    if settings.discipline == FAIR:
        key = action.key or ""
        unit.turns.refund(flows(queue.name), key, task.cost, settings.key_weights.get(key, 1))
        unit.lines.touch_key(queue.name, action.key)
    scope = QUEUES if settings.class_ is None else of_class(settings.class_)
    unit.turns.refund(scope, queue.name, task.cost, settings.weight)
    unit.classes.ended(queue.name, 0, started=True)
    lender = None if settings.class_ is None else unit.classes.tree.lender(settings.class_, action.slots)
    if settings.class_ is not None and lender is not None:
        weight = unit.classes.tree.weight(settings.class_)
        unit.turns.refund(lent_by(lender.scope), settings.class_, task.cost, weight)


def finish_task(
    unit: Unit, task: TaskRow, verb: str, error: str | None, text: str | None, action: LiveRow | None = None
) -> None:
    """A final state, by a verb of the transition table; the caller stores it."""
    before, task.state = task.state, transitions.TASK[task.state, verb]
    task.finished_at = unit.now
    task.error, task.error_text = error, None if text is None else text[: limits.ERROR_CHARS_MAX]
    kind = {"succeeded": "task.succeeded", "failed": "task.failed", "deleted": "task.deleted"}[task.state]
    more: dict[str, Any] = {} if error is None else {"error": error, "text": task.error_text}
    if before in FINISHED:
        more["was"] = before
    token, worker = (0, "") if action is None else (action.token, action.worker)
    if action is not None and action.started_at is not None:
        more["started_at"] = action.started_at
    unit.tell_task(kind, task, token, worker, **more)
    tell_of_end(unit, task)


def stop(unit: Unit, task: TaskRow, actions: list[LiveRow], why: StopReason) -> int:
    """Ask for the end of actions. They live on until their worker has reported it. How many were not stopping before."""
    asked = 0
    for action in actions:
        if action.state == "stopping":
            if why in _STRONGER:
                unit.db.execute("UPDATE live SET stop = ? WHERE token = ?", (why, action.token))
            continue
        state = transitions.ACTION[action.state, "stop"]
        sql = "UPDATE live SET state = ?, stop = ?, plain = 0 WHERE token = ?"
        unit.db.execute(sql, (state, why, action.token))
        unit.tell_task("action.stopping", task, action.token, action.worker, why=why)
        asked += 1
    return asked


def begun_at(unit: Unit, action: LiveRow | Ending, told_ms: int) -> int | None:
    """When an action began, by its worker's word, kept between its award and now: clocks differ."""
    if action.started_at is not None:
        return action.started_at
    return min(max(told_ms, action.awarded_at), unit.now) if told_ms else None


def _leave(unit: Unit, action: LiveRow, task: TaskRow) -> None:
    unit.release(action)
    task.live -= 1
    if action.started_at is not None:
        task.running -= 1
        task.started_at = action.started_at


def _end(unit: Unit, task: TaskRow, action: LiveRow, verb: str) -> None:
    finish_task(unit, task, verb, None, None, action)


def _failed(unit: Unit, task: TaskRow, action: LiveRow, detail: EndDetail) -> None:
    task.ended += 1
    queue = unit.queue(task.queue)
    retry = unit.spec(task).retry or queue.settings.retry or Retry()
    code, text = _error(detail)
    if task.once or task.ended >= retry.attempts or is_permanent(retry, detail):
        finish_task(unit, task, "fail", code, text, action)
        return
    task.state = transitions.TASK[task.state, "back_off"]
    wait = detail.retry_after_ms
    if wait is None:
        wait = max(delay_ms(retry, task.ended, detail.chance), detail.no_sooner_ms or 0)
    task.due_at = min(unit.now + wait, limits.TIME_MS_MAX)
    task.error, task.error_text = code, text
    more = {"due_at": task.due_at, "error": code, "text": text, "started_at": action.started_at}
    unit.tell_task("task.retrying", task, action.token, action.worker, **more)


def _error(detail: EndDetail) -> tuple[str, str | None]:
    text = detail.error_text
    code = detail.error_code
    if code is None and detail.signal is not None:
        code = "signal"
        text = text or f"ended by signal {detail.signal}"
    if code is None and detail.exit_code is not None:
        code = "exit"
        text = text or f"exit status {detail.exit_code}"
    return code or "failed", None if text is None else text[: limits.ERROR_CHARS_MAX]


def _requeue(unit: Unit, task: TaskRow, action: LiveRow, why: str) -> None:
    """Back to its place."""
    task.state = transitions.TASK[task.state, "requeue"]
    unit.tell_task("task.relocated", task, action.token, action.worker, why=why)


def _instance_ended(unit: Unit, action: LiveRow, task: TaskRow, how: int) -> None:
    moved = action.stop in {"relocate", "surplus"} or (how == _STOPPED and action.stop is None)
    if not moved:
        steady = action.started_at is not None and unit.now - action.started_at >= limits.SERVICE_STEADY_MS
        task.streak = 1 if steady else task.streak + 1
        task.resting += 1
        task.due_at = max(task.due_at or 0, unit.now + rest_ms(task.streak))
    _service_state(task)
    unit.tell_task("task.relocated" if moved else "action.ended", task, action.token, action.worker)


def _service_state(task: TaskRow) -> None:
    """Running while an instance runs."""
    if task.state == "running" and task.running == 0:
        task.state = transitions.TASK[task.state, "requeue"]


def _record(unit: Unit, action: LiveRow, task: TaskRow, state: ActionState, detail: EndDetail) -> None:
    unit.db.execute(
        "INSERT INTO action VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            action.task,
            action.token,
            action.worker,
            action.attempt,
            state,
            action.awarded_at,
            action.started_at,
            unit.now,
            detail.exit_code,
            detail.signal,
            _error(detail)[0] if state == "failed" else None,
            detail.error_text,
            detail.result,
            detail.output_tail or None,
            action.progress,
        ),
    )
    if task.attempts > limits.ACTIONS_KEPT_MAX:  # else there cannot be so many
        unit.db.execute(_FORGET_EARLIEST, (action.task, limits.ACTIONS_KEPT_MAX))
