"""What an executor carries out actions with: native commands and calls, behind one face, by what a work is.

Both take from the same slots: a command has been let in by the worker and takes its own at once, a call waits for one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted, Clock, RunError, RunnerListener
from quvatlh.runner.capture import Bell
from quvatlh.runner.native import STOPPED, NativeRunner
from quvatlh.runner.pools.gate import Gate
from quvatlh.runner.pools.runner import PoolRunner
from quvatlh.runner.settings import RunnerSettings


class Watched(Protocol):
    """A live action, as far as its outputs go."""

    @property
    def bell(self) -> Bell: ...

    def written(self) -> tuple[int, int]:
        """Bytes of both streams so far."""
        ...


class Carrier(Protocol):
    """Of ports.Runner, what a keeper needs, and a little more."""

    @property
    def taken(self) -> int:
        """Slots of what runs; of calls that wait for one, none."""
        ...

    @property
    def has_line(self) -> bool:
        """Calls wait for slots."""
        ...

    def listen(self, listener: RunnerListener) -> None: ...

    def start(self, action: ActionSpec) -> None: ...

    def stop(self, action_id: str, grace_s: float | None = None, wish: RunError = STOPPED) -> None:
        """`wish`: what it finishes with."""
        ...

    def live(self) -> Collection[str]: ...

    def run_of(self, action_id: str) -> Watched | None:
        """The live one."""
        ...

    async def close(self, grace_s: float) -> None: ...


class Carriers:
    """A Carrier, and a ports.RunnerListener of its parts."""

    def __init__(self, settings: RunnerSettings, clock: Clock, native: NativeRunner) -> None:
        self.gate = Gate()
        self.native = native
        self.pools = PoolRunner(settings, clock, self.gate, native)
        self._listeners: list[RunnerListener] = []
        self._slots: dict[str, int] = {}
        """Of live commands."""
        native.listen(self)
        self.pools.listen(self)

    @property
    def taken(self) -> int:
        return self.gate.taken

    @property
    def has_line(self) -> bool:
        return self.pools.has_line

    def listen(self, listener: RunnerListener) -> None:
        self._listeners.append(listener)

    def start(self, action: ActionSpec) -> None:
        if action.work.call is not None:
            self.pools.start(action)
            return
        self.native.start(action)
        self._slots[action.id] = action.slots
        self.gate.taken += action.slots

    def stop(self, action_id: str, grace_s: float | None = None, wish: RunError = STOPPED) -> None:
        if action_id in self._slots:
            self.native.stop(action_id, grace_s, wish)
        else:
            self.pools.stop(action_id, grace_s, wish)

    def live(self) -> Collection[str]:
        return [*self.native.live(), *self.pools.live()]

    def run_of(self, action_id: str) -> Watched | None:
        return self.native.run_of(action_id) or self.pools.run_of(action_id)

    async def close(self, grace_s: float) -> None:
        for name in list(self.pools.live()):
            self.pools.stop(name, grace_s, STOPPED)
        await self.pools.close()
        await self.native.close(grace_s)

    # --- a ports.RunnerListener ---

    def started(self, event: ActionStarted) -> None:
        for listener in self._listeners:
            listener.started(event)

    def progressed(self, event: ActionProgress) -> None:
        for listener in self._listeners:
            listener.progressed(event)

    def finished(self, event: ActionFinished) -> None:
        slots = self._slots.pop(event.action_id, 0)
        if slots:
            self.gate.release(slots)
            self.pools.room()
        for listener in self._listeners:
            listener.finished(event)
