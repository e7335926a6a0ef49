"""What a function's tasks may be told besides their arguments (DESIGN.md section 3.1), as Python says it and as the wire does.

Names and meanings are those of a task; here are only the short forms. What values are allowed is judged by the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict

Json = dict[str, Any]
Duration = timedelta | float | str
"""A timedelta, seconds, or text as `90s` and `5m`."""


class TaskOptions(TypedDict, total=False):
    id: str
    """The task's own: enqueued again under it, the same task answers. The way to say something twice and have it once."""
    name: str
    """By which it is shown and counted. Without one, the function's."""
    group: str
    queue: str
    priority: int
    key: str
    """Flow or tenant: whose tasks share a queue fairly."""
    cost: int
    slots: int
    limit: int
    tags: str | Sequence[str]
    at: datetime
    """With its zone."""
    delay: Duration
    expires: datetime | Duration
    retry: int | Mapping[str, Any]
    """Attempts, the first included; or all of it."""
    timeout: Duration
    stop: Duration | Mapping[str, Any]
    """How long it may tidy up once it is to end; or all of it."""
    unique: bool | str | Mapping[str, Any]
    """True: one of this function with these arguments at a time, however they are written: by place or by name, defaults
    said or not, sets in any order. Text: one of that key."""
    delivery: Literal["at-least-once", "at-most-once"]
    lease: Duration
    notify: str | Mapping[str, Any]
    """The address that is told of its end; or all of it."""
    keep: Duration
    policy: str | Mapping[str, Any]
    environment: str
    """Of the workers' Python: the name they know it by."""
    result: Literal["json", "msgpack"]
    """How what it returns is written; of the task itself, not of a call of it. msgpack keeps bytes, times and keys of maps
    as they are, without an annotation that restores them."""


KNOWN: Final = frozenset(TaskOptions.__annotations__)
_SPANS: Final = frozenset({"delay", "timeout", "lease", "keep"})


def wire(options: Mapping[str, Any]) -> Json:
    """As ADD takes them, `environment` and `result` apart. TypeError and ValueError say which option is wrong."""
    for name in options:
        if name not in KNOWN:
            raise TypeError(f"{name}: there is no such option; there are {', '.join(sorted(KNOWN))}")
    if options.get("result", "json") not in {"json", "msgpack"}:
        raise ValueError("result: json or msgpack")
    if "at" in options and "delay" in options:
        raise ValueError("at, delay: only one of them")
    made = {name: _value(name, value) for name, value in options.items()}
    return {name: value for name, value in made.items() if value is not None}


def _value(name: str, value: Any) -> Any:
    if name in _SPANS or (name == "expires" and not isinstance(value, datetime)):
        return span(name, value)
    if name in {"at", "expires"}:
        return _time(name, value)
    if name == "tags":
        return [value] if isinstance(value, str) else list(value)
    short = _SHORT.get(name)
    return value if short is None else short(value)


def _retry(value: Any) -> Json:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"attempts": value}
    return _mapping(value, "retry: how many attempts, the first included, or a mapping")


def _unique(value: Any) -> Json | None:
    if isinstance(value, bool):
        return {} if value else None
    return {"key": value} if isinstance(value, str) else _mapping(value, "unique: True, a key, or a mapping")


def _notify(value: Any) -> Json:
    return {"url": value} if isinstance(value, str) else _mapping(value, "notify: an address, or a mapping")


def _stop(value: Any) -> Json:
    return dict(value) if isinstance(value, Mapping) else {"grace": span("stop", value)}


def _mapping(value: Any, words: str) -> Json:
    if not isinstance(value, Mapping):
        raise TypeError(words)
    return dict(value)


_SHORT: Final = {"retry": _retry, "stop": _stop, "unique": _unique, "notify": _notify}


def span(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise TypeError(f"{name}: must be a timedelta, seconds, or text such as 5m")
    return f"{round(value * 1000)}ms"


def _time(name: str, value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"{name}: must be a datetime")
    if value.tzinfo is None:
        raise ValueError(f"{name}: a datetime without zone could be any hour; give it one, as datetime.now(UTC) has")
    return value.isoformat(timespec="milliseconds")
