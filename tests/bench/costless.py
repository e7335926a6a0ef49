"""The HTTP side over a pool that costs nothing, in a process of its own: what is measured is the door."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

from quvatlh.api.lines import checked_lines
from quvatlh.api.ndjson import Cut
from quvatlh.api.server import Options, Server
from quvatlh.observe import logs
from quvatlh.service.pool import Added, Call, NewTask
from tests.fakes.pool import FakePool


class CostlessPool(FakePool):
    """Answers at once and keeps nothing."""

    async def add(self, call: Call, tasks: Sequence[NewTask]) -> Added:
        self.index += 1
        return Added([f"{self.index:012x}-0000-7000-8000-{n:012x}" for n in range(len(tasks))], self.index, {})


def serve(pipe: Connection, noted: bool) -> None:
    async def main() -> None:
        with contextlib.ExitStack() as stack:
            note: Callable[..., None] | None = None
            if noted:
                logs.set_up("json", "info", stack.enter_context(open("/dev/null", "w")))
                note = logs.noter("quvatlh.http")
            server = Server(CostlessPool(), Options("127.0.0.1:0"), note=note)
            pipe.send(await server.start())
            before = time.process_time()
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            pipe.send(time.process_time() - before)
            await server.stop()

    asyncio.run(main())


@contextlib.contextmanager
def costless(*, noted: bool) -> Iterator[tuple[str, Callable[[], float]]]:
    """Its address, and what ends it and tells the processor seconds that it used."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs, noted))
    process.start()
    ended: list[float] = []

    def end() -> float:
        if not ended:
            ours.send(None)
            ended.append(ours.recv())
        return ended[0]

    try:
        yield ours.recv(), end
        end()
    finally:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


async def check_alone(task: bytes, lines: int) -> float:
    """Seconds of reading and judging alone, without HTTP."""
    began = time.perf_counter()
    for first in range(0, lines, 1000):
        await checked_lines(Cut(first, [task] * 1000))
    return time.perf_counter() - began
