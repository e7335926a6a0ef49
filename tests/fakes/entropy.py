"""Chance that comes out the same each time. ports.Entropy."""

from __future__ import annotations

import random


class FakeEntropy:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def token(self, nbytes: int) -> bytes:
        return self._random.randbytes(nbytes)
