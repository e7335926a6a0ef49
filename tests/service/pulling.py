"""What tests of pull workers have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from quvatlh.service.pool import Call
from quvatlh.service.pullasks import Report, Verb
from quvatlh.service.pullpool import Wanted
from tests.service.stand import Stand, asked, lead

PULL = {"pull": True}


def wanted(worker: str = "w", most: int = 1, *, wait_ms: int = 0, lease_ms: int = 30_000, **more: Any) -> Wanted:
    return Wanted(worker, most=most, wait_ms=wait_ms, lease_ms=lease_ms, **more)


async def claim(stand: Stand, *args: Any, call: Call | None = None, **more: Any) -> list[dict[str, Any]]:
    return list((await stand.pool.claim(call or asked(), wanted(*args, **more))).actions)


async def say(stand: Stand, verb: Verb, *actions: dict[str, Any], **more: Any) -> Sequence[str]:
    return await stand.pool.report(asked(), verb, [Report(a["action"], a["token"], **more) for a in actions])


def ids(actions: Sequence[dict[str, Any]]) -> list[str]:
    return [action["task"]["id"] for action in actions]


def pull_live(stand: Stand) -> int:
    return len(stand.live())


def hand_over(old: Stand, new: Stand) -> None:
    """What the new master applies the old one does, and no more the other way round."""
    for mirror in old.mirrors:
        old.log._listeners.remove(mirror)
    old.mirrors.clear()
    old.log.depose(new.name)
    lead(new, [old])


async def pass_time(stand: Stand, seconds: float, step_s: float = 0.5) -> None:
    """Of the clock that leases are counted by; the loops get their turns in between."""
    for _ in range(round(seconds / step_s)):
        stand.clock.advance(step_s)
        await asyncio.sleep(0.06)
