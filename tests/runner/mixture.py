"""Calls of which 1 % end by a segmentation fault, 1 % by os._exit and 1 % never."""

from __future__ import annotations

_BAD = {13: ("jobs:segfault", "crash"), 47: ("jobs:vanish", "crash"), 81: ("jobs:spin", "timeout")}


def target(number: int) -> str:
    return _BAD.get(number % 100, ("jobs:noop", None))[0]


def expected(number: int) -> str | None:
    """The fault it ends with."""
    return _BAD.get(number % 100, ("jobs:noop", None))[1]
