"""How many requests a second the HTTP side takes, over a pool that costs nothing: python -m tests.bench.http

The server has a process of its own; the load is raw sockets in this one, one request at a time on each connection, so on
two cores it takes its share. CPU time of the server is told beside: it is what a request costs whatever else runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from quvatlh.api.lines import checked_lines
from quvatlh.api.ndjson import Cut
from quvatlh.api.server import Options, Server
from quvatlh.service.pool import Added, Call, NewTask
from tests.fakes.pool import TOKEN, FakePool

SMALL = {"work": {"command": ["true"]}}
USUAL = {
    "name": "resize",
    "group": "photos",
    "queue": "images",
    "work": {"python": "photos.jobs:resize", "args": [1024, 768]},
    "payload": {"photo": 8_123_456},
    "priority": 3,
    "key": "tenant-7",
}
PIECE_BYTES = 256 * 1024


class CostlessPool(FakePool):
    """Answers at once and keeps nothing: what is measured is the door."""

    async def add(self, call: Call, tasks: Sequence[NewTask]) -> Added:
        self.index += 1
        return Added([f"{self.index:012x}-0000-7000-8000-{n:012x}" for n in range(len(tasks))], self.index, {})


def head(address: str, content_type: str, length: int, path: str = "/v1/events") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {address}", f"Authorization: Bearer {TOKEN}"]
    return "\r\n".join([*lines, f"Content-Type: {content_type}", f"Content-Length: {length}", "", ""]).encode()


async def post_one(address: str, task: dict[str, Any], seconds: float, connections: int) -> list[float]:
    """The latencies of all requests."""
    body = json.dumps({"event": "ADD", "tasks": [task]}).encode()
    request = head(address, "application/json", len(body)) + body
    host, _, port = address.rpartition(":")
    end = time.perf_counter() + seconds
    took: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while (began := time.perf_counter()) < end:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201"), answer
            await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            took.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*[one() for _ in range(connections)])
    return took


async def post_lines(address: str, task: dict[str, Any], lines: int, path: str) -> float:
    """Seconds from the first byte to the last answer."""
    line = json.dumps(task).encode() + b"\n"
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**24)
    piece = line * (PIECE_BYTES // len(line))
    whole, rest = divmod(lines * len(line), len(piece))
    began = time.perf_counter()
    writer.write(head(address, "application/x-ndjson", lines * len(line), path))

    async def send() -> None:
        for part in [piece] * whole + [piece[:rest]]:
            writer.write(part)
            await writer.drain()

    sending = asyncio.create_task(send())
    answered = b""
    while not answered.endswith(b"\r\n0\r\n\r\n"):
        answered = answered[-7:] + await reader.read(2**20)
    await sending
    writer.close()
    return time.perf_counter() - began


def serve(pipe: Any, noted: bool) -> None:
    async def main() -> None:
        note: Callable[..., None] | None = None
        if noted:
            from quvatlh.observe import logs

            logs.set_up("json", "info", open("/dev/null", "w"))  # noqa: SIM115
            note = logs.noter("quvatlh.http")
        server = Server(CostlessPool(), Options("127.0.0.1:0"), note=note)
        pipe.send(await server.start())
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        pipe.send(time.process_time())
        await server.stop()

    asyncio.run(main())


def measured(noted: bool, load: Callable[[str], Any]) -> tuple[Any, float]:
    """What the load found, and the CPU seconds of the server meanwhile, its start included."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs, noted))
    process.start()
    try:
        found = load(ours.recv())
        ours.send(None)
        return found, ours.recv()
    finally:
        process.join()


def _run_lines(address: str, task: dict[str, Any], lines: int, path: str) -> float:
    return asyncio.run(post_lines(address, task, lines, path))


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)] * 1000


async def check_alone(task: dict[str, Any], lines: int) -> float:
    """Seconds of reading and judging alone, without HTTP."""
    line = json.dumps(task).encode()
    began = time.perf_counter()
    for first in range(0, lines, 1000):
        await checked_lines(Cut(first, [line] * 1000))
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--lines", type=int, default=500_000)
    options = parser.parse_args()
    for noted in (False, True):
        for connections in (1, 8, 64):

            def load(address: str, connections: int = connections) -> list[float]:
                return asyncio.run(post_one(address, USUAL, options.seconds, connections))

            took, cpu = measured(noted, load)
            rate, cost = len(took) / options.seconds, cpu / len(took) * 1e6
            times = f"p50 {quantile(took, 0.5):.2f} ms  p99 {quantile(took, 0.99):.2f} ms"
            log = "on " if noted else "off"
            print(
                f"POST one task, {connections:2} clients, access log {log}: {rate:8,.0f}/s  {cost:4.0f} us CPU  {times}"
            )
    for name, task in (("small", SMALL), ("usual", USUAL)):
        seconds = asyncio.run(check_alone(task, options.lines))
        print(f"NDJSON, {name} task, read and judged only: {options.lines / seconds:8,.0f} lines/s")
        for path in ("/v1/events", "/v1/events?ids=0"):
            load_lines = partial(_run_lines, task=task, lines=options.lines, path=path)
            seconds, cpu = measured(False, load_lines)
            speed = f"{options.lines / seconds:8,.0f} lines/s  {cpu / options.lines * 1e6:.1f} us CPU"
            print(f"NDJSON, {name} task, {path}: {speed}")


if __name__ == "__main__":
    main()
