"""Real executors on a directory of the test's own, and what a listener heard, to be awaited."""

from __future__ import annotations

import asyncio
from pathlib import Path

from quvatlh.ports import ActionFinished, ActionProgress, ActionStarted
from quvatlh.runner.connect import ProcessExecutor
from quvatlh.runner.hatch import ExecutorSettings, Wish
from quvatlh.runner.settings import OUTPUT_BYTES_MIN, RunnerSettings
from quvatlh.system.clock import RealClock

WAIT_S = 60


class Ear:
    """A ports.ExecutorListener."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[ActionStarted | ActionFinished] = asyncio.Queue()
        self.progress: list[ActionProgress] = []
        self.why: str | None = None
        self._gone = asyncio.Event()

    def started(self, event: ActionStarted) -> None:
        self.events.put_nowait(event)

    def progressed(self, event: ActionProgress) -> None:
        self.progress.append(event)

    def finished(self, event: ActionFinished) -> None:
        self.events.put_nowait(event)

    def gone(self, why: str) -> None:
        assert self.why is None
        self.why = why
        self._gone.set()

    async def next(self) -> ActionStarted | ActionFinished:
        return await asyncio.wait_for(self.events.get(), WAIT_S)

    async def end(self) -> ActionFinished:
        while not isinstance(event := await self.next(), ActionFinished):
            pass
        return event

    async def gone_because(self) -> str:
        await asyncio.wait_for(self._gone.wait(), WAIT_S)
        assert self.why is not None
        return self.why


def real(
    directory: Path, worker: str = "w1", isolation: Wish = "auto", notes: list[str] | None = None
) -> ProcessExecutor:
    outputs = RunnerSettings(f"{directory}/outputs", f"{directory}/inputs", OUTPUT_BYTES_MIN)
    settings = ExecutorSettings(str(directory), worker, outputs, isolation)
    return ProcessExecutor(settings, RealClock(), (notes if notes is not None else []).append)


def ended(end: ActionFinished) -> tuple[str, str | None]:
    return end.action_id, None if end.error is None else end.error.code
