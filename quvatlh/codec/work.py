"""The text of a work, YAML or JSON, read into plain data under bounds; what it may say is `core.work`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from quvatlh.codec.yamltext import BadYaml, Bounds, documents
from quvatlh.core.limits import WORK_BYTES_MAX, WORK_DEPTH_MAX, WORK_NODES_MAX
from quvatlh.core.work import Fault, Work, WorkError, check

TEXT_BYTES_MAX: Final = 2 * WORK_BYTES_MAX
"""Comments, blanks and quotes are allowed to take as much again."""
BOUNDS: Final = Bounds(TEXT_BYTES_MAX, WORK_DEPTH_MAX, WORK_NODES_MAX)
_PATH_CHARS_MAX: Final = 256

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**64 - 1
"""What msgpack holds, and so the log."""


def parse(text: str) -> Work:
    """The checked description of a work given as text; WorkError with all faults."""
    return check(read(text))


def read(text: str) -> object:
    """Plain data: dict, list, str, int, float, bool, None. JSON is tried first, it is what programs send."""
    if text.lstrip()[:1] == "{" and len(text) <= TEXT_BYTES_MAX:
        try:
            return _bounded(json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant))
        except RecursionError:
            raise _refused(f"is nested more than {WORK_DEPTH_MAX} levels deep") from None
        except json.JSONDecodeError:
            pass  # a YAML mapping in braces looks like this
        except ValueError as error:
            if isinstance(error, WorkError):
                raise
            raise _refused(f"holds a number that cannot be taken: {error}") from None
    try:
        found = documents(text, BOUNDS)
    except BadYaml as error:
        raise _refused(str(error), _shown(error.path)) from None
    if len(found) > 1:
        raise _refused(f"holds {len(found)} documents; a work is one")
    return found[0] if found else None


def _bounded(data: object) -> object:
    """What YAML is held to as it is read; and no number or text that the log could not carry."""
    nodes = 0
    waiting: list[tuple[object, str, int]] = [(data, "", 1)]
    while waiting:
        value, path, depth = waiting.pop()
        nodes += 1
        inner = list(_inner(value, path, depth + 1))
        wrong = _wrong(value)
        if wrong:
            raise WorkError([Fault(_shown(path), wrong)])
        if isinstance(value, dict | list) and depth > WORK_DEPTH_MAX:
            raise _refused(f"is nested more than {WORK_DEPTH_MAX} levels deep")
        if nodes + len(waiting) + len(inner) > WORK_NODES_MAX:
            raise _refused(f"has more than {WORK_NODES_MAX} values")
        waiting += inner
    return data


def _inner(value: object, path: str, depth: int) -> Iterator[tuple[object, str, int]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield name, path, depth
            yield each, f"{path}.{name}" if path else name, depth
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield each, f"{path}[{place}]", depth


def _wrong(value: object) -> str:
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        return "is a number that cannot be taken"
    if isinstance(value, float) and not isfinite(value):
        return "is not a finite number"
    return "" if not isinstance(value, str) or _encodes(value) else "is not valid Unicode"


def _shown(path: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in path[:_PATH_CHARS_MAX])


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)[:64]
        raise _refused(f"{name!r} stands twice", name)
    return found


def _no_constant(name: str) -> object:
    raise _refused(f"{name} is not JSON")


def _refused(message: str, path: str = "") -> WorkError:
    return WorkError([Fault(path, message)])
