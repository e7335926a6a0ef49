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
from quvatlh.core.limits import DIGEST_EVERY_ENTRIES
from quvatlh.core.market import chores_due, next_due_ms
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
"""Old tasks and rows leave this late at most."""
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
        await self._tell(c.Elected(self._node))
        while True:
            self._wake.clear()
            self._news.clear()
            self._changed = False
            await self._look()
            await asyncio.sleep(SETTLE_S)
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

    async def _look(self) -> None:
        if not self._state.is_open:
            return
        for command in chores_due(self._state.db, self._now_ms()):
            more = True
            while more:
                more = await self._tell(command)
        if self._state.applied_index >= self._digest_due:
            await self._digest()
        boot = self._clock.boot()
        if boot - self._swept_at >= IDLE_S and self._state.applied_index > self._swept_index + 1:
            await self._tell(c.Sweep())
            self._swept_at, self._swept_index = boot, self._state.applied_index

    async def _digest(self) -> None:
        """What this node had at the last check goes along, and every other compares."""
        db = self._state.db
        row = db.execute("SELECT at_index, value FROM own_digest").fetchone()
        last, value = (int(row[0]), bytes(row[1])) if row is not None else (0, b"")
        if self._state.applied_index - last >= self.digest_every_entries:
            await self._tell(c.CheckDigest(last, value, SCHEMA_VERSION))
            last = self._state.applied_index
        self._digest_due = last + self.digest_every_entries

    async def _tell(self, command: c.AnyCommand) -> bool:
        """Whether there is more of it at once. Not done is done later: who is not master any more stops here anyway."""
        try:
            written = await self._door.propose(command, PROPOSE_S)
        except LogError:
            await asyncio.sleep(SETTLE_S)
            return False
        return isinstance(written.answer, Worked) and written.answer.more

    def _now_ms(self) -> int:
        return self._log.time_ms
