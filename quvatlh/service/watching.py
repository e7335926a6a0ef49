"""What the doors of a node need for people who watch: who they are, what changed, what the last hour was like.

One Protocol, beside pool.Pool and by its rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from quvatlh.service.history import History
from quvatlh.service.pool import Call, Json, Position, Principal
from quvatlh.service.reads import Reads
from quvatlh.service.summary import Summary


class Watching(Protocol):
    def recall(self, digest: bytes) -> Principal | None:
        """By the hash of a token that was shown before: None since it was revoked. As `Pool.authenticate` otherwise."""
        ...

    async def summaries(self, call: Call, since: Position | None, every_ms: int) -> AsyncIterator[Summary]:
        """What happened after `since`, at most one each `every_ms`, none while nothing does. As `Pool.events` otherwise."""
        ...

    def history(self) -> Json:
        """`{step_ms, from_ms, counts: {added, claimed, ...: [n]}, waits: {wait_p50_ms, wait_p95_ms: [n or None]}, tasks:
        {pending, ...: [n]}, live: {worker: [n]}}`, oldest first, at most an hour."""
        ...


class NodeWatching:
    """Watching, on a node."""

    def __init__(self, recall: Callable[[bytes], Principal | None], reads: Reads, history: History) -> None:
        self.recall = recall
        self.summaries = reads.summaries
        self.history: Callable[[], Json] = history.record
