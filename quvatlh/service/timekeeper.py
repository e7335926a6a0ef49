"""The master's look at the voters' clocks: one that is set by more than a minute, far enough to move log time, is told.

Log time follows the clocks ahead at once, and what has become due meanwhile is late. It never follows them back: it stands
still until they have caught up, and until then nothing becomes due. Either is an entry of the log, so the stream tells it,
and the last one stays to be shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.limits import MINUTE_MS, SECOND_MS
from quvatlh.ports import Clock, Log, LogError
from quvatlh.service.door import Door
from quvatlh.service.state import State

LOOK_S: Final = 1.0
"""Between two looks; and before the first, since a new master has to hear from the others first."""
JUMP_MS: Final = MINUTE_MS
PROPOSE_S: Final = 2.0


class Timekeeper:
    """A duty of the master (`run`)."""

    def __init__(
        self,
        log: Log,
        door: Door,
        state: State,
        clock: Clock,
        node: str,
        *,
        clocks_ms: Callable[[], int] | None,
        note: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        """`clocks_ms`: what the voters' clocks show, taken together."""
        self._log = log
        self._door = door
        self._state = state
        self._clock = clock
        self._node = node
        self._clocks_ms = clocks_ms or (lambda: log.time_ms)
        self._note = note
        self._began_ms: float | None = None
        """What the clocks showed when the boot clock was at 0, by the last look."""
        self.look_s = LOOK_S

    async def run(self) -> None:
        self._began_ms = None
        while True:
            await asyncio.sleep(self.look_s)
            if self._log.acts() and self._state.is_open:
                await self._look()

    async def _look(self) -> None:
        clocks_ms = self._clocks_ms()
        began_ms = clocks_ms - self._clock.boot() * SECOND_MS
        behind_ms = max(0, self._log.time_ms - clocks_ms)
        by_ms = -self._inherited(behind_ms) if self._began_ms is None else began_ms - self._began_ms
        if abs(by_ms) > JUMP_MS and not await self._told(by_ms, behind_ms):
            return  # the next look finds it again
        self._began_ms = began_ms

    def _inherited(self, behind_ms: int) -> int:
        """At the first look: clocks that are behind what the log was stamped with were set back before, or others counted
        then. Unless that was told: log time stands still where it was."""
        last = queries.clock_jump(self._state.db)
        is_told = last is not None and last.behind_ms > 0 and last.at >= self._log.time_ms
        return 0 if is_told else behind_ms

    async def _told(self, by_ms: float, behind_ms: int) -> bool:
        by_s = round(by_ms / SECOND_MS)
        jump = c.ClockJumped(self._node, by_s * SECOND_MS, behind_ms)
        try:
            await self._door.propose(jump, PROPOSE_S)
        except LogError:
            return False
        way = "ahead" if by_s > 0 else "back"
        self._note("the clocks have jumped", way=way, by_s=abs(by_s), stands_still_s=round(behind_ms / SECOND_MS))
        return True
