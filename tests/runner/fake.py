"""ports.Runner without processes: an action does what the test tells it to, and starts and stops as the real one's do."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection

from quvatlh.ports import (
    ActionFinished,
    ActionSpec,
    ActionStarted,
    Clock,
    OutputChunk,
    RunError,
    RunnerListener,
)


class FakeRunner:
    """`end` is the end that a test gives an action; until then it runs. Stopped, it ends at once by its signal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: list[RunnerListener] = []
        self._live: dict[str, int | None] = {}
        """Ids, and when they started."""
        self._signals: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self._bell = asyncio.Event()

    def listen(self, listener: RunnerListener) -> None:
        self._listeners.append(listener)

    def start(self, action: ActionSpec) -> None:
        if action.id in self._live:
            raise ValueError(f"action {action.id} is live already")
        self._live[action.id] = None
        self._signals[action.id] = action.stop_signal
        self._waiting.append(action.id)
        asyncio.get_running_loop().call_soon(self._begin)

    def stop(self, action_id: str, grace_s: float | None = None) -> None:
        if action_id in self._live:
            started = self._live[action_id] is not None
            name = ("KILL" if grace_s == 0 else self._signals[action_id]) if started else None
            self._finish(action_id, None, name, RunError("stopped", "stopped on request"))

    def end(self, action_id: str, exit_code: int = 0) -> None:
        error = RunError("exit", f"exit status {exit_code}") if exit_code else None
        self._finish(action_id, exit_code, None, error)

    has_line = False
    """Calls wait for slots."""

    @property
    def taken(self) -> int:
        return len(self._live)

    def live(self) -> Collection[str]:
        return self._live.keys()

    async def follow(
        self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> AsyncIterator[OutputChunk]:
        """It writes nothing."""
        while action_id in self._live:
            await self._bell.wait()
        nothing: tuple[OutputChunk, ...] = ()
        for chunk in nothing:
            yield chunk

    async def close(self, grace_s: float) -> None:
        for action_id in list(self._live):
            self.stop(action_id, grace_s)

    def _begin(self) -> None:
        action_id = self._waiting.popleft()
        if action_id not in self._live:
            return
        now_ms = self._clock.wall_ms()
        self._live[action_id] = now_ms
        for listener in self._listeners:
            listener.started(ActionStarted(action_id, 1, now_ms))

    def _finish(self, action_id: str, exit_code: int | None, name: str | None, error: RunError | None) -> None:
        started = self._live.pop(action_id)
        self._bell.set()
        self._bell.clear()
        finished_ms = self._clock.wall_ms()
        for listener in self._listeners:
            listener.finished(ActionFinished(action_id, exit_code, name, error, "", "", 0, 0, started, finished_ms))
