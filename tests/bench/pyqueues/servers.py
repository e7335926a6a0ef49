"""Servers that other queues stand on: on the loopback, at a free port, with a directory of their own, gone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.cluster.ports import Reserved

START_S: Final = 30.0
STOP_S: Final = 10.0
LOOK_S: Final = 0.05


class Missing(Exception):
    """What is not installed here, and how to have it."""


@contextlib.asynccontextmanager
async def redis(directory: Path, *, synced: bool) -> AsyncIterator[str]:
    """Its URL. `synced`: what it answers is on the disk; else it keeps what a server without a configuration keeps."""
    program = _program("redis-server", "apt install redis-server")
    port = Reserved()
    kept = ["--appendonly", "yes", "--appendfsync", "always"] if synced else []
    address = port.address.rpartition(":")
    command = [program, "--bind", address[0], "--port", address[2], "--dir", str(directory), *kept]
    try:
        async with running([command], directory / "redis.log"):
            await _listens(port.address)
            yield f"redis://{port.address}/0"
    finally:
        port.release()


@contextlib.asynccontextmanager
async def postgres(directory: Path) -> AsyncIterator[str]:
    """Its URL. With its own defaults: what it answers is on the disk."""
    initdb, program = _program("initdb", "apt install postgresql"), _program("postgres", "apt install postgresql")
    user = _other_user()
    data = directory / "postgres"
    data.mkdir()
    if user is not None:
        directory.chmod(0o711)
        os.chown(data, *user)
    owner = _owner(user)
    making = await asyncio.create_subprocess_exec(
        initdb, "-D", data, "-A", "trust", "-U", "bench", stdout=subprocess.DEVNULL, cwd=data, **owner
    )
    if await making.wait() != 0:
        raise RuntimeError("initdb has failed")
    port = Reserved()
    host, _, number = port.address.rpartition(":")
    command = [program, "-D", str(data), "-k", str(data), "-h", host, "-p", number]
    try:
        async with running([command], directory / "postgres.log", user=user, stop=signal.SIGINT):
            await _listens(port.address)
            yield f"postgresql://bench@{port.address}/postgres"
    finally:
        port.release()


@contextlib.asynccontextmanager
async def running(
    commands: Sequence[Sequence[str]],
    log: Path,
    environ: Mapping[str, str] | None = None,
    *,
    user: tuple[int, int] | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> AsyncIterator[None]:
    """Each in a session of its own, which ends with the context, whatever it has started."""
    made: list[asyncio.subprocess.Process] = []
    with log.open("wb") as out:
        try:
            for command in commands:
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                    cwd=log.parent if environ is None else None, env=None if environ is None else {**os.environ, **environ},
                    **_owner(user),
                )  # fmt: skip
                made.append(process)
            yield
        finally:
            for process in made:
                await _stop(process, stop)


async def _stop(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            await process.wait()
    with contextlib.suppress(ProcessLookupError):  # and what it left behind
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _listens(address: str) -> None:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(START_S):
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                return
            await asyncio.sleep(LOOK_S)


def _program(name: str, remedy: str) -> str:
    """Debian has the programs of PostgreSQL in a directory for each version."""
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
    found = shutil.which(name) or next((str(each / name) for each in newest if (each / name).exists()), None)
    if found is None:
        raise Missing(f"{name} is not installed: {remedy}")
    return found


def _owner(user: tuple[int, int] | None) -> dict[str, Any]:
    return {} if user is None else {"user": user[0], "group": user[1], "extra_groups": []}


def _other_user() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return found.pw_uid, found.pw_gid
    raise Missing("PostgreSQL does not run as root, and there is no user for it")
