"""The timeout of what pull workers run. There is no executor to end it: past its time an action's lease is renewed no more,
and what its worker does not end before that is over ends then, as timed out and not as lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core.rows import LiveRow, json_list

TIMEOUT: Final = "timeout"
_EVEN: Final = 2**31
"""The chance that makes a retry wait neither less nor more."""
_TIMEOUTS: Final = """
SELECT task.seq, coalesce(task.spec, body.spec) ->> '$.timeout_ms' AS ms FROM task LEFT JOIN body ON body.task = task.seq
WHERE task.seq IN (SELECT value FROM json_each(?)) AND ms IS NOT NULL"""
_ENDED: Final = "SELECT 1 FROM action WHERE task = ? AND token = ? AND state = 'failed' AND error = ?"


def overran(db: sqlite3.Connection, rows: Sequence[LiveRow], now_ms: int) -> dict[int, int]:
    """Those that have had their time, by token: how long that was. What somebody wants ended is not counted."""
    asked = [row for row in rows if row.state != "stopping"]
    if not asked:
        return {}
    timeouts: dict[int, int] = dict(db.execute(_TIMEOUTS, (json_list(sorted({row.task for row in asked})),)).fetchall())
    return {
        row.token: timeouts[row.task]
        for row in asked
        if row.task in timeouts and now_ms - (row.started_at or row.awarded_at) > timeouts[row.task]
    }


def detail(timeout_ms: int, chance: int = _EVEN, output_tail: bytes = b"") -> c.EndDetail:
    text = f"ran longer than {timeout_ms / 1000:g} s"
    return c.EndDetail(error_code=TIMEOUT, error_text=text, output_tail=output_tail, chance=chance)


def end(row: LiveRow, timeout_ms: int) -> c.End:
    return c.End(row.token, row.task, 1, row.started_at or row.awarded_at, detail(timeout_ms))


def has_timed_out(db: sqlite3.Connection, task: int, token: int) -> bool:
    return db.execute(_ENDED, (task, token, TIMEOUT)).fetchone() is not None
