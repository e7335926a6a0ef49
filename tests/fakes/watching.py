"""What the fake pool tells people who watch. quvatlh.service.watching.Watching."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from quvatlh.service.pool import Call, Json, Position, Principal, Rejected
from quvatlh.service.summary import Summary


class FakeWatching:
    def __init__(self) -> None:
        self.principals: dict[bytes, Principal] = {}
        self.told: list[Summary] = []
        """What happened, in order; a test appends and calls `moved.set()`."""
        self.moved = asyncio.Event()
        self.forgotten = 0
        self.last_hour: Callable[[], Json] = lambda: {
            "step_ms": 5000,
            "from_ms": 1_700_000_000_000,
            "counts": {"added": [1, 2]},
            "waits": {"wait_p50_ms": [None, 3]},
            "tasks": {"pending": [0, 1]},
            "live": {"one": [0, 0]},
        }

    def recall(self, digest: bytes) -> Principal | None:
        return self.principals.get(digest)

    def history(self) -> Json:
        return self.last_hour()

    async def summaries(self, call: Call, since: Position | None, every_ms: int) -> AsyncIterator[Summary]:
        if since is not None and since.index < self.forgotten:
            raise Rejected("gone", f"events up to {self.forgotten} are no longer kept")
        return self._summaries(since.index if since else 0)

    async def _summaries(self, after: int) -> AsyncIterator[Summary]:
        while True:
            for one in list(self.told):
                if one.index > after:
                    after = one.index
                    yield one
            await self.moved.wait()
            self.moved.clear()
