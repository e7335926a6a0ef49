"""The clocks and the chance of one simulated machine.

Timers of the loop keep virtual time; what a process *reads* may run faster or slower, start elsewhere, and, for the
wall clock, be set. All reads move on with what the running handle has spent (`Process.spend`).
"""

from __future__ import annotations

import random

from tests.sim.loop import SimLoop
from tests.sim.process import PROCESS

WALL_START_MS = 1_700_000_000_000
"""What an exact wall clock shows at virtual time 0."""


class SimClock:
    """Keeps ports.Clock. One a machine: it outlives the processes on it, and `reboot` starts the boot clock anew."""

    def __init__(self, loop: SimLoop, rate: float = 1.0, boot_s: float = 0.0, wall_offset_ms: int = 0) -> None:
        self._loop = loop
        self.rate = rate
        """Seconds shown in one second. Crystals stay within 1 ± 1e-4; the log allows for far more."""
        self.boot_offset_s = boot_s
        self.wall_offset_ms = wall_offset_ms

    def _elapsed_s(self) -> float:
        process = PROCESS.get(None)
        return (self._loop.now_s + (process.ahead_s if process is not None else 0.0)) * self.rate

    def boot(self) -> float:
        return self._elapsed_s() + self.boot_offset_s

    def wall_ms(self) -> int:
        return WALL_START_MS + self.wall_offset_ms + int(self._elapsed_s() * 1000)

    def jump_ms(self, delta_ms: int) -> None:
        """Somebody sets the wall clock."""
        self.wall_offset_ms += delta_ms

    def reboot(self) -> None:
        """The boot clock begins at 0 again; the wall clock goes on."""
        self.boot_offset_s = -self._elapsed_s()


class SimEntropy(random.Random):
    """Keeps ports.Entropy, from a seed."""

    def token(self, nbytes: int) -> bytes:
        return self.randbytes(nbytes)
