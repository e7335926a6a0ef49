"""Places under disciplines that are plug-ins: the master asks for them once a task, and stores them through the log.

A task that has no place yet stands behind all that have one, in the order of arrival; so nothing waits for a plug-in, and
one that fails leaves its tasks in that order. Every node says which plug-ins it has, also when it goes on with the session
of an executor that an older daemon has started.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from quvatlh.core import commands as c
from quvatlh.core import market
from quvatlh.core.disciplines import BUILT_IN, PLACE_MAX, UNPLACED, Discipline, Waiting
from quvatlh.core.events import Event
from quvatlh.core.model import WorkerFacts
from quvatlh.core.plugins import DISCIPLINES
from quvatlh.core.rows import TASK_SELECT, TaskRow, task_row
from quvatlh.ports import LogError, Role
from quvatlh.service import asks
from quvatlh.service.door import Door, Refusal
from quvatlh.service.state import State

AT_ONCE: Final = 500
"""Tasks of one proposal."""
PROPOSE_S: Final = 2.0
AGAIN_S: Final = 0.2
LOOK_S: Final = 1.0
"""A queue that is reranked tells nobody of each piece: it is looked at so often."""
_WAKES: Final = frozenset({"task.added", "task.ready", "task.relocated", "task.updated", "queue.changed"})
_FACTS: Final = msgspec.json.Decoder(WorkerFacts)


def told_of(disciplines: Mapping[str, Discipline]) -> dict[str, dict[str, str]]:
    """The fact about them, if there are any."""
    versions = {name: each.version for name, each in sorted(disciplines.items())}
    return {DISCIPLINES: versions} if versions else {}


class Placer:
    """A Hearer; `run` is a duty of the master, `announce` of every node. Without plug-ins it costs a look at the start."""

    def __init__(
        self, door: Door, state: State, disciplines: Mapping[str, Discipline], worker: str, note: Callable[..., None]
    ) -> None:
        self._door = door
        self._state = state
        self._disciplines = disciplines
        self._worker = worker
        self._note = note
        self._queues: dict[str, str] | None = None
        """Those under a plug-in, with its name; None: to be read anew."""
        self._told: set[str] = set()
        self._wake = asyncio.Event()

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == "queue.changed":
                self._queues = None
            if event.kind in _WAKES and self._queues != {}:
                self._wake.set()

    def role_changed(self, _role: Role) -> None:
        self._queues = None
        self._wake.set()

    def reset(self, _index: int) -> None:
        self._queues = None
        self._wake.set()

    # --- every node ---

    async def announce(self) -> None:
        """What it has, if its worker's facts say otherwise."""
        mine = told_of(self._disciplines).get(DISCIPLINES, {})
        while True:
            facts = self._facts()
            if facts is not None and facts.facts.get(DISCIPLINES, {}) == mine:
                return
            if facts is not None:
                told = c.WorkerChanges(facts={**facts.facts, DISCIPLINES: mine})
                try:
                    await self._door.write(asks.Do(c.PatchWorker(self._worker, told)), PROPOSE_S)
                except (LogError, Refusal):
                    pass  # asked again in a moment: until then the others know of an older one
                else:
                    return
            await asyncio.sleep(AGAIN_S)

    def _facts(self) -> WorkerFacts | None:
        if not self._state.is_open:
            return None
        row = self._state.db.execute("SELECT facts FROM worker WHERE name = ?", (self._worker,)).fetchone()
        return None if row is None else _FACTS.decode(row[0])

    # --- the master's duty ---

    async def run(self) -> None:
        while True:
            self._wake.clear()
            while await self._place():
                pass
            try:
                async with asyncio.timeout(LOOK_S if self._queues else None):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _place(self) -> bool:
        """Whether anything was placed, and there may be more."""
        if not self._state.is_open:
            return False
        for queue, name in self._under_plugins().items():
            discipline = self._disciplines.get(name)
            if discipline is None:
                self._tell(name, f"its tasks are in the order of arrival: this node has no plug-in {name}", queue)
                continue
            ranks = tuple(self._ranks(queue, discipline))
            if ranks:
                try:
                    await self._door.propose(c.SetRanks(queue, ranks, name), PROPOSE_S)
                except LogError:
                    await asyncio.sleep(AGAIN_S)
                return True
        return False

    def _under_plugins(self) -> Mapping[str, str]:
        if self._queues is None:
            sql = "SELECT name, settings ->> 'discipline' FROM queue WHERE settings ->> 'discipline' IS NOT NULL ORDER BY 1"
            self._queues = {queue: name for queue, name in self._state.db.execute(sql) if name not in BUILT_IN}
        return self._queues

    def _ranks(self, queue: str, discipline: Discipline) -> Iterator[c.Rank]:
        for row in _unplaced(self._state.db, queue):
            yield c.Rank(row.seq, self._asked(row, discipline))

    def _asked(self, row: TaskRow, discipline: Discipline) -> int:
        try:
            place: object = discipline.place(_seen(row))
            if isinstance(place, int) and abs(place) <= PLACE_MAX:
                return int(place)
            raise ValueError(f"{place!r} is no place")
        except Exception as error:  # noqa: BLE001 - whatever a stranger's rule does
            self._tell(discipline.name, f"it failed: {type(error).__name__}: {error}", row.queue)
            return PLACE_MAX

    def _tell(self, name: str, why: str, queue: str) -> None:
        if f"{name} {queue}" not in self._told:
            self._told.add(f"{name} {queue}")
            self._note("a queue is not ordered by its discipline", discipline=name, queue=queue, why=why)


def _unplaced(db: sqlite3.Connection, queue: str) -> Iterator[TaskRow]:
    """Ready tasks that have no place, the first ones by arrival."""
    left = AT_ONCE
    sql = f"{TASK_SELECT} WHERE ready = 1 AND queue = ? AND shape = ? AND rank = ? ORDER BY seq LIMIT ?"
    for each in market.ready(db, queue):
        for row in db.execute(sql, (queue, each.shape, UNPLACED, left)).fetchall():
            left -= 1
            yield task_row(row)


def _seen(row: TaskRow) -> Waiting:
    return Waiting(
        row.seq, row.id, row.grp, row.name or row.id, row.queue, row.key, row.priority, row.cost, row.slots,
        row.created_at, row.expires_at, row.attempts,
    )  # fmt: skip
