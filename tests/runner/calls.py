"""Calls on a real executor's carriers, in this process; what was heard of them, to be awaited."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from quvatlh.config.environments import Environment
from quvatlh.core.calls import Call, CallAdapter
from quvatlh.core.work import Work
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted
from quvatlh.runner.carriers import Carriers
from quvatlh.runner.native import NativeRunner
from quvatlh.runner.settings import OUTPUT_BYTES_MIN, RunnerSettings, inherited
from quvatlh.system.clock import RealClock

APP = Path(__file__).parent / "app"
DEFAULT = Environment("default", cwd=str(APP))
WAIT_S = 60


class Calls:
    def __init__(self, directory: Path, *environments: Environment) -> None:
        self.outputs = directory / "outputs"
        settings = RunnerSettings(str(self.outputs), str(directory / "inputs"), OUTPUT_BYTES_MIN, inherited(os.environ))
        self.carriers = Carriers(settings, RealClock(), NativeRunner(settings, RealClock()))
        self.pools = self.carriers.pools
        self.pools.configure(environments or (DEFAULT,))
        self.carriers.listen(self)
        self.starts: list[ActionStarted] = []
        self.progress: list[ActionProgress] = []
        self.order: list[str] = []
        """Ids, as they ended."""
        self._told = asyncio.Event()
        self._begun: dict[str, asyncio.Event] = {}
        self._ends: dict[str, asyncio.Future[ActionFinished]] = {}

    def start(
        self,
        target: str,
        *args: Any,
        adapter: CallAdapter = "python",
        environment: str = "default",
        kwargs: dict[str, Any] | None = None,
        around: Work | None = None,
        payload: bytes | None = None,
        timeout_s: float | None = None,
        grace_s: float = 0.3,
        width: int = 2,
        slots: int = 1,
        task: str | None = None,
        once: bool = False,
        attempt: int = 2,
    ) -> str:
        """The id of the new action."""
        number = len(self._ends) + 1
        name = f"a{number}"
        call = Call(adapter, environment, target, json.dumps(args).encode(), json.dumps(kwargs or {}).encode())
        work = Work(())
        if around is not None:
            work = around
        self._ends[name] = asyncio.get_running_loop().create_future()
        self._begun[name] = asyncio.Event()
        spec = ActionSpec(
            name, task or f"t{number}", attempt, 100 + number, "w1",
            Work((), work.env, work.cwd, work.user, work.stdin, work.rlimits, call),
            payload, timeout_s, grace_s=grace_s, slots=slots, width=width, once=once,
        )  # fmt: skip
        self.carriers.start(spec)
        return name

    async def end(self, name: str) -> ActionFinished:
        return await asyncio.wait_for(asyncio.shield(self._ends[name]), WAIT_S)

    async def begun(self, name: str) -> None:
        await asyncio.wait_for(self._begun[name].wait(), WAIT_S)

    async def run(self, target: str, *args: Any, **given: Any) -> ActionFinished:
        return await self.end(self.start(target, *args, **given))

    async def value(self, target: str, *args: Any, **given: Any) -> Any:
        end = await self.run(target, *args, **given)
        assert end.error is None, end
        return None if end.result is None else json.loads(end.result)

    def stop(self, name: str, grace_s: float | None = None) -> None:
        self.carriers.stop(name, grace_s)

    def children(self, environment: str = "default") -> int:
        return len(self.pools.pool(environment).brood.children)

    def started(self, event: ActionStarted) -> None:
        self.starts.append(event)
        self._begun[event.action_id].set()

    def progressed(self, event: ActionProgress) -> None:
        self.progress.append(event)
        self._told.set()

    async def told(self) -> None:
        """Somebody has said something of itself."""
        await asyncio.wait_for(self._told.wait(), WAIT_S)
        self._told.clear()

    @staticmethod
    async def turn() -> None:
        """What was started is with its child, where that has room."""
        for _ in range(3):
            await asyncio.sleep(0)

    def finished(self, event: ActionFinished) -> None:
        self.order.append(event.action_id)
        self._ends[event.action_id].set_result(event)


def code(end: ActionFinished) -> str | None:
    return None if end.error is None else end.error.code


def text(end: ActionFinished) -> str:
    return "" if end.error is None else end.error.text


async def healthy(calls: Calls) -> None:
    """Whatever happened, the next calls run."""
    assert await asyncio.gather(*(calls.value("jobs:add", n) for n in range(6))) == [1, 2, 3, 4, 5, 6]
