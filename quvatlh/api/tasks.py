"""A task as a producer writes it (DESIGN.md 3.1), checked field by field, into what the pool takes.

One table says what may stand in a task, how each field is judged, and what the pool calls it. Defaults are not filled
in: what was not given is absent, so that the queue's defaults and the core's can still apply. What depends on the state
(limits, queues that exist, unique keys) is not judged here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from quvatlh.api import work
from quvatlh.api.checks import (
    WEB_URL,
    Fault,
    Faults,
    Field,
    Kind,
    addressed,
    boolean,
    choice,
    duration,
    faults_of,
    integer,
    list_of,
    matching,
    named,
    object_of,
    object_schema,
    rejected,
    shown,
    step,
    text,
    time,
    unknown,
)
from quvatlh.api.formats import DURATION_FORM, TIME_FORM, duration_ms, encode, time_ms
from quvatlh.core import limits
from quvatlh.core.backoff import BEYOND, first_is_beyond
from quvatlh.core.model import FINISHED, Retry, Unique
from quvatlh.service.pool import NewTask

T = TypeVar("T")

ID_FORM: Final = "1 to 128 of A-Z a-z 0-9 . _ : -"
ID: Final = matching(r"[A-Za-z0-9._:-]{1,128}", ID_FORM, limits.ID_CHARS_MAX)
PERMILLE: Final = 1000
EXIT_CODE_MAX: Final = 255
COUNT_MAX: Final = 2**31 - 1
_NAME, _PATHLIKE = named(), named(slash=True)


def _tag(given: Any) -> str:
    asked: str = _NAME.check(given)
    if asked == "!":
        raise ValueError("must name a tag behind the '!' that excludes it")
    return asked


TAG: Final = Kind(_tag, {**_NAME.schema, "pattern": r"^(?!!$)[^\u0000-\u001f\u007f/]*$"})
"""Of what a task asks for: a glob, or one that is excluded."""


class Spec(NamedTuple):
    """A field of the task: checked into one key of the spec, or by `put` into keys of the task itself."""

    kind: Kind
    key: str = ""
    put: Callable[[Any], dict[str, Any]] | None = None


def _either(first: Kind, second: Kind, schema_note: str = "") -> Mapping[str, Any]:
    schema: dict[str, Any] = {"anyOf": [first.schema, second.schema]}
    return schema | ({"description": schema_note} if schema_note else {})


_NAMED_CODE = object_of({"name": Field(_NAME)}, "name")
_SOURCE = text(chars_min=1)


def _code(given: Any) -> dict[str, Any]:
    """Lua source, or the name of a stored function."""
    if type(given) is str:
        return {"source": _SOURCE.check(given)}
    if type(given) is dict:
        return cast("dict[str, Any]", _NAMED_CODE.check(given))
    raise ValueError(f"must be Lua source or {{name: ...}}, not {shown(given)}")


_CODE = Kind(_code, _either(_SOURCE, _NAMED_CODE, "Lua source, or a stored policy"))

_PLAIN_RETRY = Retry()
_DELAYS = list_of(duration(), items_min=1)
_BACKOFF = choice("exponential", "linear", "constant")


def _backoff(given: Any) -> Any:
    return _DELAYS.check(given) if type(given) is list else _BACKOFF.check(given)


def _factor(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given <= 1000:
        raise ValueError(f"must be a number from 1 to 1000, not {shown(given)}")
    return round(given * 1000)


def _jitter(given: Any) -> int:
    """A share: `10%`, or 0.1."""
    share = given
    if isinstance(given, str) and given.endswith("%"):
        try:
            share = float(given[:-1]) / 100
        except ValueError:
            share = None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"must be a share such as 10% or 0.1, not {shown(given)}")
    return round(share * PERMILLE)


_RETRY_FIELDS = {
    "attempts": Field(integer(1, limits.ATTEMPTS_MAX)),
    "backoff": Field(Kind(_backoff, _either(_BACKOFF, _DELAYS))),
    "first": Field(duration(), "first_ms"),
    "factor": Field(Kind(_factor, {"type": "number", "minimum": 1, "maximum": 1000}), "factor_milli"),
    "max": Field(duration(), "max_ms"),
    "jitter": Field(Kind(_jitter, {"type": ["string", "number"], "description": "10% or 0.1"}), "jitter_permille"),
    "permanent_exit_codes": Field(list_of(integer(0, EXIT_CODE_MAX), 256)),
    "permanent_exceptions": Field(list_of(_NAME)),
    "permanent_statuses": Field(list_of(integer(100, 599), 256)),
}
_RETRY = object_of(_RETRY_FIELDS)


def _retry(given: Any) -> dict[str, Any]:
    checked = _retry_named(given)
    if "first_ms" in checked and first_is_beyond(Retry(**checked)):
        raise Faults(Fault(".first", BEYOND))
    return checked


def _retry_named(given: Any) -> dict[str, Any]:
    checked: dict[str, Any] = _RETRY.check(given)
    if isinstance(checked.get("backoff"), list):
        checked |= {"backoff": "list", "delays_ms": checked["backoff"]}
    return checked


def _retry_part(given: Any) -> dict[str, Any]:
    """In a PATCH: what is not given stays, and null takes it back. What comes of it is judged with the rest."""
    part = _retry_named(given)
    for name in given:
        if given[name] is None:
            key = _RETRY_FIELDS[name].key or name
            part[key] = getattr(_PLAIN_RETRY, key)
    if "backoff" in part and part["backoff"] != "list":
        part["delays_ms"] = []
    return part


_WHILE = choice("queued", "active", "unfinished")
_SPAN = duration(1)


def _while(given: Any) -> Any:
    if type(given) is str and given in _WHILE.schema["enum"]:
        return given
    try:
        return _SPAN.check(given)
    except ValueError:
        raise ValueError(f"must be queued, active, unfinished, or {DURATION_FORM}") from None


_UNIQUE = object_of({"key": Field(_PATHLIKE), "while": Field(Kind(_while, _either(_WHILE, _SPAN)))})


def _unique(given: Any) -> dict[str, Any]:
    checked: dict[str, Any] = _UNIQUE.check(given)
    if isinstance(checked.get("while"), int):
        checked["for_ms"] = checked.pop("while")
    return checked


def _unique_part(given: Any) -> dict[str, Any]:
    """In a PATCH: what is not given stays, and null takes it back. One `while` replaces the other."""
    part = _unique(given)
    if "while" in given:
        part = {"while": Unique().while_, "for_ms": None} | part
    return {"key": None} | part if "key" in given else part


RETRY: Final = Kind(_retry, _RETRY.schema)
RETRY_PART: Final = Kind(_retry_part, _RETRY.schema)
UNIQUE: Final = Kind(_unique, _UNIQUE.schema)
UNIQUE_PART: Final = Kind(_unique_part, _UNIQUE.schema)
LEASE: Final = duration(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
_NOTIFY = object_of(
    {
        "url": Field(WEB_URL),
        "command": Field(list_of(text(), items_min=1)),
        "on": Field(list_of(choice(*FINISHED), 16, items_min=1)),
    }
)


def _notify(given: Any) -> dict[str, Any]:
    checked: dict[str, Any] = _NOTIFY.check(given)
    if ("url" in checked) == ("command" in checked):
        raise ValueError("must name exactly one of url, command")
    return checked


SIGNALS: Final = ("ABRT", "HUP", "INT", "KILL", "QUIT", "TERM", "USR1", "USR2", "WINCH")
_STOP = object_of({"signal": Field(choice(*SIGNALS)), "grace": Field(duration(), "grace_ms")})


def _moment(absolute: str, relative: str) -> Callable[[Any], dict[str, Any]]:
    def put(given: Any) -> dict[str, Any]:
        if type(given) is str and "-" in given:
            return {absolute: time_ms(given)}
        try:
            return {relative: duration_ms(given)}
        except ValueError:
            raise ValueError(f"must be {TIME_FORM}, or {DURATION_FORM}") from None

    return put


def _payload(given: Any) -> dict[str, Any]:
    raw = encode(given)
    _check_size(raw)
    return {"payload": raw}


def _payload_base64(given: Any) -> dict[str, Any]:
    if type(given) is not str:
        raise ValueError(f"must be text, not {shown(given)}")
    try:
        raw = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64") from None
    _check_size(raw)
    return {"payload": raw, "payload_json": False}


def _check_size(raw: bytes) -> None:
    if len(raw) > limits.PAYLOAD_BYTES_MAX:
        raise Faults(Fault("", f"must be at most {limits.PAYLOAD_BYTES_MAX} bytes, not {len(raw)}", "too_large"))


_MOMENT = Kind(lambda given: given, _either(time(), duration()))

FIELDS: Final[Mapping[str, Spec]] = {
    "id": Spec(ID, put=lambda given: {"id": ID.check(given)}),
    "name": Spec(_PATHLIKE),
    "group": Spec(_NAME),
    "kind": Spec(choice("job", "service")),
    "limit": Spec(integer(1, COUNT_MAX)),
    "queue": Spec(addressed()),
    "queue_limit": Spec(integer(0, COUNT_MAX)),
    "balancable": Spec(boolean()),
    "tags": Spec(list_of(TAG)),
    "policy": Spec(_CODE),
    "announce": Spec(_CODE),
    "work": Spec(work.WORK),
    "payload": Spec(Kind(_payload, {"description": "any JSON"}), put=_payload),
    "payload_base64": Spec(Kind(_payload_base64, {"type": "string", "contentEncoding": "base64"}), put=_payload_base64),
    "priority": Spec(integer(-(2**31), COUNT_MAX)),
    "key": Spec(_PATHLIKE),
    "cost": Spec(integer(1, 1_000_000)),
    "slots": Spec(integer(0, 1_000_000)),
    "at": Spec(_MOMENT, put=_moment("at_ms", "delay_ms")),
    "delay": Spec(duration(), put=lambda given: {"delay_ms": duration_ms(given)}),
    "expires": Spec(_MOMENT, put=_moment("expires_ms", "expires_in_ms")),
    "retry": Spec(RETRY),
    "delivery": Spec(choice("at-least-once", "at-most-once")),
    "unique": Spec(UNIQUE),
    "lease": Spec(LEASE, "lease_ms"),
    "timeout": Spec(duration(1), "timeout_ms"),
    "stop": Spec(_STOP),
    "notify": Spec(Kind(_notify, _NOTIFY.schema)),
    "keep": Spec(duration(), "keep_ms"),
}

EXCLUSIVE: Final = (("at", "delay"), ("payload", "payload_base64"))

_CHECKS: Final = {name: (spec.key or name, spec.kind.check, spec.put) for name, spec in FIELDS.items()}


def check(given: Any) -> NewTask:
    """One task; Faults names all that is wrong with it."""
    if type(given) is not dict:
        raise ValueError(f"must be an object, not {shown(given)}")
    spec: dict[str, Any] = {}
    task: dict[str, Any] = {"spec": spec}
    faults: list[Fault] = []
    for name, each in given.items():
        if name not in _CHECKS:
            faults.append(unknown(name, FIELDS))
        elif each is not None:
            key, judge, put = _CHECKS[name]
            try:
                if put is None:
                    spec[key] = judge(each)
                else:
                    task.update(put(each))
            except ValueError as error:
                faults += faults_of(error, step(name))
    if faults or "work" not in spec or len(task) > 1:
        faults += _relations(given, task)
        if faults:
            raise Faults(*faults)
    return cast("NewTask", task)


def _relations(given: dict[str, Any], task: dict[str, Any]) -> list[Fault]:
    faults = []
    if given.get("work") is None:
        faults.append(Fault(".work", "is required"))
    for one, other in EXCLUSIVE:
        if given.get(one) is not None and given.get(other) is not None:
            faults.append(Fault(f".{other}", f"must not be given together with {one}"))
    for start, end in (("at_ms", "expires_ms"), ("delay_ms", "expires_in_ms")):
        if start in task and end in task and task[end] <= task[start]:
            faults.append(Fault(".expires", "must be later than the start"))
    return faults


TASK: Final = Kind(check, object_schema({name: spec.kind.schema for name, spec in FIELDS.items()}, ("work",)))
TASKS: Final = list_of(Kind(lambda given: given, TASK.schema), limits.ADD_TASKS_MAX, items_min=1)
"""How many there may be; `check_each` judges what they are."""

SLICE_S: Final = 0.005
"""Many tasks, or YAML in a few, take longer than the loop may stand still."""


async def check_each(given: Sequence[T], judge: Callable[[T], NewTask], path: str, first: int = 0) -> list[NewTask]:
    """All of them, in slices; Rejected tells every fault of every task."""
    made: list[NewTask] = []
    faults: list[Fault] = []
    now = asyncio.get_running_loop().time
    resume = now() + SLICE_S
    for number, each in enumerate(given, first):
        try:
            made.append(judge(each))
        except ValueError as error:
            faults += faults_of(error, f"{path}[{number}]")
        if now() > resume:
            await asyncio.sleep(0)
            resume = now() + SLICE_S
    if faults:
        raise rejected(faults)
    return made
