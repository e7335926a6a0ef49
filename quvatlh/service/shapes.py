"""Shapes as the loop needs them, read once: they never change, and their numbers are never used again."""

from __future__ import annotations

from typing import Final

from quvatlh.core.books import Shape
from quvatlh.core.queries import find_shape
from quvatlh.service.state import State

KNOWN_MAX: Final = 5000


class Shapes:
    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[int, Shape | None] = {}

    def get(self, number: int) -> Shape | None:
        """None: no task has it any more."""
        if number not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            if not self._state.is_open:
                return None
            self._known[number] = find_shape(self._state.db, number)
        return self._known[number]

    def has_policy(self, number: int) -> bool:
        shape = self.get(number)
        return shape is not None and shape.policy is not None

    def reset(self) -> None:
        """Another state is in force."""
        self._known.clear()
