"""One run of the simulation from one seed: a cluster, its clients, and what befalls them; then peace, and judgement."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgpack

from quvatlh.ports import Member, Unavailable, Unknown
from quvatlh.raft.settings import Settings
from tests.sim.adversary import adversary
from tests.sim.box import Box
from tests.sim.history import History
from tests.sim.judge import Judge, Violation
from tests.sim.lane import Pace
from tests.sim.loop import SimLoop
from tests.sim.nemesis import Nemesis
from tests.sim.net import Link, NetWorld
from tests.sim.observe import observed
from tests.sim.trace import Trace

SETTLE_S = 30.0
"""After healing everything has to be well within this."""
FOUND_S = 20.0
"""A cluster that was started whole has to be founded within this."""
CLIENTS = 3
LATENCIES_S = [(0.0002, 0.002), (0.0002, 0.002), (0.002, 0.02), (0.001, 0.08)]
PACES = [Pace(), Pace(), Pace(done_s=(0.002, 0.02)), Pace(start_s=(0.0, 0.01), done_s=(0.01, 0.1))]
REGISTERS = ("r", "s")
SETS = ("t",)

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
    entries: int
    acknowledged: int
    refused: int
    unknown: int
    masters: int
    snapshots: int
    faults: dict[str, int] = field(default_factory=dict)


class Run:
    """`play` does all of it; what fails raises, with the trace of the last moments in `story`."""

    def __init__(self, seed: int, seconds: float = 60.0, trace_to: Path | None = None) -> None:
        self.seed = seed
        self.seconds = seconds
        self.rng = random.Random(seed)
        self.loop = SimLoop()
        self.trace = Trace(trace_to)
        latency_s, self.pace = self.rng.choice(LATENCIES_S), self.rng.choice(PACES)
        self.settings = replace(SIM_SETTINGS, append_bytes_max=self.rng.choice([64, 512]))
        self.net = NetWorld(self.loop, random.Random(self.rng.random()), Link(latency_s=latency_s))
        self.net.give_up_s = 5.0
        self.judge = Judge()
        self.history = History()
        self.count = self.rng.choice([1, 2, 3, 3, 3, 3, 4, 5, 5])
        spares = 1 if self.rng.random() < 0.4 else 0
        self.boxes = [self._box(f"n{i + 1}") for i in range(self.count + spares)]
        founders = tuple(b.address for b in self.boxes[: self.count])
        for box in self.boxes[: self.count]:
            box.peers = founders
        for box in self.boxes[self.count :]:
            box.peers = (*founders, box.address)
        self.judge.boxes = self.boxes
        self.story = ""
        """The last lines of the trace, as they were when the run ended."""
        self.unknown = 0
        self.at_peace = False

    def _box(self, name: str) -> Box:
        box = Box(name, self.loop, self.net, random.Random(self.rng.random()), self.trace, self.settings, self.judge)
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
        nemesis = self.nemesis.counts
        return Outcome(
            seed=self.seed,
            nodes=self.count,
            steps=self.loop.steps,
            trace=self.trace.hash(),
            entries=self.judge.top,
            acknowledged=len(self.judge.acked),
            refused=len(self.judge.refused),
            unknown=self.unknown,
            masters=len(self.judge.masters),
            snapshots=self.judge.events.get("snapshot in force", 0),
            faults=dict(sorted(nemesis.items())),
        )

    async def _story(self) -> None:
        self.nemesis = Nemesis(self.loop, self.net, random.Random(self.rng.random()), self.boxes, self.count)
        self.judge.on_applied = self.nemesis.follower_applied
        for box in self.boxes:
            box.start()
        if self.rng.random() < 0.7:
            await self._until(lambda: self._master() is not None, FOUND_S, "no cluster was founded")
        clients = [asyncio.ensure_future(self._client(i)) for i in range(CLIENTS)]
        await self.nemesis.rage(self.seconds)
        await self.nemesis.heal()
        finishing = asyncio.ensure_future(self.nemesis.finish())
        await self._settle()
        await finishing
        self.at_peace = True
        await asyncio.gather(*clients)
        await self._final_reads()
        self.judge.finish(self._members())
        self.history.judge()

    # --- clients ----------------------------------------------------------------------------------------------------

    async def _client(self, number: int) -> None:
        rng = random.Random(self.rng.random())
        serial = 0
        while not self.at_peace:
            await asyncio.sleep(rng.expovariate(1 / 0.15))
            box = rng.choice(self.boxes)
            if box.dead or box.log is None or box.log.membership is None:
                continue
            serial += 1
            request = f"c{number}-{serial}"
            deadline = rng.choice([0.1, 0.5, 2.0, 5.0])
            if rng.random() < 0.25:
                await self._read(box, number, rng.choice(REGISTERS + SETS), deadline)
                continue
            writes = []
            for part in range(rng.choice([1, 1, 1, 3, 8])):
                verb = self._verb(rng, number * 1_000_000 + serial * 10 + part)
                writes.append(self._write(box, number, f"{request}-{part}", verb, deadline))
            await asyncio.gather(*writes)

    def _verb(self, rng: random.Random, value: int) -> list[Any]:
        fate = rng.random()
        if fate < 0.4:
            return ["write", rng.choice(REGISTERS), value]
        if fate < 0.6:
            return ["cas", rng.choice(REGISTERS), self.history.recent(rng), value]
        return ["add", rng.choice(SETS), value]

    async def _write(self, box: Box, client: int, request: str, verb: list[Any], deadline: float) -> None:
        item = msgpack.packb([request, *verb])
        op = self.history.invoke(client, verb, self.loop.now_s)
        try:
            _, result = await self._within(box, box.write("write", item, deadline), deadline)
        except Unavailable:
            self.judge.refused.add(request)
            self.history.failed(op)
        except Unknown:
            self.unknown += 1
            self.history.unknown(op)
        else:
            self.judge.acked[request] = result
            self.nemesis.acknowledged()
            self.history.done(op, result, self.loop.now_s)

    async def _read(self, box: Box, client: int, name: str, deadline: float) -> None:
        op = self.history.invoke(client, ["read", name], self.loop.now_s)
        try:
            machine = await self._within(box, box.read(deadline), deadline)
        except (Unavailable, Unknown):
            self.history.failed(op)
            return
        state = machine.state
        value = sorted(state.sets.get(name, [])) if name in SETS else state.registers.get(name)
        self.history.done(op, value, self.loop.now_s)

    async def _within(self, box: Box, job: Any, deadline: float) -> Any:
        """Run it inside the box's process; a process that dies answers nothing."""
        assert box.process is not None
        task = box.process.spawn(job)
        done, _ = await asyncio.wait([task], timeout=deadline + 3.0)
        if not done:
            if box.process.alive:
                task.cancel()
            raise Unknown("no answer")
        return task.result()

    # --- peace ------------------------------------------------------------------------------------------------------

    def _master(self) -> Box | None:
        return next((b for b in self.boxes if b.running and b.log is not None and b.log.acts()), None)

    def _members(self) -> list[Box]:
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

    async def _final_reads(self) -> None:
        """Every member answers a write and a read, and then all are equal."""
        for number, box in enumerate(self._members()):
            before = len(self.judge.acked)
            await self._write(box, 100 + number, f"final-{box.name}", ["add", SETS[0], -1 - number], 5.0)
            if len(self.judge.acked) == before:
                raise Violation(f"{box.name} did not take a write in peace")
            for name in REGISTERS + SETS:
                await self._read(box, 100 + number, name, 5.0)
        top = self.judge.top
        await self._until(
            lambda: all(b.log is not None and b.log.applied_index >= top for b in self._members()),
            SETTLE_S,
            "a member did not catch up",
        )

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


def member_of(box: Box) -> Member:
    assert box.log is not None
    return Member(box.log.node_id, box.name, box.address)
