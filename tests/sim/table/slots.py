"""What must hold of schedules, told from the entries of the log: each slot is decided once, in its order, not before its
time, and none is forgotten; what ran has its one task, and what did not run had a reason.

The rules are reckoned anew here, minute by minute: the calendar of the product has no say in it.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.model import ScheduleSpec
from quvatlh.ports import Entry
from quvatlh.service.slots import MISSED, ON_TIME_MS
from tests.sim.judge import Violation
from tests.sim.table.facts import TaskFacts

MINUTE_MS: Final = 60_000
UNDER_WAY: Final = 8
"""So many entries before the one that it stands in, at most, the master decided."""
APART_MS: Final = 1000
"""Clocks of the voters differ by that: what is read of them may be so much later than the stamp of the entry."""
OVERLAP: Final = "overlap"
_LEDGER: Final = "SELECT schedule, ordinal, slot, task, why, manual FROM ledger ORDER BY schedule, ordinal"
_SCHEDULES: Final = "SELECT name, next_at, last_slot, last_task FROM schedule ORDER BY name"


def after(spec: ScheduleSpec, ms: int) -> int:
    """The first slot later than that. Of cron only the minutes are known here: the runs are too short for more."""
    if spec.every_ms is not None:
        return (ms // spec.every_ms + 1) * spec.every_ms
    minutes = _minutes((spec.cron or "").split()[0])
    minute = ms // MINUTE_MS + 1
    while minute % 60 not in minutes:
        minute += 1
    return minute * MINUTE_MS


def _minutes(text: str) -> set[int]:
    if text.startswith("*"):
        return set(range(0, 60, int(text[2:] or 1)))
    return {int(each) for each in text.split(",")}


@dataclass(slots=True, eq=False)
class Kept:
    """A schedule."""

    name: str
    spec: ScheduleSpec
    next_ms: int | None
    """The first slot that is not decided; None: it is paused."""
    last_slot: int | None = None
    last_task: str | None = None
    """Of the last slot that ran."""
    beside: list[str] = field(default_factory=list)
    """Tasks that no slot on time may overlap: of the last slot that ran on time, and what a person ran since."""
    rows: list[tuple[int, str | None, str | None, bool]] = field(default_factory=list)
    """Of its ledger: slot, task, why not, whether a person asked for it."""


class Slots:
    """A part of the judge."""

    def __init__(self, facts: Callable[[str], TaskFacts]) -> None:
        self._facts = facts
        self.kept: dict[str, Kept] = {}
        self.puts: set[int] = set()
        """Numbers of the requests that put one."""
        self.ran = self.skipped = self.by_hand = 0
        self._asked: set[c.Request] = set()
        """Of runs that a person asked for."""
        self._times: deque[int] = deque([0], maxlen=UNDER_WAY)
        """Of the last entries."""

    def entry(self, entry: Entry) -> None:
        self._times.append(entry.time_ms)

    def told(self, entry: Entry, item: c.Item, event: Event, op: int | None) -> None:
        """`op` is the number of the request that put the schedule, where it did."""
        if event.kind == "schedule.changed":
            self._changed(entry, item.command, event, op)
        elif event.kind in {"schedule.fired", "schedule.skipped"}:
            self._decided(entry, item, event)

    def agree(self, item: c.Item, events: Iterable[Event]) -> None:
        """Each task of a slot stands in the ledger, and the other way round."""
        if not isinstance(item.command, c.Fire):
            return
        added = [event.id for event in events if event.kind == "task.added"]
        entered = [event.more["task"] for event in events if event.kind == "schedule.fired" and event.more]
        if added != entered:
            raise Violation(f"a slot of {item.command.name} added {added}, and its ledger says {entered}")

    def made(self, command: c.Fire, event: Event) -> TaskFacts:
        """The task of a slot, as apply fits it."""
        spec, task = self.kept[command.name].spec, command.task
        if spec.overlap == "queue" or (spec.catchup == "all" and spec.overlap in {"skip", "replace"}):
            of_task = msgspec.structs.replace(
                task.spec, name=task.spec.name or command.name, limit=task.spec.limit or 1
            )
            task = msgspec.structs.replace(task, spec=of_task)
        facts = TaskFacts.of(task, 0, 0, event.state)
        facts.schedule, facts.slot, facts.by_hand = command.name, command.slot_ms, command.manual
        latest = max(command.slot_ms + spec.jitter_ms, self._times[-1])
        if task.at_ms is not None and not command.slot_ms <= task.at_ms <= latest:
            raise Violation(f"slot {command.slot_ms} of {command.name} runs at {task.at_ms}, jitter {spec.jitter_ms}")
        return facts

    # --- rules ----------------------------------------------------------------------------------------------------------

    def _changed(self, entry: Entry, command: c.AnyCommand, event: Event, op: int | None) -> None:
        old = self.kept.get(event.id)
        if isinstance(command, c.PutSchedule):
            assert op is not None
            if op in self.puts:
                raise Violation(f"request {op} put {event.id} twice")
            self.puts.add(op)
            self._put(entry, command, old)
        elif old is None:
            raise Violation(f"{command} changed a schedule that was not there")
        elif isinstance(command, c.PauseSchedule):
            old.next_ms = None if command.paused else self._first(entry, event.id, old.spec, command.next_ms)
            old.spec = msgspec.structs.replace(old.spec, paused=command.paused)
        else:
            del self.kept[event.id]

    def _put(self, entry: Entry, command: c.PutSchedule, old: Kept | None) -> None:
        spec = command.spec
        goes_on = old is not None and old.next_ms is not None and _rule(old.spec) == _rule(spec)
        next_ms = (
            old.next_ms if old is not None and goes_on else self._first(entry, command.name, spec, command.next_ms)
        )
        if old is None:
            old = self.kept[command.name] = Kept(command.name, spec, None)
        old.spec, old.next_ms = spec, None if spec.paused else next_ms

    def _first(self, entry: Entry, name: str, spec: ScheduleSpec, next_ms: int | None) -> int:
        """By the master's calendar, at about the time of the entry: no slot from then on may be left out."""
        earliest, latest = after(spec, self._times[0]), after(spec, entry.time_ms + APART_MS)
        if next_ms is None or not earliest <= next_ms <= latest or next_ms != after(spec, next_ms - 1):
            raise Violation(f"{name} begins with slot {next_ms} at {entry.time_ms}; the next of its rule is {latest}")
        return next_ms

    # --- slots ----------------------------------------------------------------------------------------------------------

    def _decided(self, entry: Entry, item: c.Item, event: Event) -> None:
        more = event.more or {}
        kept, slot, task, why = self.kept.get(event.id), more["slot"], more["task"], more["why"]
        if kept is None:
            raise Violation(f"slot {slot} of {event.id} was decided, and there is no such schedule")
        manual = isinstance(item.command, c.Fire) and item.command.manual
        if manual:
            self._by_hand(item, event.id)
        else:
            self._in_turn(entry, kept, slot)
            self._in_time(entry, kept, slot, why)
        made_up = not manual and kept.spec.catchup == "all" and entry.time_ms - slot > ON_TIME_MS
        self._reason(kept, slot, task, why, made_up=made_up)
        if task is not None:
            self._ran(kept, task, manual=manual, made_up=made_up)
        kept.rows.append((slot, task, why, manual))

    @staticmethod
    def _ran(kept: Kept, task: str, *, manual: bool, made_up: bool) -> None:
        if not manual:
            kept.last_task = task
        if manual:
            kept.beside.append(task)
        elif not made_up:
            kept.beside = [task]

    def _by_hand(self, item: c.Item, name: str) -> None:
        if item.request is None or item.request in self._asked:
            raise Violation(f"a person's run of {name} came twice: {item.request}")
        self._asked.add(item.request)
        self.by_hand += 1

    def _in_turn(self, entry: Entry, kept: Kept, slot: int) -> None:
        if kept.next_ms is None:
            raise Violation(f"slot {slot} of {kept.name} was decided, and it is paused")
        if slot < kept.next_ms:
            raise Violation(f"slot {slot} of {kept.name} was decided a second time; the next is {kept.next_ms}")
        if slot > kept.next_ms:
            raise Violation(f"slot {kept.next_ms} of {kept.name} was forgotten: {slot} came after {kept.last_slot}")
        if slot > entry.time_ms:
            raise Violation(f"slot {slot} of {kept.name} was decided before its time, at {entry.time_ms}")
        kept.last_slot, kept.next_ms = slot, after(kept.spec, slot)

    def _in_time(self, entry: Entry, kept: Kept, slot: int, why: str | None) -> None:
        """What `catchup` promises."""
        late = f"slot {slot} of {kept.name} at {entry.time_ms}, catchup {kept.spec.catchup}"
        if why != MISSED:
            if kept.spec.catchup == "skip" and slot < self._times[0] - ON_TIME_MS:
                raise Violation(f"{late}: it was late, and ran")
        elif slot >= entry.time_ms - ON_TIME_MS:
            raise Violation(f"{late}: it was on time, and is missed")
        elif kept.spec.catchup == "all":
            raise Violation(f"{late}: it is missed")
        elif kept.spec.catchup == "last" and after(kept.spec, slot) > entry.time_ms:
            raise Violation(f"{late}: it is missed, and nothing runs in its place")

    def _reason(self, kept: Kept, slot: int, task: str | None, why: str | None, *, made_up: bool) -> None:
        beside = [] if made_up else [each for each in kept.beside if not self._facts(each).finished]
        if task is not None:
            self.ran += 1
            made = self._facts(task)
            if (made.schedule, made.slot) != (kept.name, slot):
                raise Violation(
                    f"slot {slot} of {kept.name} ran as {task}, which was made by {made.schedule}, {made.slot}"
                )
            if beside and kept.spec.overlap in {"skip", "replace"} and not made.by_hand:
                raise Violation(f"slot {slot} of {kept.name} runs, overlap {kept.spec.overlap}, beside {beside}")
            return
        self.skipped += 1
        if why != MISSED and not (why == OVERLAP and kept.spec.overlap == "skip" and beside):
            raise Violation(f"slot {slot} of {kept.name} did not run: {why}")

    # --- tables ---------------------------------------------------------------------------------------------------------

    def late(self, now_ms: int) -> list[str]:
        """Whose next slot should have been decided by then."""
        return [each.name for each in self.kept.values() if each.next_ms is not None and each.next_ms < now_ms]

    def compare(self, db: sqlite3.Connection) -> None:
        """Schedules and ledgers are what the events have said."""
        shown = db.execute(_SCHEDULES).fetchall()
        told = [(each.name, each.next_ms, each.last_slot, each.last_task) for each in self._by_name()]
        if shown != told:
            raise Violation(f"the schedules are {shown}; their events said {told}")
        rows = [(*row[:3], row[3], row[4], bool(row[5])) for row in db.execute(_LEDGER)]
        entered = [(each.name, n, *row) for each in self._by_name() for n, row in enumerate(each.rows, 1)]
        if rows != entered:
            wrong = next(pair for pair in zip([*rows, None], [*entered, None], strict=False) if pair[0] != pair[1])
            raise Violation(f"the ledger has {wrong[0]}, where its events said {wrong[1]}")

    def _by_name(self) -> list[Kept]:
        return sorted(self.kept.values(), key=lambda each: each.name)


def _rule(spec: ScheduleSpec) -> tuple[object, ...]:
    return spec.cron, spec.every_ms, spec.zone
