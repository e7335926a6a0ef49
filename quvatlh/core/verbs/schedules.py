"""Schedules: a slot and its task in one entry, a ledger of what each slot became, and no slot twice."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from quvatlh.core import limits
from quvatlh.core.commands import Delete, DeleteSchedule, Fire, NewTask, PauseSchedule, PutSchedule, SkipSlots
from quvatlh.core.model import FINISHED, ScheduleSpec
from quvatlh.core.rejections import FieldError, Rejection
from quvatlh.core.results import Fired, Ok, Versioned, Worked
from quvatlh.core.rows import json_text
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import person
from quvatlh.core.verbs.add import add_tasks, policy_exists

_SPEC = msgspec.json.Decoder(ScheduleSpec)


@dataclass(slots=True)
class _Schedule:
    name: str
    spec: ScheduleSpec
    version: int
    next_at: int | None
    last_slot: int | None
    last_task: str | None
    ordinal: int


def _read(unit: Unit, name: str) -> _Schedule | None:
    sql = "SELECT name, spec, version, next_at, last_slot, last_task, ordinal FROM schedule WHERE name = ?"
    row = unit.db.execute(sql, (name,)).fetchone()
    return None if row is None else _Schedule(row[0], _SPEC.decode(row[1]), *row[2:])


def _seen(unit: Unit, name: str) -> _Schedule | None:
    """As who asks may see it."""
    found = _read(unit, name)
    return found if found is None or _in_scope(unit, found.spec) else None


def _in_scope(unit: Unit, spec: ScheduleSpec) -> bool:
    return unit.scope is None or unit.scope.has(spec.task.queue, spec.task.group)


def _write(unit: Unit, schedule: _Schedule) -> None:
    unit.db.execute(
        "UPDATE schedule SET next_at = ?, last_slot = ?, last_task = ?, ordinal = ? WHERE name = ?",
        (schedule.next_at, schedule.last_slot, schedule.last_task, schedule.ordinal, schedule.name),
    )


def put(unit: Unit, command: PutSchedule) -> Versioned | Rejection:
    """A new rule for the same name goes on with its ledger; slots that were, stay."""
    text = json_text(command.spec)
    if text is None:
        error = FieldError("task.work", "holds what has no form in JSON")
        return Rejection("invalid", "the task cannot be kept", (error,))
    for field, code in (("policy", command.spec.task.policy), ("announce", command.spec.task.announce)):
        if code is not None and code.name is not None and not policy_exists(unit, code):
            error = FieldError(f"task.{field}.name", f"there is no policy named {code.name}")
            return Rejection("invalid", "unknown policy", (error,))
    old = _read(unit, command.name)
    if old is not None and not _in_scope(unit, old.spec):
        return Rejection("forbidden", f"schedule {command.name} is there, and out of the scope of this token")
    version = unit.take("schedule")
    goes_on = old is not None and old.next_at is not None and _rule(old.spec) == _rule(command.spec)
    next_at = old.next_at if old is not None and goes_on else command.next_ms
    if command.spec.paused:
        next_at = None
    unit.db.execute(
        "INSERT INTO schedule VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, 0) ON CONFLICT DO UPDATE SET "
        "spec = excluded.spec, payload = excluded.payload, payload_json = excluded.payload_json, "
        "version = excluded.version, next_at = excluded.next_at",
        (command.name, text, command.payload, command.payload_json, version, next_at),
    )
    unit.tell("schedule.changed", command.name)
    return Versioned(version)


def pause(unit: Unit, command: PauseSchedule) -> Versioned | Rejection:
    schedule = _seen(unit, command.name)
    if schedule is None:
        return _missing(command.name)
    if schedule.spec.paused == command.paused:
        return Versioned(schedule.version)
    if command.version is not None and command.version != schedule.version:
        return Rejection("conflict", f"schedule {command.name} was changed meanwhile")
    spec = msgspec.structs.replace(schedule.spec, paused=command.paused)
    version = unit.take("schedule")
    unit.db.execute(
        "UPDATE schedule SET spec = ?, version = ?, next_at = ? WHERE name = ?",
        (json_text(spec), version, None if command.paused else command.next_ms, command.name),
    )
    unit.tell("schedule.changed", command.name, "paused" if command.paused else "")
    return Versioned(version)


def delete(unit: Unit, command: DeleteSchedule) -> Ok | Rejection:
    if _seen(unit, command.name) is None:
        return _missing(command.name)
    unit.db.execute("DELETE FROM schedule WHERE name = ?", (command.name,))
    unit.db.execute("DELETE FROM ledger WHERE schedule = ?", (command.name,))
    unit.tell("schedule.changed", command.name, "deleted")
    return Ok()


def fire(unit: Unit, command: Fire) -> Fired | Rejection:
    schedule = _seen(unit, command.name)
    stale = _stale(schedule, command.name, command.version, None if command.manual else command.slot_ms)
    if stale is not None or schedule is None:
        return stale or _missing(command.name)
    if command.slot_ms > unit.now:
        return Rejection("conflict", f"the slot of schedule {command.name} has not come yet")
    if not command.manual:
        schedule.last_slot, schedule.next_at = command.slot_ms, command.next_ms
    why = _held(unit, schedule, command)
    task = None
    if why == "":
        added = add_tasks(unit, [_fitted(unit, command.task, schedule)])
        if isinstance(added, Rejection):
            why = added.errors[0].message if added.errors else added.detail
        elif added.existing:
            why = f"{added.existing[0]}: {added.ids[0]}"
        else:
            task = added.ids[0]
            if not command.manual:
                schedule.last_task = task
    _enter(unit, schedule, command.slot_ms, task, why, manual=command.manual)
    _write(unit, schedule)
    return Fired(task, why)


def skip(unit: Unit, command: SkipSlots) -> Worked | Rejection:
    schedule = _read(unit, command.name)
    done = 0
    for slot in command.slots_ms:
        stale = _stale(schedule, command.name, command.version, slot)
        if schedule is None or (stale is not None and done == 0 and slot == command.slots_ms[-1]):
            return stale or _missing(command.name)
        if stale is None:
            schedule.last_slot = slot
            _enter(unit, schedule, slot, None, command.why, manual=False)
            done += 1
    if schedule is not None:
        schedule.next_at = command.next_ms
        _write(unit, schedule)
    return Worked(done, more=False)


def _missing(name: str) -> Rejection:
    return Rejection("not_found", f"there is no schedule named {name}")


def _stale(schedule: _Schedule | None, name: str, version: int, slot: int | None) -> Rejection | None:
    """Decided on another rule, or for a slot that is in the ledger: it was, and will not be again."""
    if schedule is None:
        return _missing(name)
    if schedule.version != version:
        return Rejection("conflict", f"schedule {name} was changed meanwhile")
    if slot is not None and schedule.last_slot is not None and slot <= schedule.last_slot:
        return Rejection("conflict", f"the slot of schedule {name} was decided before")
    return None


def _held(unit: Unit, schedule: _Schedule, command: Fire) -> str:
    """Why the slot adds no task; empty when it does. `replace` makes room first."""
    spec = schedule.spec
    if command.manual:
        return ""
    if spec.paused:
        return "paused"
    if spec.overlap in {"allow", "queue"} or _is_made_up(spec, command.slot_ms, unit.now):
        return ""
    before = _before(unit, schedule)
    tasks = unit.tasks_by_id(before)
    live = [name for name in before if name in tasks and tasks[name].state not in FINISHED]
    if not live:
        return ""
    if spec.overlap == "replace":
        person.delete(unit, Delete(tuple(live)))
        return ""
    return "overlap"


def _before(unit: Unit, schedule: _Schedule) -> list[str]:
    """Tasks that a slot is not to run beside, if they live: of the last slot that ran on time, and of each run since that a
    person asked for. Before that slot ran there was room for it. What is made up is in nobody's way."""
    found: list[str] = []
    made_up: set[str] = set()
    sql = "SELECT task, slot, at, manual FROM ledger WHERE schedule = ? AND task IS NOT NULL ORDER BY ordinal DESC"
    for task, slot, at, manual in unit.db.execute(sql, (schedule.name,)):
        if not manual and _is_made_up(schedule.spec, slot, at):
            made_up.add(task)
            continue
        found.append(task)
        if not manual:
            return found
    if schedule.last_task is not None and schedule.last_task not in made_up:  # the ledger has forgotten its slot
        found.append(schedule.last_task)
    return found


def _is_made_up(spec: ScheduleSpec, slot: int, at: int) -> bool:
    """One of all that were missed: they run one after the other, and none is left out for another's sake."""
    return spec.catchup == "all" and at - slot > limits.SLOT_ON_TIME_MS


def _rule(spec: ScheduleSpec) -> tuple[object, ...]:
    """What its slots follow from."""
    return spec.cron, spec.every_ms, spec.zone


def _fitted(unit: Unit, task: NewTask, schedule: _Schedule) -> NewTask:
    """With the schedule's payload. Under `queue`, and where all that was missed is made up, its runs wait for each other: one
    name, one at a time."""
    sql = "SELECT payload, payload_json FROM schedule WHERE name = ?"
    payload, is_json = unit.db.execute(sql, (schedule.name,)).fetchone()
    if payload is not None:
        task = msgspec.structs.replace(task, payload=payload, payload_json=bool(is_json))
    if not schedule.spec.in_turn:
        return task
    spec = task.spec
    fitted = msgspec.structs.replace(spec, name=spec.name or schedule.name, limit=spec.limit or 1)
    return msgspec.structs.replace(task, spec=fitted)


def _enter(unit: Unit, schedule: _Schedule, slot: int, task: str | None, why: str, *, manual: bool) -> None:
    """A row of the ledger, and the oldest one out of it."""
    schedule.ordinal += 1
    outcome = "ran" if task is not None else "skipped"
    unit.db.execute(
        "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (schedule.name, schedule.ordinal, slot, unit.now, outcome, task, why or None, manual),
    )
    oldest = schedule.ordinal - limits.LEDGER_ROWS_MAX
    unit.db.execute("DELETE FROM ledger WHERE schedule = ? AND ordinal <= ?", (schedule.name, oldest))
    kind = "schedule.fired" if task is not None else "schedule.skipped"
    unit.tell(kind, schedule.name, outcome, more={"slot": slot, "task": task, "why": why or None})
