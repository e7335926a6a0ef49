"""pool.Pool's reads of tasks: off the loop, each as of one instant; behind a barrier where that was asked for."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from quvatlh import ports
from quvatlh.core import counts, pages, queries, views
from quvatlh.core.filters import TaskFilter
from quvatlh.core.model import FINISHED
from quvatlh.core.rejections import FieldError
from quvatlh.core.rows import json_list
from quvatlh.core.views import ActionView, TaskView
from quvatlh.ports import Clock, Log
from quvatlh.service import largeresults, records, scoping
from quvatlh.service.answers import problem
from quvatlh.service.door import Door
from quvatlh.service.feed import Feed
from quvatlh.service.forecast import Forecast, Standing, at_once
from quvatlh.service.largeresults import LargeResults
from quvatlh.service.pool import (
    Call,
    GroupBy,
    Groups,
    Json,
    Page,
    Position,
    Rejected,
    StreamEvent,
    TaskQuery,
    Unavailable,
)
from quvatlh.service.readers import Read, Reading, T
from quvatlh.service.state import State
from quvatlh.service.summary import Summary

PAGE_S: Final = 0.02
"""A page whose search takes longer ends early, with a cursor. The rest of its 50 ms is for the last window and the way."""
SHOWN_S: Final = 0.05
"""And one whose tasks take longer to be read: then it is shorter. So it stays below the 100 ms that a read transaction may
take."""
COUNT_S: Final = 2.0
"""Counting by a field that no counter knows goes on for so long: about a million tasks."""


class Reads:
    def __init__(
        self,
        log: Log,
        door: Door,
        state: State,
        readers: Reading,
        feed: Feed,
        large: LargeResults,
        clock: Clock,
    ) -> None:
        self._log = log
        self._door = door
        self._state = state
        self._readers = readers
        self._feed = feed
        self._large = large
        self._clock = clock
        self.forecast = Forecast(clock)
        self.expected: Callable[[str], Awaitable[Json | None]] = _unknown
        """When a task starts, as explain tells it, who knows of workers."""

    # --- lists ---

    async def tasks(self, call: Call, query: TaskQuery) -> Page:
        sort = f"{'-' if query.descending else ''}{query.sort}"
        page = await self._list(call, query.wanted, sort, query.limit, query.cursor)
        items = [records.task(view) for view in page.items]
        if query.eta:
            await self._foretell(page.items, items)
        return Page(items, page.cursor, page.total)

    async def _foretell(self, views: Sequence[TaskView], items: Sequence[Json]) -> None:
        """By the counters of their queues: to count who is before each would take longer than the list."""
        names = {view.row.queue for view in views if not view.row.finished}
        now_ms = self._now_ms()
        standings, up = await self.read(None, lambda db: _standings(db, names, now_ms))
        for view, item in zip(views, items, strict=True):
            standing = standings.get(view.row.queue)
            if standing is not None:
                queue, busy = standing
                most = queue.settings.limit_per_worker
                free = sum(at_once(each, view.row.slots, most, busy.get(each.name, 0)) for each in up)
                item["eta"] = self.forecast.eta(view.row, Standing(queue, free), None, now_ms)

    async def groups(self, call: Call, wanted: TaskFilter, by: GroupBy, parts: int | None = None) -> Groups:
        """In reads that are short each, one after the other: what changes meanwhile may count as before or as after."""
        wanted = scoping.narrowed(call, wanted)
        ends = self._clock.boot() + COUNT_S
        spread = None if parts is None else self._spread(wanted, parts)
        read: list[views.Groups] = []
        cursor: str | None = None
        while True:
            read.append(await self.read(None if read else call, self._count_groups(wanted, by, spread, cursor)))
            cursor = read[-1].cursor
            if cursor is None or self._clock.boot() > ends:
                break
        found = counts.add_groups(read)
        groups = [_group(group) for group in found.groups]
        return Groups(groups, partial=cursor is not None or found.cut_off)

    def _spread(self, wanted: TaskFilter, parts: int) -> counts.Spread:
        since_ms = wanted.finished_after or 0
        until_ms = self._now_ms() if wanted.finished_before is None else wanted.finished_before
        return counts.Spread(since_ms, max(1, until_ms - since_ms), parts)

    def _count_groups(
        self, wanted: TaskFilter, by: GroupBy, spread: counts.Spread | None, cursor: str | None
    ) -> Read[views.Groups]:
        return lambda db: counts.count_groups(db, wanted, by, spread=spread, cursor=cursor, out_of_time=self._budget())

    async def matching(self, call: Call, wanted: TaskFilter, at_most: int) -> list[str]:
        """Ids of tasks that match, up to so many."""
        ids: list[str] = []
        cursor: str | None = None
        while len(ids) < at_most:
            some, cursor = await self.matching_page(call, wanted, at_most - len(ids), cursor)
            ids += some
            if cursor is None:
                break
        return ids

    async def count(self, call: Call, wanted: TaskFilter) -> int | None:
        """How many match: exact where only state and queue are named, else None beyond 10,000."""
        page = await self._list(call, wanted, "-created_at", 1, None)
        return page.total  # type: ignore[no-any-return]

    async def matching_page(
        self, call: Call, wanted: TaskFilter, limit: int, cursor: str | None
    ) -> tuple[list[str], str | None]:
        wanted = scoping.narrowed(call, wanted)
        return await self.read(
            call, lambda db: pages.list_ids(db, wanted, limit=limit, cursor=cursor, out_of_time=self._budget())
        )

    async def _list(self, call: Call, wanted: TaskFilter, sort: str, limit: int, cursor: str | None) -> Any:
        wanted = scoping.narrowed(call, wanted)

        def query(db: sqlite3.Connection) -> Any:
            times = {"out_of_time": self._budget(), "overdue": self._budget(SHOWN_S)}
            return pages.list_tasks(db, wanted, sort=sort, limit=limit, cursor=cursor, **times)

        try:
            return await self.read(call, query)
        except pages.BadCursor as error:
            raise Rejected("invalid", str(error), [FieldError("cursor", str(error))]) from error

    # --- one task ---

    async def task(self, call: Call, task_id: str, wait_ms: int = 0) -> Json:
        watch = self._feed.watch(task_id)
        try:
            ends = _now() + wait_ms / 1000
            view, payload = await self.find(call, task_id)
            while not _has_come(view) and await watch.wait(ends - _now()):
                view, payload = await self.find(call, task_id)
        finally:
            watch.close()
        record = records.task(view)
        if not view.row.finished:
            record["eta"] = await self.expected(task_id)
        if payload is not None:
            record |= {"payload": payload[0], "payload_json": payload[1]}
        return record

    async def actions(self, call: Call, task_id: str) -> Sequence[Json]:
        def query(db: sqlite3.Connection) -> tuple[TaskView | None, list[ActionView]]:
            view = queries.get_task(db, task_id)
            return view, [] if view is None else queries.list_actions(db, view.row)

        view, actions = await self.read(call, query)
        if view is None or not is_seen(call, view):
            raise await self.unknown(call, task_id)
        return [records.action(each, view) for each in actions]

    async def result(self, call: Call, task_id: str) -> object:
        view, _ = await self.find(call, task_id)
        if view.row.state != "succeeded":
            raise Rejected("conflict", f"task {task_id} is {view.row.state} and has no result")
        action = largeresults.found(view)
        if action is not None:
            return await self._large.open(view, action, await self.owner(action.worker))
        return records.result_of(view)

    async def view(self, call: Call, task_id: str) -> TaskView:
        return (await self.find(call, task_id))[0]

    async def find(self, call: Call, task_id: str) -> tuple[TaskView, tuple[bytes, bool] | None]:
        def query(db: sqlite3.Connection) -> tuple[TaskView, tuple[bytes, bool] | None] | None:
            view = queries.get_task(db, task_id)
            return None if view is None else (view, queries.get_payload(db, view.row.seq))

        found = await self.read(call, query)
        if found is None or not is_seen(call, found[0]):
            raise await self.unknown(call, task_id)
        return found

    async def unknown(self, call: Call, task_id: str) -> Rejected:
        """Whose an id was that is no longer listed is not known: a narrowed token is not told of it either."""
        if call.principal.scope is not None:
            return Rejected("not_found", f"there is no task {task_id}")
        now_ms = self._now_ms()
        gone = await self.read(None, lambda db: queries.is_gone(db, task_id, now_ms))
        if gone:
            return Rejected("gone", f"task {task_id} is over, and not listed any more")
        return Rejected("not_found", f"there is no task {task_id}")

    async def owner(self, worker: str) -> str | None:
        """The node that a worker is on."""
        found = await self.read(None, lambda db: queries.workers(db, worker))
        node_id = found[0].facts.facts.get("node_id") if found else None
        return node_id if isinstance(node_id, str) else None

    # --- the stream ---

    async def events(self, call: Call, since: Position | None) -> AsyncIterator[StreamEvent]:
        await self._barrier(call)
        await self._check_comes(call, since)
        return self._feed.follow(since, call.principal.scope)

    async def summaries(self, call: Call, since: Position | None, every_ms: int) -> AsyncIterator[Summary]:
        await self._barrier(call)
        await self._check_comes(call, since)
        return self._feed.summaries(since, every_ms / 1000, call.principal.scope)

    async def places_of(self, seqs: Sequence[int], schedules: Sequence[str]) -> scoping.Places:
        """For the feed: what the events themselves do not tell."""
        if not (seqs or schedules) or not self._state.is_open:
            return {}
        sql = "SELECT seq, queue, grp FROM task WHERE seq IN (SELECT value FROM json_each(?))"

        def query(db: sqlite3.Connection) -> scoping.Places:
            found: dict[Any, tuple[str, str]] = {row[0]: row[1:] for row in db.execute(sql, (json_list(seqs),))}
            for name in schedules:
                found |= {
                    view.name: (view.spec.task.queue, view.spec.task.group) for view in queries.schedules(db, name)
                }
            return found

        return await self.read(None, query)

    # --- how ---

    async def read(self, call: Call | None, query: Read[T]) -> T:
        if call is not None:
            await self._barrier(call)
        try:
            return await self._readers.read(query)
        except ports.LogError as error:
            raise problem(error) from error

    async def _check_comes(self, call: Call, since: Position | None) -> None:
        """A place ahead of this node may be one that another has seen already; where the master has not, it is of a past that
        is no more: of a state before a restore."""
        if since is None or since.index <= self._log.applied_index:
            return
        last = await self._last_index(call)
        if since.index > last:
            raise Rejected("gone", f"there is no index {since.index} yet, the last one is {last}; read the state again")

    async def _barrier(self, call: Call) -> None:
        if call.consistent:
            await self._last_index(call)

    async def _last_index(self, call: Call) -> int:
        try:
            return await self._door.barrier(call.deadline_ms / 1000)
        except ports.Unknown as error:
            raise Unavailable("no_master", error.detail) from error
        except ports.LogError as error:
            raise problem(error) from error

    def _now_ms(self) -> int:
        return max(self._clock.wall_ms(), self._state.time_ms)

    def _budget(self, span_s: float = PAGE_S) -> pages.OutOfTime:
        ends = self._clock.boot() + span_s
        return lambda: self._clock.boot() > ends


def _group(group: views.Group) -> Json:
    return {"value": group.value, "count": group.count} | ({"parts": list(group.parts)} if group.parts else {})


def is_seen(call: Call, view: TaskView) -> bool:
    """Whether there is such a task for who asks."""
    scope = call.principal.scope
    return scope is None or scope.has(view.row.queue, view.row.grp)


def _standings(
    db: sqlite3.Connection, names: Iterable[str], now_ms: int
) -> tuple[dict[str, tuple[views.QueueView, dict[str, int]]], list[views.WorkerView]]:
    """Queues, each with its live actions by worker; workers that take work without asking for it."""
    found = {
        view.name: (view, queries.busy(db, view.name)) for name in names for view in queries.queues(db, now_ms, name)
    }
    return found, [each for each in queries.workers(db) if each.state == "up" and each.facts.role != "pull"]


async def _unknown(_task_id: str) -> Json | None:
    return None


def _has_come(view: TaskView) -> bool:
    """What `wait` waits for."""
    return view.row.state in FINISHED or (bool(view.row.service) and view.row.state == "running")


def _now() -> float:
    return asyncio.get_running_loop().time()
