"""What a door may ask of schedules: the part of pool.Pool that knows time. Same rules as there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from quvatlh.service.pool import Call, Json, Page


class Timetable(Protocol):
    async def schedules(self, call: Call) -> Sequence[Json]:
        """By name, each as `schedule` tells it, with no more than its next slot."""
        ...

    async def schedule(self, call: Call, name: str) -> Json:
        """`{name, spec, version, text, next_ms: [the next ten], last_slot_ms, last_task, payload, payload_json}`; `spec`
        as core.model.ScheduleSpec is written; `text` is its rule in plain words. A paused one has no next slots."""
        ...

    async def put_schedule(self, call: Call, name: str, given: Json) -> Json:
        """A new schedule, or another rule for this one, whose ledger goes on. `given` is a map that `msgspec.convert` takes as
        core.model.ScheduleSpec, with `payload` and `payload_json` beside it, and with `kept_env`: names of variables that keep
        the values they have. Rejected(invalid) with the path of what this node knows to be wrong."""
        ...

    async def delete_schedule(self, call: Call, name: str) -> None:
        """With its ledger. Tasks that it has added stay."""
        ...

    async def pause_schedule(self, call: Call, name: str, *, paused: bool) -> Json:
        """Slots that come while it is paused are none. What is paused already stays so."""
        ...

    async def run_schedule(self, call: Call, name: str) -> Json:
        """Now, beside its slots: `{task, why}`, where a task was added, or why none was."""
        ...

    async def ledger(self, call: Call, name: str, limit: int, cursor: str | None) -> Page:
        """What became of its slots, the latest first: `{slot_ms, at_ms, outcome: ran|skipped, task, why, manual}`."""
        ...
