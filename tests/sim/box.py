"""One machine of a simulated cluster: its disk and clock, and the process that runs a node on it, or does not."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from quvatlh.ports import Entry, Machine, MachineFactory, Refused, Unavailable, Unknown
from quvatlh.raft.datadir import DataDir
from quvatlh.raft.log import Options, RaftLog, World
from quvatlh.raft.running import ENDLESS_BYTES
from quvatlh.raft.settings import Settings
from tests.sim.clock import SimClock, SimEntropy
from tests.sim.disk import DiskView, SimDisk
from tests.sim.loop import SimLoop
from tests.sim.net import NetWorld
from tests.sim.process import Process
from tests.sim.trace import Trace

PEER_PORT = 7421
DATA = "/data"
SECRET = b"the secret of the simulation"


class Digested(Machine, Protocol):
    """A machine that says what it has become."""

    @property
    def digest(self) -> bytes: ...


class Images(Protocol):
    """What a machine's disk keeps of state files beyond what SimDisk knows."""

    def power_fail(self, rng: random.Random) -> None: ...


T = TypeVar("T")
M = TypeVar("M", bound=Digested)
K = TypeVar("K", bound=Images)


class Watch:
    """What a judge wants to hear of a node; a box tells it."""

    def opened(self, box: AnyBox) -> None: ...

    def applied(self, box: AnyBox, entry: Entry, results: Sequence[object]) -> None: ...

    def skipped(self, box: AnyBox, last: int, index: int) -> None: ...

    def noted(self, box: AnyBox, event: str) -> None: ...


class _Listener:
    def __init__(self, box: AnyBox, watch: Watch) -> None:
        self._box = box
        self._watch = watch
        self._last = 0

    def applied(self, entry: Entry, results: Sequence[object]) -> None:
        if self._last and entry.index != self._last + 1:
            self._watch.skipped(self._box, self._last, entry.index)
        self._last = entry.index
        self._watch.applied(self._box, entry, results)

    def role_changed(self, role: Any) -> None:
        pass

    def reset(self, index: int) -> None:
        self._last = index


class Box(ABC, Generic[M, K]):
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
        self.images = self._no_images()
        self.wipes = 0
        self.process: Process | None = None
        self.log: RaftLog | None = None
        self.machine: M | None = None
        self.room = ENDLESS_BYTES
        """For copies of the state."""
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
        self.forget()
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
        self.forget()
        if power:
            self._net.host_down(self.name)
            self.disk.power_fail()
            self.images.power_fail(self.rng)
            if self.rng.random() < 0.5:
                self.clock.reboot()

    def forget(self) -> None:
        """What was in the memory of the process."""
        self.log = self.machine = None

    def serve(self, job: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run what a client asks for inside the process."""
        assert self.process is not None
        return self.process.spawn(job)

    def wipe(self) -> None:
        """A new disk. The node that comes back is another one."""
        self.wipes += 1
        self.disk = SimDisk(random.Random(self.rng.random()), self.disk.pace)
        self.images = self._no_images()
        self.say("disk replaced")

    def say(self, text: str) -> None:
        self._trace.add(self._loop.now_s, self.name, text)

    async def _main(self) -> None:
        process = self.process
        assert process is not None
        disk = self.disk.attach(process)
        entropy = SimEntropy(self.rng.random())
        data = DataDir.open(disk, DATA, entropy, f"{self.name}", lock=False)
        net = self._net.attach(process, self.name)
        world = World(disk, net, self.clock, entropy, disk.lane(), disk.lane(), lambda: self.room)
        ended: asyncio.Future[None] = self._loop.create_future()

        def note(event: str, **facts: Any) -> None:
            self.say(f"{event} {' '.join(f'{k}={v}' for k, v in facts.items())}")
            self._watch.noted(self, event)
            if event == "snapshot in force":
                self._watch.opened(self)

        def fatal(error: BaseException) -> None:
            if not ended.done():
                ended.set_exception(error)

        options = Options(self.name, self.address, self.address, "", self.peers, SECRET)
        log = RaftLog(data, self._machines(disk), world, self._settings, options, note=note, on_fatal=fatal)
        log.listen(_Listener(self, self._watch))
        self._prepare(log)
        self.log = log
        await log.start()
        self._watch.opened(self)
        await self._serve(log, disk, fatal, ended)

    # --- what stands on the log ---------------------------------------------------------------------------------------

    @abstractmethod
    def _no_images(self) -> K:
        """Of a new disk."""

    @abstractmethod
    def _machines(self, disk: DiskView) -> MachineFactory:
        """Sets `machine` each time it is asked for one."""

    def _prepare(self, log: RaftLog) -> None:
        """Before the log starts."""

    async def _serve(
        self, _log: RaftLog, _disk: DiskView, _fatal: Callable[[BaseException], None], ended: asyncio.Future[None]
    ) -> None:
        """Once it has; returns or raises when the process is to end."""
        await ended

    # --- an operator --------------------------------------------------------------------------------------------------

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


AnyBox = Box[Any, Any]
