"""The executor as a process: `python -P -m quvatlh.runner.executor`, with its settings on standard input.

It says on standard output, once: that it is ready, or why it is not. Read from top to bottom as the story of its life.
"""

import fcntl
import gc
import json
import os
import sys
from typing import Any, Final

from quvatlh.runner.executor import isolate

GARBAGE: Final = (10_000, 20, 20)
"""What is held leaves by itself, without a cycle; to look through it for garbage every 700 took a fifth of a short call."""


def main() -> None:
    # 1. What it is to be; nothing of it is secret.
    settings: dict[str, Any] = json.load(sys.stdin)
    try:
        # 2. Away from who started it, and alone, before much is in memory.
        isolate.enter(settings["mode"])
    except isolate.NotIsolated as refusal:
        _say(f"not isolated: {refusal}")
        return
    # 3. One executor a data directory.
    directory = os.open(settings["data"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    lock = os.open(settings["lock"], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("taken")
        return
    os.ftruncate(2, 0)
    # 4. The loop; ready once the socket listens. No debugging of it, no threads.
    import asyncio  # noqa: PLC0415 - not before there is one process left

    from quvatlh.runner.executor.life import live  # noqa: PLC0415

    gc.freeze()
    gc.set_threshold(*GARBAGE)
    asyncio.run(live(settings, directory, lambda: _say("ready")))
    # 5. Nothing is left of it that another could find. The lock goes last, with the process.
    os.unlink(settings["socket"], dir_fd=directory)
    os._exit(0)


def _say(word: str) -> None:
    """Once; from then on nobody's standard output."""
    os.write(1, f"{word}\n".encode())
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    main()
