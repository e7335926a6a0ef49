"""All pools of an executor: a carrier of calls beside the one of native commands.

A timer runs only while there is something to do. Python children ring one bell, so that many answers cost one wakening.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from quvatlh.config.environments import Environment
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted, Clock, RunError, RunnerListener
from quvatlh.runner import inputs, spawn
from quvatlh.runner.pools import ending
from quvatlh.runner.pools.call import CallRun
from quvatlh.runner.pools.gate import Gate
from quvatlh.runner.pools.pool import Pool
from quvatlh.runner.settings import RunnerSettings

BATCH_TICK_S: Final = 0.002
"""While calls stand behind each other: an answer waits no longer than this for those behind it."""
TICK_S: Final = 0.01
SLOW_TICK_S: Final = 0.05
"""Of calls that have gone on for a second."""
REST_S: Final = 1.0
"""Between two looks at children without work."""


class Orphans(Protocol):
    """What a pool needs of whoever reaps the orphans of this process."""

    def spare(self, pid: int) -> None: ...

    def unspare(self, pid: int) -> None: ...

    def end_marked(self, mark: str) -> bool: ...


class PoolRunner:
    """A house.House."""

    def __init__(self, settings: RunnerSettings, clock: Clock, gate: Gate, orphans: Orphans) -> None:
        self.gate = gate
        self.base = settings.environment
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._settings = settings
        self._clock = clock
        self._orphans = orphans
        self._loop = asyncio.get_running_loop()
        self._listeners: list[RunnerListener] = []
        self._runs: dict[str, tuple[CallRun, Pool]] = {}
        self._pools: dict[str, Pool] = {}
        self._old: list[Pool] = []
        """Of environments that are not configured any more, as long as they have work."""
        self._dirty: dict[Pool, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        self._closed = False
        self._loop.add_reader(self.bell, self._rung)

    def listen(self, listener: RunnerListener) -> None:
        self._listeners.append(listener)

    def live(self) -> Collection[str]:
        return self._runs.keys()

    def run_of(self, action_id: str) -> CallRun | None:
        found = self._runs.get(action_id)
        return None if found is None else found[0]

    @property
    def has_line(self) -> bool:
        for pool in self._pools.values():  # noqa: SIM110 - asked for each end
            if pool.waiting:
                return True
        return False

    def pool(self, environment: str) -> Pool:
        return self._pools[environment]

    # --- environments ---

    def configure(self, environments: Iterable[Environment]) -> None:
        """From now on these. One that has changed begins anew; what runs in the old one goes on to its end."""
        wanted = {each.name: each for each in environments}
        for name, pool in list(self._pools.items()):
            if wanted.get(name) != pool.environment:
                del self._pools[name]
                pool.brood.renew()
                self._old.append(pool)
        for name, environment in wanted.items():
            if name not in self._pools:
                self._pools[name] = Pool(environment, self)
        self._arm()

    def reload(self, name: str | None) -> list[str]:
        """New children for all or one; the names of those that there are."""
        chosen = [each for each in self._pools if name in {None, each}]
        for each in chosen:
            self._pools[each].renew()
        self._arm()
        return chosen

    # --- actions ---

    def start(self, action: ActionSpec) -> None:
        call = action.work.call
        assert call is not None
        if self._closed:
            raise RuntimeError("the runner is closed")
        if action.id in self._runs:
            raise ValueError(f"action {action.id} is live already")
        self.gate.width = action.width
        run = CallRun(action, self._settings.outputs_dir, self._settings.output_bytes_max, self._loop.time())
        pool = self._pools.get(call.environment)
        refusal = self._refusal(action, pool)
        if pool is None or refusal is not None:
            words = f"there is no environment {call.environment!r} on this worker; it has {', '.join(self._pools)}"
            refusal = refusal or RunError("environment", words)
            self._loop.call_soon(self._refused, run, refusal)
            return
        if action.payload is not None or action.work.stdin is not None:
            try:
                run.inputs = inputs.write(self._settings.inputs_dir, action, spawn.identity(action.work))
            except (OSError, spawn.NotStarted) as error:
                found = error.error if isinstance(error, spawn.NotStarted) else None
                self._loop.call_soon(self._refused, run, found or RunError("resources", f"not started: {error}"))
                return
        self._runs[action.id] = run, pool
        pool.enter(run)

    def stop(self, action_id: str, grace_s: float | None, wish: RunError) -> None:
        found = self._runs.get(action_id)
        if found is not None:
            run, pool = found
            pool.stop(run, run.action.grace_s if grace_s is None else grace_s, wish)
            self._arm()

    async def close(self) -> None:
        """Waits for what is live, and has been asked to stop."""
        if self._closed:
            return
        if self._runs:
            self._empty = self._loop.create_future()
            await self._empty
        self._closed = True
        for pool in (*self._pools.values(), *self._old):
            await pool.brood.close()
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self.bell)
        os.close(self.bell)

    @staticmethod
    def _refusal(action: ActionSpec, pool: Pool | None) -> RunError | None:
        call = action.work.call
        assert call is not None
        if pool is None:
            return None
        if (call.adapter == "warm") != bool(pool.environment.command):
            kind = "a program of its own: call it by warm" if pool.environment.command else "Python: call it by python"
            return RunError("unrunnable", f"environment {call.environment} is {kind}")
        work = action.work
        if call.adapter == "warm" and (work.env or work.cwd or work.user or work.rlimits or work.stdin is not None):
            return RunError(
                "unrunnable", "env, cwd, user, rlimits and stdin belong to the environment of a warm process"
            )
        return None

    def _refused(self, run: CallRun, error: RunError) -> None:
        self._tell(run, error, None, None)

    # --- a house.House ---

    def soon(self, pool: Pool) -> None:
        if not self._dirty:
            self._loop.call_soon(self.hand_out)
        self._dirty[pool] = None

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a child has filled it, so it is rung
            os.eventfd_write(self.bell, 1)

    def eldest(self, pool: Pool) -> bool:
        since = pool.waiting[0].at_s
        return all(each is pool or not each.waiting or each.waiting[0].at_s >= since for each in self._pools.values())

    def room(self) -> None:
        """Slots were given back by commands."""
        for pool in self._pools.values():
            if pool.waiting:
                self.soon(pool)

    def finished(
        self, run: CallRun, error: RunError | None, result: bytes | None = None, code: int | None = None
    ) -> None:
        del self._runs[run.action.id]
        self._tell(run, error, result, code)
        self.room()
        if self._empty is not None and not self._runs and not self._empty.done():
            self._empty.set_result(None)

    def started(self, run: CallRun) -> None:
        run.is_told = True
        if run.began_ms is None:
            run.began_ms = self._clock.wall_ms() - round((self._loop.time() - (run.began_s or 0)) * 1000)
        event = ActionStarted(run.action.id, 0 if run.child is None else run.child.pid, run.began_ms)
        for listener in self._listeners:
            listener.started(event)

    def progressed(self, event: ActionProgress) -> None:
        for listener in self._listeners:
            listener.progressed(event)

    def spare(self, pid: int) -> None:
        self._orphans.spare(pid)

    def unspare(self, pid: int) -> None:
        self._orphans.unspare(pid)

    def end_marked(self, mark: str) -> bool:
        return self._orphans.end_marked(mark)

    # --- inside ---

    def _tell(self, run: CallRun, error: RunError | None, result: bytes | None, status: int | None) -> None:
        if run.began_s is not None and run.began_ms is None:
            run.began_ms = self._clock.wall_ms()
        code, signal = (None, None) if status is None else ending.how(status)
        event: ActionFinished = run.finished(error, result, self._clock.wall_ms(), exit_code=code, signal=signal)
        for listener in self._listeners:
            listener.finished(event)
        run.ring()

    def hand_out(self) -> None:
        """What came meanwhile, to the children."""
        if self._dirty:
            dirty, self._dirty = self._dirty, {}
            try:
                for pool in dirty:
                    pool.hand_out()
            finally:  # who was not reached is looked at by the tick
                self._arm()

    def _rung(self) -> None:
        os.eventfd_read(self.bell)
        for pool in (*self._pools.values(), *self._old):
            for child in list(pool.brood.children.values()):
                if child.is_python and child.is_born:
                    pool.look_at(child)
        self.hand_out()

    def _arm(self) -> None:
        """A tick when the next one may be of use; none when nobody waits for anything."""
        if self._timer is not None and self._timer.when() - self._loop.time() <= BATCH_TICK_S:
            return  # sooner is never wanted, and each call that starts asks
        after_s = self._next_s()
        if after_s is None or self._closed:
            return
        at_s = self._loop.time() + after_s
        if self._timer is not None:
            if self._timer.when() <= at_s and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._tick)

    def _next_s(self) -> float | None:
        pools = (*self._pools.values(), *self._old)
        if self._runs:
            if any(pool.has_batches for pool in pools):
                return BATCH_TICK_S
            now = self._loop.time()
            is_fresh = any(now - run.at_s < 1.0 for run, _ in self._runs.values())
            return TICK_S if is_fresh else SLOW_TICK_S
        return REST_S if any(pool.brood.needs_look for pool in pools) else None

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        for pool in (*self._pools.values(), *self._old):
            pool.tick(now)
            pool.brood.look(now)
        self._old = [pool for pool in self._old if pool.is_busy or pool.brood.children]
        self._arm()
