"""The worker of this node: sees its own name in the feed, runs what it was awarded, and reports what became of it.

There is no dispatch message. A start is reported with the next batch, and not at all of what has ended before; a finish
stays here until it is applied, however long there is no master. What the log says is not this worker's any more ends at
once, and so does what a lease has run out of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.queries import action_id, get_payload, live_actions, task_views
from quvatlh.core.rows import LIVE_SELECT, LiveRow, live_row
from quvatlh.core.views import TaskView
from quvatlh.core.work import Work, WorkError, check
from quvatlh.ports import ActionFinished, ActionSpec, ActionStarted, Clock, Runner
from quvatlh.service.reports import Reports
from quvatlh.service.session import Session
from quvatlh.service.state import State

_OVER: Final = frozenset({"task.relocated", "task.failed", "task.deleted", "action.ended", "task.succeeded"})
"""Of a token that still runs here: it was lost by the master's count, and is another's now."""
CLOSE_S: Final = 2.0
STOP_S: Final = 10.0
"""How long the last reports of a stopping node may take."""


@dataclass(slots=True)
class Held:
    """An action of this worker, from its award until its end is reported."""

    token: int
    task: int
    slots: int
    lease_ms: int
    started_ms: int = 0
    stopping: bool = False
    """By a wish of the cluster or of this node: its end is nobody's fault."""
    expired: bool = False
    """Its lease was over here. That is told, for the master may have gone on counting by a later beat."""
    ours: bool = True
    """False once the log says that it is not."""


class Worker:
    """A Hearer, and a ports.RunnerListener."""

    def __init__(self, session: Session, reports: Reports, runner: Runner, state: State, clock: Clock) -> None:
        self._session = session
        self._reports = reports
        self._runner = runner
        self._state = state
        self._clock = clock
        self._held: dict[str, Held] = {}
        self._lease_timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        session.on_opened = self._look_at_table
        session.on_over = self._end_all
        session.on_beat = self._end_expired
        session.surplus_slots = self.surplus_slots
        runner.listen(self)

    @property
    def held(self) -> int:
        return len(self._held)

    def surplus_slots(self) -> int:
        """Of actions that still end here though they are nobody's any more."""
        return sum(each.slots for each in self._held.values() if not each.ours)

    # --- from the log ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        for event in events:
            if event.worker != self._session.worker:
                if event.kind in {"session.opened", "session.ended"} and event.id == self._session.worker:
                    self._session_changed(event)
                continue
            if event.kind == "task.claimed":
                if self._session.is_open and event.token > self._session.floor:
                    self._claimed(event.seq, event.token)
            elif event.kind == "action.stopping":
                self._stop(action_id(event.token))
            elif event.kind in _OVER:
                self._not_ours(action_id(event.token))

    def role_changed(self, role: object) -> None:
        pass

    def reset(self, _index: int) -> None:
        self._look_at_table()

    def _session_changed(self, event: Event) -> None:
        session = (event.more or {}).get("session")
        own = self._session.id
        if own is not None and (session == own) == (event.kind == "session.ended"):
            self._session.over()

    def _look_at_table(self) -> None:
        """What the table says this session owns, all at once: after a snapshot, and when the session is new."""
        if not self._session.is_open or not self._state.is_open:
            return
        live = {action_id(row.token): row for row in live_actions(self._state.db, session=self._session.id)}
        for name in self._held.keys() - live.keys():
            self._not_ours(name)
        for name, row in live.items():
            if name not in self._held:
                self._claimed(row.task, row.token)
            if row.state == "stopping":
                self._stop(name)

    # --- an action begins ---

    def _claimed(self, seq: int, token: int) -> None:
        name = action_id(token)
        if name in self._held or self._reports.knows(token) or not self._state.is_open:
            return
        row = self._live(token)
        views = task_views(self._state.db, [seq])
        if row is None or not views:
            return
        held = Held(token, seq, row.slots, row.lease_ms)
        if self._session.left_s(held.lease_ms) <= 0:
            self._reports.give_back(token)
            return
        self._held[name] = held
        self._idle.clear()
        try:
            self._runner.start(self._spec(name, row, views[0]))
        except (WorkError, ValueError) as error:
            self._refused(name, str(error))
        except RuntimeError:
            self._dropped(name)
            self._reports.give_back(token)
        self._watch_leases()

    def _live(self, token: int) -> LiveRow | None:
        """The action as the table has it, if it is this session's."""
        found = self._state.db.execute(f"{LIVE_SELECT} WHERE token = ?", (token,)).fetchone()
        row = None if found is None else live_row(found)
        return row if row is not None and row.session == self._session.id else None

    def _spec(self, name: str, row: LiveRow, view: TaskView) -> ActionSpec:
        spec = view.spec
        payload = get_payload(self._state.db, row.task)
        return ActionSpec(
            name,
            view.row.id,
            row.attempt,
            row.token,
            self._session.worker,
            _native(msgspec.to_builtins(spec.work)),
            None if payload is None else payload[0],
            None if spec.timeout_ms is None else spec.timeout_ms / 1000,
            spec.stop.signal,
            spec.stop.grace_ms / 1000,
        )

    def _refused(self, name: str, why: str) -> None:
        """What can never be run here."""
        held = self._dropped(name)
        detail = c.EndDetail(error_code="unrunnable", error_text=why[:1000], permanent=True)
        self._reports.ended(c.End(held.token, held.task, 1, 0, detail))

    # --- from the runner ---

    def started(self, event: ActionStarted) -> None:
        held = self._held.get(event.action_id)
        if held is not None:
            held.started_ms = event.started_at_ms
            self._reports.started(held.token, event.started_at_ms)

    def finished(self, event: ActionFinished) -> None:
        if event.action_id in self._held:
            held = self._dropped(event.action_id)
            if held.ours:
                self._reports.finished(held.token, held.task, event, stopped=held.stopping)
            else:
                self._reports.forget(held.token)

    def _dropped(self, name: str) -> Held:
        held = self._held.pop(name)
        if not self._held:
            self._idle.set()
        return held

    # --- an action ends ---

    def _stop(self, name: str) -> None:
        held = self._held.get(name)
        if held is not None:
            held.stopping = True
            self._runner.stop(name)

    def _not_ours(self, name: str) -> None:
        held = self._held.get(name)
        if held is not None:
            held.ours = False
            self._runner.stop(name, 0)

    def _end_all(self) -> None:
        self._reports.clear()
        for name in list(self._held):
            self._not_ours(name)

    def _end_expired(self) -> None:
        """KILL without grace: in a moment it is another's."""
        for name, held in list(self._held.items()):
            if held.ours and not held.expired and self._session.left_s(held.lease_ms) <= 0:
                held.expired = held.stopping = True
                self._runner.stop(name, 0)
        self._watch_leases()

    def _watch_leases(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None
        waiting = [each for each in self._held.values() if each.ours and not each.expired]
        lefts = [self._session.left_s(each.lease_ms) for each in waiting]
        if lefts:
            loop = asyncio.get_running_loop()
            self._lease_timer = loop.call_later(max(0.001, min(lefts)), self._end_expired)

    # --- the node ends ---

    async def drain(self, drain_s: float) -> None:
        """Actions may go on for so long; then they are stopped with their grace, and run elsewhere."""
        await _wait(self._idle, drain_s)
        longest_s = 0.0
        for name in list(self._held):
            self._stop(name)
            longest_s = STOP_S
        await _wait(self._idle, longest_s + STOP_S if longest_s else 0.0)
        for name in list(self._held):
            self._runner.stop(name, 0)
        await self._reports.flush(STOP_S)

    async def close(self) -> None:
        await self._runner.close(0)
        await self._reports.flush(STOP_S)
        await self._session.close(CLOSE_S)
        if self._lease_timer is not None:
            self._lease_timer.cancel()


def _native(work: object) -> Work:
    """model.Work as the runner knows it."""
    return check(work)


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await event.wait()
    except TimeoutError:
        pass
