"""BALANCE on the master: what may move where is gathered, core.evening finds the least moves, and they are made a few at a
time, each stopped first and started after, so that every limit holds.

The plan is this master's alone: what is left of it when it is deposed is not done, and the next BALANCE plans anew. Under an
Idempotency-Key the entry of the first moves keeps it, and whoever asks again is told of it. A task on
its way is bound to where it goes until it is awarded, that worker is gone, or it has waited too long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quvatlh.codec import Values
from quvatlh.core import commands as c
from quvatlh.core import market
from quvatlh.core.evening import even
from quvatlh.core.events import Event
from quvatlh.core.limits import ADD_TASKS_MAX
from quvatlh.core.results import Evened, Shift
from quvatlh.ports import Clock, Log, LogError, Role
from quvatlh.service import asks
from quvatlh.service.door import Door
from quvatlh.service.jury import Jury
from quvatlh.service.load import Load, gather
from quvatlh.service.presence import Presence
from quvatlh.service.reads import Reads
from quvatlh.service.remembering import first_answer, other_request
from quvatlh.service.shapes import Shapes
from quvatlh.service.state import State

AT_ONCE: Final = 4
"""Moves under way: so many actions of the cluster are interrupted at the same time."""
MOVE_S: Final = 60.0
"""A stop may take its grace. After that the task may start wherever it can."""
SETTLE_S: Final = 2.0
"""After workers came or went: as long as nothing more happens to them."""
YOUNG_MS: Final = 10_000
"""By itself, the cluster moves no job that has run for less: most are over soon."""
PROPOSE_S: Final = 5.0
AGAIN_S: Final = 0.5
STRAYS_MAX: Final = 1000
PLAN_MAX: Final = ADD_TASKS_MAX
"""Moves of one plan: it has to go into an entry. The rest is for the next time."""

_COMES_OR_GOES: Final = frozenset({"worker.up", "worker.lost", "worker.draining"})


@dataclass(frozen=True, slots=True)
class Step:
    """A move as it is made."""

    task: str
    seq: int
    token: int
    source: str
    target: str


class Balancer:
    """A Hearer, and a duty of the master (`run`)."""

    def __init__(
        self,
        log: Log,
        door: Door,
        state: State,
        reads: Reads,
        presence: Presence,
        jury: Jury,
        shapes: Shapes,
        clock: Clock,
        codec: Values,
        *,
        auto: bool = False,
    ) -> None:
        """`auto`: loads are evened by themselves when workers join or leave."""
        self._log = log
        self._door = door
        self._state = state
        self._reads = reads
        self._presence = presence
        self._jury = jury
        self._shapes = shapes
        self._clock = clock
        self._codec = codec
        self._asked = asyncio.Lock()
        """Who asks again waits for what he asked before."""
        self._auto = auto
        self._due_at: float | None = None
        """Loop time at which loads are evened by themselves."""
        self._waiting: dict[str, deque[Step]] = {}
        """By group."""
        self._under_way: dict[int, tuple[Step, float]] = {}
        """By token: with the loop time at which nobody waits for it any more."""
        self._news = asyncio.Event()

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        for event in events:
            if self._auto and event.kind in _COMES_OR_GOES:
                self._due_at = _now() + SETTLE_S
                self._news.set()
        if self._under_way:
            moving = {step.seq for step, _ in self._under_way.values()}
            if any(event.seq in moving for event in events):
                self._news.set()

    def role_changed(self, role: Role) -> None:
        if not role.acting:
            self._waiting.clear()
            self._under_way.clear()
            self._due_at = None

    def reset(self, _index: int) -> None:
        self._news.set()

    # --- for who asks ---

    async def balance(
        self, group: str, most: int | None, *, dry_run: bool, request: c.Request | None = None
    ) -> asks.BalanceAnswer:
        """The plan; begun at once unless it is only to be seen. With a `request`, the plan that it was answered first.
        LogErrors."""
        if request is None or dry_run:
            return await self._balance(group, most, dry_run=dry_run)
        async with self._asked:
            known = self._known(request)
            if known is not None:
                return known
            planned = await self._balance(group, most, dry_run=False, request=request)
            return self._known(request) or planned  # what was unknown the last time may have come first

    def _known(self, request: c.Request) -> asks.BalanceAnswer | None:
        answer = first_answer(self._state, self._codec, self._clock, request)
        if answer is None:
            return None
        if not isinstance(answer, Evened):
            raise other_request(request)
        return asks.BalanceAnswer(answer.moves, answer.index)

    async def _balance(
        self, group: str, most: int | None, *, dry_run: bool, request: c.Request | None = None
    ) -> asks.BalanceAnswer:
        load = await self._load(group)
        if load is None:
            no = asks.No("rejected", "not_found", f"there is no task of group {group}")
            return asks.BalanceAnswer((), None, no)
        steps = await self._plan(load)
        steps = steps[: PLAN_MAX if most is None else min(most, PLAN_MAX)]
        moves = tuple(Shift(step.task, step.source, step.target) for step in steps)
        if dry_run:
            return asks.BalanceAnswer(moves, None)
        self._waiting[group] = deque(steps)
        index = await self._start_some(None if request is None else (request, moves))
        self._news.set()
        return asks.BalanceAnswer(moves, self._log.applied_index if index is None else index)

    async def _load(self, group: str) -> Load | None:
        takers = {view.name for view in self._presence.takers()}
        return await self._reads.read(None, lambda db: gather(db, group, takers))

    async def _plan(self, load: Load, *, older_than_ms: int | None = None) -> list[Step]:
        moving = {step.token for step, _ in self._under_way.values()}
        load.without(moving)
        if older_than_ms is not None:
            load.fix_younger(older_than_ms)
        await load.ask(self._jury)
        loop = asyncio.get_running_loop()
        shifts = await loop.run_in_executor(None, even, load.pieces(), load.places())
        return [Step(*load.of(shift.id), shift.source, shift.target) for shift in shifts]

    # --- the duty ---

    async def run(self) -> None:
        strays = True
        while True:
            self._news.clear()
            try:
                if strays:
                    await self._free_strays()
                    strays = False
                await self._settle()
                await self._start_some()
                await self._even_all()
            except LogError:
                await asyncio.sleep(AGAIN_S)
            await self._rest()

    async def _rest(self) -> None:
        ends = [at for _, at in self._under_way.values()]
        if self._due_at is not None:
            ends.append(self._due_at)
        if self._waiting and len(self._under_way) < AT_ONCE:
            ends.append(_now() + AGAIN_S)
        try:
            async with asyncio.timeout(max(0.0, min(ends) - _now()) if ends else None):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _even_all(self) -> None:
        if self._due_at is None or _now() < self._due_at or not self._state.is_open:
            return
        self._due_at = None
        rows = self._state.db.execute("SELECT DISTINCT grp FROM live ORDER BY grp").fetchall()
        now_ms = max(self._clock.wall_ms(), self._state.time_ms)
        for (group,) in rows:
            load = await self._load(group)
            if load is not None:
                self._waiting[group] = deque(await self._plan(load, older_than_ms=now_ms - YOUNG_MS))
        await self._start_some()

    async def _start_some(self, first: tuple[c.Request, tuple[Shift, ...]] | None = None) -> int | None:
        """As many as may be under way; the index of their entry, if there were any. `first`: of a plan that is to be
        remembered, whose entry is made in any case."""
        steps = self._next()
        if not steps and first is None:
            return None
        request, plan = first or (None, None)
        ends = _now() + MOVE_S
        self._under_way |= {step.token: (step, ends) for step in steps}
        moves = [c.Move(s.task, s.target, s.source, loose=True, token=s.token) for s in steps]
        try:
            command = c.Relocate(tuple(moves), strict=False, plan=plan)
            return (await self._door.propose(command, PROPOSE_S, request)).index
        except LogError:
            for step in steps:
                self._under_way.pop(step.token, None)
            raise

    def _next(self) -> list[Step]:
        """One task moves once at a time, and groups take turns."""
        tasks = {step.seq for step, _ in self._under_way.values()}
        steps: list[Step] = []
        groups = deque(self._waiting)
        while groups and len(self._under_way) + len(steps) < AT_ONCE:
            group = groups.popleft()
            waiting = self._waiting[group]
            step = next((each for each in waiting if each.seq not in tasks), None)
            if step is None:
                continue
            waiting.remove(step)
            if self._still(step):
                steps.append(step)
                tasks.add(step.seq)
            groups.append(group)
        self._waiting = {group: waiting for group, waiting in self._waiting.items() if waiting}
        return steps

    def _still(self, step: Step) -> bool:
        """Whether it runs where it did, and the other worker is there to take it."""
        sql = "SELECT 1 FROM live WHERE token = ? AND state <> 'stopping'"
        there = any(view.name == step.target for view in self._presence.takers())
        return there and self._state.is_open and self._state.db.execute(sql, (step.token,)).fetchone() is not None

    async def _settle(self) -> None:
        """What has arrived, or is waited for no longer."""
        if not self._state.is_open:
            return
        late: list[c.Move] = []
        for token, (step, ends) in list(self._under_way.items()):
            if self._is_over(step):
                del self._under_way[token]
            elif _now() >= ends:
                del self._under_way[token]
                late.append(c.Move(step.task, loose=True))
        await self._release(late)

    def _is_over(self, step: Step) -> bool:
        db = self._state.db
        if db.execute("SELECT 1 FROM live WHERE token = ?", (step.token,)).fetchone() is not None:
            return False
        row = db.execute("SELECT shape, kept FROM task WHERE seq = ?", (step.seq,)).fetchone()
        if row is None or row[1] is not None:
            return True
        shape = self._shapes.get(row[0])
        return shape is None or shape.toward != step.target

    async def _free_strays(self) -> None:
        """What an earlier master has sent on its way may start anywhere."""
        if not self._state.is_open:
            return
        db = self._state.db
        moves: list[c.Move] = []
        for queue, number, _ in market.ready(db):
            shape = self._shapes.get(number)
            if shape is not None and shape.toward is not None:
                moves += [c.Move(row.id, loose=True) for row in market.ready_tasks(db, queue, number, limit=STRAYS_MAX)]
        await self._release(moves[:STRAYS_MAX])

    async def _release(self, moves: Sequence[c.Move]) -> None:
        if moves:
            await self._door.propose(c.Relocate(tuple(moves), strict=False), PROPOSE_S)


def _now() -> float:
    return asyncio.get_running_loop().time()
