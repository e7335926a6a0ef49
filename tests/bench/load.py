"""The load of the HTTP benches, in a process of its own: python -m tests.bench.load JSON, a report as JSON on standard output.

`do` names one of the functions below, the rest is its arguments. Every report has the processor time of this process
beside the seconds that passed: near one means that the load was at its own limit, not the node's.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from tests.support.wire import NDJSON, Wire, head

Report = dict[str, Any]

PIECE_BYTES: Final = 256 * 1024
"""Of a long body, written at a time."""
READ_BYTES: Final = 1024 * 1024


async def adds(
    address: str, token: str, task: Any, *, connections: int = 1, seconds: float = 3.0, pause_s: float = 0.0
) -> Report:
    """One task a request, one request at a time on each connection."""
    body = json.dumps({"event": "ADD", "tasks": [task]}).encode()
    request = head(address, token, "/v1/events", length=len(body)) + body
    began = time.perf_counter()
    took: list[float] = []

    async def one() -> None:
        wire = await Wire.open(address)
        try:
            while (sent := time.perf_counter()) < began + seconds:
                reply = await wire.ask(request)
                took.append(time.perf_counter() - sent)
                if reply.status != 201:
                    raise AssertionError(reply)
                if pause_s:
                    await asyncio.sleep(pause_s)
        finally:
            wire.close()

    await asyncio.gather(*[one() for _ in range(connections)])
    return {"count": len(took), "seconds": time.perf_counter() - began, **times(took)}


async def lines(address: str, token: str, task: Any, *, count: int, path: str = "/v1/events?ids=0") -> Report:
    """NDJSON, all in one request; every answer line must be a yes."""
    line = json.dumps(task).encode() + b"\n"
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**24)
    piece = line * (PIECE_BYTES // len(line))
    whole, rest = divmod(count * len(line), len(piece))
    began = time.perf_counter()
    writer.write(head(address, token, path, length=count * len(line), kind=NDJSON))

    async def send() -> None:
        for part in [piece] * whole + [piece[:rest]]:
            writer.write(part)
            await writer.drain()

    sending = asyncio.create_task(send())
    answered = b""
    while not answered.endswith(b"\r\n0\r\n\r\n"):
        more = await reader.read(READ_BYTES)
        if not more or b'"problem"' in more or (not answered and not more.startswith(b"HTTP/1.1 200")):
            raise AssertionError(more[:2000])
        answered = answered[-7:] + more
    await sending
    writer.close()
    return {"count": count, "seconds": time.perf_counter() - began, "bytes": count * len(line)}


async def gets(address: str, token: str, paths: Sequence[str], *, times_each: int) -> Report:
    """Each of these in turn, again and again, on one connection; and the times of each."""
    took: dict[str, list[float]] = {path: [] for path in paths}
    ends: dict[str, Report] = {}
    wire = await Wire.open(address)
    began = time.perf_counter()
    try:
        for _ in range(times_each):
            for path in paths:
                request = head(address, token, path)
                sent = time.perf_counter()
                reply = await wire.ask(request)
                took[path].append(time.perf_counter() - sent)
                if reply.status != 200:
                    raise AssertionError(f"{path}: {reply}")
                ends[path] = _page(json.loads(reply.body))
    finally:
        wire.close()
    return {
        "seconds": time.perf_counter() - began,
        "paths": {path: times(seconds) | ends[path] for path, seconds in took.items()},
    }


async def runs(
    address: str, token: str, task: Any, *, count: int, queue: str, keys: Sequence[str | None] = (None,)
) -> Report:
    """So many tasks added at once, with these keys in turns; until as many more have succeeded in their queue."""
    wire = await Wire.open(address)
    # By their end: from the youngest on, a list would look at all that waits until it finds one that has ended.
    look = head(address, token, f"/v1/tasks?queue={quote(queue)}&state=succeeded&sort=-finished_at&limit=1")
    before = json.loads((await wire.ask(look)).body)["total"]
    began = time.perf_counter()
    try:
        for first in range(0, count, 1000):
            lot = range(first, min(first + 1000, count))
            tasks = [{**task, "queue": queue, "key": keys[n % len(keys)]} for n in lot]
            body = json.dumps({"event": "ADD", "tasks": tasks}).encode()
            reply = await wire.ask(head(address, token, "/v1/events", length=len(body)) + body)
            if reply.status != 201:
                raise AssertionError(reply)
        while json.loads((await wire.ask(look)).body)["total"] < before + count:  # noqa: ASYNC110 - nothing tells of a count
            await asyncio.sleep(0.02)
    finally:
        wire.close()
    return {"count": count, "seconds": time.perf_counter() - began}


def _page(found: Any) -> Report:
    return {"items": len(found["items"]), "more": found["next"] is not None} if "items" in found else {}


def times(seconds: Sequence[float]) -> Report:
    ordered = sorted(seconds) or [0.0]

    def at(part: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": ordered[-1] * 1000}


WORK: Final = {work.__name__: work for work in (adds, lines, gets, runs)}


async def loaded(do: str, address: str, token: str, **given: Any) -> Report:
    """What that work found, in another process."""
    told = json.dumps({"do": do, "address": address, "token": token, **given})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.load", told, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, errors = await process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode or 1, do, out, errors.decode())
    found: Report = json.loads(out)
    return found


def main() -> None:
    given = json.loads(sys.argv[1])
    work = WORK[given.pop("do")]

    async def measured() -> Report:
        before = time.process_time()
        found: Report = await work(**given)
        return found | {"load_cpu": (time.process_time() - before) / found["seconds"]}

    print(json.dumps(asyncio.run(measured())))


if __name__ == "__main__":
    main()
