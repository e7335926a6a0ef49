"""A task as its policy and its `announce` see it: all fields, defaults filled in, times in milliseconds; plain data."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quvatlh.core import queries
from quvatlh.core.model import Code, TaskSpec
from quvatlh.core.views import TaskView

PAYLOAD_SEEN_BYTES_MAX: Final = 16 * 1024
"""A longer payload is nil to a policy: two hundred tasks of a look must fit into a message."""


def of_spec(spec: TaskSpec, task_id: str | None = None, payload: object = None) -> dict[str, Any]:
    """Of a task that may not stand yet: then it has no id, and its name may be nil."""
    fields: dict[str, Any] = {
        name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(spec).items() if value is not None
    }
    fields["name"] = spec.name or task_id
    if spec.limit is None and spec.kind == "service":
        fields["limit"] = 1
    return {**fields, "id": task_id, "payload": payload}


def of_view(db: sqlite3.Connection, view: TaskView) -> dict[str, Any]:
    """Of a task in the table: what a person has changed of it is in it."""
    row = view.row
    seen = of_spec(view.spec, row.id, _payload(db, row.seq))
    changed = {
        "queue": row.queue, "priority": row.priority, "tags": list(view.shape.tags), "limit": row.lim,
        "state": row.state, "created_at": row.created_at, "at": row.created_at if row.at is None else row.at,
        "expires": row.expires_at, "attempts": row.attempts, "live": row.live,
    }  # fmt: skip
    return seen | {name: value for name, value in changed.items() if value is not None}


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
    if row is None or not row[1]:
        return None if row is None else row[0]
    try:
        return msgspec.json.decode(row[0])
    except msgspec.MsgspecError:
        return None
