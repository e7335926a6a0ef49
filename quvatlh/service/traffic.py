"""How busy queues are: what comes in and goes out, how long tasks wait and run, by what the log tells this node.

Every node keeps it for itself, so any of them answers, and none asks another. Memory is bounded: the QUEUES_MAX queues in
which something happened last; a queue without traffic costs nothing. Times are the log's own, so a node that catches up
counts what happened where it belongs. After a start, or a state received whole, a node begins with nothing: rates then say
over how short a span they are, and percentiles are of what ended since.

In is an ADD, out an end of whatever kind; what moves from one queue to another is neither. The wait of a task is that of
its first attempt, from when it might start to its award; the run of an action from its begin to its end as reported.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from quvatlh.core.events import Event
from quvatlh.ports import Clock, Role

QUEUES_MAX: Final = 2000
"""Each takes up to 3.3 kB."""
SLOT_MS: Final = 5000
SLOTS: Final = 12
"""Rates are over the last minute, but for the begun slot."""
GENERATION_MS: Final = 300_000
"""Percentiles are over the last five to ten minutes."""
SPAN_MS_MIN: Final = 1000
STEPS: Final = 4
"""Buckets from one time to its double: 9 % of error."""
BUCKETS: Final = 128
"""Up to 34 days."""
QUANTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

IN, OUT, FAILED, RETRIED = range(4)
_COUNTED: Final = {
    "task.added": (IN,),
    "task.succeeded": (OUT,),
    "task.failed": (OUT, FAILED),
    "task.deleted": (OUT,),
    "task.retrying": (RETRIED,),
    "task.claimed": (),
}


class Rates(NamedTuple):
    """Of one queue. Tasks a second over `span_ms`; times in ms at each of QUANTILES, None where nothing was seen."""

    per_s: tuple[float, float, float, float]
    """IN, OUT, FAILED, RETRIED"""
    span_ms: int
    wait: dict[str, int] | None
    run: dict[str, int] | None
    totals: tuple[int, int, int, int]
    """Since this node began to count."""

    def record(self) -> dict[str, Any]:
        """As section 9 tells it, times in ms."""
        names = ("in", "out", "failed", "retried")
        found: dict[str, Any] = {name: round(rate, 3) for name, rate in zip(names, self.per_s, strict=True)}
        for name, times in (("wait", self.wait), ("run", self.run)):
            found[name] = None if times is None else {f"{word}_ms": ms for word, ms in times.items()}
        return found | {"span_ms": self.span_ms // 1000 * 1000}


class Times:
    """How often which length was seen, lately."""

    __slots__ = ("_before", "_generation", "_now")

    def __init__(self) -> None:
        self._generation = 0
        self._now = array("I", bytes(4 * BUCKETS))
        self._before = array("I", bytes(4 * BUCKETS))

    def saw(self, lengths_ms: Iterable[int], at_ms: int) -> None:
        self._turn(at_ms)
        now = self._now
        for ms in lengths_ms:
            now[_SHORT[ms] if 0 <= ms < SHORT_MS else _bucket(ms)] += 1

    def quantiles(self, at_ms: int) -> dict[str, int] | None:
        self._turn(at_ms)
        seen = sum(self._now) + sum(self._before)
        return {name: self._at(share * seen) for name, share in QUANTILES.items()} if seen else None

    def _at(self, rank: float) -> int:
        counted = 0
        for bucket in range(BUCKETS):
            counted += self._now[bucket] + self._before[bucket]
            if counted and counted >= rank:
                return _length_ms(bucket)
        return _length_ms(BUCKETS - 1)

    def _turn(self, at_ms: int) -> None:
        generation = at_ms // GENERATION_MS
        if generation <= self._generation:
            return
        empty = array("I", bytes(4 * BUCKETS))
        self._before = self._now if generation == self._generation + 1 else empty
        self._now = array("I", bytes(4 * BUCKETS))
        self._generation = generation


def _bucket(ms: int) -> int:
    return 0 if ms <= 0 else min(BUCKETS - 1, 1 + int(math.log2(ms) * STEPS))


SHORT_MS: Final = 4096
_SHORT: Final = tuple(map(_bucket, range(SHORT_MS)))
"""Nearly all there are: a look in place of a logarithm."""


def _length_ms(bucket: int) -> int:
    """The middle of it."""
    return 0 if bucket == 0 else round(2 ** ((bucket - 0.5) / STEPS))


class Flow:
    """Of one queue."""

    __slots__ = ("_counts", "run", "slot", "totals", "wait")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self._counts = array("I", bytes(4 * 4 * SLOTS))
        self.totals = [0, 0, 0, 0]
        self.wait: Times | None = None
        self.run: Times | None = None

    def count(self, what: int, times: int) -> None:
        self._counts[self.slot % SLOTS * 4 + what] += times
        self.totals[what] += times

    def saw(self, told: Sequence[Mapping[str, Any]], at_ms: int) -> None:
        """What events tell of times."""
        waits = [more["waited_ms"] for more in told if "waited_ms" in more]
        if waits:
            self.wait = self.wait or Times()
            self.wait.saw(waits, at_ms)
        if len(waits) == len(told):
            return
        starts = [more["started_at"] for more in told if "waited_ms" not in more and more.get("started_at")]
        if starts:
            self.run = self.run or Times()
            self.run.saw([at_ms - start for start in starts], at_ms)

    def turn(self, slot: int) -> None:
        """Slots that nothing happened in are empty."""
        for passed in range(max(self.slot + 1, slot - SLOTS + 1), slot + 1):
            self._counts[passed % SLOTS * 4 : passed % SLOTS * 4 + 4] = array("I", (0, 0, 0, 0))
        self.slot = max(slot, self.slot)

    def rates(self, now_ms: int, since_ms: int) -> Rates:
        self.turn(now_ms // SLOT_MS)
        first_ms = (self.slot - SLOTS + 1) * SLOT_MS
        span_ms = max(SPAN_MS_MIN, now_ms - max(since_ms, first_ms))
        per_s = [sum(self._counts[what::4]) * 1000 / span_ms for what in range(4)]
        wait, run = (None if times is None else times.quantiles(now_ms) for times in (self.wait, self.run))
        return Rates((per_s[0], per_s[1], per_s[2], per_s[3]), span_ms, wait, run, _four(self.totals))


def _four(numbers: Sequence[int]) -> tuple[int, int, int, int]:
    return numbers[0], numbers[1], numbers[2], numbers[3]


class Traffic:
    """A Hearer."""

    def __init__(self, clock: Clock, time_ms: Callable[[], int]) -> None:
        """`time_ms`: that of the entry that was applied last."""
        self._clock = clock
        self._time_ms = time_ms
        self._flows: OrderedDict[str, Flow] = OrderedDict()
        """The one in which something happened last at the end."""
        self._heard_at = clock.boot()
        self._heard_ms = 0
        self._since_ms = 0

    def __len__(self) -> int:
        return len(self._flows)

    def of(self, queue: str) -> Rates:
        """Also of a queue in which nothing happened."""
        now_ms = self._now_ms()
        flow = self._flows.get(queue)
        return (flow or Flow(now_ms // SLOT_MS)).rates(now_ms, self._since_ms)

    def _now_ms(self) -> int:
        """The log's time goes on while nothing is logged."""
        return self._heard_ms + int((self._clock.boot() - self._heard_at) * 1000)

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        self._heard_at, self._heard_ms = self._clock.boot(), self._time_ms()
        if not self._since_ms:
            self._since_ms = self._heard_ms
        queues: dict[tuple[str, str], list[Event]] = {}
        for event in events:
            if event.kind in _COUNTED:
                if event.more is None or "was" not in event.more:  # else it had failed, and was counted then
                    queues.setdefault((event.queue, event.kind), []).append(event)
            elif event.kind == "queue.changed" and event.state == "deleted":
                self._count(queues)
                queues.clear()
                self._flows.pop(event.id, None)
        self._count(queues)

    def _count(self, queues: Mapping[tuple[str, str], Sequence[Event]]) -> None:
        for (queue, kind), events in queues.items():
            flow = self._flow(queue)
            for what in _COUNTED[kind]:
                flow.count(what, len(events))
            told = [event.more for event in events if event.more is not None]
            if told:
                flow.saw(told, self._heard_ms)

    def role_changed(self, role: Role) -> None:
        """Whoever is master, the log tells the same."""

    def reset(self, _index: int) -> None:
        """What happened on the way to the state that was received is not known."""
        self._flows.clear()
        self._heard_at, self._heard_ms = self._clock.boot(), self._time_ms()
        self._since_ms = self._heard_ms

    def _flow(self, queue: str) -> Flow:
        slot = self._heard_ms // SLOT_MS
        flow = self._flows.get(queue)
        if flow is None:
            while len(self._flows) >= QUEUES_MAX:
                self._flows.popitem(last=False)
            flow = self._flows[queue] = Flow(slot)
        elif slot > flow.slot:
            flow.turn(slot)
            self._flows.move_to_end(queue)
        return flow
