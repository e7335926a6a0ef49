"""Sends tasks to one queue, in a process of its own: python -m tests.bench.pyqueues.produce MODULE many|one COUNT.

It says `ready`, sends when a line comes, and prints as JSON what the bench wants to know: of `one`, when each was sent.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from types import ModuleType
from typing import Final

PAUSE_S: Final = 0.02
"""Between two that are sent alone: all is idle again."""


async def many(queue: ModuleType, count: int) -> list[int]:
    await queue.many(count)
    return []


async def one(queue: ModuleType, count: int) -> list[int]:
    sent = []
    for number in range(count):
        sent.append(time.monotonic_ns())
        await queue.one(number)
        await asyncio.sleep(PAUSE_S)
    return sent


async def prepare(queue: ModuleType, _count: int) -> list[int]:
    """The tables of a queue that has any."""
    await queue.prepare()
    return []


WAYS: Final = {each.__name__: each for each in (many, one, prepare)}


def main() -> None:
    module, way, count = sys.argv[1:]
    queue = importlib.import_module(f"tests.bench.pyqueues.{module}")
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(WAYS[way](queue, int(count)))), flush=True)


if __name__ == "__main__":
    main()
