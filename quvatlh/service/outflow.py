"""How many tasks of each queue end in a second, lately: of the queues in which something ended last, as long as it goes on."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

QUEUES_MAX: Final = 1000
SPAN_S: Final = 1.0
"""What is counted at once."""
WEIGHT: Final = 4
"""Such a span counts for a quarter."""
REST_S: Final = 1.0
"""A queue in which nothing ended for so long has no outflow: its tasks are long, or it had none."""


@dataclass(slots=True)
class _Known:
    since_s: float
    last_s: float
    ended: int = 0
    per_s: float | None = None


class Outflow:
    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def of(self, queue: str, now_s: float) -> float | None:
        known = self._known.get(queue)
        return None if known is None or now_s - known.last_s > REST_S else known.per_s

    def ended(self, queue: str, count: int, now_s: float) -> None:
        """The first ones after a rest only begin a span: when they began, nobody has counted."""
        known = self._known.get(queue)
        if known is None or now_s - known.last_s > REST_S:
            if known is None and len(self._known) >= QUEUES_MAX:
                self._known.popitem(last=False)
            self._known[queue] = _Known(now_s, now_s)
            self._known.move_to_end(queue)
            return
        known.ended += count
        known.last_s = now_s
        span_s = now_s - known.since_s
        if span_s >= SPAN_S:
            per_s = known.ended / span_s
            known.per_s = per_s if known.per_s is None else known.per_s + (per_s - known.per_s) / WEIGHT
            known.since_s, known.ended = now_s, 0
            self._known.move_to_end(queue)

    def clear(self) -> None:
        self._known.clear()
