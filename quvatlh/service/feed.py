"""What the log made happen, told on this node: to the services at once, to readers of the stream as fast as they take it.

The ring keeps the last events whole; a reader is a place in it, so it costs nothing and can hold up nobody: who is
overtaken by the end of the ring has fallen behind, and is told so. After a snapshot nothing of what was before is known.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from quvatlh.core.events import PUBLIC, Event
from quvatlh.core.results import Diverged, Outcome
from quvatlh.core.scopes import Scope
from quvatlh.ports import Entry, Role
from quvatlh.service.pool import N_MAX, Position, Rejected, StreamEvent
from quvatlh.service.scoping import Places, sees
from quvatlh.service.summary import EVENTS_MAX as SUMMED_MAX
from quvatlh.service.summary import Summary, summed

EVENTS_MAX = 100_000
BATCH_MAX = 500
"""Events that a reader takes between two turns of the loop."""


Locate = Callable[[Sequence[int], Sequence[str]], Awaitable[Places]]
"""Seqs of tasks, and names of schedules."""


async def _nowhere(_seqs: Sequence[int], _schedules: Sequence[str]) -> Places:
    return {}


class StateDiverged(Exception):
    """This node's tables are not the master's: it must not go on, nor answer anybody."""


class Hearer(Protocol):
    """A service that follows the log. Quick and total; called on the loop, in the order of the log."""

    def heard(self, index: int, events: Sequence[Event]) -> None: ...

    def role_changed(self, role: Role) -> None: ...

    def reset(self, index: int) -> None: ...


class Feed:
    """ports.LogListener of the services."""

    def __init__(
        self,
        events_max: int = EVENTS_MAX,
        on_fatal: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        self.places: Locate = _nowhere
        """Where queue and group are known from: the events do not tell all of it."""
        self._events_max = events_max
        self._on_fatal = on_fatal
        self._hearers: list[Hearer] = []
        self.on_role: tuple[Callable[[Role], None], ...] = ()
        """Who wants to hear of masters and of nothing else; told first."""
        self._ring: deque[tuple[int, tuple[Event, ...]]] = deque()
        self._kept = 0
        self._floor = -1
        """Events up to this index are not kept; -1: nothing was heard yet."""
        self._last = 0
        self._ended = False
        self._moved = asyncio.Event()
        self._changes: dict[str, set[asyncio.Future[None]]] = {}

    def tell(self, hearer: Hearer) -> None:
        self._hearers.append(hearer)

    def start(self, index: int) -> None:
        """What was applied before is not told."""
        if self._floor < 0:
            self._floor = self._last = index

    # --- from the log ---

    def applied(self, entry: Entry, results: Sequence[object]) -> None:
        events: list[Event] = []
        for outcome in results:
            if isinstance(outcome, Outcome):
                events += outcome.events
                if isinstance(outcome.result, Diverged):
                    self._diverged(outcome.result)
        if self._floor < 0:
            self._floor = entry.index - 1
        self._last = entry.index
        for hearer in self._hearers:
            hearer.heard(entry.index, events)
        if events:  # readers have their turn later anyway
            self._keep(entry.index, tuple(events))
            self._wake(events)

    def role_changed(self, role: Role) -> None:
        for tell in self.on_role:
            tell(role)
        for hearer in self._hearers:
            hearer.role_changed(role)

    def reset(self, index: int) -> None:
        self._ring.clear()
        self._kept = 0
        self._floor = self._last = index
        self._move()
        for waiting in self._changes.values():
            _resolve(waiting)
        for hearer in self._hearers:
            hearer.reset(index)

    def end(self) -> None:
        """Readers come to their end."""
        self._ended = True
        self._move()
        for waiting in self._changes.values():
            _resolve(waiting)

    # --- for readers ---

    def watch(self, task_id: str) -> Watch:
        """Hears of the task's events from this call on."""
        return Watch(self._changes, task_id)

    def follow(self, since: Position | None, scope: Scope | None = None) -> AsyncIterator[StreamEvent]:
        """Public events after a place, or from now on, of what is in scope; Rejected(gone) at once if that is not kept."""
        place = Position(self._last, N_MAX) if since is None else since
        self._check_kept(place)
        return self._follow(place, scope)

    def summaries(self, since: Position | None, every_s: float, scope: Scope | None = None) -> AsyncIterator[Summary]:
        """What happened after a place, in few words, no more often than that; refused as by `follow`."""
        place = Position(self._last, N_MAX) if since is None else since
        self._check_kept(place)
        return self._summaries(place, every_s, scope)

    @property
    def last_index(self) -> int:
        return self._last

    async def _follow(self, place: Position, scope: Scope | None) -> AsyncIterator[StreamEvent]:
        while not self._ended:
            moved = self._moved
            self._check_kept(place)
            batch = self._after(place)
            places = await self._places([event for _, event in batch], scope) if batch else {}
            for index, event in batch:
                if scope is None or sees(scope, event, places):
                    group = places[event.seq][1] if event.seq in places else None
                    yield StreamEvent(index, event.n, event.kind, data_of(event, group))
            if batch:
                index, event = batch[-1]
                place = Position(index, event.n)
                continue
            place = max(place, Position(self._last, N_MAX))
            await moved.wait()

    async def _places(self, events: Sequence[Event], scope: Scope | None) -> Places:
        """Of schedules only where it matters; the stream tells of each task its group."""
        seqs = [event.seq for event in events if event.seq]
        schedules = {event.id for event in events if scope is not None and event.kind.startswith("schedule.")}
        return await self.places(seqs, sorted(schedules))

    async def _summaries(self, place: Position, every_s: float, scope: Scope | None) -> AsyncIterator[Summary]:
        while not self._ended:
            moved = self._moved
            self._check_kept(place)
            last = self._last
            summary = await self._summary(place, scope)
            place = Position(max(place.index, last), N_MAX)
            if summary is not None:
                yield summary
                await asyncio.sleep(every_s)
            else:
                await moved.wait()

    async def _summary(self, place: Position, scope: Scope | None) -> Summary | None:
        """None: nothing happened that is in scope."""
        last = self._last
        recent: list[Event] = []
        for index, events in reversed(self._ring):
            if index < place.index:
                break
            recent += events if index > place.index else [event for event in events if event.n > place.n]
            if len(recent) > SUMMED_MAX:
                return Summary(last, whole=True)
        if scope is not None and recent:
            grouped = [event for event in recent if not (event.seq and scope.has_all_groups)]
            places = await self._places(grouped, scope) if grouped else {}
            recent = [event for event in recent if sees(scope, event, places)]
        return summed(last, recent) if recent else None

    def _after(self, place: Position) -> list[tuple[int, Event]]:
        """The next public events, found from the young end: readers are usually near it."""
        recent: list[tuple[int, tuple[Event, ...]]] = []
        for entry in reversed(self._ring):
            if entry[0] < place.index:
                break
            recent.append(entry)
        batch: list[tuple[int, Event]] = []
        for index, events in reversed(recent):
            batch += [(index, event) for event in events if event.kind in PUBLIC and Position(index, event.n) > place]
            if len(batch) >= BATCH_MAX:
                break
        return batch

    def _check_kept(self, place: Position) -> None:
        if place < Position(max(self._floor, 0), N_MAX) and self._floor >= 0:
            raise Rejected("gone", f"events up to index {self._floor} are no longer kept here; read the state again")

    def _keep(self, index: int, events: tuple[Event, ...]) -> None:
        self._ring.append((index, events))
        self._kept += len(events)
        while self._kept > self._events_max and len(self._ring) > 1:
            self._floor, gone = self._ring.popleft()
            self._kept -= len(gone)
        self._move()

    def _wake(self, events: Sequence[Event]) -> None:
        if self._changes:
            for event in events:
                waiting = self._changes.get(event.id)
                if waiting:
                    _resolve(waiting)

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _diverged(self, found: Diverged) -> None:
        text = (
            f"the tables at index {found.index} are not the master's. The other nodes hold the right ones: stop this "
            "node, move its data directory away, start it with an empty one and admit it as a new member"
        )
        self._on_fatal(StateDiverged(text))


class Watch:
    """Hears of one task, from when it was made until it is closed."""

    def __init__(self, changes: dict[str, set[asyncio.Future[None]]], task_id: str) -> None:
        self._changes = changes
        self._task_id = task_id
        self._future = self._enter()

    async def wait(self, within_s: float) -> bool:
        """Whether something happened to it since the last wait."""
        await asyncio.wait({self._future}, timeout=max(0.0, within_s))
        if not self._future.done():
            return False
        self._leave()
        self._future = self._enter()
        return True

    def close(self) -> None:
        self._leave()

    def _enter(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.setdefault(self._task_id, set()).add(future)
        return future

    def _leave(self) -> None:
        waiting = self._changes.get(self._task_id)
        if waiting is not None:
            waiting.discard(self._future)
            if not waiting:
                del self._changes[self._task_id]


def data_of(event: Event, group: str | None) -> dict[str, object]:
    """As the stream tells it."""
    data: dict[str, object] = {"id": event.id, "state": event.state}
    if group is not None:
        data["group"] = group
    for name in ("queue", "worker"):
        value = getattr(event, name)
        if value:
            data[name] = value
    if event.token:
        data["token"] = event.token
    for name, value in (event.more or {}).items():
        data[f"{name}_ms" if name in {"started_at", "due_at", "slot"} else name] = value
    return data


def _resolve(waiting: set[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
