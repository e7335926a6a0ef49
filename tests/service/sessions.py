"""What tests of sessions have in common."""

from __future__ import annotations

from typing import Any

from quvatlh.service import asks
from tests.service.stand import Stand


async def running(stand: Stand, **spec: Any) -> tuple[str, str]:
    """A task that runs, and its action."""
    await stand.working()
    before = set(stand.running())
    task = await stand.add(**spec)
    await stand.until_state(task, "running")
    (action,) = set(stand.running()) - before
    return task, action


def own_beat(stand: Stand, *, secret: bytes | None = None, held: tuple[int, ...] | None = None) -> asks.Beat:
    session = stand.node.session.id
    assert session is not None
    return asks.Beat(stand.name, session, stand.process.secret if secret is None else secret, 0, held)
