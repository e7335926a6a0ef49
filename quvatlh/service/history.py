"""What this node has seen of the last hour, for charts: a sample every few seconds of what came, started and ended.

By what the log tells, in the log's own time, so that a node which catches up counts things where they belong. No loop keeps
it: a slot is closed by the first entry after it, or by a reader. Memory is bounded by SLOTS and WORKERS_MAX. After a start, or
a state received whole, it begins with nothing; what was before is then not known, which is not the same as nothing.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from quvatlh.core.events import Event
from quvatlh.ports import Clock, Role
from quvatlh.service.pool import Json
from quvatlh.service.state import State

STEP_MS: Final = 5000
SLOTS: Final = 720
"""An hour, and the slot that is being filled."""
WORKERS_MAX: Final = 200
"""Those with most to do are told one by one."""
WAITS_MAX: Final = 512
"""Waits of a slot that are remembered; of more, the first."""

COUNTED: Final[Mapping[str, str]] = {
    "task.added": "added",
    "task.claimed": "claimed",
    "task.succeeded": "succeeded",
    "task.failed": "failed",
    "task.retrying": "retrying",
    "task.deleted": "deleted",
}
GAUGES: Final = ("scheduled", "pending", "claimed", "running", "retrying", "failed")
_STATES = "SELECT b, sum(n) FROM tally WHERE scope = 'state' GROUP BY b"
_WORKERS = "SELECT b, sum(n) FROM tally WHERE scope = 'live_worker' GROUP BY b ORDER BY 2 DESC LIMIT ?"


@dataclass(slots=True)
class Slot:
    number: int
    """Since the epoch, in steps."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED.values(), 0))
    waits_ms: array[int] = field(default_factory=lambda: array("q"))
    tasks: dict[str, int] = field(default_factory=dict)
    """By state, at its end."""
    live: dict[str, int] = field(default_factory=dict)
    """Actions by worker, at its end."""
    wait_p50_ms: int | None = None
    wait_p95_ms: int | None = None

    def close(self) -> None:
        """What its waits come to; they themselves are let go."""
        self.wait_p50_ms, self.wait_p95_ms = _quantiles(self.waits_ms)
        self.waits_ms = array("q")


class History:
    """A Hearer."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._slots: deque[Slot] = deque(maxlen=SLOTS)
        """Closed ones; in those that are missing nothing happened."""
        self._slot: Slot | None = None
        self._since = 0
        self._heard_ms = 0
        self._heard_at = 0.0

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        if not self._state.time_ms:
            return  # the log tells the time from its first stamp on
        self._heard_at, self._heard_ms = self._clock.boot(), self._state.time_ms
        slot = self._turn(self._heard_ms)
        counts = slot.counts
        for event in events:
            name = COUNTED.get(event.kind)
            if name is not None:
                counts[name] += 1
                if event.more and name == "claimed" and len(slot.waits_ms) < WAITS_MAX and "waited_ms" in event.more:
                    slot.waits_ms.append(event.more["waited_ms"])

    def role_changed(self, role: Role) -> None:
        """Whoever is master, the log tells the same."""

    def reset(self, _index: int) -> None:
        self._slots.clear()
        self._slot = None

    def record(self) -> Json:
        """Columns, one value a step; None where this node does not know. The last one is still being filled."""
        if self._slot is None:
            if not self._state.is_open:
                return _columns([], 0, 0)
            self._heard_at, self._heard_ms = self._clock.boot(), max(self._state.time_ms, self._clock.wall_ms())
        now_ms = self._heard_ms + int((self._clock.boot() - self._heard_at) * 1000)
        slot = self._turn(now_ms)
        self._measure(slot)
        slot.wait_p50_ms, slot.wait_p95_ms = _quantiles(slot.waits_ms)
        known = [*self._slots, slot]
        first = max(self._since, slot.number - SLOTS)
        return _columns(known, first, slot.number)

    def _turn(self, now_ms: int) -> Slot:
        """The slot of now; older ones are closed with what the tables hold as the next one begins."""
        number = now_ms // STEP_MS
        if self._slot is None:
            self._slot, self._since = Slot(number), number
        elif number > self._slot.number:
            self._measure(self._slot)
            self._slot.close()
            self._slots.append(self._slot)
            self._slot = Slot(number)
        return self._slot

    def _measure(self, slot: Slot) -> None:
        if self._state.is_open:
            db = self._state.db
            slot.tasks = dict(db.execute(_STATES).fetchall())
            slot.live = dict(db.execute(_WORKERS, (WORKERS_MAX,)).fetchall())


def _quantiles(waits_ms: Sequence[int]) -> tuple[int | None, int | None]:
    if not waits_ms:
        return None, None
    ordered = sorted(waits_ms)
    last = len(ordered) - 1
    return ordered[last // 2], ordered[last * 95 // 100]


def _columns(known: Sequence[Slot], first: int, last: int) -> Json:
    slots = [slot for slot in known if slot.number >= first]
    length = last - first + 1 if slots else 0
    counts: dict[str, list[int]] = {name: [0] * length for name in COUNTED.values()}
    waits: dict[str, list[int | None]] = {name: [None] * length for name in ("wait_p50_ms", "wait_p95_ms")}
    tasks: dict[str, list[int]] = {name: [0] * length for name in GAUGES}
    names = {name for slot in slots for name in slot.live}
    live: dict[str, list[int]] = {name: [0] * length for name in sorted(names)[:WORKERS_MAX]}
    place = 0
    for slot, following in zip(slots, [*slots, None][1:], strict=True):
        place = slot.number - first
        for name, n in slot.counts.items():
            counts[name][place] = n
        waits["wait_p50_ms"][place], waits["wait_p95_ms"][place] = slot.wait_p50_ms, slot.wait_p95_ms
        until = length if following is None else following.number - first
        for column, of in ((tasks, slot.tasks), (live, slot.live)):
            for name, values in column.items():
                values[place:until] = [of.get(name, 0)] * (until - place)
    return {
        "step_ms": STEP_MS,
        "from_ms": first * STEP_MS,
        "counts": counts,
        "waits": waits,
        "tasks": tasks,
        "live": live,
    }
