"""Processes of plain.py: started, asked, killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.cluster.node import ROOT
from tests.cluster.ports import Reserved

PATIENCE_S = 60.0


class Rival:
    def __init__(self, address: str, others: list[str], journal: str) -> None:
        self.address = address
        self._arguments = [address, ",".join(others), journal]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.plain", *self._arguments,
            cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    async def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line)
        return found

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            # Not by the process object: looking whether the process lives, it would take its end from who waits for it.
            os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()


@contextlib.asynccontextmanager
async def rivals(directory: Path, count: int, *, journal: bool) -> AsyncIterator[list[Rival]]:
    ports = [Reserved() for _ in range(count)]
    addresses = [port.address for port in ports]
    directory.mkdir(parents=True, exist_ok=True)
    made = [
        Rival(each, [other for other in addresses if other != each], str(directory / f"j{number}") if journal else "")
        for number, each in enumerate(addresses)
    ]
    try:
        await asyncio.gather(*(each.start() for each in made))
        await leader(made)
        yield made
    finally:
        for each in made:
            with contextlib.suppress(ProcessLookupError):
                each.send(signal.SIGCONT)
            await each.kill()
        for port in ports:
            port.release()


async def leader(among: list[Rival]) -> Rival:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        for each in among:
            status = await each.ask(op="status")
            if status["leads"] and status["ready"]:
                return each
        await asyncio.sleep(0.02)
    raise AssertionError("no leader of pysyncobj")


async def first_write(through: list[Rival], since: float) -> float:
    """Seconds until one of them has a write answered; asked anew until then."""

    async def one(each: Rival) -> float:
        while True:
            answer = await each.ask(op="write", seconds=10)
            if "ok" in answer:
                return time.monotonic() - since
            await asyncio.sleep(0.005)

    tasks = [asyncio.ensure_future(one(each)) for each in through]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    gap = min(task.result() for task in done)
    # One question at a time on each pipe: the others are let come to their end.
    await asyncio.gather(*tasks)
    return gap
