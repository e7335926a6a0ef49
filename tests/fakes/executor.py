"""ports.Executor without processes: the executor outlives its adapters, and an action does what the test tells it to.

A FakeHost is what a data directory is to the real one: the place where the living executor is found. One FakeExecutor is
one daemon's adapter. Leases count by the clock given; the loop's timers look at it, and `host.process.look()` does at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass

from msgspec.structs import replace

from quvatlh.ports import (
    ActionFinished,
    ActionProgress,
    ActionSpec,
    ActionStarted,
    Clock,
    Entropy,
    ExecutorListener,
    HeldAction,
    Life,
    OutputChunk,
    RunError,
)

LINGER_S = 3.0
LEASE = RunError("lease", "the lease is over")
STALE_TOKEN = RunError("stale", "the token is not above the highest seen")
STALE_LEASE = RunError("stale", "the lease was over before the start")
STALE_WAIT = RunError("stale", "no slot became free in time")
STOPPED = RunError("stopped", "stopped on request")
LOOK_S_MIN = 0.001


@dataclass(slots=True)
class Held:
    spec: ActionSpec
    until_s: float = 0.0
    waits: bool = False
    """For slots."""
    stopping: bool = False
    started: ActionStarted | None = None
    finished: ActionFinished | None = None
    forgotten: bool = False
    stdout: bytes = b""

    def as_told(self) -> HeldAction:
        spec = self.spec
        return HeldAction(
            spec.id, spec.fence, spec.seq, spec.slots, spec.lease_s, self.stopping, self.started, self.finished
        )


class FakeProcess:
    """The executor itself. What is sent to it waits while it is frozen, and is lost once it is dead."""

    def __init__(self, host: FakeHost, worker: str, clock: Clock, entropy: Entropy) -> None:
        self.worker = worker
        self.session = entropy.token(16).hex()
        self.secret = hashlib.sha256(entropy.token(32)).digest()
        self.fence = 0
        self.held: dict[str, Held] = {}
        self.daemon: FakeExecutor | None = None
        """The newest connection."""
        self.alive = True
        self._host = host
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._renewed_s = self._alone_s = clock.boot()
        self._frozen = False
        self._inbox: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    # --- what a test does ---

    def end(self, action_id: str, exit_code: int = 0, signal: str | None = None) -> None:
        """The action ends by itself."""
        error = None
        if signal is not None:
            error = RunError("signal", f"ended by signal {signal}")
        elif exit_code:
            error = RunError("exit", f"exit status {exit_code}")
        self._finish(self.held[action_id], None if signal else exit_code, signal, error)

    def answer(self, action_id: str, error: RunError | None = None, result: bytes | None = None) -> None:
        """The call ends."""
        self._finish(self.held[action_id], None, None, error, result)

    def say(self, action_id: str, percent: int, text: str) -> None:
        """The call says how far it is."""
        if self.daemon is not None:
            self.daemon.told(ActionProgress(action_id, percent, text))

    def write(self, action_id: str, data: bytes) -> None:
        """The action writes to its standard output."""
        self.held[action_id].stdout += data
        if self.daemon is not None:
            self.daemon.ring()

    def running(self) -> list[str]:
        """Ids of the actions that are processes now."""
        return [name for name, held in self.held.items() if held.started and not held.finished] if self.alive else []

    def kill(self) -> None:
        """kill -9: nothing is left of it, and its daemon is told."""
        self._die("the executor has died")

    def freeze(self) -> None:
        self._frozen = True

    def thaw(self) -> None:
        self._frozen = False
        inbox, self._inbox = self._inbox, []
        for each in (self.look, *inbox):
            self._loop.call_soon(self._do, each)

    def look(self) -> None:
        """End what a lease has run out of; without a daemon and a lease, itself."""
        if self._frozen or not self.alive:
            return
        now = self._clock.boot()
        for held in list(self.held.values()):
            if held.waits and (held.until_s <= now or self._renewed_s + held.spec.lease_s <= now):
                self._finish(held, None, None, STALE_WAIT)
            elif held.finished is None and self._renewed_s + held.spec.lease_s <= now:
                self._finish(held, None, "KILL" if held.started else None, LEASE)
        if self.daemon is None and self._needless_s() <= now:
            self._die("")
        else:
            self._arm()

    # --- what an adapter does ---

    def tell(self, what: Callable[[], None]) -> None:
        """A message: it arrives a little later, in order."""
        if self._frozen:
            self._inbox.append(what)
        else:
            self._loop.call_soon(self._do, what)

    def take(self, daemon: FakeExecutor) -> Life:
        if self.daemon is not None and self.daemon is not daemon:
            self.daemon.lost("another daemon has taken the executor")
        self.daemon = daemon
        held = tuple(each.as_told() for each in self.held.values())
        return Life(self.session, self.secret, self.worker, self._host.isolated, self.fence, held, fresh=False)

    def let_go(self, daemon: FakeExecutor) -> None:
        if self.daemon is daemon:
            self.daemon = None
            self._alone_s = self._clock.boot()
            self.look()

    def start(self, spec: ActionSpec) -> None:
        if spec.id in self.held:
            return
        held = self.held[spec.id] = Held(spec)
        if spec.fence <= self.fence:
            self._finish(held, None, None, STALE_TOKEN)
            return
        self.fence = spec.fence
        if self._renewed_s + spec.lease_s <= self._clock.boot():
            self._finish(held, None, None, STALE_LEASE)
            return
        held.waits, held.until_s = True, self._clock.boot() + spec.wait_s
        self._arm()
        self._advance()

    def recall(self) -> None:
        for held in list(self.held.values()):
            if held.waits:
                self._finish(held, None, None, STALE_WAIT)

    def stop(self, action_id: str, grace_s: float | None) -> None:
        held = self.held.get(action_id)
        if held is None or held.finished is not None:
            return
        held.stopping = True
        if held.waits:
            self._finish(held, None, None, STALE_WAIT)
            return
        name = ("KILL" if grace_s == 0 else held.spec.stop_signal) if held.started else None
        self._finish(held, None, name, STOPPED)

    def forget(self, action_ids: Collection[str]) -> None:
        for name in action_ids:
            held = self.held.get(name)
            if held is None:
                continue
            held.forgotten = True
            if held.finished is not None:
                del self.held[name]

    def renew(self, sent_s: float) -> None:
        self._renewed_s = max(self._renewed_s, sent_s)
        self._arm()

    def close(self, daemon: FakeExecutor, grace_s: float, closed: asyncio.Future[None]) -> None:
        if self.daemon is not daemon:
            return
        for name in self._live():
            self.stop(name, grace_s)
        self._loop.call_soon(self._closed, closed)

    def _closed(self, closed: asyncio.Future[None]) -> None:
        """After the ends were told."""
        self.daemon = None
        self._die("")
        if not closed.done():
            closed.set_result(None)

    # --- inside ---

    def _do(self, what: Callable[[], None]) -> None:
        if self._frozen:
            self._inbox.append(what)
        elif self.alive:
            what()

    def _advance(self) -> None:
        taken = sum(each.spec.slots for each in self.held.values() if not each.waits and each.finished is None)
        for held in self.held.values():
            if held.waits:
                taken += held.spec.slots
                if held.spec.slots and held.spec.width and taken > held.spec.width:
                    return
                held.waits = False
                self._loop.call_soon(self._begin, held)

    def _begin(self, held: Held) -> None:
        if self.alive and held.finished is None:
            held.started = ActionStarted(held.spec.id, 1, self._clock.wall_ms())
            if self.daemon is not None:
                self.daemon.told(held.started)

    def _finish(
        self,
        held: Held,
        exit_code: int | None,
        signal: str | None,
        error: RunError | None,
        result: bytes | None = None,
    ) -> None:
        started = None if held.started is None else held.started.started_at_ms
        tail = held.stdout[-4096:].decode(errors="replace")
        held.finished = ActionFinished(
            held.spec.id,
            exit_code,
            signal,
            error,
            tail,
            "",
            len(held.stdout),
            0,
            started,
            self._clock.wall_ms(),
            result=result,
        )
        held.waits = False
        if held.forgotten:
            self.held.pop(held.spec.id, None)
        if self.daemon is not None:
            self.daemon.told(held.finished)
        self._advance()

    def _live(self) -> list[str]:
        return [name for name, held in self.held.items() if held.finished is None]

    def _needless_s(self) -> float:
        """When, without a daemon, the last lease is over: of an action, or of an end that nobody has fetched."""
        ends = (self._renewed_s + each.spec.lease_s for each in self.held.values())
        return max(self._alone_s + LINGER_S, *ends, 0.0)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ends = [self._renewed_s + each.spec.lease_s for each in self.held.values() if each.finished is None]
        ends += [each.until_s for each in self.held.values() if each.waits]
        if self.daemon is None:
            ends.append(self._needless_s())
        if ends and self.alive:
            left_s = max(LOOK_S_MIN, min(ends) - self._clock.boot())
            self._timer = self._loop.call_later(left_s, self.look)

    def _die(self, why: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self._host.process = None
        if self._timer is not None:
            self._timer.cancel()
        if self.daemon is not None and why:
            self.daemon.lost(why)
        self.daemon = None


class FakeHost:
    """A data directory: at most one living executor in it."""

    def __init__(self, clock: Clock, entropy: Entropy, *, isolated: bool = True) -> None:
        self.isolated = isolated
        self.process: FakeProcess | None = None
        self.broken: OSError | None = None
        """What `open` raises while it is set."""
        self.kept: set[str] = set()
        self.results: dict[str, bytes] = {}
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
        """Of standard output, while the executor has not been told to forget the action."""
        offset = stdout_offset
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
