"""A node of the world of tasks: all that a daemon starts but HTTP, on a simulated machine."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from quvatlh.codec import Values
from quvatlh.core.machine import Machine
from quvatlh.core.memory import Memory
from quvatlh.ports import LogError, MachineFactory
from quvatlh.raft.log import RaftLog
from quvatlh.service.node import Node, Options, World
from quvatlh.service.state import State
from quvatlh.service.status import LogFacts
from tests.sim.box import DATA, Box
from tests.sim.clock import SimEntropy
from tests.sim.disk import DiskView
from tests.sim.table.executor import Host, SimExecutor
from tests.sim.table.hands import Ground
from tests.sim.table.policies import SimJudge
from tests.sim.table.readers import LaneReaders
from tests.sim.table.statefile import CommitImages, SimStateFile

T = TypeVar("T")
CODEC: Final = Values()
TOKEN: Final = "the token of the simulation"
EVENTS_MAX: Final = 200
"""Readers of the stream are to fall behind now and then."""
DRAIN_S: Final = 1.0
HAND_OVER_S: Final = 2.0


class TableBox(Box[Machine, CommitImages]):
    def __init__(self, *args: Any, ground: Ground, slots: int, tags: tuple[str, ...]) -> None:
        super().__init__(*args)
        self.ground = ground
        self.hosts: list[Host] = []
        """Machines that had this box's name, the last one now."""
        self._new_host()
        self.slots = slots
        self.tags = tags
        self.node: Node | None = None
        self._state: State | None = None
        self._wish: asyncio.Event | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        """Of clients, under way."""

    def forget(self) -> None:
        super().forget()
        self.node = self._state = self._wish = None
        self._calls = set()

    def crash(self, *, power: bool) -> None:
        """The executor and its actions outlive a kill of the daemon, and nothing outlives the machine."""
        if power and not self.dead:
            self.host.crash(power=True)
        super().crash(power=power)

    def wipe(self, *, leave: bool = False) -> None:
        """Or a new machine, while on the old one actions go on for as long as they may."""
        if not leave and self.rng.random() < 0.5:
            self.host.crash(power=False)
        self._new_host()
        super().wipe()

    @property
    def host(self) -> Host:
        return self.hosts[-1]

    def _new_host(self) -> None:
        rng = random.Random(self.rng.random())
        self.hosts.append(Host(self.name, self._loop, self.clock, self.ground, rng))

    def serve(self, job: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = super().serve(job)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    def terminate(self) -> None:
        """SIGTERM."""
        if self._wish is not None and self.process is not None:
            self.say("asked to stop")
            self.process.call(self._wish.set)

    def _no_images(self) -> CommitImages:
        return CommitImages()

    @property
    def memory(self) -> Memory:
        """What it knows of its tables."""
        assert self._state is not None
        return self._state.memory

    def _machines(self, disk: DiskView) -> MachineFactory:
        images = self.images
        state = self._state = State(CODEC, lambda path, schema: SimStateFile(path, schema, disk, images))

        def machines(directory: str) -> Machine:
            self.machine = state.open(directory)
            return self.machine

        return machines

    async def _serve(
        self, log: RaftLog, disk: DiskView, fatal: Callable[[BaseException], None], ended: asyncio.Future[None]
    ) -> None:
        state, process = self._state, self.process
        assert state is not None
        assert process is not None
        executor = SimExecutor(self.host, process, self.name, self.clock, random.Random(self.rng.random()))
        entropy = SimEntropy(self.rng.random())
        facts = LogFacts(
            lambda: log.committed_index,
            lambda: log.waiting_for,
            log.progress,
            own_entry=lambda: log.own_entry,
            clocks_ms=lambda: log.clocks_ms,
        )
        judge = SimJudge(self.clock, random.Random(self.rng.random()))
        world = World(
            log, log, executor, judge, self.clock, entropy, lambda: (1 << 40, 1 << 41), facts,
            note=lambda text, **facts: self.say(f"{text} {facts}"),
            readers=lambda state: LaneReaders(state, disk.lane),
        )  # fmt: skip
        options = Options(
            self.name, DATA, self.slots, tags=self.tags, drain_s=DRAIN_S, token=TOKEN, events_max=EVENTS_MAX
        )
        node = Node(options, world, state, CODEC, on_fatal=fatal)
        node.start()
        self.node = node
        self._wish = asyncio.Event()
        wish = asyncio.ensure_future(self._wish.wait())
        either: set[asyncio.Future[Any]] = {wish, ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
        await self._stop(log, node)

    async def _stop(self, log: RaftLog, node: Node) -> None:
        """As the daemon does; where it cannot drain, its executor is left to the next one."""
        membership = log.membership
        if log.acts() and membership is not None and len(membership.voters) > 1:
            with contextlib.suppress(LogError):
                await log.transfer(deadline=HAND_OVER_S)
        if self.rng.random() < 0.7:
            await node.drain()
        self.node = None
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await node.stop()
        await log.stop()
        self.forget()
        self.say("stopped")
