"""Chance from the kernel. Nothing else in the package draws it."""

from __future__ import annotations

import random
import secrets


class RealEntropy:
    """ports.Entropy by the kernel's generator, for both: nobody may foresee an election's delay or a token."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def random(self) -> float:
        return self._random.random()

    def token(self, nbytes: int) -> bytes:
        return secrets.token_bytes(nbytes)
