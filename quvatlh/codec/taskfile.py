"""Tasks written as YAML, one or many: each document is a task or a list of tasks.

Fields may begin with a capital letter (`Group`, `Work`, `Tags`), as the design that Qu'vatlh grew from writes them. What a
task may hold is judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from quvatlh.codec.yamltext import BadYaml, Bounds, documents

FILE: Final = Bounds(bytes_max=64 * 1024 * 1024, depth_max=64, values_max=1_000_000)
"""More goes as NDJSON, which is not held. As deep as JSON may be."""

Task = dict[str, Any]


def read_tasks(given: bytes | str, bounds: Bounds = FILE) -> list[Task]:
    """In the order of the text; BadYaml says what is wrong."""
    return [
        task
        for number, document in enumerate(documents(given, bounds), 1)
        if document is not None
        for task in _tasks(document, number)
    ]


def _tasks(document: object, number: int) -> Iterator[Task]:
    for each in document if isinstance(document, list) else [document]:
        if not isinstance(each, dict):
            raise BadYaml(f"document {number}: a task is a mapping such as `work: {{command: [echo, hello]}}`")
        task = {_name(name): value for name, value in each.items()}
        if len(task) != len(each):
            raise BadYaml(f"document {number}: a field stands twice, once with a capital letter")
        yield task


def _name(written: str) -> str:
    return written[:1].lower() + written[1:]
