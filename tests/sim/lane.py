"""A thread as the simulation knows it: jobs in order, each at once, some virtual time before and after.

A job has happened or not; that it takes time shows in when it begins and when its answer comes. A paused process has
paused lanes, a dead one gets no answers.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from quvatlh.raft.disk import run_on
from tests.sim.process import Crashed, Process

T = TypeVar("T")


@dataclass(slots=True)
class Pace:
    """How fast a disk's lanes are, in seconds from-to. Change it while running for a disk that becomes slow."""

    start_s: tuple[float, float] = (0.0, 0.0005)
    done_s: tuple[float, float] = (0.0002, 0.003)
    stall_chance: float = 0.0
    stall_s: tuple[float, float] = (0.05, 1.0)
    inline: bool = True
    """A sync outside a lane holds its process up as long as it would have taken in one."""

    def start(self, rng: random.Random) -> float:
        return rng.uniform(*self.start_s)

    def done(self, rng: random.Random) -> float:
        if self.stall_chance and rng.random() < self.stall_chance:
            return rng.uniform(*self.stall_s)
        return rng.uniform(*self.done_s)


class Threaded(Protocol):
    in_lane: bool


class SimLane:
    """Keeps raft.disk.Lane."""

    def __init__(self, owner: Threaded, process: Process, pace: Pace, rng: random.Random) -> None:
        self._owner = owner
        self._process = process
        self._pace = pace
        self._rng = rng
        self._waiting: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = deque()
        self._working = False
        self._closed = False

    def give(self, job: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        if self._closed:
            raise RuntimeError("the lane is closed")
        self._waiting.append((job, then))
        if not self._working:
            self._working = True
            self._later(self._pace.start(self._rng), self._start)

    async def run(self, job: Callable[[], T]) -> T:
        return await run_on(self, job)

    def close(self) -> None:
        """What was given is done at once, as the caller waits for it."""
        self._closed = True
        while self._waiting:
            self._work()()

    def _later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._process.loop.call_later(delay_s, callback, context=self._process.context)

    def _start(self) -> None:
        answer = self._work() if self._waiting else _nothing
        if self._process.alive:
            self._later(self._pace.done(self._rng), lambda: self._done(answer))

    def _done(self, answer: Callable[[], None]) -> None:
        answer()
        self._working = bool(self._waiting)
        if self._working:
            self._start()

    def _work(self) -> Callable[[], None]:
        """Do the next job; what is to be called when its answer is due."""
        job, then = self._waiting.popleft()
        failure: BaseException | None = None
        self._owner.in_lane = True
        try:
            job()
        except Crashed:
            self._process.crash()
            return _nothing
        except Exception as error:  # noqa: BLE001 - it is the answer
            failure = error
        finally:
            self._owner.in_lane = False
        return lambda: then(failure)


def _nothing() -> None:
    pass
