"""Executors of simulated machines: the real keeper, in a process of its own, over the simulated runner.

A `Host` is what a data directory is to the real adapter: the place where the living executor is found. It survives its
daemons, and may be frozen or killed by itself; what stands here instead of code of the product is a socket's two ends and
the daemon's side of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final, cast

from quvatlh.ports import ActionSpec, ActionStarted, Clock, Executor, ExecutorListener, Life, OutputChunk
from quvatlh.runner import wire
from quvatlh.runner.carriers import Carrier
from quvatlh.runner.executor.keeper import Keeper
from tests.sim.clock import SimClock, SimEntropy
from tests.sim.loop import SimLoop
from tests.sim.process import PAUSED, Process
from tests.sim.table.hands import Ground, SimRunner

HELLO_S: Final = 3.0
HATCH_S: Final = (0.02, 0.15)
CLOSE_S: Final = 10.0

Heard = Callable[["End", wire.Message], None]


class End:
    """One end of a connection, as wire.Link is. What was sent arrives, whoever dies meanwhile."""

    is_slow = False

    def __init__(self, process: Process, heard: Heard, lost: Callable[[End], None]) -> None:
        self.heard = heard
        self.on_pace: Callable[[], None] = lambda: None
        self.other: End
        self._process = process
        self._lost = lost
        self._open = True

    @staticmethod
    def pair(one: End, two: End) -> None:
        for end, other in ((one, two), (two, one)):
            end.other = other
            end._process.on_dead.append(end._died)

    def send(self, *message: Any) -> None:
        if self._open:
            self.other._soon(lambda: self.other.heard(self.other, message))

    def close(self) -> None:
        if self._open:
            self._open = False
            self.other._soon(self.other._hung_up)

    def _hung_up(self) -> None:
        if self._open:
            self._open = False
            self._lost(self)

    def _died(self, power: bool) -> None:
        """The kernel hangs up for it; a machine without power has none."""
        if not power:
            self.close()

    def _soon(self, job: Callable[[], None]) -> None:
        self._process.loop.call_soon(job, context=self._process.context)


class Host:
    """A machine's data directory, with the one executor that may live in it."""

    def __init__(self, name: str, loop: SimLoop, clock: SimClock, ground: Ground, rng: random.Random) -> None:
        self.process: Process | None = None
        self.frozen_s = 0.0
        """When it last was."""
        self._name = name
        self._loop = loop
        self._clock = clock
        self._ground = ground
        self._rng = rng
        self._isolated = rng.random() < 0.7
        self._keeper: Keeper | None = None

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.alive

    def crash(self, *, power: bool) -> None:
        """Of the executor, with all of its actions."""
        if self.process is not None:
            self.process.kill(power)

    def freeze(self) -> None:
        if self.process is not None:
            self.process.pause()
            self.frozen_s = self._loop.now_s

    def is_frozen_for(self) -> float:
        """Seconds."""
        frozen = self.process is not None and self.process.alive and self.process.gate & PAUSED
        return self._loop.now_s - self.frozen_s if frozen else 0.0

    def thaw(self) -> None:
        if self.process is not None and self.process.gate & PAUSED:
            self.process.resume()

    def hatch(self, worker: str) -> None:
        process = self.process = self._loop.process(f"{self._name}/executor")
        entropy = SimEntropy(self._rng.random())
        runner = SimRunner(self._ground, process, self._clock, random.Random(self._rng.random()))
        over = asyncio.Event()
        life = entropy.token(16).hex(), entropy.token(32), worker

        async def live() -> None:
            self._keeper = Keeper(cast(Carrier, runner), self._clock, life, over.set, isolated=self._isolated)
            await over.wait()

        process.start(live)

    def greet(self, end: End, message: wire.Message) -> None:
        """The executor's first message from a daemon."""
        _, _, worker, _ = message
        keeper = self._keeper
        assert keeper is not None
        assert keeper.worker == worker
        end.heard = cast(Heard, keeper.heard)
        keeper.take(cast(wire.Link, end))

    def hung_up(self, end: End) -> None:
        if self._keeper is not None:
            self._keeper.let_go(cast(wire.Link, end))


class SimExecutor:
    """ports.Executor, of one incarnation of a daemon."""

    def __init__(self, host: Host, process: Process, worker: str, clock: Clock, rng: random.Random) -> None:
        self._host = host
        self._process = process
        self._worker = worker
        self._clock = clock
        self._rng = rng
        self._listeners: list[ExecutorListener] = []
        self._life: Life | None = None
        self._end: End | None = None
        self._live: set[str] = set()
        self._questions: dict[int, asyncio.Future[None]] = {}
        self._question = 0
        self._greeting: asyncio.Future[list[Any] | None] | None = None
        self._cut = asyncio.Event()
        self._closing = False

    @property
    def life(self) -> Life | None:
        return self._life

    def listen(self, listener: ExecutorListener) -> None:
        self._listeners.append(listener)

    async def open(self) -> Life:
        fresh = False
        while self._life is None:
            if not self._host.lives:
                await asyncio.sleep(self._rng.uniform(*HATCH_S))
                self._host.hatch(self._worker)
                fresh = True
            await self._greet(fresh=fresh)
        return self._life

    def start(self, action: ActionSpec) -> None:
        if self._end is None:
            raise RuntimeError("there is no executor")
        if action.id in self._live:
            raise ValueError(f"action {action.id} is live already")
        self._live.add(action.id)
        self._end.send("start", *wire.spec_out(action))

    def flush(self) -> None:
        """The end's own time is what a message takes."""

    def stop(self, action_id: str, grace_s: float | None = None) -> None:
        if self._end is not None and action_id in self._live:
            self._end.send("stop", action_id, grace_s)

    def recall(self) -> None:
        if self._end is not None:
            self._end.send("recall")

    def forget(self, action_ids: Collection[str]) -> None:
        if self._end is not None and action_ids:
            self._end.send("forget", tuple(action_ids))

    async def ask(self) -> float:
        if self._end is None:
            raise ConnectionError("there is no executor")
        self._question += 1
        number = self._question
        answered = self._questions[number] = asyncio.get_running_loop().create_future()
        sent_s = self._clock.boot()
        self._end.send("ask", number)
        try:
            await answered
        finally:
            self._questions.pop(number, None)
        return sent_s

    def renew(self, sent_s: float) -> None:
        if self._end is not None:
            self._end.send("renew", sent_s)

    def live(self) -> Collection[str]:
        return tuple(self._live)

    async def follow(
        self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> AsyncIterator[OutputChunk]:
        """They write nothing."""
        none: tuple[OutputChunk, ...] = ()
        for chunk in none:
            yield chunk

    async def reload(self, environment: str | None) -> Collection[str]:
        return ()

    async def result(self, action_id: str, offset: int) -> tuple[bytes, int] | None:
        return None

    async def keep(self, action_id: str, stdout: bytes) -> None:
        pass

    async def kept(self) -> Collection[str]:
        return ()

    def prune(self, keep: Collection[str]) -> None:
        pass

    async def close(self, grace_s: float) -> None:
        if self._end is None:
            return
        self._closing = True
        self._end.send("close", grace_s)
        try:
            async with asyncio.timeout(grace_s + CLOSE_S):
                await self._cut.wait()
        except TimeoutError:
            self._host.crash(power=False)
        self._closing = False
        self._let_go()

    async def leave(self) -> None:
        self._let_go()

    # --- the connection -------------------------------------------------------------------------------------------------

    async def _greet(self, *, fresh: bool) -> None:
        process = self._host.process
        assert process is not None
        greeting = self._greeting = asyncio.get_running_loop().create_future()
        end = self._end = End(self._process, self._heard, self._hung_up)
        End.pair(end, End(process, self._host.greet, self._host.hung_up))
        self._cut.clear()
        end.send("hello", wire.VERSION, self._worker, "open")
        life = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HELLO_S):
                life = await greeting
        self._greeting = None
        if life is None:
            process.kill()
            self._let_go()
            return
        self._life = wire.life_in(*life, fresh=fresh)
        self._live.update(each.id for each in self._life.held if each.finished is None)

    def _heard(self, end: End, message: wire.Message) -> None:
        if end is not self._end:
            return
        kind, *rest = message
        if kind == "life":
            self._greeted(rest)
        elif kind == "started":
            for listener in self._listeners:
                listener.started(ActionStarted(*rest))
        elif kind == "finished":
            event = wire.finished_in(*rest)
            self._live.discard(event.action_id)
            for listener in self._listeners:
                listener.finished(event)
        elif kind == "answer":
            self._answered(rest[0])
        elif kind == "taken":
            self._gone("another daemon has taken the executor")

    def _greeted(self, life: list[Any] | None) -> None:
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_result(life)

    def _answered(self, number: int) -> None:
        question = self._questions.get(number)
        if question is not None and not question.done():
            question.set_result(None)

    def _hung_up(self, end: End) -> None:
        if end is not self._end:
            return
        self._cut.set()
        if self._greeting is not None:
            self._greeted(None)
        elif not self._closing and self._life is not None:
            self._gone("the executor has died")

    def _gone(self, why: str) -> None:
        self._let_go()
        for listener in self._listeners:
            listener.gone(why)

    def _let_go(self) -> None:
        end, self._end = self._end, None
        self._life = None
        self._live.clear()
        if end is not None:
            end.close()
        for question in self._questions.values():
            if not question.done():
                question.set_exception(ConnectionError("there is no executor any more"))


def _is_an_executor(one: SimExecutor) -> Executor:
    """Held by mypy."""
    return one
