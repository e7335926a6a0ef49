"""YAML that people write into tasks: plain data, bounded, with nothing guessed that they did not mean.

Read by the core schema of YAML 1.2: `on` and `yes` are words, times stay text. A document is a task or a list of tasks.
Aliases count at each use, so that none can explode; tags and keys that stand twice are refused. What a task may hold is
for the node to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

DEPTH_MAX = 64
"""As deep as a node takes."""
VALUES_MAX = 1_000_000
"""Of one file, aliases counted at each use. More goes as NDJSON, which is not held."""
FILE_BYTES_MAX = 64 * 1024 * 1024

_INT = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,14})\.[0-9]{1,15}")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Nodes without any meaning put into them; from libyaml where it is built in."""

Task = dict[str, Any]


class BadFile(ValueError):
    """It cannot be read as tasks; the message says where and why."""


def read_tasks(data: bytes) -> list[Task]:
    """In the order of the file."""
    if len(data) > FILE_BYTES_MAX:
        raise BadFile(f"is longer than {FILE_BYTES_MAX} bytes: write one task a line as JSON into a file *.ndjson")
    try:
        text = data.decode("utf-8-sig")
        _bound(text)
        plain = _Plain()
        documents = [plain.value(node, 1) for node in yaml.compose_all(text, Loader=_Loader)]
    except UnicodeDecodeError as error:
        raise BadFile(f"is not UTF-8 at byte {error.start}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _bad(error.problem or error.context or "is not YAML", mark) from None
    except yaml.YAMLError as error:
        raise BadFile(f"is not YAML: {str(error).splitlines()[0]}") from None
    return [task for number, document in enumerate(documents, 1) for task in _tasks(document, number)]


def _tasks(document: object, number: int) -> Iterator[Task]:
    if document is None:
        return
    for each in document if isinstance(document, list) else [document]:
        if not isinstance(each, dict):
            raise BadFile(f"document {number}: a task is a mapping such as `work: {{command: [echo, hello]}}`")
        yield each


def _bound(text: str) -> None:
    """Before a composer recurses into it."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_Loader):
        values += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise _bad(f"is nested deeper than {DEPTH_MAX} levels", event.start_mark)
        if values > VALUES_MAX:
            raise BadFile(f"has more than {VALUES_MAX} values")


class _Plain:
    def __init__(self) -> None:
        self._made = 0

    def value(self, node: yaml.Node, depth: int) -> object:
        self._made += 1
        if self._made > VALUES_MAX:
            raise BadFile(f"has more than {VALUES_MAX} values, aliases counted at each use")
        if depth > DEPTH_MAX + 1:
            raise _bad(f"is nested deeper than {DEPTH_MAX} levels, aliases followed", node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            _no_tag(node, "str")
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            _no_tag(node, "seq")
            return [self.value(each, depth + 1) for each in node.value]
        _no_tag(node, "map")
        return self._mapping(node, depth)

    def _mapping(self, node: yaml.Node, depth: int) -> Task:
        made: Task = {}
        for key, each in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _bad("a key must be text", key.start_mark)
            if key.value in made:
                raise _bad(f"{key.value!r} stands twice", key.start_mark)
            made[key.value] = self.value(each, depth + 1)
        return made


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


def _no_tag(node: yaml.Node, expected: str) -> None:
    if node.tag not in {f"tag:yaml.org,2002:{expected}", "!", None}:
        raise _bad(f"the tag {node.tag} is not taken", node.start_mark)


def _bad(message: str, mark: Any) -> BadFile:
    return BadFile(f"line {mark.line + 1}, column {mark.column + 1}: {message}" if mark else message)
