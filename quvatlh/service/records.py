"""From the core's views to the plain records of pool.py: names with their units, nothing left to look up."""

from __future__ import annotations

import base64
import signal
from typing import Any, Final

import msgspec

from quvatlh.core.limits import FILED_RESULT, PACKED_RESULT, RAW_RESULT
from quvatlh.core.views import ActionView, AnnouncementView, OwnedView, TaskView, TokenView, WorkerView
from quvatlh.service import asks, tails
from quvatlh.service.depths import is_deeper
from quvatlh.service.packedresult import PackedResult
from quvatlh.service.pool import Json

RESULT_LEVELS_MAX: Final = 256
"""A result that is nested deeper is shown as the bytes that it is."""


def task(view: TaskView) -> Json:
    row = view.row
    record: Json = {
        "id": row.id,
        "spec": _spec(view),
        "state": row.state,
        "created_at_ms": row.created_at,
        "at_ms": row.created_at if row.at is None else row.at,
        "due_at_ms": row.due_at,
        "expires_ms": row.expires_at,
        "started_at_ms": row.started_at,
        "finished_at_ms": row.finished_at,
        "attempts": row.attempts,
        "eta": None,
        "error": _error(row.error, row.error_text),
        **_result_fields(view),
        "actions": [action(each, view) for each in view.actions],
    }
    if row.service:
        record |= {"wanted": row.lim or 1, "live": row.live}
    return record


def _spec(view: TaskView) -> Json:
    """As it was asked for, and what its queue holds for it."""
    spec: Json = msgspec.to_builtins(view.spec)
    spec |= {"retry": msgspec.to_builtins(view.retry), "lease_ms": view.lease_ms}
    return spec if view.unique is None else spec | {"unique": msgspec.to_builtins(view.unique)}


def action(view: ActionView, of: TaskView) -> Json:
    native = of.spec.work.adapter == "command"
    exit_code = 0 if native and view.state == "succeeded" and view.exit_code is None else view.exit_code
    return _action(view) | {"exit_code": exit_code}


def owned(view: OwnedView) -> Json:
    return _action(view.action) | {"name": view.name, "group": view.group, "queue": view.queue, "kind": view.kind}


def _action(view: ActionView) -> Json:
    return {
        "id": view.id,
        "task": view.task,
        "worker": view.worker,
        "token": view.token,
        "attempt": view.attempt,
        "state": view.state,
        "started_at_ms": view.started_at,
        "finished_at_ms": view.finished_at,
        "exit_code": view.exit_code,
        "signal": None if view.signal is None else signal_name(view.signal),
        "error": _error(view.error, view.error_text),
        "progress": view.progress,
        "announcement": view.announcement,
        "output_tail": tails.unpack(view.output_tail).text or None,
    }


def worker(view: WorkerView, load: asks.Load | None = None) -> Json:
    facts = view.facts
    return {
        "name": view.name,
        "node": facts.node,
        "role": facts.role,
        "state": view.state,
        "tags": [*facts.tags, *own_tags(view)],
        "adapters": list(facts.adapters),
        "slots": facts.slots,
        "free": 0 if view.state == "lost" else max(0, facts.slots - view.slots_taken),
        "queues": list(facts.queues),
        "facts": facts.facts,
        "load": None if load is None or view.state == "lost" else msgspec.structs.asdict(load),
    }


def own_tags(view: WorkerView) -> tuple[str, str]:
    """What every worker has, whatever else it was given."""
    return f"worker={view.name}", f"node={view.facts.node}"


def announcement(view: AnnouncementView) -> Json:
    return {
        "task": view.task,
        "action": view.action,
        "group": view.group,
        "name": view.name,
        "worker": view.worker,
        "at_ms": view.at,
        "data": view.data,
    }


def token(view: TokenView, now_ms: int) -> Json:
    return {
        "name": view.name,
        "role": view.scope.role,
        "queues": list(view.scope.queues),
        "groups": list(view.scope.groups),
        "created_at_ms": view.at,
        "expires_at_ms": view.scope.expires_at,
        "expired": not view.holds_at(now_ms),
        "revoked_at_ms": None,
    }


def result_of(view: TaskView) -> Any:
    """The value it succeeded with, or what tells of its file; None also where none was given."""
    action = succeeded_by(view)
    return None if action is None else _value(action.result)


def is_packed_file(action: ActionView) -> bool:
    """Of one whose result is a file: its name says so."""
    place = _value(action.result)
    return isinstance(place, dict) and str(place.get("file", "")).endswith(".msgpack")


def succeeded_by(view: TaskView) -> ActionView | None:
    """The action whose result is the task's."""
    if view.row.state != "succeeded":
        return None
    return next((each for each in reversed(view.actions) if each.token == view.row.token), None)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return f"RT{number}"


def signal_number(name: str) -> int:
    try:
        return int(signal.Signals[f"SIG{name}"])
    except KeyError:
        return int(name.removeprefix("RT")) if name.removeprefix("RT").isdigit() else 0


def _result_fields(view: TaskView) -> Json:
    """Bytes have a field of their own, as in a payload; and what is in msgpack, beside what of it can be shown."""
    value = result_of(view)
    if isinstance(value, PackedResult):
        return {"result": value.shown(), "result_msgpack": base64.b64encode(value.data).decode()}
    if isinstance(value, bytes):
        return {"result": None, "result_base64": base64.b64encode(value).decode()}
    return {"result": value}


def _value(result: bytes | None) -> Any:
    """What a worker of another make calls JSON and is none, or is nested deeper than can be read, is bytes."""
    if result is None:
        return None
    if result[:1] == RAW_RESULT:
        return result[1:]
    if result[:1] == PACKED_RESULT:
        return PackedResult(result[1:])
    try:
        value = msgspec.json.decode(result.removeprefix(FILED_RESULT))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return result
    is_large = result.count(b"[") + result.count(b"{") > RESULT_LEVELS_MAX
    return result if is_large and is_deeper(value, RESULT_LEVELS_MAX) else value


def _error(code: str | None, text: str | None) -> Json | None:
    return None if code is None else {"code": code, "text": text or ""}
