"""Readers of the stream of events: each sees every public event once and in order, whatever node it follows."""

from __future__ import annotations

import asyncio
import bisect
import random
from typing import Final

from quvatlh.service.node import Node
from quvatlh.service.pool import Call, Position, Problem, Rejected
from tests.sim.judge import Violation
from tests.sim.table.box import TableBox
from tests.sim.table.clients import SOMEBODY, Cluster

PAUSE_S: Final = 0.2
STAY_S: Final = 5.0
"""On average."""


class Follower:
    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._place: Position | None = None
        self._next = 0
        """Of the stream, as the judge has it: what this one is to see."""
        self.seen = 0
        self.gaps = 0
        """How often it was told that it had fallen behind."""

    def is_up_to_date(self) -> bool:
        return self._place is None or self._next == len(self._cluster.judge.stream)

    async def run(self) -> None:
        """From node to node, as they come and go, for ever."""
        while True:
            boxes = [
                box for box in self._cluster.boxes if box.node is not None and not box.dead and box.machine is not None
            ]
            if boxes:
                box = self._rng.choice(boxes)
                assert box.node is not None
                await self._stay(box, box.serve(self._follow(box, box.node)))
            await asyncio.sleep(PAUSE_S)

    async def _stay(self, box: TableBox, reading: asyncio.Task[None]) -> None:
        """Until the node goes, or he does."""
        await asyncio.wait([reading], timeout=self._rng.expovariate(1 / STAY_S))
        if not box.dead:
            reading.cancel()
            await asyncio.wait([reading], timeout=PAUSE_S)
            if reading.done() and not reading.cancelled():
                reading.result()

    async def _follow(self, box: TableBox, node: Node) -> None:
        try:
            async for event in await node.pool.events(Call(SOMEBODY), self._place):
                self._see(box, Position(event.index, event.n), event.kind, str(event.data["id"]))
        except Rejected:
            self._place = None
            self.gaps += 1
        except Problem:
            pass

    def _see(self, box: TableBox, place: Position, kind: str, name: str) -> None:
        stream = self._cluster.judge.stream
        if self._place is None:
            self._next = bisect.bisect_left(stream, place, key=lambda each: each[0])
        expected = stream[self._next]
        if expected != (place, kind, name):
            raise Violation(
                f"{box.name} tells {kind} of {name} at {place}; what comes after {self._place} is {expected}"
            )
        self._place = place
        self._next += 1
        self.seen += 1
