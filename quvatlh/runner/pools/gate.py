"""The worker's slots inside the executor: how much of them is taken, by commands and by calls."""

from __future__ import annotations


class Gate:
    def __init__(self) -> None:
        self.width = 0
        """As the last action said; 0: nobody counts."""
        self.taken = 0

    def take(self, slots: int) -> bool:
        if slots and self.width and self.taken + slots > self.width:
            return False
        self.taken += slots
        return True

    def release(self, slots: int) -> None:
        self.taken -= slots
