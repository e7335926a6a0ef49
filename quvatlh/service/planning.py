"""What the master adds to a wish about schedules before the log: the next slot, by its calendar, and the task of a slot."""

from __future__ import annotations

from typing import Final

import msgspec

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.limits import TIME_MS_MAX
from quvatlh.core.model import ScheduleSpec
from quvatlh.ports import Clock, Entropy, Log, Refused
from quvatlh.service.calendar import BadRule, rule_of
from quvatlh.service.stamps import Stamps
from quvatlh.service.state import State

_SPEC: Final = msgspec.json.Decoder(ScheduleSpec)


class Planner:
    def __init__(self, log: Log, state: State, clock: Clock, entropy: Entropy) -> None:
        self._log = log
        self._state = state
        self._entropy = entropy
        self._stamps = Stamps(clock, entropy)

    def stamp(self, command: c.AnyCommand) -> c.AnyCommand:
        """A schedule that begins, or goes on after a pause, does so with the first slot from now on."""
        if isinstance(command, c.PutSchedule):
            return msgspec.structs.replace(command, next_ms=self._first(command.spec))
        if isinstance(command, c.PauseSchedule) and not command.paused:
            found = queries.schedules(self._state.db, command.name)
            if not found:
                return msgspec.structs.replace(command, version=0)  # of none, should it be there by then
            return msgspec.structs.replace(command, next_ms=self._first(found[0].spec), version=found[0].version)
        return command

    def run_now(self, name: str) -> c.Fire:
        """Beside its slots, which go on as if nothing had been."""
        found = queries.schedules(self._state.db, name)
        if not found:
            raise Refused(f"there is no schedule named {name}", "not_found")
        now_ms = self._log.time_ms
        task = self._task(found[0].spec, now_ms, now_ms)
        return c.Fire(name, found[0].version, now_ms, task, manual=True)

    def fire(self, name: str, version: int, slot_ms: int, next_ms: int | None) -> c.Fire | None:
        """None where the schedule is gone. Whether `version` still holds is judged in apply."""
        row = self._state.db.execute("SELECT spec FROM schedule WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        spec = _SPEC.decode(row[0])
        at_ms = slot_ms + int(self._entropy.random() * spec.jitter_ms) if spec.jitter_ms else slot_ms
        return c.Fire(name, version, slot_ms, self._task(spec, at_ms, self._log.time_ms), next_ms)

    def _task(self, spec: ScheduleSpec, at_ms: int, now_ms: int) -> c.NewTask:
        starts = min(max(at_ms, now_ms), TIME_MS_MAX)
        expires = None if spec.expires_in_ms is None else min(starts + spec.expires_in_ms, TIME_MS_MAX)
        (task_id,) = self._stamps.task_ids(1)
        return c.NewTask(task_id, spec.task, at_ms=starts if starts > now_ms else None, expires_ms=expires)

    def _first(self, spec: ScheduleSpec) -> int | None:
        try:
            return rule_of(spec).after(self._log.time_ms)
        except BadRule as error:
            raise Refused(f"{error.field} {error}", "invalid") from error
