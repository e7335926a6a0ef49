"""SIGTERM and SIGINT as one awaitable wish to stop. What stopping means is the daemon's business."""

from __future__ import annotations

import asyncio
import os
import signal
from types import TracebackType
from typing import Self

STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """While entered: the first signal is a wish, the second ends the process at once, as it would have without us."""

    def __init__(self) -> None:
        self._wish: asyncio.Future[signal.Signals] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(self) -> signal.Signals:
        """The signal that asked; returns at once when one came before."""
        if self._wish is None:
            raise RuntimeError("signals are waited for only while they are caught")
        return await asyncio.shield(self._wish)

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._wish = self._loop.create_future()
        for each in STOPPING:
            self._loop.add_signal_handler(each, self._arrived, each)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            for each in STOPPING:
                self._loop.remove_signal_handler(each)

    def _arrived(self, which: signal.Signals) -> None:
        if self._wish is None or self._wish.done():
            signal.signal(which, signal.SIG_DFL)
            os.kill(os.getpid(), which)
        else:
            self._wish.set_result(which)
