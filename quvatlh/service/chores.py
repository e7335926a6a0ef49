"""What the master does so that time takes effect: due tasks promoted, late ones expired, old ones forgotten, digests taken.

Bounded pieces, as core.market names them, repeated while there is more. It looks when the next due time has come, and a
little after something changed that may have brought a nearer one; an idle cluster is looked at once a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.limits import BATCH_MAX, DIGEST_EVERY_ENTRIES
from quvatlh.core.market import came, chores_due, next_due_ms
from quvatlh.core.results import Worked
from quvatlh.core.schema import SCHEMA_VERSION
from quvatlh.ports import Clock, Log, LogError, Role
from quvatlh.service.door import Door
from quvatlh.service.state import State

PROPOSE_S: Final = 5.0
SETTLE_S: Final = 0.02
"""Between two looks, however much happens."""
LAZY_S: Final = 0.5
"""After an event that may have brought a due time (an ADD with `expires`): half of what an expiry may be late."""
IDLE_S: Final = 60.0
"""Old tasks and rows leave this late at most, where few come."""
WALKED_A_ROW: Final = 3
"""Rows that are looked at for each new one. Those that are over are then a third of a table at most, whatever its size and
however fast rows come, and each of the others is looked at three times in its life. Fewer would let it grow; of one alone
it would grow for ever."""
SWEEPS_MAX: Final = 8
"""At one look: what is due at its time does not wait for more."""
PLENTY: Final = 0.5
"""Where so much of a piece was over, more than the third that is usual, the next one follows at once."""
_URGENT: Final = frozenset({"task.retrying", "task.updated", "action.ended", "queue.changed"})


class Chores:
    """A Hearer, and a duty of the master (`run`)."""

    def __init__(self, log: Log, door: Door, state: State, clock: Clock, node: str) -> None:
        self._log = log
        self._door = door
        self._state = state
        self._clock = clock
        self._node = node
        self._wake = asyncio.Event()
        self._changed = False
        """Whether anything happened since the last look; `news` tells the first of it."""
        self._news = asyncio.Event()
        self._swept_at = 0.0
        self._swept_index = 0
        self._came: dict[str, int] = {}
        """Serials of what brings rows that will be swept, as of the last look."""
        self._owed = 0
        """Rows to be looked at for those that came."""
        self._plenty = False
        """The last piece had much that was over."""
        self.digest_every_entries = DIGEST_EVERY_ENTRIES
        self._digest_due = 0
        """Index from which on the next digest is taken."""

    # --- a Hearer ---

    def heard(self, index: int, events: Sequence[Event]) -> None:
        if events:
            self._changed = True
            self._news.set()
        if index >= self._digest_due or any(
            event.kind in _URGENT or (event.kind == "task.added" and event.state == "scheduled") for event in events
        ):
            self._wake.set()
            self._news.set()

    def role_changed(self, _role: Role) -> None:
        self._digest_due = 0

    def reset(self, _index: int) -> None:
        self._wake.set()
        self._news.set()

    # --- the duty ---

    async def run(self) -> None:
        self._came.clear()
        self._owed, self._plenty = 0, False
        await self._tell(c.Elected(self._node))
        while True:
            self._wake.clear()
            self._news.clear()
            self._changed = False
            more = await self._look()
            await asyncio.sleep(SETTLE_S)
            if not more:
                await self._rest()

    async def _rest(self) -> None:
        """Until something is due or urgent; half a second at most once anything has changed."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._next_s()
        while not self._wake.is_set() and loop.time() < ends:
            changed = self._changed
            try:
                async with asyncio.timeout(min(ends - loop.time(), LAZY_S if changed else IDLE_S)):
                    await (self._wake if changed else self._news).wait()
            except TimeoutError:
                if changed:
                    return

    def _next_s(self) -> float:
        if not self._state.is_open:
            return LAZY_S
        due = next_due_ms(self._state.db)
        return IDLE_S if due is None else min(IDLE_S, max(0.0, (due - self._now_ms()) / 1000))

    async def _look(self) -> bool:
        """Whether there is more to do at once."""
        if not self._state.is_open:
            return False
        for command in chores_due(self._state.db, self._now_ms()):
            while _more(await self._tell(command)):
                pass
        if self._state.applied_index >= self._digest_due:
            await self._digest()
        return await self._sweep()

    async def _sweep(self) -> bool:
        """As much as has come, as much as there is, and a piece now and then; whether that was not all."""
        if not self._state.is_open:
            return False
        self._owed += WALKED_A_ROW * came(self._state.db, self._came)
        boot = self._clock.boot()
        due = boot - self._swept_at >= IDLE_S and self._state.applied_index > self._swept_index + 1
        for _ in range(SWEEPS_MAX):
            if not (due or self._plenty or self._owed >= BATCH_MAX):
                return False
            worked = await self._tell(c.Sweep(BATCH_MAX))
            if worked is None:
                return False
            self._swept_at, self._swept_index, due = boot, self._state.applied_index, False
            self._owed = max(0, self._owed - BATCH_MAX)
            self._plenty = worked.done >= BATCH_MAX * PLENTY
        return True

    async def _digest(self) -> None:
        """What this node had at the last check goes along, and every other compares."""
        db = self._state.db
        row = db.execute("SELECT at_index, value FROM own_digest").fetchone()
        last, value = (int(row[0]), bytes(row[1])) if row is not None else (0, b"")
        if self._state.applied_index - last >= self.digest_every_entries:
            await self._tell(c.CheckDigest(last, value, SCHEMA_VERSION))
            last = self._state.applied_index
        self._digest_due = last + self.digest_every_entries

    async def _tell(self, command: c.AnyCommand) -> Worked | None:
        """Not done is done later: who is not master any more stops here anyway."""
        try:
            written = await self._door.propose(command, PROPOSE_S)
        except LogError:
            await asyncio.sleep(SETTLE_S)
            return None
        return written.answer if isinstance(written.answer, Worked) else None

    def _now_ms(self) -> int:
        return self._log.time_ms


def _more(worked: Worked | None) -> bool:
    return worked is not None and worked.more
