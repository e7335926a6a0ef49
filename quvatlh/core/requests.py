"""What was answered to which request: one table for the door's request ids and Idempotency-Keys.

Per token and route; for 24 h, the last 1,000,000, at most 256 MiB of answers. Whether a row still counts follows from the
numbers in it (when, the how-manieth, how many bytes before it), so nothing needs to be in order to be forgotten.
"""

from __future__ import annotations

import sqlite3

from quvatlh.core import limits
from quvatlh.core.commands import Request
from quvatlh.core.rejections import Rejection
from quvatlh.core.unit import Unit

_SELECT = "SELECT digest, at, ordinal, bytes_before, answer FROM request WHERE token = ? AND route = ? AND id = ?"
_INSERT = "INSERT OR REPLACE INTO request VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

Key = tuple[str, str, str]


def remembered(db: sqlite3.Connection, request: Request, now_ms: int) -> tuple[bytes, bytes] | None:
    """Digest and answer of the first time, as it stands in the table."""
    row = db.execute(_SELECT, (request.token, request.route, request.id)).fetchone()
    if row is None:
        return None
    last = dict(db.execute("SELECT name, n FROM serial WHERE name IN ('request', 'request_bytes')").fetchall())
    counts = _counts(row[1], row[2], row[3], now_ms, last.get("request", 0), last.get("request_bytes", 0))
    return (bytes(row[0]), bytes(row[4])) if counts else None


def _counts(at: int, ordinal: int, bytes_before: int, now_ms: int, last: int, last_bytes: int) -> bool:
    return (
        at > now_ms - limits.KNOWN_MS
        and ordinal > last - limits.KNOWN_MAX
        and bytes_before > last_bytes - limits.ANSWER_BYTES_MAX
    )


class Requests:
    """The requests of one entry, and those before it."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._new: dict[Key, tuple[bytes, int, int, int, bytes]] = {}

    def answered(self, request: Request) -> bytes | Rejection | None:
        """The answer of the first time; None for a new one."""
        key = (request.token, request.route, request.id)
        row = self._new.get(key)
        if row is None:
            row = self._unit.db.execute(_SELECT, key).fetchone()
        if row is None or not self._counts(row[1], row[2], row[3]):
            return None
        if row[0] and request.digest and row[0] != request.digest:
            return Rejection("conflict", f"{request.id} was used for another request")
        return bytes(row[4])

    def remember(self, request: Request, answer: bytes) -> None:
        unit = self._unit
        before = unit.last("request_bytes")
        unit.take("request_bytes", len(answer) + limits.ANSWER_ROW_BYTES)
        key = (request.token, request.route, request.id)
        self._new[key] = (request.digest, unit.now, unit.take("request"), before, answer)

    def flush(self) -> None:
        if self._new:
            self._unit.db.executemany(_INSERT, [(*key, *row) for key, row in self._new.items()])
            self._new.clear()

    def _counts(self, at: int, ordinal: int, bytes_before: int) -> bool:
        unit = self._unit
        return _counts(at, ordinal, bytes_before, unit.now, unit.last("request"), unit.last("request_bytes"))
