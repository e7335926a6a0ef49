"""Log notices about things that strangers cause: at most one line of a kind a second, and nothing forgotten in count.

A kind is one of a few words in the code, never text from outside, so that what is held here is bounded. What is not
caused from outside needs no limit and does not go through here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from quvatlh.ports import Clock

Note = Callable[[str, dict[str, Any]], None]
"""(kind, fields): one structured line of the log. Must be quick and total."""

NOTICE_S = 1.0
"""Between two lines of one kind."""


def no_note(_kind: str, _fields: dict[str, Any]) -> None:
    """For who does not log."""


class Notices:
    """A Note in front of another. What is held back is told when the second is over: the last line of its kind, with
    the number of those before it as `suppressed`.
    """

    def __init__(self, note: Note, clock: Clock) -> None:
        self._note = note
        self._clock = clock
        self._next_s: dict[str, float] = {}
        self._held: dict[str, tuple[int, dict[str, Any]]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __call__(self, kind: str, fields: Mapping[str, Any]) -> None:
        now = self._clock.boot()
        if now >= self._next_s.get(kind, now) and kind not in self._held:
            self._next_s[kind] = now + NOTICE_S
            self._note(kind, dict(fields))
            return
        suppressed = self._held[kind][0] + 1 if kind in self._held else 0
        self._held[kind] = (suppressed, dict(fields))
        if kind not in self._timers:
            self._timers[kind] = asyncio.get_running_loop().call_later(NOTICE_S, self._release, kind)

    def close(self) -> None:
        """Tell at once what is held back."""
        for kind, timer in list(self._timers.items()):
            timer.cancel()
            self._release(kind)

    def _release(self, kind: str) -> None:
        del self._timers[kind]
        suppressed, fields = self._held.pop(kind)
        self._next_s[kind] = self._clock.boot() + NOTICE_S
        self._note(kind, {**fields, "suppressed": suppressed} if suppressed else fields)
