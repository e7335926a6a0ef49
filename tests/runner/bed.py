"""A real runner on a directory of the test's own, and what its listener heard, to be awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from quvatlh.core.work import check
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted
from quvatlh.runner.native import NativeRunner
from quvatlh.runner.settings import OUTPUT_BYTES_MIN, RunnerSettings
from quvatlh.system.clock import RealClock

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Bed:
    def __init__(self, directory: Path, environment: Mapping[str, str] = ENVIRONMENT) -> None:
        self.outputs = directory / "outputs"
        self.inputs = directory / "inputs"
        settings = RunnerSettings(str(self.outputs), str(self.inputs), OUTPUT_BYTES_MIN, environment)
        self.runner = NativeRunner(settings, RealClock())
        self.runner.listen(self)
        self.heard: list[ActionStarted | ActionProgress | ActionFinished] = []
        self._started: dict[str, asyncio.Future[ActionStarted]] = {}
        self._finished: dict[str, asyncio.Future[ActionFinished]] = {}
        self._count = 0

    def start(
        self,
        work: object,
        *,
        payload: bytes | None = None,
        timeout_s: float | None = None,
        stop_signal: str = "TERM",
        grace_s: float = 10.0,
    ) -> str:
        """The id of the new action; `work` as a task has it, a text being a shell's."""
        self._count += 1
        name = f"action-{self._count}"
        loop = asyncio.get_running_loop()
        self._started[name] = loop.create_future()
        self._finished[name] = loop.create_future()
        described = check({"shell": work} if isinstance(work, str) else work)
        self.runner.start(
            ActionSpec(name, f"task-{self._count}", 2, 77, "w1", described, payload, timeout_s, stop_signal, grace_s)
        )
        return name

    async def has_started(self, name: str) -> ActionStarted:
        return await asyncio.wait_for(asyncio.shield(self._started[name]), 30)

    async def has_finished(self, name: str) -> ActionFinished:
        return await asyncio.wait_for(asyncio.shield(self._finished[name]), 30)

    async def run(self, work: object, **given: object) -> ActionFinished:
        return await self.has_finished(self.start(work, **given))  # type: ignore[arg-type]

    async def written(self, name: str, size: int) -> bytes:
        """The first bytes of standard output, as soon as there are so many."""
        found = b""
        async for chunk in self.runner.follow(name):
            found += chunk.data
            if len(found) >= size:
                break
        return found

    def started(self, event: ActionStarted) -> None:
        self.heard.append(event)
        self._started[event.action_id].set_result(event)

    def progressed(self, event: ActionProgress) -> None:
        self.heard.append(event)

    def finished(self, event: ActionFinished) -> None:
        self.heard.append(event)
        self._finished[event.action_id].set_result(event)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def opened() -> set[tuple[str, str]]:
    """Descriptors and what they are of. What an earlier test has left to the collector may go at any time."""
    found = set()
    for number in descriptors():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))
