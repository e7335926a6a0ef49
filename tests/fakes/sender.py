"""A world outside that answers as a test says. ports.Sender."""

from __future__ import annotations

import asyncio
from collections import deque

from quvatlh.ports import Incoming, Outgoing


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Incoming:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Incoming(status, named, body, len(body))


class FakeSender:
    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.answers: deque[Incoming | Exception] = deque()
        """One after the other; after the last a plain yes."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = 0
        self.most_under_way = 0
        self.closed = False

    async def send(self, request: Outgoing) -> Incoming:
        self.sent.append(request)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
        finally:
            self.under_way -= 1
        given = self.answers.popleft() if self.answers else answer()
        if isinstance(given, Exception):
            raise given
        return given

    async def close(self) -> None:
        self.closed = True
