"""Time and chance."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The two clocks. Everything that measures uses `boot`; only log time is made of `wall_ms`."""

    def boot(self) -> float:
        """Seconds of CLOCK_BOOTTIME: never set, goes on while the machine sleeps."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, as this machine believes."""
        ...


class Entropy(Protocol):
    """Chance, as a port, so that a simulation can own it."""

    def random(self) -> float:
        """In [0, 1)."""
        ...

    def token(self, nbytes: int) -> bytes:
        """Unguessable bytes."""
        ...
