"""queueing.Queueing: settings through the door, counters from the table, and how busy a queue is from the feed."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import BATCH_MAX
from quvatlh.core.model import FINISHED, HtbClass, QueueSettings, TaskState
from quvatlh.core.rejections import FieldError
from quvatlh.core.views import ClassView, QueueView, WorkerView
from quvatlh.ports import Clock
from quvatlh.service import asks
from quvatlh.service.answers import shown
from quvatlh.service.pool import Bulk, Call, Done, Json, Metric, Page, Rejected, Unavailable
from quvatlh.service.queueing import QueueSort
from quvatlh.service.reads import Reads
from quvatlh.service.state import State
from quvatlh.service.traffic import QUANTILES, Rates, Traffic
from quvatlh.service.unplaceable import Unplaceable, Waits, record
from quvatlh.service.writes import Writes

LIST_S: Final = 0.035
"""A page of queues whose reading takes longer ends early, with a cursor."""
COUNTED: Final[tuple[TaskState, ...]] = ("scheduled", "pending", "claimed", "running", "retrying", "failed")
OVER: Final[tuple[TaskState, ...]] = ("succeeded", "deleted")
"""Listed still, so that the queue is not empty."""
_BY: Final[Mapping[QueueSort, tuple[TaskState, ...]]] = {
    "-pending": ("pending",),
    "-running": ("claimed", "running"),
    "-failed": ("failed",),
}
SLICE: Final = 50
"""Queues made ready to be told between two turns of the loop: some milliseconds."""
NUMBERED_MAX: Final = 100
"""Queues that have lines of their own in /metrics; each has twenty."""
OTHERS: Final = "/others"
"""The label of all others: no queue's name holds a slash."""
T = TypeVar("T")
_Told = tuple[QueueView, Waits]
_COUNTED_PLACE: Final = re.compile(r"([0-9]{1,16})\n(.+)", re.ASCII)
_Place = tuple[int | None, str]
"""In a list: by how many, unless it is by name alone."""


class Queues:
    def __init__(
        self,
        reads: Reads,
        writes: Writes,
        traffic: Traffic,
        state: State,
        clock: Clock,
    ) -> None:
        self._reads = reads
        self._writes = writes
        self._traffic = traffic
        self._state = state
        self._clock = clock
        self._unplaceable = Unplaceable()

    # --- queues ---

    async def queues(self, call: Call, limit: int, cursor: str | None, sort: QueueSort = "name") -> Page:
        after = None if cursor is None else _place_of(cursor)
        if after is not None and (after[0] is None) != (sort == "name"):
            raise _no_cursor()
        now_ms, patterns = self._now_ms(), call.principal.queues

        def query(db: sqlite3.Connection) -> tuple[list[_Told], int, _Place | None]:
            found: list[_Told] = []
            places, workers = _places(db, sort, after, limit + 1, patterns), queries.workers(db)
            ends = self._clock.boot() + LIST_S
            for _, name in places[:limit]:
                found += self._look(db, name, workers, now_ms)
                if self._clock.boot() > ends:
                    break
            last = places[len(found) - 1] if 0 < len(found) < len(places) else None
            return found, queries.count_queues(db, patterns), last

        views, total, last = await self._reads.read(call, query)
        items: list[Json] = []
        for view, waits in views:
            items.append(self._record(view, waits))
            if len(items) % SLICE == 0:
                await asyncio.sleep(0)
        return Page(items, None if last is None else _cursor_of(last), total)

    async def queue(self, call: Call, name: str) -> Json:
        now_ms = self._now_ms()
        found = await self._reads.read(call, lambda db: self._look(db, name, queries.workers(db), now_ms))
        if not found:
            raise Rejected("not_found", f"there is no queue named {name}")
        return self._record(*found[0])

    def _look(self, db: sqlite3.Connection, name: str, workers: Sequence[WorkerView], now_ms: int) -> list[_Told]:
        return [(view, self._unplaceable.among(db, view, workers)) for view in queries.queues(db, now_ms, name)]

    async def put_queue(self, call: Call, name: str, settings: Json) -> Json:
        wanted = _convert(settings, QueueSettings)
        await self._writes.write(call, asks.Do(c.PutQueue(name, wanted)))
        return await shown(self.queue(call, name))

    async def patch_queue(self, call: Call, name: str, changes: Json) -> Json:
        wanted = _convert(changes, c.QueueChanges)
        await self._writes.write(call, asks.Do(c.PatchQueue(name, wanted, judged=True)))
        return await shown(self.queue(call, name))

    async def delete_queue(self, call: Call, name: str) -> None:
        await self._writes.write(call, asks.Do(c.DeleteQueue(name)))

    async def purge_queue(self, call: Call, name: str, states: Sequence[TaskState]) -> Done | Bulk:
        """What was deleted a moment ago is not purged, too: what waits is dealt with first, and walked over once."""
        wanted = TaskFilter(queue=name, state=tuple(sorted(set(states), key=lambda state: state in FINISHED)))

        def purge(ids: Sequence[str]) -> c.PurgeQueue:
            return c.PurgeQueue(name, wanted.state, ids=tuple(ids), counted=True)

        count = await self._reads.count(call, wanted)
        if count is not None and count <= BATCH_MAX:
            ids = tuple(await self._reads.matching(call, wanted, BATCH_MAX))
            return await self._writes.at_once(call, purge(ids))
        return await self._writes.in_bulk(call, wanted, purge, count or BATCH_MAX + 1)

    def _record(self, view: QueueView, waits: Waits) -> Json:
        settings: Json = msgspec.to_builtins(msgspec.structs.asdict(view.settings))
        return {
            "name": view.name,
            **{name.removesuffix("_"): value for name, value in settings.items()},
            "workers": list(view.settings.workers),
            "keep": msgspec.structs.asdict(view.settings.keep),
            "keep_failed": msgspec.structs.asdict(view.settings.keep_failed),
            "counts": {state: view.counts.get(state, 0) for state in COUNTED},
            "over": {state: view.counts.get(state, 0) for state in OVER},
            "oldest_pending_at_ms": view.oldest_pending_at,
            **record(waits),
            "rates": self._traffic.of(view.name).record(),
        }

    # --- classes ---

    async def classes(self, call: Call) -> Sequence[Json]:
        return [_class(view) for view in await self._reads.read(call, queries.classes)]

    async def get_class(self, call: Call, name: str) -> Json:
        for each in await self.classes(call):
            if each["name"] == name:
                return each
        raise Rejected("not_found", f"there is no class named {name}")

    async def put_class(self, call: Call, name: str, settings: Json) -> Json:
        await self._writes.write(call, asks.Do(c.PutClass(name, _convert(settings, HtbClass))))
        return await shown(self.get_class(call, name))

    async def patch_class(self, call: Call, name: str, changes: Json) -> Json:
        await self._writes.write(call, asks.Do(c.PatchClass(name, _convert(changes, c.ClassChanges), judged=True)))
        return await shown(self.get_class(call, name))

    async def delete_class(self, call: Call, name: str) -> None:
        await self._writes.write(call, asks.Do(c.DeleteClass(name)))

    # --- numbers ---

    async def numbers(self) -> Sequence[Metric]:
        now_ms = self._now_ms()
        try:
            views, rest = await self._reads.read(None, lambda db: queries.fullest_queues(db, now_ms, NUMBERED_MAX))
        except Unavailable:
            return []
        rates = {view.name: self._traffic.of(view.name) for view in views}
        return [*_depths(views, rest, now_ms), *_flows(rates)]

    def _now_ms(self) -> int:
        return max(self._clock.wall_ms(), self._state.time_ms)


def _depths(views: Sequence[QueueView], rest: dict[str, int], now_ms: int) -> list[Metric]:
    tasks = [({"queue": view.name, "state": state}, n) for view in views for state, n in sorted(view.counts.items())]
    tasks += [({"queue": OTHERS, "state": state}, n) for state, n in sorted(rest.items())]
    ages = [
        ({"queue": view.name}, 0 if view.oldest_pending_at is None else max(0, now_ms - view.oldest_pending_at) / 1000)
        for view in views
    ]
    return [
        Metric("queue_tasks", "gauge", f"Tasks by state, of the {NUMBERED_MAX} fullest queues and all others", tasks),
        Metric("queue_oldest_pending_seconds", "gauge", "Age of the oldest task that may start", ages),
    ]


def _flows(rates: dict[str, Rates]) -> list[Metric]:
    about = (
        ("queue_added_total", "Tasks added, since this node counts"),
        ("queue_finished_total", "Tasks finished, since this node counts"),
        ("queue_failed_total", "Tasks failed for good, since this node counts"),
        ("queue_retries_total", "Attempts that failed and are made again, since this node counts"),
    )
    found = [
        Metric(metric, "counter", words, [({"queue": name}, each.totals[what]) for name, each in rates.items()])
        for what, (metric, words) in enumerate(about)
    ]
    for field, words in (("wait", "Until the first award"), ("run", "Of actions that ended")):
        samples = [
            ({"queue": name, "quantile": f"{QUANTILES[word]:g}"}, ms / 1000)
            for name, each in rates.items()
            for word, ms in (getattr(each, field) or {}).items()
        ]
        found.append(Metric(f"queue_{field}_seconds", "gauge", f"{words}, of the last five to ten minutes", samples))
    return found


def _class(view: ClassView) -> Json:
    return {"name": view.name, **msgspec.structs.asdict(view.settings)}


def _convert(given: Json, kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise Rejected("invalid", f"cannot be set so: {error}", [FieldError("", str(error))]) from error


def _places(
    db: sqlite3.Connection, sort: QueueSort, after: _Place | None, limit: int, patterns: Sequence[str]
) -> Sequence[_Place]:
    if sort == "name":
        return [(None, name) for name in queries.queue_names(db, after[1] if after else "", limit, patterns)]
    return queries.fuller_queues(db, _BY[sort], after, limit, patterns)


def _cursor_of(place: _Place) -> str:
    """Safe in an address, as all cursors are; no name has a line's end in it."""
    n, name = place
    return (name if n is None else f"{n}\n{name}").encode().hex()


def _place_of(cursor: str) -> _Place:
    try:
        text = bytes.fromhex(cursor).decode()
        match = _COUNTED_PLACE.fullmatch(text)
        return (None, text) if match is None else (int(match[1]), match[2])
    except ValueError as error:
        raise _no_cursor() from error


def _no_cursor() -> Rejected:
    return Rejected("invalid", "this is no cursor", [FieldError("cursor", "this is no cursor")])
