"""How long calls of one kind run lately, and whether they share a process: what decides how they are handed out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

TARGETS_MAX: Final = 1000
WEIGHT: Final = 4
"""A run counts for a quarter."""
SUSPECTS_MAX: Final = 1000


@dataclass(slots=True)
class Known:
    ms: float
    shared: bool


class Paces:
    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._suspects: OrderedDict[str, None] = OrderedDict()

    def of(self, target: str) -> Known | None:
        return self._known.get(target)

    def ran(self, target: str, ms: float, *, shared: bool) -> None:
        known = self._known.get(target)
        if known is None:
            if len(self._known) >= TARGETS_MAX:
                self._known.popitem(last=False)
            self._known[target] = Known(ms, shared)
        else:
            known.ms += (ms - known.ms) / WEIGHT
            known.shared = shared

    def suspect(self, task_id: str) -> None:
        """A process died while this and others ran in it: the next time it runs alone."""
        self._suspects[task_id] = None
        if len(self._suspects) > SUSPECTS_MAX:
            self._suspects.popitem(last=False)

    def is_suspect(self, task_id: str) -> bool:
        return task_id in self._suspects
