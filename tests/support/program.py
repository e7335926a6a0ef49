"""A small program on ports.Log, for tests of whole clusters: a node with registers and sets, and a client port.

    python -m tests.support.program --data D --name N --peer H:P --peers H:P,... --secret-file F --client H:P

The client port takes newline-delimited JSON, see door.py. "ready" on standard output says that it listens; logs go to
standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from typing import Any

from quvatlh import config
from quvatlh.config import Config
from quvatlh.daemon import running_log
from quvatlh.observe import logs
from quvatlh.system.signals import StopSignals
from tests.support.door import Door, serve
from tests.support.register import RegisterMachine, open_in

KEYS = {
    "data": "node.data",
    "name": "node.name",
    "peer": "peer.listen",
    "peers": "peer.peers",
    "secret_file": "peer.secret_file",
    "insecure": "peer.insecure",
}


async def run(settings: Config, client: str) -> None:
    logs.set_up("json", settings.log.level)
    current: list[RegisterMachine] = []

    def machines(directory: str) -> RegisterMachine:
        current[:] = [open_in(directory)]
        return current[0]

    async with contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        running = await stack.enter_async_context(running_log(settings, machines))
        server = await serve(Door(running.log, running.log, lambda: current[0]), client)
        stack.callback(server.close)
        print("ready", flush=True)
        either: set[asyncio.Future[Any]] = {asyncio.create_task(stop.wait()), running.broken}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if running.broken.done():
            running.broken.result()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.program")
    for name in KEYS:
        parser.add_argument("--" + name.replace("_", "-"))
    parser.add_argument("--client", required=True)
    given = vars(parser.parse_args())
    flags = {path: (name, given[name]) for name, path in KEYS.items()}
    try:
        settings = config.load(environ=os.environ, flags=flags)
    except config.ConfigError as error:
        sys.exit(str(error))
    asyncio.run(run(settings, given["client"]))


if __name__ == "__main__":
    main()
