"""The disk's last room is for what must still go: finishes, deletes, purges. Below it no ADD is taken.

A node looks at its own disk, and tells the others while it is below. A full node takes no ADD itself. One such follower
does not hold up the cluster, no more than one that is lost: the others' ADDs go on until it has to stop. The master takes
none from anybody while its own disk is full, or those of so many voters that the rest are no majority.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from quvatlh.ports import Clock, Log, LogError, Peers

RESERVE_BYTES: Final = 256 * 1024 * 1024
RESERVE_SHARE: Final = 0.02
LOOK_S: Final = 1.0
"""How old a look may be. The fastest ADDs fill a few hundred megabytes in it at worst."""
KIND: Final = "reserve"
TELL_S: Final = 1.0
HOLDS_S: Final = 5.0
"""What a node said of itself is true for so long unless it says it again: some words may be lost."""
FULL, ROOMY = b"\x01full", b"\x01roomy"
"""The words, each with its version before it."""

Room = Callable[[], tuple[int, int]]
"""Free and total bytes of the disk that the data directory is on."""


def reserve_of(total_bytes: int) -> int:
    """Of a disk of this size."""
    return max(RESERVE_BYTES, int(total_bytes * RESERVE_SHARE))


class Reserve:
    """Looked at when it is asked for, and no more often than LOOK_S."""

    def __init__(self, room: Room, clock: Clock) -> None:
        self._room = room
        self._clock = clock
        self._looked_at = -LOOK_S
        self._free = self._reserve = 0

    def has_room(self) -> bool:
        self._look()
        return self._free >= self._reserve

    @property
    def free_bytes(self) -> int:
        self._look()
        return self._free

    @property
    def reserve_bytes(self) -> int:
        self._look()
        return self._reserve

    def _look(self) -> None:
        now = self._clock.boot()
        if now - self._looked_at >= LOOK_S:
            self._free, total = self._room()
            self._reserve = reserve_of(total)
            self._looked_at = now


class Reserves:
    """Those of all nodes, each by its own word."""

    def __init__(self, own: Reserve, log: Log, peers: Peers, clock: Clock) -> None:
        self.own = own
        self._log = log
        self._peers = peers
        self._clock = clock
        self._told: dict[str, float] = {}
        """Node -> when it said last that it is full."""
        self._was_full = False
        peers.handle(KIND, self._heard)

    def is_full(self, node_id: str) -> bool:
        if node_id == self._log.node_id:
            return not self.own.has_room()
        told = self._told.get(node_id)
        return told is not None and self._clock.boot() - told < HOLDS_S

    def may_add(self) -> bool:
        """As the master sees it."""
        if not self.own.has_room():
            return False
        if not self._told:  # of every ADD, it is asked
            return True
        membership = self._log.membership
        voters = () if membership is None else membership.voters
        return not voters or 2 * sum(not self.is_full(voter.id) for voter in voters) > len(voters)

    async def run(self) -> None:
        while True:
            await self.tell()
            await asyncio.sleep(LOOK_S)

    async def tell(self) -> None:
        """Again and again while it is full, and once when it is not any more."""
        is_full = not self.own.has_room()
        if is_full or self._was_full:
            membership = self._log.membership
            members = () if membership is None else (*membership.voters, *membership.learners)
            others = [member.id for member in members if member.id != self._log.node_id]
            await asyncio.gather(*(self._say(other, FULL if is_full else ROOMY) for other in others))
        self._was_full = is_full

    async def _say(self, other: str, word: bytes) -> None:
        with contextlib.suppress(LogError):  # it is said again
            await self._peers.request(other, KIND, word, deadline=TELL_S)

    async def _heard(self, asker: str, body: bytes) -> bytes:
        if body == FULL:
            self._told[asker] = self._clock.boot()
        else:
            self._told.pop(asker, None)
        return b""
