"""What all calls of the fake pool pass: faults planted by a test, a gate that holds them, requests remembered by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from quvatlh.service.pool import Call, Json, Rejected, RequestKey


class Gate:
    def __init__(self) -> None:
        self.records: dict[str, Json] = {}
        self.requests: dict[tuple[str, str, str], tuple[bytes, Any]] = {}
        self.calls: list[Call] = []
        self.index = 0
        self.now_ms = 1_700_000_000_000
        self.failing: list[BaseException] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    def fail_next(self, error: BaseException) -> None:
        self.failing.append(error)

    async def _enter(self, call: Call) -> None:
        self.calls.append(call)
        if self.failing:
            raise self.failing.pop(0)
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1

    def _once(self, key: RequestKey | None, work: Any) -> Any:
        if key is None:
            return work()
        known = self.requests.get(key[:3])
        if known is None:
            self.requests[key[:3]] = known = (key.digest, work())
        if known[0] != key.digest:
            raise Rejected("conflict", "this Idempotency-Key was used for another request")
        return known[1]


def known(table: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise Rejected("not_found", f"there is no {what} {name}")
    return table[name]
