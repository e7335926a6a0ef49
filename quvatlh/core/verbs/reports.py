"""What sessions report of their actions: started, progress, announced, ended, given back; and what the master finds lost.

Every report names session and token. A token that is not live any more is stale, unless the same report was taken before:
then it is ok once more. Reports of a batch are answered one by one.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from typing import Any

from quvatlh.core import limits, schema, tally
from quvatlh.core.commands import Announce, End, Finish, GiveBack, Lost, Progress, Start, Started
from quvatlh.core.events import Event
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Ok, Reported
from quvatlh.core.rows import Ending, LiveRow, TaskRow, json_list, json_text
from quvatlh.core.sums import Sums
from quvatlh.core.transitions import ACTION, TASK
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import ending


def start(unit: Unit, command: Start) -> Reported:
    live = unit.live([each.token for each in command.reports])
    refused: dict[int, str] = {}
    for position, each in enumerate(command.reports):
        action = live.get(each.token)
        table = None if each.announcement is None else json_text(each.announcement)
        if action is None or action.session != command.session:
            refused[position] = "stale_token"
        elif each.announcement is not None and (table is None or len(table) > limits.JSON_BYTES_MAX):
            refused[position] = "too_large" if table else "invalid"
        elif action.started_at is None:
            _begin(unit, action, each, table)
    return Reported(refused)


def _begin(unit: Unit, action: LiveRow, report: Started, table: str | None) -> None:
    action.started_at = ending.begun_at(unit, action, report.started_ms or unit.now)
    if action.state == "claimed":
        action.state = ACTION[action.state, "start"]
    action.announcement = table
    unit.db.execute(
        "UPDATE live SET state = ?, started_at = ?, announcement = ? WHERE token = ?",
        (action.state, action.started_at, table, action.token),
    )
    task = unit.tasks([action.task])[action.task]
    was = copy(task)
    task.running += 1
    task.started_at = action.started_at
    if task.finished:
        unit.store(task, was)
        return
    if task.state != "running":
        task.state = TASK[task.state, "start"]
    unit.store(task, was)
    unit.tell_task("task.started", task, action.token, action.worker, started_at=action.started_at)
    if table is not None:
        unit.tell_task("announced", task, action.token, action.worker)


def progress(unit: Unit, command: Progress) -> Reported:
    live = unit.live([each.token for each in command.reports])
    refused: dict[int, str] = {}
    for position, each in enumerate(command.reports):
        action = live.get(each.token)
        if action is None or action.session != command.session:
            refused[position] = "stale_token"
            continue
        said = {"percent": each.percent, "text": each.text}
        sql = "UPDATE live SET progress = ?, plain = 0 WHERE token = ?"
        unit.db.execute(sql, (json_text(said), each.token))
        unit.tell(
            "task.progress", action.id, action.state, seq=action.task, queue=action.queue, worker=action.worker,
            token=action.token, more=said,
        )  # fmt: skip
    return Reported(refused)


def announce(unit: Unit, command: Announce) -> Ok | Rejection:
    action = unit.live([command.token]).get(command.token)
    if action is None or action.session != command.session:
        return Rejection("stale_token", f"token {command.token} owns no action of this session")
    table = None if command.table is None else json_text(command.table)
    if command.table is not None and table is None:
        return Rejection("invalid", "the table holds what has no form in JSON")
    if table is not None and len(table) > limits.JSON_BYTES_MAX:
        return Rejection("too_large", f"an announcement has at most {limits.JSON_BYTES_MAX} bytes")
    unit.db.execute("UPDATE live SET announcement = ? WHERE token = ?", (table, command.token))
    unit.tell("announced", action.id, action.state, seq=action.task, worker=action.worker, token=action.token)
    return Ok()


def finish(unit: Unit, command: Finish) -> Reported:
    batch = _Ends(unit)
    unit.flush_tasks()
    live = _read(unit, command)
    keys: defaultdict[str, set[str | None]] = defaultdict(set)
    for action in live.values():
        if action.key is not None:
            keys[action.queue].add(action.key)
    if keys:
        unit.lines.know(keys)
    refused: dict[int, str] = {}
    slow: list[tuple[LiveRow, End]] = []
    seen: set[int] = set()
    for position, end in enumerate(command.ends):
        ended = live.get(end.token)
        if ended is None:
            if not _is_repeated(unit, end):
                refused[position] = "stale_token"
        elif ended.session != command.session:
            refused[position] = "stale_token"
        elif end.token not in seen:
            seen.add(end.token)
            if isinstance(ended, Ending):
                batch.succeed(ended, end)
            else:
                slow.append((ended, end))
    batch.write()
    _end_slowly(unit, slow)
    return Reported(refused)


def _read(unit: Unit, command: Finish) -> dict[int, Ending | LiveRow]:
    """Plain successes with no more than they need, the others whole."""
    short: dict[int, bool] = {}
    for end in command.ends:
        short.setdefault(end.token, end.how == 0 and end.detail is None)  # of what comes twice the first counts
    successes = [token for token, is_short in short.items() if is_short]
    found: dict[int, Ending | LiveRow] = dict(unit.plain_endings(successes)) if successes else {}
    others = [token for token in short if token not in found]
    if others:
        found.update(unit.live(others))
    return found


class _Ends:
    """Successes of plain jobs with nothing more to say: nearly all there is."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._began: dict[int, int | None] = {}
        """By task."""
        self._tokens: list[int] = []
        self._states: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By queue and the state they had."""
        self._sums = Sums(unit, -1)

    def succeed(self, action: Ending, end: End) -> None:
        unit, sums, queue = self._unit, self._sums, action.queue
        began = self._began[action.task] = ending.begun_at(unit, action, end.started_ms)
        self._tokens.append(action.token)
        self._states[queue, action.state] += 1
        sums.workers[queue, action.worker] += 1
        if action.key is not None:
            sums.keys[queue][action.key] += 1
        if action.name is not None:
            sums.names[action.grp, action.name, action.lim] += 1
        more: dict[str, Any] = {"started_at": began}
        unit.events.append(
            Event(
                unit.numbers(1), "task.succeeded", action.id, "succeeded", action.task, queue, 0, action.worker,
                action.token, more,
            )
        )  # fmt: skip

    def write(self) -> None:
        self._count()
        db, now = self._unit.db, self._unit.now
        if len(self._tokens) >= schema.TOGETHER_MIN:
            db.execute(schema.FINISH_TASKS, (now, json_list(self._began)))
            db.execute(schema.RELEASE_MANY, (json_list(self._tokens),))
        elif self._tokens:
            db.executemany(schema.FINISH_TASK, [(now, began, task) for task, began in self._began.items()])
            db.executemany(schema.RELEASE, [(token,) for token in self._tokens])

    def _count(self) -> None:
        add = self._unit.tally.add
        for (queue, state), n in self._states.items():
            add(tally.STATE, queue, state, -n)
            add(tally.STATE, queue, "succeeded", n)
            add(tally.KEPT, queue, 0, n)
        self._sums.write()


def _end_slowly(unit: Unit, ends: list[tuple[LiveRow, End]]) -> None:
    tasks = unit.tasks([action.task for action, _ in ends]) if ends else {}
    for action, end in ends:
        task = tasks[action.task]
        _note_begin(task, action, ending.begun_at(unit, action, end.started_ms))
        ending.ended(unit, action, task, end.how, end.detail)


def _note_begin(task: TaskRow, action: LiveRow, began: int | None) -> None:
    """A finish implies the start."""
    if action.started_at is None and began is not None:
        action.started_at = began
        task.running += 1


def _is_repeated(unit: Unit, end: End) -> bool:
    """Whether this token has ended before by the same report. A success after a failure, and the other way round, is news that
    comes too late; whether it failed or was stopped, who tells it again need not know."""
    sql = "SELECT state FROM action WHERE task = ? AND token = ?"
    row = unit.db.execute(sql, (end.task, end.token)).fetchone()
    if row is not None:
        return row[0] == "succeeded" if end.how == 0 else row[0] in {"failed", "stopped"}
    if end.how != 0:
        return False
    sql = "SELECT 1 FROM task WHERE seq = ? AND token = ? AND state = 'succeeded'"
    return unit.db.execute(sql, (end.task, end.token)).fetchone() is not None


def give_back(unit: Unit, command: GiveBack) -> Reported:
    live = unit.live(command.tokens)
    refused: dict[int, str] = {}
    for position, token in enumerate(command.tokens):
        action = live.get(token)
        if action is None or action.session != command.session:
            refused[position] = "stale_token"
        elif action.started_at is not None:
            refused[position] = "conflict"
        else:
            del live[token]
            ending.given_back(unit, action, unit.tasks([action.task])[action.task])
    return Reported(refused)


def lost(unit: Unit, command: Lost) -> Reported:
    live = unit.live([each.token for each in command.losses])
    refused: dict[int, str] = {}
    for position, each in enumerate(command.losses):
        action = live.pop(each.token, None)
        if action is None:
            refused[position] = "stale_token"
        else:
            ending.lost(unit, action, unit.tasks([action.task])[action.task], died=each.died)
    return Reported(refused)
