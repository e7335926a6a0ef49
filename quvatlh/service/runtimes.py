"""How long the tasks of each queue run lately: a moving average, of the queues in which something ended last."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

QUEUES_MAX: Final = 1000
WEIGHT: Final = 8
"""A run counts for an eighth."""


@dataclass(slots=True)
class _Known:
    run_ms: float
    runs: int = 1


class RunTimes:
    def __init__(self, trusted_after: int) -> None:
        """So many runs of a queue are seen before anybody believes them."""
        self._trusted_after = trusted_after
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def of(self, queue: str) -> float | None:
        known = self._known.get(queue)
        return None if known is None or known.runs < self._trusted_after else known.run_ms

    def learn(self, queue: str, run_ms: float) -> None:
        known = self._known.get(queue)
        if known is None:
            while len(self._known) >= QUEUES_MAX:
                self._known.popitem(last=False)
            self._known[queue] = _Known(run_ms)
            return
        known.runs += 1
        known.run_ms += (run_ms - known.run_ms) / WEIGHT
        self._known.move_to_end(queue)

    def clear(self) -> None:
        self._known.clear()

    def __bool__(self) -> bool:
        return bool(self._known)
