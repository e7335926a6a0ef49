"""A clock that stands until a test moves it. ports.Clock."""

from __future__ import annotations


class FakeClock:
    def __init__(self, boot: float = 1000.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._boot = boot
        self._wall_ms = wall_ms

    def boot(self) -> float:
        return self._boot

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, seconds: float) -> None:
        """Both clocks, as time does."""
        self._boot += seconds
        self._wall_ms += round(seconds * 1000)

    def set_wall(self, wall_ms: int) -> None:
        """As an administrator does, or a time server; the boot clock does not notice."""
        self._wall_ms = wall_ms
