"""The schedules of the fake pool: the real calendar at a time that stands; nothing is due by itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quvatlh.core.model import ScheduleSpec
from quvatlh.core.rejections import FieldError
from quvatlh.service import calendar
from quvatlh.service.pool import Call, Json, Page, Rejected
from quvatlh.service.schedules import with_kept_env
from tests.fakes.gate import Gate, known


class FakeTimetable(Gate):
    def __init__(self) -> None:
        super().__init__()
        self.planned: dict[str, Json] = {}
        self.slots: dict[str, list[Json]] = {}
        """Ledgers, the latest first."""

    async def schedules(self, call: Call) -> Sequence[Json]:
        await self._enter(call)
        return [self._told(name, 1) for name in sorted(self.planned)]

    async def schedule(self, call: Call, name: str) -> Json:
        await self._enter(call)
        known(self.planned, name, "schedule named")
        return self._told(name, 10)

    async def put_schedule(self, call: Call, name: str, given: Json) -> Json:
        await self._enter(call)
        if "kept_env" in given:
            planned = self.planned.get(name, {"spec": {"task": {"work": {}}}})
            given = with_kept_env(given, planned["spec"]["task"]["work"].get("env", {}))
        beside: Json = {key: given[key] for key in ("payload", "payload_json") if key in given}
        spec = msgspec.convert({key: each for key, each in given.items() if key not in beside}, ScheduleSpec)
        try:
            calendar.check(spec, self.now_ms)
        except calendar.BadRule as error:
            raise Rejected("invalid", f"{error.field} {error}", [FieldError(error.field, str(error))]) from error
        version = self.planned.get(name, {"version": 0})["version"] + 1
        self.planned[name] = {"spec": msgspec.to_builtins(spec), "version": version, **beside}
        self.slots.setdefault(name, [])
        return self._told(name, 10)

    async def delete_schedule(self, call: Call, name: str) -> None:
        await self._enter(call)
        known(self.planned, name, "schedule named")
        del self.planned[name], self.slots[name]

    async def pause_schedule(self, call: Call, name: str, *, paused: bool) -> Json:
        await self._enter(call)
        known(self.planned, name, "schedule named")["spec"]["paused"] = paused
        return self._told(name, 10)

    async def run_schedule(self, call: Call, name: str) -> Json:
        await self._enter(call)
        known(self.planned, name, "schedule named")
        ran = {"slot_ms": self.now_ms, "at_ms": self.now_ms, "outcome": "ran", "why": None, "manual": True}
        task = f"{name}-{len(self.slots[name])}"
        self.slots[name].insert(0, ran | {"task": task})
        return {"task": task, "why": None}

    async def ledger(self, call: Call, name: str, limit: int, cursor: str | None) -> Page:
        await self._enter(call)
        rows = known(self.slots, name, "schedule named")
        start = int(cursor or 0)
        end = start + limit
        return Page(rows[start:end], str(end) if len(rows) > end else None, None)

    def _told(self, name: str, count: int) -> Json:
        kept = self.planned[name]
        spec = msgspec.convert(kept["spec"], ScheduleSpec)
        rule = calendar.rule_of(spec)
        ran = [row for row in self.slots[name] if not row["manual"]]
        return {
            "name": name,
            **kept,
            "text": rule.words(),
            "next_ms": [] if spec.paused else calendar.slots_of(rule, self.now_ms, count),
            "last_slot_ms": ran[0]["slot_ms"] if ran else None,
            "last_task": ran[0]["task"] if ran else None,
        }
