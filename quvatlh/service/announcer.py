"""`announce`: what an action tells the cluster at its start. Its table travels with the start report and goes with the
action. One that fails is shown in the action's progress and in the log; the action itself goes on, since what it does was
asked for whether or not anybody finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from quvatlh.core import limits
from quvatlh.core.queries import action_id
from quvatlh.core.rows import json_text
from quvatlh.ports import Announcement, Judge
from quvatlh.service.reports import Reports
from quvatlh.service.seat import Claim

AT_ONCE_MAX: Final = 8
"""Calls of `announce` under way; starts beyond wait for theirs, the actions do not."""


class Announcer:
    def __init__(
        self, judge: Judge, reports: Reports, state: Callable[[], dict[str, Any]], note: Callable[..., None]
    ) -> None:
        self._judge = judge
        self._reports = reports
        self._state = state
        self._note = note
        self._room = asyncio.Semaphore(AT_ONCE_MAX)
        self._calls: dict[int, asyncio.Task[None]] = {}

    def begin(self, claim: Claim, started_ms: int) -> None:
        """Its action has started."""
        if claim.announce is not None and claim.token not in self._calls:
            call = asyncio.get_running_loop().create_task(self._call(claim, claim.announce, started_ms))
            self._calls[claim.token] = call
            call.add_done_callback(lambda _done: self._calls.pop(claim.token, None))

    def ended(self, token: int) -> None:
        """The action has ended before it could announce itself."""
        call = self._calls.pop(token, None)
        if call is not None:
            call.cancel()

    def stop(self) -> None:
        for token in list(self._calls):
            self.ended(token)

    async def _call(self, claim: Claim, source: str, started_ms: int) -> None:
        action = {
            "id": action_id(claim.token),
            "task": claim.task_id,
            "token": claim.token,
            "attempt": claim.attempt,
            "started_at": started_ms,
        }
        async with self._room:
            found = await self._judge.announce(source, self._state(), claim.task or {}, action)
        fault = found.fault or _fault_of(found)
        if fault:
            self._note("announce failed", task=claim.task_id, action=action["id"], why=fault)
            self._reports.said(claim.token, f"announce: {fault}")
        elif found.table is not None:
            self._reports.announced(claim.token, dict(found.table))


def _fault_of(found: Announcement) -> str:
    """What the log would refuse."""
    if found.table is None:
        return ""
    text = json_text(dict(found.table))
    if text is None:
        return "the table holds what has no form in JSON"
    size = len(text)
    return f"the table has {size} bytes; at most {limits.JSON_BYTES_MAX}" if size > limits.JSON_BYTES_MAX else ""
