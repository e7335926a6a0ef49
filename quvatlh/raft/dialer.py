"""Whom to dial and when: one task an address, resting between attempts, idle while its node has a link.

Which node lives at an address is learned by dialling it, or from what a node that dialled us announces, and believed
while that node has the link that it was learned by; after that the address is dialled again, which costs its present
owner no link. What a connection is and whether it is kept is not here.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from quvatlh.ports import Clock, Entropy
from quvatlh.raft.notices import Note
from quvatlh.raft.settings import Settings


@dataclass(frozen=True, slots=True)
class Dialled:
    """What came of one attempt."""

    node_id: str | None = None
    """Who answered; our own id when it was this very process."""
    fault: str | None = None
    """Why there is no link, where that is worth a line in the log."""


class Dialer:
    def __init__(
        self,
        *,
        own_id: str,
        clock: Clock,
        entropy: Entropy,
        settings: Settings,
        is_linked: Callable[[str], bool],
        dial: Callable[[str, str | None], Awaitable[Dialled]],
        note: Note,
    ) -> None:
        """`is_linked(node id)`: whether there is nothing to gain there; of our own id it is true. `dial(address, node id
        expected there)` never raises but when cancelled.
        """
        self._own_id = own_id
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._is_linked = is_linked
        self._dial = dial
        self._note = note
        self._node_at: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._addresses: tuple[str, ...] = ()
        self._change = asyncio.Event()
        self._running = False

    def start(self) -> None:
        self._running = True
        self._start_missing()

    async def stop(self) -> None:
        self._running = False
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Dial these from now on. When they are others than before, what was learned of addresses without a link is
        forgotten, our own too.
        """
        wanted = tuple(sorted(set(addresses)))
        if wanted == self._addresses:
            return
        self._addresses = wanted
        self._node_at = {
            at: node_id for at, node_id in self._node_at.items() if node_id != self._own_id and self._is_linked(node_id)
        }
        for address in list(self._tasks):
            if address not in wanted:
                self._tasks.pop(address).cancel()
        self._start_missing()
        self.changed()

    def linked(self, address: str, node_id: str) -> None:
        """A link came up, to the node at that address. What else was taken for an address of it is dialled again."""
        known = self._node_at.get(address)
        self._node_at = {
            at: other
            for at, other in self._node_at.items()
            if other != node_id and (at in self._addresses or self._is_linked(other))
        }
        if known is None or known == node_id or not self._is_linked(known):
            self._node_at[address] = node_id
        self.changed()

    def changed(self) -> None:
        """Look again who is to be dialled."""
        self._change.set()
        self._change.clear()

    def _start_missing(self) -> None:
        if not self._running:
            return
        for address in self._addresses:
            if address not in self._tasks:
                task = asyncio.create_task(self._keep(address), name=f"dial {address}")
                self._tasks[address] = task
                task.add_done_callback(functools.partial(self._forget, address))

    def _forget(self, address: str, done: asyncio.Task[None]) -> None:
        """Let go of a task that ended; what it raised, a bug, is then seen by the loop."""
        if self._tasks.get(address) is done:
            del self._tasks[address]

    def _idle(self, address: str) -> bool:
        node_id = self._node_at.get(address)
        return node_id is not None and self._is_linked(node_id)

    async def _keep(self, address: str) -> None:
        rest_s = self._settings.redial_min_s
        fault: str | None = None
        while True:
            if self._idle(address):
                since_s = self._clock.boot()
                while self._idle(address):
                    await self._change.wait()
                if self._clock.boot() - since_s >= self._settings.redial_max_s:
                    rest_s = self._settings.redial_min_s
            else:
                dialled = await self._dial(address, self._node_at.get(address))
                if dialled.node_id is not None:
                    self._node_at[address] = dialled.node_id
                if dialled.fault is not None and dialled.fault != fault:
                    self._note("dial_failed", {"address": address, "reason": dialled.fault})
                fault = dialled.fault
                if self._idle(address):
                    continue
            await asyncio.sleep(rest_s * (0.5 + 0.5 * self._entropy.random()))
            rest_s = min(2 * rest_s, self._settings.redial_max_s)
