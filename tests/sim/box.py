"""One machine of a simulated cluster: its disk and clock, and the process that runs a node on it, or does not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgpack

from quvatlh.ports import Refused, Unavailable, Unknown
from quvatlh.raft.datadir import DataDir
from quvatlh.raft.log import Options, RaftLog, World
from quvatlh.raft.settings import Settings
from tests.sim.clock import SimClock, SimEntropy
from tests.sim.disk import SimDisk
from tests.sim.loop import SimLoop
from tests.sim.machine import SimMachine, Wals
from tests.sim.net import NetWorld
from tests.sim.process import Process
from tests.sim.trace import Trace

PEER_PORT = 7421
DATA = "/data"
AGAIN_S = 0.02
"""A door that was refused asks again after this."""


class Watch:
    """What a judge wants to hear of a node; a box tells it."""

    def opened(self, box: Box) -> None: ...

    def applied(self, box: Box, entry: Any) -> None: ...

    def noted(self, box: Box, event: str) -> None: ...


class _Listener:
    def __init__(self, box: Box, watch: Watch) -> None:
        self._box = box
        self._watch = watch

    def applied(self, entry: Any, results: Any) -> None:
        self._watch.applied(self._box, entry)

    def role_changed(self, role: Any) -> None:
        pass

    def reset(self, index: int) -> None:
        pass


class Box:
    def __init__(
        self,
        name: str,
        loop: SimLoop,
        net: NetWorld,
        rng: random.Random,
        trace: Trace,
        settings: Settings,
        watch: Watch,
    ) -> None:
        self.name = name
        self.address = f"{name}:{PEER_PORT}"
        self.peers: tuple[str, ...] = ()
        self.clock = SimClock(
            loop, rate=1 + rng.uniform(-1e-3, 1e-3), boot_s=rng.uniform(1, 1000), wall_offset_ms=rng.randint(-500, 500)
        )
        self.rng = rng
        self.disk = SimDisk(random.Random(rng.random()))
        self.wals = Wals()
        self.wipes = 0
        self.process: Process | None = None
        self.log: RaftLog | None = None
        self.machine: SimMachine | None = None
        self.broken_disk = False
        """Errors of the disk were injected: the process may end by them."""
        self._loop = loop
        self._net = net
        self._trace = trace
        self._settings = settings
        self._watch = watch

    # --- life -------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.state == "running"

    @property
    def dead(self) -> bool:
        return self.process is None or self.process.state == "dead"

    def start(self) -> None:
        self._net.host_up(self.name)
        self.log = self.machine = None
        process = self.process = self._loop.process(self.name)
        process.ends_with = (OSError,) if self.broken_disk else ()
        process.on_crash = lambda: self.crash(power=self.rng.random() < 0.5)
        self.say("start")
        process.start(self._main)

    def crash(self, *, power: bool) -> None:
        """kill -9, or the plug: then the disk forgets what was not synced."""
        if self.process is None or not self.process.alive:
            return
        self.say("power failure" if power else "kill")
        self.process.kill(power)
        self.log = self.machine = None
        if power:
            self._net.host_down(self.name)
            self.disk.power_fail()
            self.wals.power_fail(self.rng)
            if self.rng.random() < 0.5:
                self.clock.reboot()

    def wipe(self) -> None:
        """A new disk. The node that comes back is another one."""
        self.wipes += 1
        self.disk = SimDisk(random.Random(self.rng.random()), self.disk.pace)
        self.wals = Wals()
        self.say("disk replaced")

    def say(self, text: str) -> None:
        self._trace.add(self._loop.now_s, self.name, text)

    async def _main(self) -> None:
        process = self.process
        assert process is not None
        disk = self.disk.attach(process)
        entropy = SimEntropy(self.rng.random())
        data = DataDir.open(disk, DATA, entropy, f"{self.name}", lock=False)
        world = World(disk, self._net.attach(process, self.name), self.clock, entropy, disk.lane(), disk.lane())
        ended: asyncio.Future[None] = self._loop.create_future()

        def machines(directory: str) -> SimMachine:
            self.machine = SimMachine(disk, directory, self.wals)
            return self.machine

        def note(event: str, **facts: Any) -> None:
            self.say(f"{event} {' '.join(f'{k}={v}' for k, v in facts.items())}")
            self._watch.noted(self, event)
            if event == "snapshot in force":
                self._watch.opened(self)

        def fatal(error: BaseException) -> None:
            if not ended.done():
                ended.set_exception(error)

        options = Options(self.name, self.address, self.address, "", self.peers, b"the secret of the simulation")
        log = RaftLog(data, machines, world, self._settings, options, note=note, on_fatal=fatal)
        log.listen(_Listener(self, self._watch))
        log.handle("door", self._door)
        self.log = log
        await log.start()
        self._watch.opened(self)
        await ended

    # --- a small door: one hop to the master, repeated until the deadline ---------------------------------------------

    async def _door(self, _asker: str, body: bytes) -> bytes:
        kind, item, deadline = msgpack.unpackb(body)
        return bytes(msgpack.packb(await self._here(kind, item, deadline)))

    async def _here(self, kind: str, item: bytes, deadline: float) -> list[Any]:
        log = self.log
        if log is None:
            raise Unavailable("starting")
        if kind == "read":
            return [await log.barrier(deadline=deadline), None]
        applied = await log.propose(item, deadline=deadline)
        return [applied.index, applied.result]

    async def write(self, kind: str, item: bytes, deadline: float) -> list[Any]:
        """(index, result). Unavailable when no attempt can have had an effect, else Unknown."""
        ends = self._loop.time() + deadline
        sure = True
        while True:
            left = ends - self._loop.time()
            if left <= 0:
                raise Unavailable("deadline") if sure else Unknown("deadline")
            try:
                log = self.log
                if log is None:
                    raise Unavailable("starting")
                if log.acts():
                    return await self._here(kind, item, left)
                master = log.role.master
                if master is None or master == log.node_id:
                    raise Unavailable("no master")
                body = msgpack.packb([kind, item, left])
                return list(msgpack.unpackb(await log.request(master, "door", body, deadline=left)))
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
            except Unknown:
                sure = False
                await asyncio.sleep(AGAIN_S)

    async def read(self, deadline: float) -> SimMachine:
        """The machine as it is after a barrier."""
        index = (await self.write("read", b"", deadline))[0]
        assert self.log is not None
        await self.log.wait_applied(index, deadline=deadline)
        assert self.machine is not None
        return self.machine

    async def administer(self, job: Callable[[RaftLog], Any]) -> bool:
        """Try a change of the membership or of the master here; whether it was done."""
        try:
            if self.log is None:
                return False
            await job(self.log)
        except (Unavailable, Unknown, Refused) as error:
            self.say(f"refused: {error}")
            return False
        return True
