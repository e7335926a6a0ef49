"""An event loop that waits for nothing: when only timers are left, the time of the next one is now.

For tests on fakes alone. What is given a moment to settle has it whatever else the machine does, and a lease of seconds is
over in no time. Threads are waited for in real time; sockets and processes are not, so this is no loop for those.
"""

from __future__ import annotations

import asyncio
import selectors
from concurrent.futures import Executor
from typing import Any


class _Selector(selectors.DefaultSelector):
    jumped_s = 0.0
    threads = 0
    """Calls under way in one."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads or timeout is None:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self.jumped_s += max(0.0, timeout)
        return found


class HastyLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return super().time() + self._waits.jumped_s

    def run_in_executor(  # type: ignore[override]  # what it is called with is passed on as it is
        self, executor: Executor | None, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._waits.threads += 1
        future.add_done_callback(self._came_back)
        return future

    def _came_back(self, _future: asyncio.Future[Any]) -> None:
        self._waits.threads -= 1
