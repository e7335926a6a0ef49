"""What live actions count for, summed up while a command goes through many of them: each counter is moved once.

Who needs a counter as it is now has the sums written before he reads it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quvatlh.core.unit import Unit


class Sums:
    """Actions that all begin, or all end."""

    __slots__ = ("_sign", "_unit", "keys", "names", "workers")

    def __init__(self, unit: Unit, sign: int) -> None:
        self._unit = unit
        self._sign = sign
        self.workers: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By queue and worker: all of them."""
        self.keys: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        """By queue, and key."""
        self.names: defaultdict[tuple[str, str, int | None], int] = defaultdict(int)
        """By group, name and limit: of those that are counted by name."""

    def write(self) -> None:
        unit, sign = self._unit, self._sign
        for (queue, worker), n in self.workers.items():
            unit.count_worker(queue, worker, sign * n)
        for queue, counts in self.keys.items():
            unit.lines.count_keys(queue, counts, sign)
        for (group, name, lim), n in self.names.items():
            unit.count_name(group, name, lim, sign * n)
        self.workers.clear()
        self.keys.clear()
        self.names.clear()
