"""A small program on ports.Log, for tests of whole clusters: a node with registers and sets, and a client port.

    python -m tests.support.program --data D --name N --peer H:P --peers H:P,... --secret-file F --client H:P
        [--settings checkpoint_bytes=65536,segment_bytes=16384] [--ticker]

The client port takes newline-delimited JSON, see door.py. "ready" on standard output says that it listens; logs go to
standard error. A node that does not start says why in one line and ends with status 1; one that cannot go on, with 3.
`--settings` are numbers of quvatlh/raft/settings.py: a test makes checkpoints frequent or logs short with them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import sys
from typing import Any

from quvatlh import config
from quvatlh.config import Config
from quvatlh.daemon import RunningLog, StartRefused, running_log
from quvatlh.observe import logs
from quvatlh.raft.settings import Settings
from quvatlh.system.signals import StopSignals
from tests.support.burst import burst
from tests.support.door import Answer, Door, Operation, Request, serve
from tests.support.gauge import Ticker
from tests.support.register import RegisterMachine, open_in

KEYS = {
    "data": "node.data",
    "name": "node.name",
    "peer": "peer.listen",
    "peers": "peer.peers",
    "secret_file": "peer.secret_file",
    "insecure": "peer.insecure",
}

REFUSED, BROKEN = 1, 3


async def run(settings: Config, client: str, numbers: Settings, *, ticking: bool) -> None:
    logs.set_up("json", settings.log.level)
    current: list[RegisterMachine] = []

    def machines(directory: str) -> RegisterMachine:
        current[:] = [open_in(directory)]
        return current[0]

    async with contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        running = await stack.enter_async_context(running_log(settings, machines, numbers))
        ticker = Ticker() if ticking else None
        if ticker is not None:
            stack.callback(ticker.stop)
        door = Door(
            running.log,
            running.log,
            lambda: current[0],
            operations=_operations(running, ticker),
            facts=lambda: _facts(running, ticker),
        )
        server = await serve(door, client)
        stack.callback(server.close)
        print("ready", flush=True)
        either: set[asyncio.Future[Any]] = {asyncio.create_task(stop.wait()), running.broken}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if running.broken.done():
            running.broken.result()


def _operations(running: RunningLog, ticker: Ticker | None) -> dict[str, Operation]:
    async def propose(request: Request) -> Answer:
        return await burst(running.log, request)

    async def reset(_request: Request) -> Answer:
        if ticker is not None:
            ticker.reset()
        return {"ok": True}

    return {"burst": propose, "reset": reset}


def _facts(running: RunningLog, ticker: Ticker | None) -> Answer:
    first, last, nbytes = running.log.log_span()
    facts: Answer = {
        "committed": running.log.committed_index,
        "log": {"first": first, "last": last, "bytes": nbytes},
        "waiting_for": running.log.waiting_for,
    }
    if ticker is not None:
        facts["stalls"] = ticker.report()
    return facts


def numbers_from(text: str) -> Settings:
    """From name=value,...; ValueError names what is wrong."""
    usual = dataclasses.asdict(Settings())
    given: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        match usual.get(name):
            case int():
                given[name] = int(value)
            case float():
                given[name] = float(value)
            case _:
                raise ValueError(f"no number of settings.py: {name}")
    return Settings(**given)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.program")
    for name in KEYS:
        parser.add_argument("--" + name.replace("_", "-"))
    parser.add_argument("--client", required=True)
    parser.add_argument("--settings", default=Settings(), type=numbers_from, metavar="NAME=NUMBER,...")
    parser.add_argument("--ticker", action="store_true", help="measure stalls of the loop; status tells them")
    given = vars(parser.parse_args())
    flags = {path: (name, given[name]) for name, path in KEYS.items()}
    try:
        settings = config.load(environ=os.environ, flags=flags)
    except config.ConfigError as error:
        sys.exit(str(error))
    try:
        asyncio.run(run(settings, given["client"], given["settings"], ticking=given["ticker"]))
    except StartRefused as error:
        print(f"does not start: {error}", file=sys.stderr)
        sys.exit(REFUSED)
    except Exception as error:  # noqa: BLE001  # whatever broke the node: a test reads what it was
        print(f"broken: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(BROKEN)


if __name__ == "__main__":
    main()
