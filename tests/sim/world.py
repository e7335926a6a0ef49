"""One seed, one world: time, network, trace, and machines whose processes come and go.

A `SimHost` is a box with a disk, a clock and a name on the network; `start` runs a coroutine on it as a process and
gives it an `Env`, all that a process may know of the world. Every part draws from a generator of its own, so that one
more draw in one place does not change all the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.sim.clock import SimClock, SimEntropy
from tests.sim.disk import DiskView, SimDisk
from tests.sim.lane import Pace, SimLane
from tests.sim.loop import SimLoop
from tests.sim.net import Link, NetWorld, SimNetwork
from tests.sim.process import Process
from tests.sim.trace import Trace

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Env:
    """What one incarnation is given; worth nothing once its process is dead."""

    world: World
    host: SimHost
    process: Process
    disk: DiskView
    network: SimNetwork
    clock: SimClock
    entropy: SimEntropy

    def lane(self) -> SimLane:
        return self.disk.lane()

    def trace(self, text: str) -> None:
        """What the dead have still to say is not heard."""
        if self.process.alive:
            self.world.trace.add(self.world.loop.now_s, self.process.name, text)


Main = Callable[[Env], Coroutine[Any, Any, object]]


class SimHost:
    def __init__(self, world: World, name: str, rate: float = 1.0) -> None:
        self.world = world
        self.name = name
        self.disk = SimDisk(world.rng(f"disk/{name}"), Pace())
        self.clock = SimClock(world.loop, rate)
        self.process: Process | None = None
        self.starts = 0
        self.crash_takes_power = False
        """What a planned crash (at a step, at a disk operation) is: a power failure, or a kill."""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self, main: Main, ends_with: tuple[type[BaseException], ...] = ()) -> Env:
        """A new process on this machine; with the power back, if it was gone."""
        if self.running:
            raise ValueError(f"{self.name} runs already")
        self.world.net.host_up(self.name)
        self.starts += 1
        process = self.world.loop.process(self.name)
        process.ends_with = ends_with
        process.on_crash = self._crash
        process.on_dead.append(self._dead)
        self.process = process
        entropy = SimEntropy(self.world.seed_of(f"entropy/{self.name}/{self.starts}"))
        network = self.world.net.attach(process, self.name)
        env = Env(self.world, self, process, self.disk.attach(process), network, self.clock, entropy)
        self.world.note(self.name, f"start {self.starts}")
        process.start(lambda: main(env))
        return env

    def kill(self) -> None:
        """kill -9: what was written stays, peers see the connections end."""
        if self.process is not None:
            self.process.kill()

    def power_fail(self) -> None:
        """What was not synced is at the mercy of chance; peers see nothing, until the machine is started again."""
        self._lose_power()
        if self.process is not None:
            self.process.kill(power=True)

    def pause(self) -> None:
        self.world.note(self.name, "pause")
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        self.world.note(self.name, "resume")
        if self.process is not None:
            self.process.resume()

    def _crash(self) -> None:
        if self.crash_takes_power:
            self.power_fail()
        else:
            self.kill()

    def _lose_power(self) -> None:
        self.world.net.host_down(self.name)
        self.disk.power_fail()
        self.clock.reboot()

    def _dead(self, power: bool) -> None:
        end = self.process.end if self.process is not None else None
        self.world.note(self.name, f"dead{' without power' if power else ''}{f': {end!r}' if end is not None else ''}")


class World:
    def __init__(self, seed: int | str, trace_path: Path | None = None, link: Link | None = None) -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.trace = Trace(trace_path)
        self.net = NetWorld(self.loop, self.rng("net"), link)
        self.hosts: dict[str, SimHost] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def seed_of(self, part: str) -> str:
        """Strings are hashed by the generator itself, so PYTHONHASHSEED has no part in it."""
        return f"{self.seed}/{part}"

    def rng(self, part: str) -> random.Random:
        """The generator of one part of the world."""
        return random.Random(self.seed_of(part))

    def host(self, name: str, rate: float = 1.0) -> SimHost:
        made = self.hosts[name] = SimHost(self, name, rate)
        return made

    def note(self, who: str, text: str) -> None:
        self.trace.add(self.loop.now_s, who, text)

    def run_for(self, seconds: float) -> None:
        self.loop.run_for(seconds)

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the world's own (a nemesis, a client) until it returns."""
        return self.loop.run_until_complete(coro)

    def close(self) -> None:
        self.loop.close()
        self.trace.close()
