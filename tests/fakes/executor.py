"""ports.Executor without processes: the executor outlives its adapters, and an action does what the test tells it to.

A FakeHost is what a data directory is to the real one: the place where the living executor is found. One FakeExecutor is
one daemon's adapter. Leases count by the clock given; the loop's timers look at it, and `host.process.look()` does at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from msgspec.structs import replace

from quvatlh.ports import (
    ActionFinished,
    ActionProgress,
    ActionSpec,
    ActionStarted,
    Clock,
    Entropy,
    ExecutorListener,
    Life,
    OutputChunk,
)
from tests.fakes.executorprocess import FakeProcess


class FakeHost:
    """A data directory: at most one living executor in it."""

    def __init__(self, clock: Clock, entropy: Entropy, *, isolated: bool = True) -> None:
        self.isolated = isolated
        self.process: FakeProcess | None = None
        self.broken: OSError | None = None
        """What `open` raises while it is set."""
        self.kept: set[str] = set()
        self.results: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        """Outputs that were given to be kept."""
        """Results that are files, by action."""
        """Actions with output files."""
        self.environments: tuple[str, ...] = ("default",)
        self._clock = clock
        self._entropy = entropy

    def executor(self, worker: str = "w1") -> FakeExecutor:
        """A daemon's side of it."""
        return FakeExecutor(self, worker, self._clock)

    def found(self, worker: str) -> tuple[FakeProcess, bool]:
        """The living executor, of this worker; started where there is none. Whether it was."""
        if self.broken is not None:
            raise self.broken
        if self.process is not None and self.process.worker != worker:
            self.process.kill()
        if self.process is None:
            self.process = FakeProcess(self, worker, self._clock, self._entropy)
            return self.process, True
        return self.process, False


class FakeExecutor:
    """ports.Executor."""

    def __init__(self, host: FakeHost, worker: str, clock: Clock) -> None:
        self._host = host
        self._worker = worker
        self._clock = clock
        self._listeners: list[ExecutorListener] = []
        self._process: FakeProcess | None = None
        self._life: Life | None = None
        self._live: dict[str, None] = {}
        self._questions: set[asyncio.Future[None]] = set()
        self._bell = asyncio.Event()
        self.unsent: list[str] = []
        """What was started, and may still wait for the end of its turn."""

    @property
    def life(self) -> Life | None:
        return self._life

    def listen(self, listener: ExecutorListener) -> None:
        self._listeners.append(listener)

    async def open(self) -> Life:
        await asyncio.sleep(0)
        process, fresh = self._host.found(self._worker)
        self._process = process
        self._life = replace(process.take(self), fresh=fresh)
        self._live = {each.id: None for each in self._life.held if each.finished is None}
        return self._life

    def start(self, action: ActionSpec) -> None:
        process = self._here()
        if action.id in self._live:
            raise ValueError(f"action {action.id} is live already")
        self._live[action.id] = None
        self.unsent.append(action.id)
        process.tell(lambda: process.start(action))

    def flush(self) -> None:
        self.unsent.clear()

    def stop(self, action_id: str, grace_s: float | None = None) -> None:
        if self._process is not None and action_id in self._live:
            process = self._process
            process.tell(lambda: process.stop(action_id, grace_s))

    def recall(self) -> None:
        if self._process is not None:
            self._process.tell(self._process.recall)

    def forget(self, action_ids: Collection[str]) -> None:
        if self._process is not None:
            process, names = self._process, tuple(action_ids)
            process.tell(lambda: process.forget(names))

    async def ask(self) -> float:
        process = self._process
        if process is None:
            raise ConnectionError("there is no executor")
        sent_s = self._clock.boot()
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._questions.add(answered)
        process.tell(lambda: None if answered.done() else answered.set_result(None))
        try:
            await answered
        finally:
            self._questions.discard(answered)
        return sent_s

    async def reload(self, environment: str | None) -> Collection[str]:
        self._here()
        return [each for each in self._host.environments if environment in {None, each}]

    def renew(self, sent_s: float) -> None:
        if self._process is not None:
            process = self._process
            process.tell(lambda: process.renew(sent_s))

    def live(self) -> Collection[str]:
        return self._live.keys()

    async def follow(
        self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> AsyncIterator[OutputChunk]:
        """Of standard output, while the executor has not been told to forget the action, or it was given to be kept."""
        offset = stdout_offset
        if data := self._host.files.get(action_id, b"")[offset:]:
            yield OutputChunk("stdout", offset, data)
        while self._process is not None and (held := self._process.held.get(action_id)) is not None:
            data = held.stdout[offset:]
            if data:
                yield OutputChunk("stdout", offset, data)
                offset += len(data)
            elif held.finished is not None:
                return
            else:
                await self._bell.wait()

    async def result(self, action_id: str, offset: int) -> tuple[bytes, int] | None:
        """A few bytes at a time."""
        whole = self._host.results.get(action_id)
        return None if whole is None else (whole[offset : offset + 4], len(whole))

    async def keep(self, action_id: str, stdout: bytes) -> None:
        self._host.files[action_id] = stdout

    async def kept(self) -> Collection[str]:
        return sorted(self._host.kept)

    def prune(self, keep: Collection[str]) -> None:
        self._host.kept.intersection_update(keep)

    async def close(self, grace_s: float) -> None:
        process = self._process
        if process is not None:
            closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._questions.add(closed)
            process.tell(lambda: process.close(self, grace_s, closed))
            try:
                await closed
            finally:
                self._questions.discard(closed)
                self._forsake()

    async def leave(self) -> None:
        process = self._process
        self._forsake()
        if process is not None:
            process.let_go(self)

    # --- what the executor does ---

    def told(self, event: ActionStarted | ActionProgress | ActionFinished) -> None:
        """It arrives a little later, in order, and not at all at who has let go."""
        asyncio.get_running_loop().call_soon(self._hear, self._process, event)

    def ring(self) -> None:
        self._bell.set()
        self._bell.clear()

    def lost(self, why: str) -> None:
        asyncio.get_running_loop().call_soon(self._gone, self._process, why)

    def _hear(self, teller: FakeProcess | None, event: ActionStarted | ActionProgress | ActionFinished) -> None:
        if teller is None or teller is not self._process:
            return
        if isinstance(event, ActionFinished):
            self._live.pop(event.action_id, None)
            self.ring()
        for listener in self._listeners:
            if isinstance(event, ActionStarted):
                listener.started(event)
            elif isinstance(event, ActionProgress):
                listener.progressed(event)
            else:
                listener.finished(event)

    def _gone(self, teller: FakeProcess | None, why: str) -> None:
        if teller is None or teller is not self._process:
            return
        self._forsake()
        for listener in self._listeners:
            listener.gone(why)

    def _forsake(self) -> None:
        self._process = None
        self._life = None
        self._live.clear()
        for question in self._questions:
            if not question.done():
                question.set_exception(ConnectionError("there is no executor any more"))
        self.ring()

    def _here(self) -> FakeProcess:
        if self._process is None:
            raise RuntimeError("there is no executor")
        return self._process
