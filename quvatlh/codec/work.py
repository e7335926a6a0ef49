"""The text of a work, YAML or JSON, read into plain data under bounds; what it may say is `core.work`.

Read by the core schema of YAML 1.2, so that `yes`, `010`, `22:22` and `3.10` stay the texts that they are. Aliases are
taken as long as the whole stays bounded with each use counted; tags, merge keys and doubled keys are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

import yaml

from quvatlh.core.limits import WORK_BYTES_MAX, WORK_DEPTH_MAX, WORK_NODES_MAX
from quvatlh.core.work import Fault, Work, WorkError, check

TEXT_BYTES_MAX = 2 * WORK_BYTES_MAX
"""Comments, blanks and quotes are allowed to take as much again."""

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""What msgpack holds, and so the log."""

_INT = re.compile(r"0|-?[1-9][0-9]{0,17}")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,14})\.[0-9]{1,15}")
_CONSTANTS = {"true": True, "false": False, "null": None, "": None}

_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Nodes without any meaning put into them; from libyaml where it is built in."""


def parse(text: str) -> Work:
    """The checked description of a work given as text; WorkError with all faults."""
    return check(read(text))


def read(text: str) -> object:
    """Plain data: dict, list, str, int, float, bool, None. JSON is tried first, it is what programs send."""
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        raise _refused(f"the text has more than {TEXT_BYTES_MAX} bytes")
    if text.lstrip()[:1] == "{":
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
    return _read_yaml(text)


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
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in path[:256])


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_yaml(text: str) -> object:
    try:
        _bound_events(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _refused(f"{where}{error.problem or error.context or 'not YAML'}") from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise _refused(f"not YAML: {str(error).splitlines()[0]}") from None
    return None if node is None else _Plain().value(node, "", 1)


def _bound_events(text: str) -> None:
    """Depth and number of what is written out, before a composer recurses into it. Aliases are counted later, by use."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > WORK_DEPTH_MAX:
            raise _refused(f"is nested more than {WORK_DEPTH_MAX} levels deep", event.start_mark)
        if nodes > WORK_NODES_MAX:
            raise _refused(f"has more than {WORK_NODES_MAX} values")


class _Plain:
    """Nodes to data; counts what comes out, so that aliases cannot multiply."""

    def __init__(self) -> None:
        self._made = 0

    def value(self, node: yaml.Node, path: str, depth: int) -> object:
        self._made += 1
        if self._made > WORK_NODES_MAX:
            raise _refused(f"has more than {WORK_NODES_MAX} values, aliases counted at each use")
        if depth > WORK_DEPTH_MAX + 1:
            raise _refused(f"is nested more than {WORK_DEPTH_MAX} levels deep", node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if isinstance(node, yaml.SequenceNode):
            _no_tag(node, "seq", path)
            return [self.value(each, f"{path}[{place}]", depth + 1) for place, each in enumerate(node.value)]
        _no_tag(node, "map", path)
        return _object(self._pairs(node, path, depth))

    def _pairs(self, node: yaml.Node, path: str, depth: int) -> Iterator[tuple[object, object]]:
        for key, each in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refused("a key must be text", key.start_mark)
            name = key.value
            self._made += 1
            yield name, self.value(each, f"{path}.{name}" if path else name, depth + 1)

    def _scalar(self, node: yaml.ScalarNode, path: str) -> object:
        text: str = node.value
        _no_tag(node, "str", path)
        if node.style:
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text) and repr(float(text)) == text:
            return float(text)
        return text


def _no_tag(node: yaml.Node, expected: str, path: str) -> None:
    if node.tag not in {f"tag:yaml.org,2002:{expected}", "!", None}:
        raise WorkError([Fault(path[:256], f"line {node.start_mark.line + 1}: tags are not taken")])


def _object(pairs: Any) -> dict[object, object]:
    found: dict[object, object] = {}
    for key, value in pairs:
        if key in found:
            raise WorkError([Fault(str(key)[:64], "is given twice")])
        found[key] = value
    return found


def _no_constant(name: str) -> object:
    raise _refused(f"{name} is not JSON")


def _refused(message: str, mark: Any = None) -> WorkError:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return WorkError([Fault("", where + message)])
