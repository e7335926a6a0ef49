"""`work`: what a task runs, as YAML text or as the same in JSON, into the map that `core.model.Work` is written as.

Text is read by `codec.work`, native commands and all surroundings are judged by `core.work`; neither is repeated here.
What is left: the forms that are no native commands, so far as their outermost shape goes (their adapters know the rest).
A task's work keeps the form it was given in, so that it can be shown again.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from yarl import URL

from quvatlh.api.checks import (
    WEB_URL,
    Fault,
    Faults,
    Field,
    Kind,
    anything,
    boolean,
    integer,
    list_of,
    map_of,
    matching,
    named,
    object_of,
    shown,
    step,
    text,
    unknown,
)
from quvatlh.api.formats import encode
from quvatlh.codec.work import read
from quvatlh.core import work as native
from quvatlh.core.limits import WORK_BYTES_MAX, WORK_NODES_MAX
from quvatlh.service.webrequests import BODY_BYTES_MAX, is_of_the_message, is_status

SURROUNDINGS: Final = ("env", "cwd", "user", "stdin", "rlimits")
FORMS: Final = (*native.FORMS, *native.OTHER_FORMS)
PYTHON_PARTS: Final = ("args", "kwargs", "environment")
KNOWN: Final = frozenset({*FORMS, *PYTHON_PARTS, *SURROUNDINGS})
_STAND_IN: Final = {"shell": ":"}
"""Lets the surroundings of another form be judged like those of a native command."""


def _status(given: Any) -> int | str:
    if not is_status(given):
        raise ValueError(f"must be a status such as 204 or 2xx, not {shown(given)}")
    return given  # type: ignore[no-any-return]


def _header(given: Any) -> str:
    if type(given) is not str or not given.isprintable() or len(given) > HEADER_CHARS_MAX:
        raise ValueError(f"must be text on one line of at most {HEADER_CHARS_MAX} characters, not {shown(given)}")
    return given


def _header_name(given: Any) -> str:
    name: str = _NAME.check(given)
    if is_of_the_message(name):
        raise ValueError("is a header of the message itself, and set by who sends it")
    return name


def _http(given: Any) -> dict[str, Any]:
    request: dict[str, Any] = _REQUEST.check(given)
    url = URL(request["url"])
    for name in request.get("headers", ()):
        if name.lower() == "authorization" and (url.raw_user or url.raw_password):
            raise Faults(
                Fault(f".headers{step(name)}", "cannot go with a user or password in the URL, which says it too")
            )
    return request


HEADER_CHARS_MAX: Final = 8192
_NAME = matching(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", "the name of a header", 256)
_HEADER = Kind(_header, {"type": "string", "maxLength": HEADER_CHARS_MAX})
CALL_CHARS_MAX: Final = 1024
FEW: Final = 64
"""Arguments of a plain call, words of a plain command."""
_TARGET_PATTERN: Final = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
_TARGET: Final = re.compile(_TARGET_PATTERN, re.ASCII)
_CALL_PARTS: Final = frozenset({"python", "args", "kwargs"})
_NOTHING: Final[dict[str, Any]] = {}
_FEW_BYTES: Final = 1024
assert CALL_CHARS_MAX + _FEW_BYTES + 64 <= WORK_BYTES_MAX

_FREE = map_of(text(256), anything())
_WARM = object_of(
    {
        "environment": Field(named()),
        "call": Field(text(1024, chars_min=1)),
        "args": Field(list_of(anything())),
        "kwargs": Field(_FREE),
    },
    "environment",
    "call",
)
_STATUS = Kind(
    _status,
    {"anyOf": [{"type": "integer", "minimum": 100, "maximum": 599}, {"type": "string", "pattern": "^[1-5]xx$"}]},
)
_STATUSES = Field(list_of(_STATUS, 100))
_REQUEST = object_of(
    {
        "url": Field(WEB_URL),
        "method": Field(matching(r"[A-Za-z]{1,16}", "a method such as POST", 16)),
        "headers": Field(map_of(Kind(_header_name, _NAME.schema), _HEADER)),
        "body": Field(text(WORK_BYTES_MAX)),
        "sign": Field(boolean()),
        "expect": _STATUSES,
        "permanent": _STATUSES,
        "retry": _STATUSES,
        "max_bytes": Field(integer(0, BODY_BYTES_MAX)),
    },
    "url",
)
_HTTP = Kind(_http, _REQUEST.schema)
_OTHER = object_of(
    {
        "python": Field(matching(_TARGET_PATTERN, "pkg.mod:function", CALL_CHARS_MAX)),
        "args": Field(list_of(anything())),
        "kwargs": Field(_FREE),
        "environment": Field(named()),
        "http": Field(_HTTP),
        "warm": Field(_WARM),
        "pull": Field(boolean()),
    }
)
_ARGV_SCHEMA: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": WORK_NODES_MAX}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "command": _ARGV_SCHEMA,
        "shell": {"type": "string"},
        "commands": {"type": "array", "items": {"anyOf": [_ARGV_SCHEMA, {"type": "string"}]}, "minItems": 1},
        **_OTHER.schema["properties"],
        "env": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
        "cwd": {"type": "string", "pattern": "^/"},
        "user": {"type": "string"},
        "stdin": {"type": "string"},
        "rlimits": {
            "type": "object",
            "properties": {name: {} for name in native.RLIMITS},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}


def check(given: Any) -> dict[str, Any]:
    if type(given) is str:
        given = _read(given)
    elif _is_plain(given):
        return given  # type: ignore[no-any-return]
    if type(given) is not dict:
        raise ValueError(f"must be YAML text or an object, not {shown(given)}")
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    form = _form(given)
    return _native(given, form) if form in native.FORMS else _other(given, form)


def _is_plain(given: Any) -> bool:
    """One of the commonest works, {command: [texts]} and {python: a function, args: few}."""
    if type(given) is not dict:
        return False
    if "command" in given:
        return len(given) == 1 and is_plain_command(given["command"])
    if not given.keys() <= _CALL_PARTS or given.get("kwargs", _NOTHING) != _NOTHING:
        return False
    return is_plain_call(given.get("python"), given.get("args", []))


def is_plain_command(argv: Any) -> bool:
    """What holds here is less than `core.work` allows."""
    if type(argv) is not list or not 0 < len(argv) <= FEW or not argv[0]:
        return False
    for each in argv:  # noqa: SIM110 - a generator would cost more than all the rest
        if type(each) is not str or len(each) >= 1024 or not each.isascii() or "\0" in each:
            return False
    return True


def is_plain_call(target: Any, args: Any) -> bool:
    """Less than is allowed, here too."""
    if type(target) is not str or len(target) > CALL_CHARS_MAX or not _is_target(target):
        return False
    return type(args) is list and (not args or (len(args) <= FEW and len(encode(args)) < _FEW_BYTES))


@lru_cache(maxsize=1024)
def _is_target(name: str) -> bool:
    """Programs name the same few functions again and again. Of one that is not too long: names are kept."""
    return _TARGET.fullmatch(name) is not None


def _read(source: str) -> Any:
    try:
        return read(source)
    except native.WorkError as error:
        raise _faults(error) from None


def _form(given: dict[str, Any]) -> str:
    strangers = [name for name in given if name not in KNOWN]
    if strangers:
        raise Faults(*(unknown(name, KNOWN) for name in strangers))
    forms = [form for form in FORMS if form in given]
    if len(forms) != 1:
        raise ValueError(f"must have exactly one of {', '.join(FORMS)}, not {' and '.join(forms) or 'none'}")
    stray = [name for name in PYTHON_PARTS if name in given] if forms != ["python"] else []
    if stray:
        raise Faults(*(Fault(f".{name}", "goes with python only") for name in stray))
    return forms[0]


def _native(given: dict[str, Any], form: str) -> dict[str, Any]:
    checked = _judged(given)
    commands = [list(argv) for argv in checked.commands]
    what: Any = commands if form == "commands" else commands[0] if form == "command" else commands[0][-1]
    return {form: what} | _surroundings(checked)


def _other(given: dict[str, Any], form: str) -> dict[str, Any]:
    around = {name: given.pop(name) for name in SURROUNDINGS if name in given}
    if around and form == "warm":
        raise Faults(
            *(Fault(f".{name}", "belongs to the environment of a warm process, not to a task") for name in around)
        )
    made: dict[str, Any] = _OTHER.check(given)
    size = len(encode(made))
    if size > WORK_BYTES_MAX:
        raise Faults(Fault(f".{form}", f"has {size} bytes; at most {WORK_BYTES_MAX}"))
    return made | _surroundings(_judged(_STAND_IN | around)) if around else made


def _judged(given: dict[str, Any]) -> native.Work:
    try:
        return native.check(given)
    except native.WorkError as error:
        raise _faults(error) from None


def _faults(error: native.WorkError) -> Faults:
    codes = {True: "unknown_field", False: "invalid"}
    return Faults(*(Fault(_relative(each.path), each.message, codes[each.is_unknown]) for each in error.faults))


def _relative(path: str) -> str:
    return f".{path}" if path and path[0] != "[" else path


def _surroundings(checked: native.Work) -> dict[str, Any]:
    around = {
        "env": dict(checked.env),
        "cwd": checked.cwd,
        "user": checked.user,
        "stdin": checked.stdin,
        "rlimits": dict(checked.rlimits),
    }
    return {name: value for name, value in around.items() if value not in (None, {})}


WORK: Final = Kind(check, {"anyOf": [{"type": "string", "description": "YAML"}, _SCHEMA]})
