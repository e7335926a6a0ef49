"""Whole nodes on the simulation's loop, disks and network, for tests that need more than one engine.

    def test_...() -> None:
        async def story(town: Town) -> None:
            master = await town.founded()
            ...
        play(story, nodes=3)

Time is virtual, so a test may wait for seconds; what it waits for is awaited, not slept for, wherever it can be seen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgpack

from quvatlh.ports import Member
from quvatlh.raft.engine import Engine
from quvatlh.raft.log import RaftLog
from quvatlh.raft.settings import Settings
from tests.sim.box import AnyBox, Watch
from tests.sim.lane import Pace
from tests.sim.loop import SimLoop
from tests.sim.net import Link, NetWorld
from tests.sim.registers.box import RegisterBox as Box
from tests.sim.registers.machine import SimMachine
from tests.sim.trace import Trace

T = TypeVar("T")

PATIENCE_S = 90.0
LOOK_S = 0.005
SOON_S = 5.0
FAST_DISK = Pace(start_s=(0.0, 0.0), done_s=(0.0002, 0.0005))


class Story(Watch):
    """What the nodes said of themselves."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        """(node, event)."""
        self.entries: dict[str, list[Any]] = {}

    def noted(self, box: AnyBox, event: str) -> None:
        self.notes.append((box.name, event))

    def applied(self, box: AnyBox, entry: Any, results: Any) -> None:
        self.entries.setdefault(box.name, []).append(entry)


class Town:
    """Machines n1, n2, ... on one network."""

    def __init__(self, loop: SimLoop, nodes: int, spares: int, settings: Settings) -> None:
        self.loop = loop
        self.net = NetWorld(loop, random.Random(1), Link(latency_s=(0.0005, 0.001), spike_chance=0.0))
        self.net.give_up_s = 5.0
        self.story = Story()
        self.settings = settings
        self.boxes = [self.box(f"n{number + 1}") for number in range(nodes + spares)]
        founders = tuple(box.address for box in self.boxes[:nodes])
        for box in self.boxes[:nodes]:
            box.peers = founders
        for box in self.boxes[nodes:]:
            box.peers = (*founders, box.address)

    def box(self, name: str) -> Box:
        rng = random.Random(name)
        box = Box(name, self.loop, self.net, rng, Trace(None), self.settings, self.story)
        box.clock.rate = 1.0
        box.disk.pace = Pace(start_s=FAST_DISK.start_s, done_s=FAST_DISK.done_s)
        return box

    async def until(self, holds: Callable[[], T], within_s: float = PATIENCE_S, look_s: float = LOOK_S) -> T:
        """What it says once it is true."""
        ends = self.loop.now_s + within_s
        while not (found := holds()):
            assert self.loop.now_s < ends, "it did not come about"
            await asyncio.sleep(look_s)
        return found

    async def founded(self, *boxes: Box) -> Box:
        """Start all, and wait for a master."""
        for box in boxes or self.boxes:
            box.start()
        return await self.master()

    def masters(self) -> list[Box]:
        return [box for box in self.boxes if box.running and box.log is not None and box.log.acts()]

    async def master(self, within_s: float = PATIENCE_S, *, other_than: Box | None = None) -> Box:
        found = await self.until(lambda: [box for box in self.masters() if box is not other_than], within_s)
        return found[0]

    def others(self, box: Box) -> list[Box]:
        return [other for other in self.boxes if other is not box]

    def isolate(self, box: Box) -> None:
        self.net.partition([box.name], [other.name for other in self.others(box)])

    def power_failure(self, box: Box) -> None:
        box.crash(power=True)

    async def at(self, box: Box, job: Callable[[RaftLog], Awaitable[T]]) -> T:
        """Ask the node from inside its process."""
        assert box.process is not None
        log = log_of(box)

        async def ask() -> T:
            return await job(log)

        return await box.process.spawn(ask())

    async def write(self, box: Box, value: str, deadline: float = SOON_S) -> int:
        """Add it to the set; the index."""
        applied = await self.at(box, lambda log: log.propose(add(value), deadline=deadline))
        return applied.index

    async def all_hold(self, *values: str, boxes: list[Box] | None = None, within_s: float = PATIENCE_S) -> None:
        await self.until(lambda: all(set(values) <= set(held(box)) for box in boxes or self.boxes), within_s)

    def noted(self, box: Box) -> list[str]:
        return [event for name, event in self.story.notes if name == box.name]


def add(value: str) -> bytes:
    """A write for the simulation's machine: its own request, its own value."""
    return bytes(msgpack.packb([value, "add", "t", value]))


def held(box: Box) -> list[str]:
    """The values in this node's state."""
    return [] if box.machine is None else [str(value) for value in box.machine.state.sets.get("t", [])]


def log_of(box: Box) -> RaftLog:
    assert box.log is not None
    return box.log


def engine_of(box: Box) -> Engine:
    engine = log_of(box)._engine
    assert engine is not None
    return engine


def machine_of(box: Box) -> SimMachine:
    assert box.machine is not None
    return box.machine


def member(box: Box) -> Member:
    return Member(log_of(box).node_id, box.name, box.address)


def play(
    story: Callable[[Town], Coroutine[Any, Any, T]],
    *,
    nodes: int = 3,
    spares: int = 0,
    settings: Settings | None = None,
) -> T:
    loop = SimLoop()
    try:
        return loop.run_until_complete(story(Town(loop, nodes, spares, settings or Settings())))
    finally:
        loop.close()
