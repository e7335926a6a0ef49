"""What stands in an app: asked in a process of its own, by the interpreter that its tasks run in (`inside/survey.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quvatlh.config.environments import Environment
from quvatlh.runner.pools.nursery import INSIDE

SCRIPT: Final = os.path.join(INSIDE, "survey.py")
TOLD_BYTES_MAX: Final = 16 * 1024 * 1024


class Survey(msgspec.Struct, frozen=True):
    error: str = ""
    """Why it cannot be loaded, in a line; empty where it can."""
    trace: str = ""
    apps: int = 0
    tasks: int = 0
    schedules: dict[str, dict[str, Any]] = {}
    """By name, as PUT /v1/schedules takes them."""
    files: tuple[str, ...] = ()
    """Of the modules that somebody works on: what is installed is not among them."""


async def survey(environment: Environment, base: Mapping[str, str], module: str) -> Survey:
    """`base`: the variables of every environment."""
    read_fd, write_fd = os.pipe()
    with open(read_fd, "rb", buffering=0) as pipe:
        try:
            process = await asyncio.create_subprocess_exec(
                environment.interpreter,
                SCRIPT,
                str(write_fd),
                environment.cwd or os.getcwd(),
                module,
                env={**base, **dict(environment.env)},
                cwd=environment.cwd or None,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,
                pass_fds=(write_fd,),
                start_new_session=True,
            )
        except OSError as error:
            return Survey(f"{error.filename or environment.interpreter}: {error.strerror}")
        finally:
            os.close(write_fd)
        try:
            async with asyncio.timeout(environment.start_s):
                told = await asyncio.to_thread(_all_of, pipe.fileno())
                status = await process.wait()
        except TimeoutError:
            return Survey(f"it was not loaded within {environment.start_s} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(told, type=Survey)
    except msgspec.MsgspecError:
        return Survey(f"the process that loaded it ended with status {status}, and said nothing")


def _all_of(fd: int) -> bytes:
    data = bytearray()
    while len(data) <= TOLD_BYTES_MAX and (piece := os.read(fd, 65536)):
        data += piece
    return bytes(data)
