"""What one value must look like, and the JSON Schema that says the same: both come from one place, so they agree.

A Kind turns what was given into what the pool takes, or raises ValueError: `Faults` where the fault lies deeper and has a
path. All faults of an object are found at once. A value of null counts as not given.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from yarl import URL

from quvatlh.api.formats import DURATION_FORM, DURATION_PATTERN, TIME_FORM, duration_ms, duration_text, time_ms
from quvatlh.core import limits
from quvatlh.core.rejections import FieldError
from quvatlh.service.pool import Rejected

FAULTS_MAX: Final = 100
"""Told of one request: a person fixes fewer at a time, and an answer stays small."""
WORST_FIRST: Final = ("too_large", "bad_request", "invalid", "unknown_field")
"""Which code the whole gets, when its faults differ."""
SHOWN_CHARS_MAX: Final = 60
"""Of what was given, where it is shown again."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


class Fault(NamedTuple):
    path: str
    """Relative: `.policy.name`, `[3]`; empty for the value itself."""
    message: str
    code: str = "invalid"


class Faults(ValueError):
    def __init__(self, *faults: Fault) -> None:
        super().__init__(faults[0].message)
        self.faults = faults


class Kind(NamedTuple):
    check: Callable[[Any], Any]
    schema: Mapping[str, Any]


def faults_of(error: ValueError, path: str) -> Iterator[Fault]:
    """The faults of an error, from one level further out."""
    if isinstance(error, Faults):
        for fault in error.faults:
            yield Fault(path + fault.path, fault.message, fault.code)
    else:
        yield Fault(path, str(error))


def rejected(faults: Collection[Fault], detail: str = "") -> Rejected:
    """The problem that tells them."""
    codes = {fault.code for fault in faults}
    code = next(code for code in WORST_FIRST if code in codes)
    told = [FieldError(fault.path.removeprefix("."), fault.message) for fault in list(faults)[:FAULTS_MAX]]
    first = f"{told[0].path} {told[0].message}".strip()
    return Rejected(code, detail or (first if len(faults) == 1 else f"{first}, and {len(faults) - 1} more"), told)


def step(name: object) -> str:
    """A key as part of a path."""
    text = str(name)[:SHOWN_CHARS_MAX]
    return f".{text}" if _WORD.fullmatch(text) else f"[{text!r}]"


def unknown(name: object, known: Collection[str], what: str = "field") -> Fault:
    nearest = difflib.get_close_matches(str(name)[:SHOWN_CHARS_MAX], sorted(known), n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return Fault(step(name), f"is not a known {what}{hint}", "unknown_field")


def shown(given: object) -> str:
    """What was given, in JSON's words for its type."""
    if given is None:
        return "null"
    if isinstance(given, dict):
        return "an object"
    if isinstance(given, list):
        return "a list"
    if isinstance(given, bool):
        return "true" if given else "false"
    text = repr(given)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def named(*, slash: bool = False, chars_max: int = limits.NAME_CHARS_MAX) -> Kind:
    """Names of people's things: no control characters, and no slash except where one is welcome."""

    def check(given: Any) -> str:
        if type(given) is str and 0 < len(given) <= chars_max and given.isprintable() and (slash or "/" not in given):
            return given
        raise ValueError(_name_fault(given, chars_max))

    pattern = r"^[^\u0000-\u001f\u007f]*$" if slash else r"^[^\u0000-\u001f\u007f/]*$"
    return Kind(check, {"type": "string", "minLength": 1, "maxLength": chars_max, "pattern": pattern})


STEPS: Final = frozenset((".", ".."))
"""What an address loses on its way, so that nothing of such a name can be asked for."""


def addressed() -> Kind:
    """A name that is new and will stand in addresses, as a queue's does."""
    kind = named()

    def check(given: Any) -> str:
        name: str = kind.check(given)
        if name in STEPS:
            raise ValueError(f"must not be {name!r}: no address can hold it")
        return name

    return Kind(check, {**kind.schema, "pattern": r"^(?!\.{1,2}$)[^\u0000-\u001f\u007f/]*$"})


def _name_fault(given: object, chars_max: int) -> str:
    if not isinstance(given, str):
        return f"must be text, not {shown(given)}"
    if not 0 < len(given) <= chars_max:
        return f"must be 1 to {chars_max} characters, not {len(given)}"
    return "must not hold control characters" if not given.isprintable() else "must not hold '/'"


def text(chars_max: int = limits.TEXT_CHARS_MAX, *, chars_min: int = 0) -> Kind:
    """Anything a person writes, but for NUL, which no program is given."""

    def check(given: Any) -> str:
        if type(given) is not str:
            raise ValueError(f"must be text, not {shown(given)}")
        if not chars_min <= len(given) <= chars_max:
            raise ValueError(f"must be {chars_min} to {chars_max} characters, not {len(given)}")
        if "\0" in given:
            raise ValueError("must not hold NUL")
        return given

    return Kind(check, {"type": "string", "minLength": chars_min, "maxLength": chars_max})


def matching(pattern: str, words: str, chars_max: int) -> Kind:
    compiled = re.compile(pattern, re.ASCII)

    def check(given: Any) -> str:
        if type(given) is not str or len(given) > chars_max or compiled.fullmatch(given) is None:
            raise ValueError(f"must be {words}")
        return given

    return Kind(check, {"type": "string", "maxLength": chars_max, "pattern": f"^{pattern}$"})


_URL: Final = matching(r"[hH][tT][tT][pP][sS]?://[^\s\x00-\x1f]+", "an http or https URL", limits.URL_CHARS_MAX)


def _web_url(given: Any) -> str:
    """Read as it will be when it is asked."""
    url: str = _URL.check(given)
    try:
        read = URL(url)
        can_be = bool(read.raw_host and read.port)
    except ValueError:
        can_be = False
    if not can_be:
        raise ValueError("must be an http or https URL, with a host and a port that can be")
    return url


WEB_URL: Final = Kind(_web_url, _URL.schema)


def integer(low: int, high: int) -> Kind:
    def check(given: Any) -> int:
        if type(given) is float and given.is_integer():
            given = int(given)
        if type(given) is not int or not low <= given <= high:
            raise ValueError(f"must be a whole number from {low} to {high}, not {shown(given)}")
        return given

    return Kind(check, {"type": "integer", "minimum": low, "maximum": high})


def boolean() -> Kind:
    def check(given: Any) -> bool:
        if given is True or given is False:
            return given
        raise ValueError(f"must be true or false, not {shown(given)}")

    return Kind(check, {"type": "boolean"})


def choice(*words: str) -> Kind:
    known = frozenset(words)

    def check(given: Any) -> str:
        if type(given) is not str or given not in known:
            raise ValueError(f"must be one of {', '.join(words)}, not {shown(given)}")
        return given

    return Kind(check, {"type": "string", "enum": list(words)})


def duration(low_ms: int = 0, high_ms: int = limits.TIME_MS_MAX) -> Kind:
    upto = "" if high_ms == limits.TIME_MS_MAX else f" to {duration_text(high_ms)}"
    bounds = f"from {duration_text(low_ms)}{upto}" if upto else f"{duration_text(low_ms)} or more"

    def check(given: Any) -> int:
        ms = duration_ms(given)
        if not low_ms <= ms <= high_ms:
            raise ValueError(f"must be {bounds}, not {shown(given)}")
        return ms

    form = {"type": ["string", "number"], "pattern": f"^{DURATION_PATTERN}$", "minimum": 0}
    return Kind(check, form | {"description": DURATION_FORM})


def time() -> Kind:
    return Kind(time_ms, {"type": "string", "format": "date-time", "description": TIME_FORM})


def anything() -> Kind:
    return Kind(lambda given: given, {})


def list_of(kind: Kind, items_max: int = limits.LIST_ITEMS_MAX, *, items_min: int = 0) -> Kind:
    judge = kind.check

    def check(given: Any) -> list[Any]:
        if type(given) is not list:
            raise ValueError(f"must be a list, not {shown(given)}")
        if not items_min <= len(given) <= items_max:
            raise ValueError(f"must have {items_min} to {items_max} items, not {len(given)}")
        try:
            return [judge(each) for each in given]
        except ValueError:
            return _each(kind, enumerate(given))  # once more, for all the faults and their places

    return Kind(check, {"type": "array", "items": kind.schema, "minItems": items_min, "maxItems": items_max})


def _each(kind: Kind, given: Iterator[tuple[int, Any]]) -> list[Any]:
    checked: list[Any] = []
    faults: list[Fault] = []
    for position, each in given:
        try:
            checked.append(kind.check(each))
        except ValueError as error:
            faults += faults_of(error, f"[{position}]")
    if faults:
        raise Faults(*faults)
    return checked


def map_of(key: Kind, value: Kind, items_max: int = limits.LIST_ITEMS_MAX) -> Kind:
    def check(given: Any) -> dict[str, Any]:
        if type(given) is not dict:
            raise ValueError(f"must be an object, not {shown(given)}")
        if len(given) > items_max:
            raise ValueError(f"must have at most {items_max} keys, not {len(given)}")
        faults: list[Fault] = []
        for name, each in given.items():
            try:
                key.check(name)
                value.check(each)
            except ValueError as error:
                faults += faults_of(error, step(name))
        if faults:
            raise Faults(*faults)
        return given

    return Kind(check, {"type": "object", "additionalProperties": value.schema, "maxProperties": items_max})


class Field(NamedTuple):
    kind: Kind
    key: str = ""
    """What the pool calls it; empty: the same."""


def object_of(fields: Mapping[str, Field], *required: str) -> Kind:
    """Known fields only; what comes out has the pool's names."""

    def check(given: Any) -> dict[str, Any]:
        if type(given) is not dict:
            raise ValueError(f"must be an object, not {shown(given)}")
        checked: dict[str, Any] = {}
        faults: list[Fault] = []
        for name, each in given.items():
            field = fields.get(name)
            if field is None:
                faults.append(unknown(name, fields))
            elif each is not None:
                try:
                    checked[field.key or name] = field.kind.check(each)
                except ValueError as error:
                    faults += faults_of(error, step(name))
        faults += [Fault(f".{name}", "is required") for name in required if given.get(name) is None]
        if faults:
            raise Faults(*faults)
        return checked

    return Kind(check, object_schema({name: field.kind.schema for name, field in fields.items()}, required))


def object_schema(properties: Mapping[str, Mapping[str, Any]], required: Collection[str] = ()) -> dict[str, Any]:
    """null is as good as nothing, except for what is required."""
    return {
        "type": "object",
        "properties": {
            name: schema if name in required or not schema else {"anyOf": [schema, {"type": "null"}]}
            for name, schema in properties.items()
        },
        "additionalProperties": False,
    } | ({"required": list(required)} if required else {})
