"""Proposes from inside a node, so that a benchmark measures the log and not the way to it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import msgpack

from quvatlh.ports import Log, LogError

DEADLINE_S = 30.0


@dataclass(slots=True)
class _Seen:
    latencies_s: list[float] = field(default_factory=list)
    refused: int = 0


async def burst(log: Log, request: dict[str, Any]) -> dict[str, Any]:
    """`proposers` at once, each one item of `bytes` after the other, until `seconds` are over or `items` are in. The
    items mean nothing to the machine. `samples` asks for every latency."""
    # What no machine of the tests knows: answered with INVALID, after the entry is applied.
    item = msgpack.packb(bytes(request.get("bytes", 100)))
    ends = time.perf_counter() + request.get("seconds", float("inf"))
    left = request.get("items", 1 << 62)
    seen = _Seen()

    async def propose() -> None:
        nonlocal left
        while left > 0 and time.perf_counter() < ends:
            left -= 1
            began = time.perf_counter()
            try:
                await log.propose(item, deadline=DEADLINE_S)
            except LogError:
                seen.refused += 1
                await asyncio.sleep(0.01)
                continue
            seen.latencies_s.append(time.perf_counter() - began)

    first, began = log.applied_index, time.perf_counter()
    await asyncio.gather(*(propose() for _ in range(request["proposers"])))
    took_s = time.perf_counter() - began
    answer = {"ok": _summary(seen, log.applied_index - first, took_s), "index": log.applied_index}
    if request.get("samples"):
        answer["samples_ms"] = [each * 1000 for each in seen.latencies_s]
    return answer


def _summary(seen: _Seen, entries: int, took_s: float) -> dict[str, Any]:
    ordered = sorted(seen.latencies_s) or [0.0]
    return {
        "items": len(seen.latencies_s),
        "entries": entries,
        "refused": seen.refused,
        "seconds": took_s,
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "max_ms": ordered[-1] * 1000,
    }
