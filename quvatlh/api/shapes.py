"""What the pool tells, as it looks on the wire: times as text, durations as text, a task with its defaults filled in.

One rule does most: a name that ends in `_ms` loses the ending, and its value becomes a time or a duration by its name.
It stops at what belongs to users (payloads, results, announcements), which goes out as it came in.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from quvatlh.api.formats import duration_text, time_text
from quvatlh.core.limits import BACKOFF_MS_MAX_DEFAULT, LEASE_MS_DEFAULT
from quvatlh.core.model import Notify, Retry, Stop, TaskSpec, Unique, Work
from quvatlh.service.pool import Json

OPAQUE: Final = frozenset({"work", "payload", "result", "announcement", "data", "facts", "state"})
TIMES: Final = frozenset({"at", "expires", "low", "high", "slot"})
_RECORD_NULLS: Final[Json] = dict.fromkeys(("due_at", "started_at", "finished_at", "expires", "eta", "error", "result"))


def wire(value: Any) -> Any:
    """By the one rule, all the way down."""
    if isinstance(value, Mapping):
        return dict(_member(name, each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return [wire(each) for each in value]
    return value


def _member(name: str, value: Any) -> tuple[str, Any]:
    if name in OPAQUE:
        return name, value
    if not name.endswith("_ms"):
        return name, wire(value)
    stem = name[:-3]
    if value is None:
        return stem, None
    return stem, time_text(value) if stem in TIMES or stem.endswith("_at") else duration_text(value)


def task(record: Json) -> Json:
    """A task of section 9: what was asked for with its defaults, then what became of it."""
    rest = {name: value for name, value in record.items() if name not in {"spec", "payload", "payload_json"}}
    shown = spec(record["spec"]) | _RECORD_NULLS
    if shown["name"] is None:
        shown["name"] = record["id"]
    told: Json = wire(rest)
    return shown | told | payload(record)


def spec(given: Json) -> Json:
    """What was asked for, with its defaults."""
    shown = _DEFAULTS | dict(_spec_member(name, value) for name, value in given.items())
    if shown["kind"] == "service" and shown["limit"] is None:
        shown["limit"] = 1
    return shown


def payload(record: Json) -> Json:
    """JSON as it came in, bytes as base64; nothing where there is none."""
    raw = record.get("payload")
    if raw is None:
        return {}
    if record.get("payload_json", True):
        return {"payload": msgspec.Raw(raw)}
    return {"payload_base64": base64.b64encode(raw).decode()}


def _spec_member(name: str, value: Any) -> tuple[str, Any]:
    shape = _SHAPES.get(name)
    return _member(name, value) if shape is None or value is None else (name, shape(value))


def work(value: Json) -> Json:
    """Of its environment the names: what the values are is told to nobody but who runs it."""
    return value | {"env": dict.fromkeys(value["env"])} if value.get("env") else value


def _code(value: Json) -> Any:
    return value.get("source") or {"name": value["name"]}


def retry(value: Json) -> Json:
    full = _RETRY_DEFAULTS | value
    delays = full.pop("delays_ms")
    if full["backoff"] == "list":
        full["backoff"] = [duration_text(ms) for ms in delays]
    elif full["max_ms"] is None:
        full["max_ms"] = BACKOFF_MS_MAX_DEFAULT
    shown: Json = wire(full)
    factor, jitter = shown.pop("factor_milli"), shown.pop("jitter_permille")
    return shown | {"factor": factor / 1000, "jitter": f"{jitter / 10:g}%"}


def unique(value: Json) -> Json:
    span = value.get("for_ms")
    return {"key": value.get("key"), "while": duration_text(span) if span else value.get("while", Unique().while_)}


def _stop(value: Json) -> Json:
    shown: Json = wire(_STOP_DEFAULTS | value)
    return shown


def _fields(struct: msgspec.Struct) -> Json:
    """With defaults, one level deep."""
    return {field.encode_name: getattr(struct, field.name) for field in msgspec.structs.fields(struct)}


def _notify(value: Json) -> Json:
    return {"on": list(Notify().on)} | value


_RETRY_DEFAULTS: Final = _fields(Retry())
_STOP_DEFAULTS: Final = _fields(Stop())
_SHAPES: Final[Mapping[str, Callable[[Json], Any]]] = {
    "work": work,
    "policy": _code,
    "announce": _code,
    "retry": retry,
    "unique": unique,
    "stop": _stop,
    "notify": _notify,
}
_DEFAULTS: Final[Json] = dict(_member(name, value) for name, value in _fields(TaskSpec(work=Work())).items()) | {
    "stop": _stop({}),
    "retry": retry({}),
    "lease": duration_text(LEASE_MS_DEFAULT),
}
