"""The two clocks of this machine. Nothing else in the package asks the operating system for the time."""

from __future__ import annotations

import time


class RealClock:
    """ports.Clock by the kernel's clocks."""

    def boot(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
