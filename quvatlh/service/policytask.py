"""A task as its policy and its `announce` see it: all fields, defaults filled in, times in milliseconds; plain data."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quvatlh.core import queries
from quvatlh.core.commands import NewTask
from quvatlh.core.model import Code, TaskSpec
from quvatlh.core.views import TaskView

PAYLOAD_SEEN_BYTES_MAX: Final = 16 * 1024
"""A longer payload is nil to a policy: two hundred tasks of a look must fit into a message."""


def of_view(db: sqlite3.Connection, view: TaskView) -> dict[str, Any]:
    """Of a task in the table: what a person has changed of it is in it."""
    row = view.row
    changed = {
        "queue": row.queue, "priority": row.priority, "tags": list(view.shape.tags), "limit": row.lim,
        "state": row.state, "created_at": row.created_at, "at": row.created_at if row.at is None else row.at,
        "expires": row.expires_at, "attempts": row.attempts, "live": row.live,
    }  # fmt: skip
    return _seen(view.spec, row.id, _payload(db, row.seq), changed)


def of_new(task: NewTask, now_ms: int) -> dict[str, Any]:
    """Of one that does not stand: as it would be seen if it had been added now."""
    at = now_ms if task.at_ms is None else max(task.at_ms, now_ms)
    fresh = {
        "state": "pending" if at == now_ms else "scheduled", "created_at": now_ms, "at": at,
        "expires": task.expires_ms, "attempts": 0, "live": 0, "tags": list(task.spec.tags),
    }  # fmt: skip
    if task.spec.kind == "service":
        fresh["limit"] = task.spec.limit or 1
    return _seen(task.spec, task.id, _shown(task.payload, is_json=task.payload_json), fresh)


def _seen(spec: TaskSpec, task_id: str, payload: object, state: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(spec).items()}
    known = {name: value for name, value in (fields | dict(state)).items() if value is not None}
    return known | {"name": spec.name or task_id, "id": task_id, "payload": payload}


def source_of(db: sqlite3.Connection, code: Code | None, stored: Mapping[str, str] | None = None) -> str | None:
    """The Lua of an inline or stored policy; None where there is none (any more)."""
    if code is None or code.name is None:
        return None if code is None else code.source
    if stored is not None and code.name in stored:
        return stored[code.name]
    found = queries.policies(db, code.name)
    return found[0].source if found else None


def _payload(db: sqlite3.Connection, seq: int) -> object:
    sql = "SELECT payload, payload_json FROM body WHERE task = ? AND length(payload) <= ?"
    row = db.execute(sql, (seq, PAYLOAD_SEEN_BYTES_MAX)).fetchone()
    return None if row is None else _shown(row[0], is_json=row[1])


def _shown(payload: bytes | None, *, is_json: bool) -> object:
    if payload is None or len(payload) > PAYLOAD_SEEN_BYTES_MAX:
        return None
    if not is_json:
        return payload
    try:
        return msgspec.json.decode(payload)
    except msgspec.MsgspecError:
        return None
