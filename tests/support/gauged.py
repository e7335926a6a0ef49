"""`quvatlh run`, configured by its environment, whose loop is watched: python -m tests.support.gauged FILE

SIGUSR1 writes what gauge.py has seen to FILE, whole or not at all, and starts anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

from quvatlh import config, daemon
from tests.support.gauge import Ticker


async def run(path: str) -> None:
    ticker = Ticker()

    def report() -> None:
        with open(f"{path}.new", "w") as file:
            json.dump(ticker.report(), file)
        os.replace(f"{path}.new", path)
        ticker.reset()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, report)
    try:
        await daemon.run(config.load(environ=os.environ))
    finally:
        ticker.stop()


def main() -> None:
    try:
        asyncio.run(run(sys.argv[1]))
    except (config.ConfigError, daemon.StartRefused) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
