"""Measures how long the loop is held up: a tick that comes late, and what the thread did meanwhile.

A late tick has three causes, and the kernel tells them apart: the thread was computing (a stall of ours), it was ready and
got no processor (a busy machine), or it slept, waiting for another thread's lock or for the disk.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TICK_S = 0.002


@dataclass(slots=True)
class Stall:
    """One late tick, in milliseconds."""

    late_ms: float = 0.0
    computing_ms: float = 0.0
    queued_ms: float = 0.0
    """Ready, and another process had the processor."""

    @property
    def held_ms(self) -> float:
        """Not to be blamed on other processes: computing, or waiting for a lock or the disk."""
        return self.late_ms - self.queued_ms


class Ticker:
    """Runs until stopped; keeps the worst since the last reset."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._accounts = Path("/proc/thread-self/schedstat").resolve()
        self._handle: asyncio.TimerHandle | None = None
        self.reset()
        self._look()

    def reset(self) -> None:
        self.latest = Stall()
        """The latest of all ticks."""
        self.worst = Stall()
        """The one whose lateness is least to be blamed on others."""
        self.longest_ms = 0.0
        """The most that was computed between two ticks."""
        self.ticks = 0
        self._due = self._loop.time() + TICK_S
        self._before = self._account()

    def report(self) -> dict[str, Any]:
        return {"ticks": self.ticks, "latest": asdict(self.latest), "worst": asdict(self.worst)}

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _account(self) -> tuple[float, float]:
        """Milliseconds this thread has run, and has waited for a processor."""
        ran, waited, _slices = self._accounts.read_text().split()
        return int(ran) / 1e6, int(waited) / 1e6

    def _look(self) -> None:
        late_ms = max(0.0, self._loop.time() - self._due) * 1000
        ran, waited = self._account()
        stall = Stall(late_ms, ran - self._before[0], min(late_ms, waited - self._before[1]))
        self.longest_ms = max(self.longest_ms, stall.computing_ms)
        self.ticks += 1
        self.latest = max(self.latest, stall, key=lambda each: each.late_ms)
        self.worst = max(self.worst, stall, key=lambda each: each.held_ms)
        self._before = (ran, waited)
        self._due = self._loop.time() + TICK_S
        self._handle = self._loop.call_at(self._due, self._look)
