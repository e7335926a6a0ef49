"""Starting an executor, from the daemon's side: a process that ends at once, and the executor that it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Final, Literal

from quvatlh.config.environments import Environment
from quvatlh.runner.executor.isolate import Mode
from quvatlh.runner.settings import RunnerSettings, inherited

READY_S: Final = 10.0
"""It takes a tenth of a second; a machine that needs a hundred times that is in trouble."""
SOCKET: Final = "executor.sock"
LOCK: Final = "executor.lock"
LOG: Final = "executor.log"
"""What a crash of the executor leaves to be read. Emptied by the next."""
SAY_BYTES_MAX: Final = 4096

Wish = Literal["auto", "userns", "plain"]


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    data: str
    """The directory of its socket, lock and log; the daemon's own, and nobody else's."""
    worker: str
    runner: RunnerSettings
    """The environment in it is not looked at: actions inherit that of the daemon that started the executor."""
    isolation: Wish = "auto"
    """auto: as root a PID namespace, else a guard. userns: the same namespace without root; sudo has no power there."""
    environments: tuple[Environment, ...] = ()
    """What takes calls; an executor that is found is told of them, too."""


class NotHatched(OSError):
    """There is no executor, and why."""


class Crowded(Exception):
    """There is one already, or still."""


def modes(wish: Wish) -> tuple[Mode, ...]:
    """What is tried, the best first. What was asked for by name has nothing in its place."""
    if wish == "userns":
        return ("userns",)
    return ("pidns", "plain") if wish == "auto" and os.geteuid() == 0 else ("plain",)


async def hatch(settings: ExecutorSettings) -> str:
    """Start one, and return when it listens. What a person should know of it, if anything. NotHatched, Crowded."""
    failures: list[str] = []
    for mode in modes(settings.isolation):
        said = await _try(settings, mode)
        if said == "ready":
            return _gap(failures) if mode == "plain" else ""
        if said == "taken":
            raise Crowded
        failures.append(said or f"it ended without a word; see {settings.data}/{LOG}")
        if not said.startswith("not isolated"):
            break
    raise NotHatched(f"the executor does not start: {'; '.join(failures)}")


def _gap(failures: list[str]) -> str:
    why = f" ({'; '.join(failures)})" if failures else ""
    return (
        f"actions run without a PID namespace{why}: if executor and guard are killed at the same time, "
        "children of actions may go on; worker.executor: userns closes the gap, but sudo has no power there"
    )


async def _try(settings: ExecutorSettings, mode: Mode) -> str:
    given = {
        "data": settings.data,
        "worker": settings.worker,
        "mode": mode,
        "outputs": settings.runner.outputs_dir,
        "inputs": settings.runner.inputs_dir,
        "output_bytes_max": settings.runner.output_bytes_max,
        "socket": SOCKET,
        "lock": LOCK,
    }
    log = os.open(f"{settings.data}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 - our own module; it returns once the child is one
            (sys.executable, "-P", "-m", "quvatlh.runner.executor"),
            env=inherited(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:  # a pipe holds it all, so nothing waits here
        process.stdin.write(json.dumps(given).encode())
    try:
        with process.stdout:
            said = await _said(process.stdout.fileno())
    finally:
        # It has ended: the executor is its own process, or has said why there is none. Else nobody waits for it any more.
        if process.poll() is None:
            process.kill()
            process.wait()
    return said


async def _said(fd: int) -> str:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        async with asyncio.timeout(READY_S):
            await readable.wait()
        return os.read(fd, SAY_BYTES_MAX).decode("utf-8", "replace").strip()
    except TimeoutError:
        return f"it was not ready within {READY_S:g} s"
    finally:
        loop.remove_reader(fd)
