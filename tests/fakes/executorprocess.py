"""The process of a fake executor: what it holds, what it is asked for, and when it ends. Its adapter is in executor.py."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from quvatlh.ports import (
    ActionFinished,
    ActionProgress,
    ActionSpec,
    ActionStarted,
    Clock,
    Entropy,
    HeldAction,
    Life,
    RunError,
)

LINGER_S = 3.0
LEASE = RunError("lease", "the lease is over")
STALE_TOKEN = RunError("stale", "the token is not above the highest seen")
STALE_LEASE = RunError("stale", "the lease was over before the start")
STALE_WAIT = RunError("stale", "no slot became free in time")
STOPPED = RunError("stopped", "stopped on request")
LOOK_S_MIN = 0.001


class Daemon(Protocol):
    """Who hears of what happens here."""

    def told(self, event: ActionStarted | ActionProgress | ActionFinished) -> None: ...

    def ring(self) -> None: ...

    def lost(self, why: str) -> None: ...


class Directory(Protocol):
    """Where the living one is found."""

    isolated: bool
    process: FakeProcess | None


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

    def __init__(self, host: Directory, worker: str, clock: Clock, entropy: Entropy) -> None:
        self.worker = worker
        self.session = entropy.token(16).hex()
        self.secret = hashlib.sha256(entropy.token(32)).digest()
        self.fence = 0
        self.held: dict[str, Held] = {}
        self.daemon: Daemon | None = None
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

    def take(self, daemon: Daemon) -> Life:
        if self.daemon is not None and self.daemon is not daemon:
            self.daemon.lost("another daemon has taken the executor")
        self.daemon = daemon
        held = tuple(each.as_told() for each in self.held.values())
        return Life(self.session, self.secret, self.worker, self._host.isolated, self.fence, held, fresh=False)

    def let_go(self, daemon: Daemon) -> None:
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

    def close(self, daemon: Daemon, grace_s: float, closed: asyncio.Future[None]) -> None:
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
