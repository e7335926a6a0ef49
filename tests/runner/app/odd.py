"""Tasks whose exceptions, values and outputs are of an odd make. Found like jobs.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import Any, NoReturn

from quvatlh.task import Retry, current

NAME = "caf\udce9.txt"
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


def tells(how: str) -> None:
    if how == "log":
        current().log(NAME)
    elif how == "progress":
        current().progress(1, NAME)
    elif how == "retry":
        raise Retry(NAME)
    else:
        raise ValueError(NAME)


async def prints() -> NoReturn:
    await asyncio.sleep(0)
    print(NAME)
    print(NAME, file=sys.stderr)
    raise ValueError(NAME)


async def floods(how: str, count: int) -> None:
    await asyncio.sleep(0)
    if how == "log":
        current().log("\0" * count)
    else:
        print("\0" * count)


async def babbles_when(others: int) -> None:
    """Onto every descriptor, once so many run beside it."""
    while len(asyncio.all_tasks()) <= others:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    for fd in range(3, 30):
        with contextlib.suppress(OSError):
            os.write(fd, b"this is no message\n")


KEPT: list[Any] = []


def spoils(how: str, path: str) -> int:
    if how == "closes":
        os.close(1)
        os.close(2)
    elif how == "takes":
        os.close(1)
        KEPT.append(open(path, "w"))  # noqa: SIM115 - a connection, or a log
    elif how == "forgets to put back":
        KEPT.append(os.dup(1))
        KEPT.append(open(path, "w"))  # noqa: SIM115 - as above
        os.dup2(KEPT[-1].fileno(), 1)
    elif how == "exchanges":
        os.dup2(1, 2)
    return os.getpid()


async def spoils_beside(how: str, path: str) -> int:
    await asyncio.sleep(0)
    return spoils(how, path)


def puts_back(path: str) -> int:
    before = os.dup(1)
    with open(path, "w") as file:
        os.dup2(file.fileno(), 1)
        os.write(1, b"aside")
    os.dup2(before, 1)
    os.close(before)
    return os.getpid()
