"""What the cluster knows of this node, kept as the node was started: its name and its addresses are data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from quvatlh.ports import LogError, Member, Role
from quvatlh.service import asks
from quvatlh.service.door import Door, Refusal

WRITE_S: Final = 5.0
AGAIN_S: Final = 5.0
"""Another change of the membership may be under way, or the address be another node's for a while yet."""


class OwnEntry:
    def __init__(self, door: Door, wanted: Callable[[], Member | None], note: Callable[..., None]) -> None:
        """`wanted`: this node as it should be known; None where it is."""
        self._door = door
        self._wanted = wanted
        self._note = note
        self._wake = asyncio.Event()

    def role_changed(self, role: Role) -> None:
        if role.master is not None:
            self._wake.set()

    async def run(self) -> None:
        told = ""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (member := self._wanted()) is not None:
                wish = asks.AddMember(member.id, member.name, member.peer, member.http)
                try:
                    await self._door.write(wish, WRITE_S, self._door.request_id())
                except (LogError, Refusal) as error:
                    if str(error) != told:
                        told = str(error)
                        self._note("the cluster knows this node by older addresses", why=told)
                    await asyncio.sleep(AGAIN_S)
                else:
                    self._note("the cluster knows this node anew", name=member.name, peer=member.peer, http=member.http)
