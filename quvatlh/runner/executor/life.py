"""From the first turn of the executor's loop to its last: the runners, the keeper, the door, in this order."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable
from typing import Any

from quvatlh.runner.carriers import Carriers
from quvatlh.runner.cgroups import Cgroups
from quvatlh.runner.executor import door
from quvatlh.runner.executor.keeper import Keeper
from quvatlh.runner.native import NativeRunner
from quvatlh.runner.settings import RunnerSettings

SESSION_BYTES = 16
SECRET_BYTES = 32
LAST_WORDS_S = 1.0
"""For a daemon to take what was said last."""


class BootClock:
    """ports.Clock of this process, which is a root of its own and takes nothing from the daemon's."""

    def boot(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


async def live(settings: dict[str, Any], directory: int, ready: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    clock = BootClock()
    isolated = settings["mode"] != "plain"
    given = RunnerSettings(settings["outputs"], settings["inputs"], settings["output_bytes_max"])
    native = NativeRunner(given, clock, with_parent=not isolated)
    native.cgroups = Cgroups.find()
    runner = Carriers(given, clock, native)
    life = secrets.token_hex(SESSION_BYTES), secrets.token_bytes(SECRET_BYTES), settings["worker"]
    keeper = Keeper(runner, clock, life, over.set, isolated=isolated)
    keeper.on_environments, keeper.on_reload = runner.pools.configure, runner.pools.reload
    keeper.on_read = runner.pools.hand_out
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, keeper.end, 0)
    entrance = door.Door(keeper)
    await entrance.open(door.listen(directory, settings["socket"]))
    ready()
    await over.wait()
    entrance.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_S):
            await entrance.empty.wait()
