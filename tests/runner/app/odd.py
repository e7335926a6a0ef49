"""Tasks whose exceptions, values and outputs are of an odd make. Found like jobs.py."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any, NoReturn

from quvatlh.task import Retry

NAME = os.fsdecode(b"caf\xe9.txt")
"""Of a file, as os.listdir gives it: no UTF-8."""


class Silent(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Causeless(Exception):
    @property
    def __cause__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("no cause")


class Endless(Retry):
    def __init__(self) -> None:
        super().__init__("not yet")
        self.after = float("inf")


class Open(dict[str, int]):
    def __getattr__(self, name: str) -> int:
        return self[name]


def raises(kind: str) -> NoReturn:
    error: BaseException
    if kind == "silent":
        error = Silent()
    elif kind == "causeless":
        error = Causeless("x")
    else:
        error = SyntaxError("bad template")
        error.lineno, error.offset, error.text = 3, 1, "x"
        setattr(error, kind, b"{% if" if kind == "text" else "1")
    raise error


def endless() -> NoReturn:
    raise Endless


def opened() -> dict[str, int]:
    return Open(a=1)


class Leaving(dict[str, int]):
    def items(self) -> NoReturn:
        raise SystemExit(3)


def leaving() -> dict[str, int]:
    return Leaving(a=1)


def mute() -> None:
    sys.stderr = None
    raise ValueError("no good")


def patches() -> None:
    def odd() -> Any:
        return "now"

    time.time = time.perf_counter = time.monotonic_ns = odd


async def stops_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(60)
