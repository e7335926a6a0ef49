"""Which slots of a schedule run, which do not, and in what order they are written: decided here, carried out by cron.py.

On time is what is up to a minute late. Of what is later than that, `catchup` says what becomes of it: nothing runs, the last
one runs if no slot on time follows it, or all do, the last thousand of them. What does not run is written down as missed.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from quvatlh.core.limits import CATCH_UP_MAX, LEDGER_ROWS_MAX, SLOT_ON_TIME_MS
from quvatlh.core.model import CatchUp
from quvatlh.service.calendar import Every, Rule

ON_TIME_MS: Final = SLOT_ON_TIME_MS
MISSED: Final = "missed"
TOO_MANY: Final = f"missed, and beyond the last {CATCH_UP_MAX:,} that are caught up"


@dataclass(slots=True, eq=False)
class Plan:
    """A schedule as its master means to keep it."""

    name: str
    version: int
    rule: Rule
    catchup: CatchUp
    slot: int | None
    """The first that is not decided."""
    following: int | None = None
    """The one after it, as far as `is_ahead`: reckoned before it is needed."""
    is_ahead: bool = False

    def look_ahead(self) -> None:
        if not self.is_ahead and self.slot is not None:
            self.following = self.rule.after(self.slot)
            self.is_ahead = True

    def step(self) -> None:
        """Its slot is decided."""
        self.look_ahead()
        self.slot, self.following, self.is_ahead = self.following, None, False


class Plans:
    """All of them, and who is next. A plan that was taken out stands aside until it is put back."""

    def __init__(self) -> None:
        self._by_name: dict[str, Plan] = {}
        self._heap: list[tuple[int, int, Plan]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def clear(self) -> None:
        self._by_name.clear()
        self._heap.clear()

    def put(self, plan: Plan) -> None:
        """Also in place of an older one of the same name."""
        self._by_name[plan.name] = plan
        if plan.slot is not None:
            self._count += 1
            heapq.heappush(self._heap, (plan.slot, self._count, plan))

    def drop(self, name: str) -> None:
        self._by_name.pop(name, None)

    def holds(self, plan: Plan) -> bool:
        return self._by_name.get(plan.name) is plan

    def due(self, now_ms: int, at_most: int) -> list[Plan]:
        """Taken out, the earliest first."""
        found: list[Plan] = []
        while len(found) < at_most and (first := self.next_ms()) is not None and first <= now_ms:
            found.append(heapq.heappop(self._heap)[2])
        return found

    def next_ms(self) -> int | None:
        while self._heap and not self.holds(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


@dataclass(slots=True, eq=False)
class Run:
    slot: int
    next_ms: int | None


@dataclass(slots=True, eq=False)
class Skip:
    slots: Sequence[int]
    why: str
    next_ms: int | None


class Gap:
    """Slots of one schedule that were not decided in time: gathered piece by piece, then written step by step.

    Of a gap with more slots than a ledger holds, the last ones are gathered.
    """

    def __init__(self, plan: Plan, now_ms: int) -> None:
        assert plan.slot is not None
        self.plan = plan
        self._now_ms = now_ms
        self._until = now_ms - ON_TIME_MS
        self._slots: deque[int] = deque(maxlen=LEDGER_ROWS_MAX)
        self._next: int | None = plan.slot
        if isinstance(plan.rule, Every):
            last = self._until - 1
            self._next = max(plan.slot, (last // plan.rule.span_ms + 1 - LEDGER_ROWS_MAX) * plan.rule.span_ms)
        self._steps: Iterator[Run | Skip] | None = None
        self.step: Run | Skip | None = None
        """What is to be written next; None before all is gathered, and after the last."""
        self.is_over = False

    def gather(self, at_most: int) -> None:
        """A piece of the walk. After the last one `step` is the first."""
        for _ in range(at_most):
            if self._next is None or self._next >= self._until:
                self._steps = self._decide(list(self._slots), self._next)
                self.advance()
                return
            self._slots.append(self._next)
            self._next = self.plan.rule.after(self._next)

    def advance(self) -> None:
        """The step is written."""
        assert self._steps is not None
        self.step = next(self._steps, None)
        if self.step is None:
            self.is_over = True
            self.plan.slot, self.plan.is_ahead = self._next, False

    def _decide(self, late: list[int], then: int | None) -> Iterator[Run | Skip]:
        runs = 0
        if self.plan.catchup == "all":
            runs = min(len(late), CATCH_UP_MAX)
        elif self.plan.catchup == "last" and (then is None or then > self._now_ms):
            runs = min(len(late), 1)
        skipped, kept = late[: len(late) - runs], late[len(late) - runs :]
        why = TOO_MANY if self.plan.catchup == "all" else MISSED
        for start in range(0, len(skipped), CATCH_UP_MAX):
            piece = skipped[start : start + CATCH_UP_MAX]
            rest = skipped[start + CATCH_UP_MAX :]
            yield Skip(piece, why, rest[0] if rest else kept[0] if kept else then)
        for place, slot in enumerate(kept, 1):
            yield Run(slot, kept[place] if place < len(kept) else then)
