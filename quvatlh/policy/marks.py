"""Which policies overran lately, and which therefore are not asked. Pure: whoever asks says what time it is."""

from __future__ import annotations

import hashlib

from quvatlh.policy.bounds import MARK_S, MARKS_MAX


class Marks:
    """By the digest of the source, so that a changed policy is another one."""

    def __init__(self) -> None:
        self._overran: dict[bytes, float] = {}
        """When last. In the order of these times."""
        self._until: dict[bytes, float] = {}
        """When the mark ends. In the order of these times."""

    def overran(self, source: str, now: float) -> None:
        self._forget(now)
        key = _digest(source)
        if self._overran.pop(key, None) is None:
            self._overran[key] = now
        else:
            self._until.pop(key, None)
            self._until[key] = now + MARK_S

    def left_s(self, source: str, now: float) -> float:
        """How long it is not to be asked; 0: it may be."""
        if not self._until:
            return 0.0
        return max(0.0, self._until.get(_digest(source), now) - now)

    def _forget(self, now: float) -> None:
        """What is a minute old or over, and the oldest of what is too much."""
        for table, ends in ((self._overran, now - MARK_S), (self._until, now)):
            for key in list(table):
                if table[key] > ends and len(table) < MARKS_MAX:
                    break
                del table[key]


def _digest(source: str) -> bytes:
    return hashlib.blake2b(source.encode(errors="replace"), digest_size=16).digest()
