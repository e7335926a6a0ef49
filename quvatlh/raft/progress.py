"""How far each follower is, and how much may be under way to it.

pysyncobj keeps the next and the matched index of a follower; here is what it lacks: a window, and the difference between
probing (the follower's end is not known on this connection, one message at a time) and streaming.
"""

from __future__ import annotations

import sys
from collections import deque


class Progress:
    """One follower on one connection in one term."""

    __slots__ = ("_messages_max", "_sent", "behind", "probing", "serial", "unanswered_bytes")

    def __init__(self, serial: int, messages_max: int = sys.maxsize) -> None:
        self._messages_max = messages_max
        self.serial = serial
        """Of the connection that all of this is about."""
        self.probing = True
        """Until an append was accepted over this connection."""
        self.behind = False
        """It has needed entries that the log no longer holds, and it was said so."""
        self.unanswered_bytes = 0
        self._sent: deque[tuple[int, int]] = deque()

    def sent(self, last_index: int, nbytes: int) -> None:
        self._sent.append((last_index, nbytes))
        self.unanswered_bytes += nbytes

    def accepted(self, index: int) -> None:
        """The follower holds, synced, everything up to `index`."""
        self.probing = False
        while self._sent and self._sent[0][0] <= index:
            self.unanswered_bytes -= self._sent.popleft()[1]

    def rejected(self) -> None:
        """What was under way did not fit: start again from where the follower said."""
        self.probing = True
        self._sent.clear()
        self.unanswered_bytes = 0

    def may_send(self, window_bytes: int) -> bool:
        if self.probing:
            return not self._sent
        return self.unanswered_bytes < window_bytes and len(self._sent) < self._messages_max
