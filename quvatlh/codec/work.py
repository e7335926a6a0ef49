"""The text of a work, YAML or JSON, read into plain data under bounds; what it may say is `core.work`."""

from __future__ import annotations

import json
from typing import Any, Final

from quvatlh.codec.yamltext import BadYaml, Bounds, documents
from quvatlh.core.work import WORK_BYTES_MAX, WORK_DEPTH_MAX, WORK_NODES_MAX, Fault, Work, WorkError, check

TEXT_BYTES_MAX: Final = 2 * WORK_BYTES_MAX
"""Comments, blanks and quotes are allowed to take as much again."""
BOUNDS: Final = Bounds(TEXT_BYTES_MAX, WORK_DEPTH_MAX, WORK_NODES_MAX)
_PATH_CHARS_MAX: Final = 256


def parse(text: str) -> Work:
    """The checked description of a work given as text; WorkError with all faults."""
    return check(read(text))


def read(text: str) -> object:
    """Plain data: dict, list, str, int, float, bool, None. JSON is tried first, it is what programs send."""
    if text.lstrip()[:1] == "{" and len(text) <= TEXT_BYTES_MAX:
        try:
            return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
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
        raise _refused(str(error), error.path[:_PATH_CHARS_MAX]) from None
    if len(found) > 1:
        raise _refused(f"holds {len(found)} documents; a work is one")
    return found[0] if found else None


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
