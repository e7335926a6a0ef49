"""The disk's last room is for what must still go: finishes, deletes, purges. Below it no ADD is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quvatlh.ports import Clock

RESERVE_BYTES: Final = 256 * 1024 * 1024
RESERVE_SHARE: Final = 0.02
LOOK_S: Final = 1.0
"""How old a look may be. The fastest ADDs fill a few hundred megabytes in it at worst."""

Room = Callable[[], tuple[int, int]]
"""Free and total bytes of the disk that the data directory is on."""


class Reserve:
    """Looked at when it is asked for, and no more often than LOOK_S."""

    def __init__(self, room: Room, clock: Clock) -> None:
        self._room = room
        self._clock = clock
        self._looked_at = -LOOK_S
        self._has_room = True

    def has_room(self) -> bool:
        now = self._clock.boot()
        if now - self._looked_at >= LOOK_S:
            free, total = self._room()
            self._looked_at = now
            self._has_room = free >= max(RESERVE_BYTES, int(total * RESERVE_SHARE))
        return self._has_room
