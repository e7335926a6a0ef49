"""YAML as people write it, into plain data: the one reader of the program, bounded, with nothing guessed.

Read by the core schema of YAML 1.2, so that `yes`, `010`, `22:22` and `3.10` stay the texts that they are, and `~` too,
for it is where people live. Aliases count at each use, so that none can explode; tags and keys that stand twice are
refused. What the data may say is for others to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

_INT: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_FLOAT: Final = re.compile(r"-?(0|[1-9][0-9]{0,14})\.[0-9]{1,15}")
_CONSTANTS: Final = {"true": True, "false": False, "null": None, "": None}
_KEY_CHARS_SHOWN: Final = 64

_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Nodes without any meaning put into them; from libyaml where it is built in."""


class Bounds(NamedTuple):
    """Of one text, all its documents together."""

    bytes_max: int
    depth_max: int
    """Levels of lists and mappings."""
    values_max: int
    """Texts, lists and mappings, aliases counted wherever they are used."""


class BadYaml(ValueError):
    """It cannot be read; the message says where and why."""

    def __init__(self, message: str, mark: Any = None, path: str = "") -> None:
        super().__init__(f"line {mark.line + 1}, column {mark.column + 1}: {message}" if mark else message)
        self.path = path
        """`env.PATH`, `commands[1]`, where the place has one."""


def documents(given: bytes | str, bounds: Bounds) -> list[object]:
    """Each as dict, list, str, int, float, bool, None."""
    try:
        text = _text(given, bounds)
        _bound(text, bounds)
        plain = _Plain(bounds)
        return [plain.value(node, "", 1) for node in yaml.compose_all(text, Loader=_Loader)]
    except UnicodeDecodeError as error:
        raise BadYaml(f"is not UTF-8 at byte {error.start}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYaml(error.problem or error.context or "is not YAML", mark) from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise BadYaml(f"is not YAML: {str(error).splitlines()[0]}") from None


def _text(given: bytes | str, bounds: Bounds) -> str:
    """Bounded before it is decoded, or encoded to be measured."""
    size = len(given)
    if isinstance(given, str) and size <= bounds.bytes_max:
        size = len(given.encode("utf-8", "surrogatepass"))
    if size > bounds.bytes_max:
        raise BadYaml(f"has more than {bounds.bytes_max} bytes")
    return given if isinstance(given, str) else given.decode("utf-8-sig")


def _bound(text: str, bounds: Bounds) -> None:
    """Depth and number of what is written out, before a composer recurses into it. Aliases are counted later, by use."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_Loader):
        values += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > bounds.depth_max:
            raise BadYaml(f"is nested more than {bounds.depth_max} levels deep", event.start_mark)
        if values > bounds.values_max:
            raise BadYaml(f"has more than {bounds.values_max} values")


class _Plain:
    """Nodes to data; counts what comes out, so that aliases cannot multiply."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._made = 0

    def value(self, node: yaml.Node, path: str, depth: int) -> object:
        self._made += 1
        if self._made > self._bounds.values_max:
            raise BadYaml(f"has more than {self._bounds.values_max} values, aliases counted at each use")
        if isinstance(node, yaml.ScalarNode):
            _no_tag(node, "str", path)
            return _scalar(node)
        if depth > self._bounds.depth_max:
            words = f"is nested more than {self._bounds.depth_max} levels deep, aliases followed"
            raise BadYaml(words, node.start_mark)
        if isinstance(node, yaml.SequenceNode):
            _no_tag(node, "seq", path)
            return [self.value(each, f"{path}[{place}]", depth + 1) for place, each in enumerate(node.value)]
        _no_tag(node, "map", path)
        assert isinstance(node, yaml.MappingNode)
        return dict(self._pairs(node, path, depth))

    def _pairs(self, node: yaml.MappingNode, path: str, depth: int) -> Iterator[tuple[str, object]]:
        seen: set[str] = set()
        for key, each in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise BadYaml("a key must be text", key.start_mark, path)
            name: str = key.value
            inside = f"{path}.{name[:_KEY_CHARS_SHOWN]}" if path else name[:_KEY_CHARS_SHOWN]
            if name in seen:
                raise BadYaml(f"{name[:_KEY_CHARS_SHOWN]!r} stands twice", key.start_mark, inside)
            seen.add(name)
            self._made += 1
            yield name, self.value(each, inside, depth + 1)


def _scalar(node: yaml.ScalarNode) -> object:
    text: str = node.value
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
        tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")[:_KEY_CHARS_SHOWN]
        raise BadYaml(f"the tag {tag} is not taken", node.start_mark, path)
