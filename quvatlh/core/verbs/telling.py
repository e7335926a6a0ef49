"""Who wanted to hear of an end is told by a task of queue `_notify`, made in the entry of the end: never lost, never twice.

What is told is its payload; a URL gets it as the body of a signed POST whose delivery id is the task's own, a command on
its standard input. It is a task like any other: retried by its queue's rules, listed, held up by pause and limits.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from quvatlh.core import limits
from quvatlh.core.commands import NewTask
from quvatlh.core.model import Notify, TaskSpec, Work
from quvatlh.core.moments import rfc3339
from quvatlh.core.rows import TaskRow
from quvatlh.core.unit import Unit
from quvatlh.core.verbs.add import add_tasks

QUEUE: Final = "_notify"
ID_PREFIX: Final = "notify-"
"""Of what is made here. Somebody may choose such an id; made by nobody's choice they are made here alone."""
TIMEOUT_MS: Final = 30 * limits.SECOND_MS
"""Of one attempt."""


def tell_of_end(unit: Unit, task: TaskRow) -> None:
    """It has a final state, and why it has it, by now."""
    if not task.may_want_telling:
        return
    notify = unit.spec(task).notify
    if notify is not None and task.state in notify.on:
        url = notify.url is not None
        spec = TaskSpec(_work(notify), group=task.grp, queue=QUEUE, slots=0 if url else 1, timeout_ms=TIMEOUT_MS)
        add_tasks(unit, [NewTask(_new_id(unit), spec, payload=msgspec.json.encode(_told(task)))])


def _work(notify: Notify) -> Work:
    if notify.url is None:
        return Work(command=notify.command)
    headers = {"content-type": "application/json"}
    return Work(http={"url": notify.url, "method": "POST", "headers": headers, "sign": True})


def _new_id(unit: Unit) -> str:
    """Nobody's yet, also where somebody has chosen such an id himself."""
    while True:
        new = f"{ID_PREFIX}{unit.take('notify')}"
        if new not in unit.new_ids and not unit.tasks_by_id([new]):
            return new


def _told(task: TaskRow) -> dict[str, Any]:
    error = None if task.error is None else {"code": task.error, "text": task.error_text or ""}
    return {
        "type": f"task.{task.state}",
        "timestamp": _moment(task.finished_at),
        "data": {
            "id": task.id,
            "name": task.name or task.id,
            "group": task.grp,
            "queue": task.queue,
            "state": task.state,
            "attempts": task.attempts,
            "worker": task.worker,
            "created_at": rfc3339(task.created_at),
            "started_at": _moment(task.started_at),
            "finished_at": _moment(task.finished_at),
            "error": error,
        },
    }


def _moment(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)
