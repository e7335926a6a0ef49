"""pool.Pool's schedules: checked here, changed through the door, read from the table."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from quvatlh.core import commands as c
from quvatlh.core import queries, results
from quvatlh.core.model import ScheduleSpec
from quvatlh.core.rejections import FieldError
from quvatlh.core.views import LedgerRow, ScheduleView
from quvatlh.ports import Log
from quvatlh.service import asks, calendar, scoping
from quvatlh.service.answers import shown
from quvatlh.service.pool import Call, Json, Page, Rejected
from quvatlh.service.reads import Reads
from quvatlh.service.sources import Sources
from quvatlh.service.writes import Writes

NEXT_SHOWN: Final = 10
_BESIDE: Final = frozenset({"payload", "payload_json", "kept_env"})
"""What is given with a rule and is no part of it."""


class Schedules:
    """timetable.Timetable."""

    def __init__(self, log: Log, reads: Reads, writes: Writes, sources: Sources) -> None:
        self._log = log
        self._reads = reads
        self._writes = writes
        self._sources = sources

    async def schedules(self, call: Call) -> Sequence[Json]:
        found = await self._reads.read(call, queries.schedules)
        return [_record(view, self._log.time_ms, 1) for view in found if _is_seen(call, view)]

    async def schedule(self, call: Call, name: str) -> Json:
        found = await self._reads.read(call, lambda db: queries.schedules(db, name))
        if not found or not _is_seen(call, found[0]):
            raise _missing(name)
        view = found[0]
        record = _record(view, self._log.time_ms, NEXT_SHOWN)
        if view.payload is not None:
            record |= {"payload": view.payload, "payload_json": view.payload_json}
        return record

    async def put_schedule(self, call: Call, name: str, given: Json) -> Json:
        outside = list(scoping.check_new(call.principal, _spec(given).task, "task"))
        if outside:
            raise scoping.refused(call.principal, outside)
        payload, is_json = given.get("payload"), given.get("payload_json", True)
        spec = _spec(await self._with_kept(call, name, given))
        _check_rule(spec, self._log.time_ms)
        faults = await self._sources.faults("task", spec.task)
        if faults:
            raise Rejected("invalid", "a policy does not compile", faults)
        if not await self._says(call, name, spec, payload, is_json=is_json):
            await self._writes.write(call, asks.Do(c.PutSchedule(name, spec, None, payload, is_json)))
        return await shown(self.schedule(call, name))

    async def _with_kept(self, call: Call, name: str, given: Json) -> Json:
        if "kept_env" not in given:
            return given
        now = replace(call, consistent=True)
        found = await self._reads.read(now, lambda db: queries.schedules(db, name))
        return with_kept_env(given, found[0].spec.task.work.env if found else {})

    async def _says(self, call: Call, name: str, spec: ScheduleSpec, payload: bytes | None, *, is_json: bool) -> bool:
        """Whether the table says so already: then nothing is written."""
        now = replace(call, consistent=True)  # this node may be behind, and its old news would swallow what is told
        found = await self._reads.read(now, lambda db: queries.schedules(db, name))
        return bool(found) and found[0].spec == spec and (found[0].payload, found[0].payload_json) == (payload, is_json)

    async def delete_schedule(self, call: Call, name: str) -> None:
        await self._writes.write(call, asks.Do(c.DeleteSchedule(name)))

    async def pause_schedule(self, call: Call, name: str, *, paused: bool) -> Json:
        await self._writes.write(call, asks.Do(c.PauseSchedule(name, paused)))
        return await shown(self.schedule(call, name))

    async def run_schedule(self, call: Call, name: str) -> Json:
        written = await self._writes.write(call, asks.RunSchedule(name))
        answer = written.answer
        assert isinstance(answer, results.Fired)
        return {"task": answer.task, "why": answer.why or None}

    async def ledger(self, call: Call, name: str, limit: int, cursor: str | None) -> Page:
        before = _place(cursor)

        def query(db: sqlite3.Connection) -> list[LedgerRow] | None:
            found = queries.schedules(db, name)
            seen = found and _is_seen(call, found[0])
            return queries.ledger(db, name, before=before, limit=limit + 1) if seen else None

        rows = await self._reads.read(call, query)
        if rows is None:
            raise _missing(name)
        shown = rows[:limit]
        return Page([_row(row) for row in shown], str(shown[-1].ordinal) if len(rows) > limit else None, None)


def with_kept_env(given: Json, known: Mapping[str, str]) -> Json:
    """With the values of variables that are given by name alone: nobody is shown them, so nobody can say them again."""
    names, task = given["kept_env"], given["task"]
    faults = [
        FieldError(f"task.work.env.{each}", "must have a value: the schedule has none for it")
        for each in names
        if each not in known
    ]
    if faults:
        raise Rejected("invalid", "a variable of the environment has no value", faults)
    env = {each: known[each] for each in names} | task["work"].get("env", {})
    rest = {key: value for key, value in given.items() if key != "kept_env"}
    return rest | {"task": task | {"work": task["work"] | {"env": env}}}


def _spec(given: Json) -> ScheduleSpec:
    rule = {name: value for name, value in given.items() if name not in _BESIDE}
    try:
        return msgspec.convert(rule, ScheduleSpec)
    except msgspec.ValidationError as error:
        raise Rejected("invalid", "the schedule cannot be kept so", [FieldError("", str(error))]) from error


def _check_rule(spec: ScheduleSpec, now_ms: int) -> None:
    try:
        calendar.check(spec, now_ms)
    except calendar.BadRule as error:
        raise Rejected("invalid", f"{error.field} {error}", [FieldError(error.field, str(error))]) from error


def _record(view: ScheduleView, now_ms: int, count: int) -> Json:
    spec = view.spec
    record: Json = {
        "name": view.name,
        "spec": msgspec.to_builtins(spec),
        "version": view.version,
        "last_slot_ms": view.last_slot,
        "last_task": view.last_task,
    }
    return record | _calendar(spec, view.next_at, now_ms, count)


def _calendar(spec: ScheduleSpec, next_at: int | None, now_ms: int, count: int) -> dict[str, Any]:
    """What follows from the rule; a node with older zones than the one that took it may not know."""
    try:
        rule = calendar.rule_of(spec)
    except calendar.BadRule as error:
        return {"text": f"{error.field} {error}", "next_ms": []}
    if next_at is None:
        return {"text": rule.words(), "next_ms": []}
    return {"text": rule.words(), "next_ms": calendar.slots_of(rule, max(now_ms, next_at - 1), count)}


def _row(row: LedgerRow) -> Json:
    return {
        "slot_ms": row.slot,
        "at_ms": row.at,
        "outcome": row.outcome,
        "task": row.task,
        "why": row.why,
        "manual": row.manual,
    }


def _place(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 17):
        words = "the cursor is none of this list"
        raise Rejected("invalid", words, [FieldError("cursor", words)])
    return int(cursor)


def _is_seen(call: Call, view: ScheduleView) -> bool:
    scope, task = call.principal.scope, view.spec.task
    return scope is None or scope.has(task.queue, task.group)


def _missing(name: str) -> Rejected:
    return Rejected("not_found", f"there is no schedule named {name}")
