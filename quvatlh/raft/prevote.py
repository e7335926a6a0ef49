"""The question before the campaign: would a majority vote for me? Asking changes nobody's term.

A node that was away cannot disturb a working master: its question is refused by every voter that hears one.
"""

from __future__ import annotations


class PreVote:
    """The round under way, if any."""

    def __init__(self) -> None:
        self.number = 0
        self._open = False
        self._deadline = 0.0
        self._granted: set[str] = set()

    def begin(self, now: float, length_s: float) -> int:
        """Start a round; its number, which the answers name."""
        self.number += 1
        self._open = True
        self._deadline = now + length_s
        self._granted = set()
        return self.number

    def running(self, now: float) -> bool:
        return self._open and now < self._deadline

    def grant(self, number: int, voter: str) -> None:
        if self._open and number == self.number:
            self._granted.add(voter)

    def take(self, needed: int, now: float) -> bool:
        """Whether so many others have granted the running round; a yes is good for one campaign."""
        if not self.running(now) or not self._enough(needed):
            return False
        self._open = False
        return True

    def _enough(self, needed: int) -> bool:
        return len(self._granted) >= needed

    def cancel(self) -> None:
        self._open = False
