"""When a waiting task will start, with a range, and how wrong that was the last times.

Told by any node from what it has itself: the counters of the queue, its live actions, and how long such actions run lately,
as the feed tells it. A queue gives away live/run tasks in a unit of time, whatever it is that bounds it (slots, limits, what
other queues take), so a task with n before it waits about n * run / live. Where tasks are so short that they are claimed by
the dozen, what is live swings from one moment to the next: there as many start as end in a second, lately (outflow.py).
What a task waits for beyond its turn (a pause, a limit that is full, no worker that may have it) is said by explain; then
there is no estimate, or a late one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from quvatlh.core.events import Event
from quvatlh.core.limits import TIME_MS_MAX
from quvatlh.core.rows import TaskRow
from quvatlh.core.views import QueueView, WorkerView
from quvatlh.ports import Clock, Role
from quvatlh.service.outflow import Outflow
from quvatlh.service.pool import Json, Metric
from quvatlh.service.runtimes import RunTimes

WATCHED_MAX: Final = 256
"""Tasks whose runs are timed at once, and as many whose start was foretold."""
TRUSTED_AFTER: Final = 3
ERRORS_KEPT: Final = 512
RANGED_AFTER: Final = 20
"""Predictions that came true or did not, before the range is made of them."""
LONG_S: Final = 60.0
FREE_MS: Final = 1000
"""A task that is next, with a slot free for it, starts within this."""
LOW, HIGH = 0.5, 2.0
"""The range as a share of the wait, until errors were measured."""
FORETOLD: Final = frozenset({"schedule", "retry", "rest", "rate", "queue_limit", "head"})
"""What may hold a task and still lets its start be foretold: times, and what goes on as its queue does. When those that share
its name or key end, or a class has room again, nobody can know."""
_ENDS: Final = frozenset({"task.succeeded", "task.failed", "task.retrying"})
_LOST: Final = frozenset({"task.deleted", "task.relocated", "task.ready", "action.ended"})


class Standing(NamedTuple):
    """What the tables say of a queue at one instant."""

    queue: QueueView
    free: int
    """Such tasks as could begin at once, by the slots that are free and the limit of a worker."""


def at_once(worker: WorkerView, slots: int, most: int | None, busy: int) -> int:
    """How many tasks of so many slots it could begin now; `most` of a queue at the same time, of which it has `busy`."""
    free = max(0, worker.facts.slots - worker.slots_taken)
    if slots == 0:
        free = max(1, free)
    elif slots > 1:
        free //= slots
    return free if most is None else max(0, min(free, most - busy))


class Forecast:
    """A feed.Hearer on every node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: OrderedDict[int, float] = OrderedDict()
        """Task (seq) -> when its action was awarded, by the boot clock."""
        self._run_times = RunTimes(TRUSTED_AFTER)
        self._outflow = Outflow()
        self._told: OrderedDict[int, tuple[float, float]] = OrderedDict()
        """Task -> when its wait was foretold, and how long, in ms."""
        self._errors_ms: deque[float] = deque(maxlen=ERRORS_KEPT)
        self._shares: deque[float] = deque(maxlen=ERRORS_KEPT)
        """What came of a wait, as a share of what was foretold."""
        self.foretold = 0

    def eta(self, row: TaskRow, standing: Standing, place: int | None, now_ms: int) -> Json | None:
        """Of a task that waits; `place` is how many are before it, None where nobody has counted."""
        if row.live or not (row.waiting or row.due_at is not None):
            return None
        due = max(now_ms, row.due_at or 0)
        before = _guessed(row, standing.queue, now_ms) if place is None else place
        is_later = row.due_at is not None and row.due_at > now_ms
        by_rate = 0.0 if is_later else _by_rate(standing.queue, before, now_ms)
        wait = 0.0 if is_later else self._wait_ms(row, standing, before)
        if wait is None or standing.queue.settings.paused:
            return None
        wait = max(wait, by_rate)
        low, high = self._range()
        if row.due_at is None and wait > FREE_MS:
            self._foretell(row.seq, wait)
        return {
            "at_ms": min(due + round(wait), TIME_MS_MAX),
            "low_ms": min(due + round(max(wait * low, by_rate)), TIME_MS_MAX),
            "high_ms": min(due + round(wait * high) + FREE_MS, TIME_MS_MAX),
        }

    def _wait_ms(self, row: TaskRow, standing: Standing, before: float) -> float | None:
        """But for the rate of its queue."""
        queue = standing.queue
        limit = queue.settings.limit
        room = max(0, standing.free if limit is None else min(standing.free, limit - queue.live))
        if before < room:
            return 0.0
        per_s = self._outflow.of(row.queue, self._clock.boot())
        if per_s is not None:
            return (before + 1 - room) * 1000 / per_s
        run_ms = self._run_times.of(row.queue)
        if run_ms is None:
            return None
        return (before + 1 - room) * run_ms / max(1, queue.live, room)

    def _range(self) -> tuple[float, float]:
        """So that nine of ten of the last starts fell into it, on either side of it one in twenty."""
        if len(self._shares) < RANGED_AFTER:
            return LOW, HIGH
        shares = sorted(self._shares)
        return min(1.0, shares[len(shares) // 20]), max(1.0, shares[-1 - len(shares) // 20])

    def _foretell(self, seq: int, wait_ms: float) -> None:
        """The first word counts; those that have waited longest for theirs to come true make room."""
        if seq not in self._told:
            if len(self._told) == WATCHED_MAX:
                self._told.popitem(last=False)
            self._told[seq] = (self._clock.boot(), wait_ms)

    def metrics(self) -> Sequence[Metric]:
        errors = sorted(self._errors_ms)
        at = [({"quantile": f"{part}"}, _quantile(errors, part) / 1000) for part in (0.5, 0.9, 0.99)]
        return [
            Metric(
                "eta_error_seconds", "gauge", "Between foretold and real starts, of the last 512", at if errors else []
            ),
            Metric("eta_foretold_total", "counter", "Starts that were foretold and came", [({}, self.foretold)]),
        ]

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        """Few of many are timed: those that fit. All ends are counted."""
        runs, now = self._runs, self._clock.boot()
        ended: dict[str, int] = {}
        for event in events:
            seq = event.seq
            if event.kind == "task.claimed":
                if len(runs) < WATCHED_MAX or self._make_room(now):
                    runs[seq] = now
                if seq in self._told:
                    self._came_true(seq)
            elif event.kind in _ENDS:
                ended[event.queue] = ended.get(event.queue, 0) + 1
                if seq in runs:
                    self._run_times.learn(event.queue, (now - runs.pop(seq)) * 1000)
            elif event.kind in _LOST:
                runs.pop(seq, None)
                if event.kind == "task.deleted":
                    self._told.pop(seq, None)
        for queue, count in ended.items():
            self._outflow.ended(queue, count, now)

    def role_changed(self, _role: Role) -> None:
        pass

    def reset(self, _index: int) -> None:
        self._runs.clear()
        self._told.clear()
        self._outflow.clear()

    def _make_room(self, now: float) -> bool:
        """A run that goes on for so long makes room for another."""
        if now - next(iter(self._runs.values())) < LONG_S:
            return False
        self._runs.popitem(last=False)
        return True

    def _came_true(self, seq: int) -> None:
        told_at, wait_ms = self._told.pop(seq)
        waited_ms = (self._clock.boot() - told_at) * 1000
        self._errors_ms.append(abs(waited_ms - wait_ms))
        self._shares.append(waited_ms / wait_ms)
        self.foretold += 1


def _by_rate(queue: QueueView, before: float, now_ms: int) -> float:
    """What the queue's rate alone makes of it."""
    rate = queue.settings.rate
    if rate is None or queue.rate_free_at is None or queue.rate_free_at <= now_ms:
        return 0.0
    return queue.rate_free_at - now_ms + before * rate.per_ms / rate.count


def _guessed(row: TaskRow, queue: QueueView, now_ms: int) -> float:
    """How many of its queue are before it, by its age among theirs: as if they had come evenly. Of those that came at once
    nobody knows: half of them."""
    others = max(0, queue.counts.get("pending", 0) - 1)
    oldest = row.created_at if queue.oldest_pending_at is None else queue.oldest_pending_at
    if row.created_at <= oldest:
        return others / 2
    return others * min(1.0, (row.created_at - oldest) / max(1, now_ms - oldest))


def _quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0
