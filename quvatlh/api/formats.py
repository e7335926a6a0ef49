"""Times and durations as people write them, and the bounded way from bytes to JSON values and back.

`decode` takes what RFC 8259 allows and no more: a key twice, NaN, half a surrogate pair, broken UTF-8, numbers that the
log could not carry and nesting without end are refused. Malformed raises by the standard library's words of ValueError;
which problem that makes is for the caller to say.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from quvatlh.core.limits import TIME_MS_MAX

DEPTH_MAX = 64
"""Levels of lists and objects: far above what people nest, far below what recursion bears."""
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""What msgpack holds, and so the log."""

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION_PATTERN = r"([0-9]{1,15}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)?"
_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
DURATION_FORM = "a duration such as 500ms, 10s, 5m, 2h or 7d, or seconds"
TIME_FORM = "a time such as 2030-01-31T08:00:00.000Z"

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
encode = _encoder.encode
"""A JSON value as bytes."""
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
_CONTAINERS = frozenset({dict, list})


def decode(raw: bytes) -> Any:
    """One JSON value; ValueError says what is wrong with it."""
    if not raw:
        raise ValueError("is empty, where JSON is needed")
    try:
        value = _decoder.decode(raw)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason}") from None
    except msgspec.MsgspecError as error:
        raise ValueError(_words(error)) from None
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX:
        _check_depth(value)
    if may_lack_keys(raw, value):
        _check_keys(raw)
    if may_be_too_large(raw):
        check_integers(value)
    return value


def may_lack_keys(raw: bytes, value: object) -> bool:
    """As many colons as the value has means that no key was lost. A colon may be written as an escape; then look closer."""
    return raw.count(b":") != encode(value).count(b":") or b"\\u003" in raw


def may_be_too_large(raw: bytes) -> bool:
    """A whole number in it, for the log."""
    return _LONG_NUMBER in raw.translate(_ZEROS)


def _words(error: Exception) -> str:
    text = str(error).removeprefix("JSON is malformed: ")
    if text == "Input data was truncated":
        return "is malformed JSON: it ends too early, or holds half a surrogate pair"
    return f"is malformed JSON: {text[:1].lower()}{text[1:]}"


def _too_deep() -> ValueError:
    return ValueError(f"is nested deeper than {DEPTH_MAX} levels")


def _check_depth(value: object) -> None:
    """Level by level: no recursion, one pass."""
    level: list[Any] = [value] if type(value) in _CONTAINERS else []
    for _ in range(DEPTH_MAX):
        if not level:
            return
        inside = [each.values() if type(each) is dict else each for each in level]
        level = [part for parts in inside for part in parts if type(part) in _CONTAINERS]
    if level:
        raise _too_deep()


def _check_keys(raw: bytes) -> None:
    """The slow way, by the standard library, which hands over the pairs before it drops any."""
    import json  # noqa: PLC0415 - nothing else here may use it

    def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(found)
        if len(made) != len(found):
            names = [name for name, _ in found]
            raise ValueError(f"names {next(name for name in names if names.count(name) > 1)!r} twice in one object")
        return made

    json.loads(raw, object_pairs_hook=pairs)


def check_integers(value: object) -> None:
    """Every whole number must fit the log."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            rest.extend(each.values())
        elif isinstance(each, list):
            rest.extend(each)
        elif isinstance(each, int) and not INTEGER_MIN <= each <= INTEGER_MAX:
            raise ValueError("holds a whole number beyond 64 bits")


def duration_ms(given: object) -> int:
    """Milliseconds; ValueError says the form."""
    if isinstance(given, str):
        match = _DURATION.fullmatch(given)
        if match is None:
            raise ValueError(f"must be {DURATION_FORM}")
        amount, unit = float(match[1]), _UNITS[match[2] or "s"]
    elif isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        amount, unit = given, 1000
    else:
        raise ValueError(f"must be {DURATION_FORM}")
    if amount * unit > TIME_MS_MAX:
        raise ValueError("is longer than any time there is")
    return round(amount * unit)


def duration_text(ms: int) -> str:
    """The largest unit that says it exactly."""
    for unit, size in reversed(_UNITS.items()):
        if ms % size == 0 and ms:
            return f"{ms // size}{unit}"
    return "0s"


def time_ms(given: object) -> int:
    """Milliseconds since 1970 UTC; ValueError says the form."""
    if not isinstance(given, str) or _TIME.fullmatch(given) is None:
        raise ValueError(f"must be {TIME_FORM}")
    try:
        ms = (datetime.fromisoformat(given.upper()) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        raise ValueError(f"is no day or time that exists; it must be {TIME_FORM}") from None
    if not 0 <= ms <= TIME_MS_MAX:
        raise ValueError("must be between 1970 and 9999")
    return ms


def time_text(ms: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    when = _EPOCH + timedelta(milliseconds=ms)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
