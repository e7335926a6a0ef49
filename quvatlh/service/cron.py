"""The master's calendar: slots that are due become tasks, by log time, each slot and its task as one entry.

What stands in memory are guesses about the table: who is next, and when. Apply judges by schedule, version and slot, so a
guess that is out of date is refused, and the schedule is read anew; a new master reads all of them. One command of a schedule
is under way at a time, since a slot passed over because a later one came first would be lost.
What is due together shares entries, a bounded number each; in between the loop does everything else. The slot after next is
reckoned while there is nothing to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.results import Fired, Worked
from quvatlh.ports import Log, LogError, Role
from quvatlh.service.calendar import BadRule, Rule, cron_rule
from quvatlh.service.calendar import Every as EveryRule
from quvatlh.service.door import Door, Written
from quvatlh.service.planning import Planner
from quvatlh.service.slots import ON_TIME_MS, Gap, Plan, Plans, Run, Skip
from quvatlh.service.state import State

ENTRY_FIRES: Final = 100
"""At once: some milliseconds to prepare, and as many to apply."""
UNDER_WAY: Final = 2
"""Such lots: while one is being synced, the next is made."""
PAGE_ROWS: Final = 200
"""Schedules read between two turns of the loop."""
WALK_SLOTS: Final = 200
"""Slots reckoned between two turns of the loop: some microseconds each, a thousand at worst."""
PROPOSE_S: Final = 5.0
PAUSE_S: Final = 0.02
"""After a no."""
LOOK_S: Final = 1.0
"""Between two looks at the clock, so that one that jumps is noticed."""

_ROWS: Final = (
    "SELECT name, version, next_at, last_slot, spec ->> '$.cron', spec ->> '$.every_ms', spec ->> '$.zone', "
    "spec ->> '$.catchup' FROM schedule"
)


class Cron:
    """A Hearer, and a duty of the master (`run`)."""

    def __init__(
        self,
        log: Log,
        door: Door,
        state: State,
        planner: Planner,
        *,
        may_add: Callable[[], bool] = lambda: True,
        note: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._log = log
        self._door = door
        self._state = state
        self._planner = planner
        self._may_add = may_add
        self._note = note
        self._plans = Plans()
        self._gaps: deque[Gap] = deque()
        self._blind: deque[Plan] = deque()
        """Plans that have not looked ahead."""
        self._changed: set[str] = set()
        self._is_all_changed = True
        self._acts = False
        self._wake = asyncio.Event()
        self.look_s = LOOK_S

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        if self._acts:
            for event in events:
                if event.kind == "schedule.changed":
                    self._changed.add(event.id)
                    self._wake.set()

    def role_changed(self, role: Role) -> None:
        self._acts = role.acting

    def reset(self, _index: int) -> None:
        self._is_all_changed = True
        self._wake.set()

    # --- the duty ---

    async def run(self) -> None:
        self._is_all_changed = True
        while True:
            self._wake.clear()
            try:
                await self._refresh()
                if not self._may_add():
                    await self._rest(self.look_s)
                    continue
                is_busy = await self._fire() or await self._catch_up() or self._look_ahead()
            except LogError:  # the state is being replaced
                self._is_all_changed = True
                await asyncio.sleep(PAUSE_S)
                continue
            if is_busy:
                await asyncio.sleep(0)
            else:
                await self._rest(self._next_s())

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds if len(self._plans) else None):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _next_s(self) -> float:
        due = self._plans.next_ms()
        return self.look_s if due is None else min(self.look_s, max(0.0, (due - self._log.time_ms) / 1000))

    # --- what stands in the table ---

    async def _refresh(self) -> None:
        if self._is_all_changed:
            self._is_all_changed = False
            self._plans.clear()
            self._gaps.clear()
            self._blind.clear()
            self._changed.clear()
            await self._read_all()
        for number, name in enumerate(sorted(self._changed)):
            self._changed.discard(name)
            self._plans.drop(name)
            for row in self._state.db.execute(f"{_ROWS} WHERE name = ?", (name,)).fetchall():
                self._plan(row)
            if number % PAGE_ROWS == PAGE_ROWS - 1:
                await asyncio.sleep(0)

    async def _read_all(self) -> None:
        name = ""
        while True:
            page = self._state.db.execute(f"{_ROWS} WHERE name > ? ORDER BY name LIMIT {PAGE_ROWS}", (name,)).fetchall()
            for row in page:
                self._plan(row)
            if len(page) < PAGE_ROWS:
                return
            name = page[-1][0]
            await asyncio.sleep(0)

    def _plan(self, row: tuple[Any, ...]) -> None:
        name, version, next_at, last_slot, cron, every_ms, zone, catchup = row
        if next_at is None:
            return  # it is paused, or has no slots any more
        try:
            rule: Rule = EveryRule(every_ms) if every_ms is not None else cron_rule(cron, zone or "UTC")
        except BadRule as error:
            self._note("a schedule cannot be kept by this node", schedule=name, **{error.field: str(error)})
            return
        first = max(next_at, 0 if last_slot is None else last_slot + 1)
        plan = Plan(name, version, rule, catchup or "last", rule.after(first - 1))
        self._plans.put(plan)
        self._blind.append(plan)

    # --- slots on time ---

    async def _fire(self) -> bool:
        """Whether anything was due."""
        lots: set[asyncio.Task[None]] = set()
        is_any = False
        try:
            while not self._wake.is_set():
                due = self._on_time(self._plans.due(self._log.time_ms, ENTRY_FIRES))
                if not due:
                    break
                is_any = True
                lots.add(asyncio.ensure_future(self._fire_lot(due)))
                if len(lots) >= UNDER_WAY:
                    done, lots = await asyncio.wait(lots, return_when=asyncio.FIRST_COMPLETED)
                    for lot in done:
                        lot.result()
                else:
                    await asyncio.sleep(0)
            for lot in lots:
                await lot
        finally:
            for lot in lots:
                lot.cancel()
        return is_any

    def _on_time(self, due: Sequence[Plan]) -> list[Plan]:
        """The others become gaps."""
        now_ms = self._log.time_ms
        kept: list[Plan] = []
        for plan in due:
            if plan.slot is not None and plan.slot < now_ms - ON_TIME_MS:
                self._gaps.append(Gap(plan, now_ms))
            else:
                kept.append(plan)
        return kept

    async def _fire_lot(self, plans: Sequence[Plan]) -> None:
        for plan in plans:
            plan.look_ahead()
        await asyncio.gather(*[self._fire_one(plan) for plan in plans])

    async def _fire_one(self, plan: Plan) -> None:
        assert plan.slot is not None
        if await self._decided(plan, Run(plan.slot, plan.following)):
            plan.step()
            self._go_on(plan)

    def _go_on(self, plan: Plan) -> None:
        """To its next slot, unless it was changed meanwhile."""
        if self._plans.holds(plan):
            self._plans.put(plan)
            self._blind.append(plan)

    async def _decided(self, plan: Plan, step: Run | Skip) -> bool:
        """Whether it stands in the ledger now. If not, the schedule is read anew."""
        command: c.AnyCommand | None
        if isinstance(step, Skip):
            command = c.SkipSlots(plan.name, plan.version, tuple(step.slots), step.why, step.next_ms)
        else:
            command = self._planner.fire(plan.name, plan.version, step.slot, step.next_ms)
        written = None if command is None else await self._tried(self._door.propose(command, PROPOSE_S))
        if written is not None and isinstance(written.answer, Fired | Worked):
            return True
        self._changed.add(plan.name)
        self._wake.set()
        await asyncio.sleep(PAUSE_S)
        return False

    async def _tried(self, proposal: Awaitable[Written]) -> Written | None:
        try:
            return await proposal
        except LogError:
            return None

    # --- slots that were missed ---

    async def _catch_up(self) -> bool:
        """A piece of it; whether there was any."""
        if not self._gaps:
            return False
        ready: list[Gap] = []
        room = WALK_SLOTS
        for _ in range(min(len(self._gaps), ENTRY_FIRES)):
            gap = self._gaps.popleft()
            if not self._plans.holds(gap.plan):
                continue
            if gap.step is None and room > 0:
                room = room - WALK_SLOTS // 10
                gap.gather(WALK_SLOTS // 10)
            if gap.step is not None:
                ready.append(gap)
            elif gap.is_over:
                self._go_on(gap.plan)
            else:
                self._gaps.append(gap)
        await asyncio.gather(*[self._close(gap) for gap in ready])
        return True

    async def _close(self, gap: Gap) -> None:
        """One step of it."""
        assert gap.step is not None
        if not await self._decided(gap.plan, gap.step):
            return
        gap.advance()
        if gap.is_over:
            self._go_on(gap.plan)
        else:
            self._gaps.append(gap)

    # --- while there is nothing to do ---

    def _look_ahead(self) -> bool:
        """A piece of it; whether there was any."""
        for _ in range(min(len(self._blind), WALK_SLOTS)):
            plan = self._blind.popleft()
            if self._plans.holds(plan):
                plan.look_ahead()
        return bool(self._blind)
