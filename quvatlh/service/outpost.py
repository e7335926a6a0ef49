"""A daemon of role `worker`: a workplace on a seat across a WebSocket, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from quvatlh.core.model import WorkerFacts
from quvatlh.service.remote import Dial, RemoteSeat
from quvatlh.service.tree import Tree
from quvatlh.service.workplace import Craft, Workplace

STOP_S: Final = 2.0


class Outpost:
    def __init__(
        self,
        dial: Dial,
        servers: Sequence[str],
        craft: Craft,
        *,
        facts: WorkerFacts,
        directory: str,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`directory` is the id of the data directory; the worker is named as its node is in `facts`."""
        self.tree = Tree(on_fatal)
        self.seat = RemoteSeat(dial, servers, facts.node, craft.note)
        self.workplace = Workplace(self.seat, craft, worker=facts.node, directory=directory, facts=facts)
        self.seat.serve(self.workplace)

    def start(self) -> None:
        self.tree.grow("seat", self.seat.run)
        self.workplace.start(self.tree)

    async def drain(self, drain_s: float) -> None:
        await self.workplace.drain(drain_s)

    async def stop(self) -> None:
        """As Node.stop: without a drain before it, what runs is left to the next daemon."""
        await self.workplace.stop(self.tree)
        await self.tree.stop()
