"""Which policy tasks a worker on this node may look at next, and what the cluster looks like meanwhile.

New ones come first; then the walk goes on where it stopped, over all lanes (queue and shape) that fit the worker, so that
each task is looked at again however many there are, a bounded number at a time.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from quvatlh.core import market
from quvatlh.core.books import Shape
from quvatlh.core.queries import get_shape, queues, task_views, workers
from quvatlh.core.rows import json_list
from quvatlh.core.views import QueueView, TaskView
from quvatlh.service import placing, policytask
from quvatlh.service.seat import LOOK_TASKS_MAX, Look, PolicyTask

FRESH_MAX: Final = 10_000
"""New tasks that wait for their first look; what is beyond is met by the walk."""
SHAPES_MAX: Final = 2000
LOOK_BYTES: Final = 2 * 1024 * 1024
"""What a look holds at most, but for its last task."""

Lane = tuple[str, int]


class Looking:
    """Of one worker."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._fresh: deque[int] = deque(maxlen=FRESH_MAX)
        self._places: dict[Lane, tuple[int, int]] = {}
        """Where the walk stopped in a lane."""
        self._last: Lane = ("", 0)
        self._shapes: dict[int, Shape] = {}

    def appeared(self, db: sqlite3.Connection, seq: int, shape: int) -> bool:
        """A task may be awarded now; whether it is one with a policy."""
        row = None if shape in self._shapes else db.execute("SELECT 1 FROM shape WHERE id = ?", (shape,)).fetchone()
        if shape not in self._shapes and row is None:
            return False  # it went with its last task, in the same entry
        if self._shape(db, shape).policy is None:
            return False
        self._fresh.append(seq)
        return True

    def reset(self) -> None:
        self._fresh.clear()
        self._places.clear()
        self._shapes.clear()

    def look(self, db: sqlite3.Connection, now_ms: int) -> Look:
        lanes = dict.fromkeys(self._lanes(db, now_ms))
        seqs = dict.fromkeys(self._take_fresh())
        views = [view for view in task_views(db, list(seqs)) if _waits(view) and _lane(view) in lanes]
        fresh = len(views)
        if len(views) < LOOK_TASKS_MAX:
            walked = self._walk(db, list(lanes), LOOK_TASKS_MAX - len(views))
            views += task_views(db, [seq for seq in walked if seq not in seqs])
        return _put_together(db, views, fresh, now_ms)

    def _take_fresh(self) -> Iterator[int]:
        for _ in range(min(LOOK_TASKS_MAX, len(self._fresh))):
            yield self._fresh.popleft()

    def _lanes(self, db: sqlite3.Connection, now_ms: int) -> Iterator[Lane]:
        """Those with policies that the worker may have."""
        ready = [each for each in market.ready(db) if self._shape(db, each.shape).policy is not None]
        if not ready:
            return
        everyone = workers(db)
        own = next((view for view in everyone if view.name == self._worker), None)
        up = {view.name for view in everyone if view.state == "up"}
        known: dict[str, QueueView] = {}
        for each in ready:
            queue = known.get(each.queue) or known.setdefault(each.queue, queues(db, now_ms, each.queue)[0])
            if (
                own is not None
                and not queue.settings.paused
                and placing.may(own, self._shape(db, each.shape), queue, up)
            ):
                yield each.queue, each.shape

    def _walk(self, db: sqlite3.Connection, lanes: list[Lane], most: int) -> list[int]:
        """Once around at most, from the lane after the one that was last."""
        found: list[int] = []
        after = [lane for lane in lanes if lane > self._last] + [lane for lane in lanes if lane <= self._last]
        for queue, shape in after:
            if len(found) >= most:
                break
            wanted = most - len(found)
            place = self._places.pop((queue, shape), None)
            rows = market.ready_tasks(db, queue, shape, limit=wanted, after=place)
            if len(rows) == wanted:
                self._places[queue, shape] = (rows[-1].rank, rows[-1].seq)
            elif place is not None:
                rows += market.ready_tasks(db, queue, shape, limit=wanted - len(rows))
            found += dict.fromkeys(row.seq for row in rows)
            self._last = (queue, shape)
        self._places = {lane: place for lane, place in self._places.items() if lane in set(lanes)}
        return found

    def _shape(self, db: sqlite3.Connection, number: int) -> Shape:
        shape = self._shapes.get(number)
        if shape is None:
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            shape = self._shapes[number] = get_shape(db, number)
        return shape


def _waits(view: TaskView) -> bool:
    return bool(view.row.ready)


def _lane(view: TaskView) -> Lane:
    return view.row.queue, view.row.shape


def _put_together(db: sqlite3.Connection, views: Sequence[TaskView], fresh: int, now_ms: int) -> Look:
    stored: dict[str, str] = {}
    places: dict[str, int] = {}
    tasks: list[PolicyTask] = []
    size = 0
    told_fresh = 0
    for n, view in enumerate(views):
        source = policytask.source_of(db, view.shape.policy, stored)
        if source is None:
            continue
        if view.shape.policy is not None and view.shape.policy.name is not None:
            stored[view.shape.policy.name] = source
        new = source not in places
        task = PolicyTask(
            view.row.seq, view.row.grp, places.setdefault(source, len(places)), policytask.of_view(db, view)
        )
        tasks.append(task)
        told_fresh += n < fresh
        size += len(msgspec.msgpack.encode(task)) + (len(source) if new else 0)
        if size >= LOOK_BYTES:
            break
    groups = sorted({task.group for task in tasks})
    return Look(tuple(tasks), tuple(places), *cluster(db, groups), now_ms, told_fresh)


def cluster(db: sqlite3.Connection, groups: Sequence[str]) -> tuple[int, dict[str, dict[str, int]], dict[str, int]]:
    """Workers that are up, live actions of groups by worker, waiting tasks by queue."""
    up = db.execute("SELECT count(*) FROM worker WHERE state = 'up'").fetchone()[0]
    live: dict[str, dict[str, int]] = {group: {} for group in groups}
    sql = "SELECT grp, worker, count(*) FROM live WHERE grp IN (SELECT value FROM json_each(?)) GROUP BY grp, worker"
    for group, worker, n in db.execute(sql, (json_list(groups),)) if groups else ():
        live[group][worker] = n
    sql = "SELECT a, sum(n) FROM tally WHERE scope = 'state' AND b IN ('pending', 'scheduled', 'retrying') GROUP BY a"
    return int(up), live, dict(db.execute(sql).fetchall())
