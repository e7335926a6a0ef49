"""One run of the simulation from one seed: a cluster, its clients, and what befalls them; then peace, and judgement.

Here is what the worlds have in common: the cluster and its life. What clients do, and what must hold of it, each world says.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from quvatlh.ports import Member, Unknown
from quvatlh.raft.settings import Settings
from tests.sim.adversary import adversary
from tests.sim.box import AnyBox
from tests.sim.judge import Judge, Violation
from tests.sim.lane import Pace
from tests.sim.loop import SimLoop
from tests.sim.nemesis import Nemesis
from tests.sim.net import Link, NetWorld
from tests.sim.observe import observed
from tests.sim.trace import Trace

B = TypeVar("B", bound=AnyBox)
T = TypeVar("T")

SETTLE_S = 30.0
"""After healing everything has to be well within this."""
FOUND_S = 20.0
"""A cluster that was started whole has to be founded within this."""
NO_ANSWER_S = 3.0
"""A client waits so much longer than its deadline."""
LATENCIES_S = [(0.0002, 0.002), (0.0002, 0.002), (0.002, 0.02), (0.001, 0.08)]
PACES = [Pace(), Pace(), Pace(done_s=(0.002, 0.02)), Pace(start_s=(0.0, 0.01), done_s=(0.01, 0.1))]

SIM_SETTINGS = Settings(
    segment_bytes=2048,
    keep_bytes=2048,
    cache_bytes=512,
    checkpoint_bytes=3000,
    checkpoint_s=3.0,
    append_bytes_max=512,
    append_window_bytes=1024,
    snapshot_chunk_bytes=300,
    snapshot_stall_s=3.0,
    pin_s=10.0,
    slice_s=0.002,
)


@dataclass
class Outcome:
    """What a run was, for the figures."""

    seed: int
    nodes: int
    steps: int
    trace: str
    figures: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)


class Run(ABC, Generic[B]):
    """`play` does all of it; what fails raises, with the trace of the last moments in `story`."""

    settings: ClassVar[Settings] = SIM_SETTINGS
    append_bytes_max: ClassVar[tuple[int, ...]] = (64, 512)
    judge: Judge

    def __init__(self, seed: int, seconds: float = 60.0, trace_to: Path | None = None) -> None:
        self.seed = seed
        self.seconds = seconds
        self.rng = random.Random(seed)
        self.loop = SimLoop()
        self.trace = Trace(trace_to)
        latency_s, self.pace = self.rng.choice(LATENCIES_S), self.rng.choice(PACES)
        self.own_settings = replace(self.settings, append_bytes_max=self.rng.choice(self.append_bytes_max))
        self.net = NetWorld(self.loop, random.Random(self.rng.random()), Link(latency_s=latency_s))
        self.net.give_up_s = 5.0
        self._prepare()
        self.count = self.rng.choice([1, 2, 3, 3, 3, 3, 4, 5, 5])
        spares = 1 if self.rng.random() < 0.4 else 0
        boxes = [self._slow_as_all(self._box(f"n{i + 1}")) for i in range(self.count + spares)]
        founders = tuple(b.address for b in boxes[: self.count])
        for box in boxes[: self.count]:
            box.peers = founders
        for box in boxes[self.count :]:
            box.peers = (*founders, box.address)
        self.boxes = boxes
        self.judge.boxes = boxes
        self.story = ""
        """The last lines of the trace, as they were when the run ended."""
        self.at_peace = False

    # --- what a world says ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _prepare(self) -> None:
        """Sets `judge`; before there are boxes."""

    @abstractmethod
    def _box(self, name: str) -> B: ...

    @abstractmethod
    def _clients(self) -> list[Coroutine[Any, Any, None]]:
        """They end by themselves once `at_peace`."""

    @abstractmethod
    async def _finish(self) -> None:
        """All is well again and has settled, and the clients have gone: the last judgement."""

    @abstractmethod
    def _figures(self) -> Mapping[str, int]: ...

    def _nemesis(self, rng: random.Random) -> Nemesis:
        return Nemesis(self.loop, self.net, rng, self.boxes, self.count)

    # --- the story ------------------------------------------------------------------------------------------------------

    def _slow_as_all(self, box: B) -> B:
        box.disk.pace = replace(self.pace)
        return box

    def play(self) -> Outcome:
        asyncio.set_event_loop(None)
        self.loop.after_step = self.judge.step
        again_chance, low_chance = self.rng.choice([0.0, 0.02, 0.1]), self.rng.choice([0.0, 0.02, 0.1])
        chance = random.Random(self.rng.random())
        with observed(self.judge), adversary(chance, again_chance, low_chance):
            try:
                self.loop.run_until_complete(self._story())
            finally:
                self.story = self.trace.last(200)
                self.trace.close()
                self.loop.after_step = None
                self.loop.close()
        figures = {
            "steps": self.loop.steps,
            "entries": self.judge.top,
            **self._figures(),
            "masters": len(self.judge.masters),
            "snapshots": self.judge.events.get("snapshot in force", 0),
        }
        faults = dict(sorted(self.nemesis.counts.items()))
        return Outcome(self.seed, self.count, self.loop.steps, self.trace.hash(), figures, faults)

    async def _story(self) -> None:
        self.nemesis = self._nemesis(random.Random(self.rng.random()))
        self.judge.on_applied = self.nemesis.follower_applied
        for box in self.boxes:
            box.start()
        if self.rng.random() < 0.7:
            await self._until(lambda: self._master() is not None, FOUND_S, "no cluster was founded")
        clients = [asyncio.ensure_future(client) for client in self._clients()]
        await self.nemesis.rage(self.seconds)
        await self.nemesis.heal()
        finishing = asyncio.ensure_future(self.nemesis.finish())
        await self._settle()
        await finishing
        self.at_peace = True
        await asyncio.gather(*clients)
        await self._finish()

    # --- for the clients of a world --------------------------------------------------------------------------------

    async def within(self, box: AnyBox, job: Coroutine[Any, Any, T], deadline: float) -> T:
        """Run it inside the box's process; a process that dies answers nothing."""
        assert box.process is not None
        task = box.serve(job)
        done, _ = await asyncio.wait([task], timeout=deadline + NO_ANSWER_S)
        if not done:
            if box.process.alive:
                task.cancel()
            raise Unknown("no answer")
        if task.cancelled():
            raise Unknown("hung up")
        return task.result()

    # --- peace ------------------------------------------------------------------------------------------------------

    def _master(self) -> B | None:
        return next((b for b in self.boxes if b.running and b.log is not None and b.log.acts()), None)

    def _members(self) -> list[B]:
        """The boxes whose nodes stand in the master's membership."""
        master = self._master()
        membership = master.log.membership if master is not None and master.log is not None else None
        if membership is None:
            return []
        return [b for b in self.boxes if b.log is not None and membership.get(b.log.node_id) is not None]

    def _settled(self) -> bool:
        master = self._master()
        if master is None or master.log is None or master.log.membership is None:
            return False
        members = self._members()
        known = len(master.log.membership.voters) + len(master.log.membership.learners)
        top = master.log.applied_index
        return (
            not self.nemesis.unfinished
            and len(members) == known
            and all(b.log is not None and b.log.applied_index >= top - 5 for b in members)
        )

    async def _settle(self) -> None:
        await self._until(self._settled, SETTLE_S, "the cluster did not settle")

    async def _until(self, holds: Any, seconds: float, otherwise: str) -> None:
        ends = self.loop.now_s + seconds
        while not holds():
            if self.loop.now_s > ends:
                raise Violation(f"{otherwise} within {seconds:g} s: {self._picture()}")
            await asyncio.sleep(0.05)

    def _picture(self) -> str:
        rows = []
        for box in self.boxes:
            log = box.log
            if log is None:
                rows.append(f"{box.name} is down")
                continue
            role, span = log.role, log.log_span()
            rows.append(
                f"{box.name}={log.node_id[:6]} term {role.term} master {str(role.master)[:6]} acting {role.acting} "
                f"applied {log.applied_index} log {span[0]}..{span[1]} {log.waiting_for}"
            )
        return "; ".join(rows)


def member_of(box: AnyBox) -> Member:
    assert box.log is not None
    return Member(box.log.node_id, box.name, box.address)
