"""Where values come from: a YAML file, the environment, flags. Each source yields paths with values and names itself.

A source knows no meaning: it flattens and names. Faults here are those of form: no mapping where one must be, a key
twice, a name that is no key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from quvatlh.codec.yamltext import BadYaml, Bounds, documents
from quvatlh.config.faults import Fault
from quvatlh.config.keys import KEYS, SECTIONS, TOP_SECTIONS, env_name, unknown


@dataclass(frozen=True, slots=True)
class Given:
    value: object
    source: str


BOUNDS: Final = Bounds(bytes_max=1024 * 1024, depth_max=16, values_max=10_000)

Found = tuple[dict[str, Given], list[Fault]]


def from_file(path: str) -> Found:
    try:
        with open(path, "rb") as file:
            return from_yaml(file.read(), path)
    except OSError as error:
        return {}, [Fault("", f"cannot be read: {error.strerror}", path)]


def from_yaml(data: bytes, source: str) -> Found:
    try:
        found = documents(data, BOUNDS)
    except BadYaml as error:
        return {}, [Fault("", str(error), source)]
    if len(found) > 1:
        return {}, [Fault("", f"holds {len(found)} documents; a configuration is one", source)]
    tree = found[0] if found else None
    if tree is None:
        return {}, []
    given: dict[str, Given] = {}
    faults: list[Fault] = []
    for key, value in _leaves(tree, ""):
        if key in KEYS:
            given[key] = Given(value, source)
        elif key in SECTIONS or not key:
            faults.append(Fault(key, "must be a mapping of keys", source))
        else:
            faults.append(Fault(key, unknown(key), source))
    return given, faults


def from_environment(environ: Mapping[str, str]) -> Found:
    """Variables of other meaning (QUVATLH_URL, QUVATLH_TASK_ID, ...) are left alone: no section has their first word."""
    given: dict[str, Given] = {}
    faults: list[Fault] = []
    paths = {env_name(path): path for path in KEYS}
    for name in sorted(environ):
        words = name.split("_")
        if words[0] != "QUVATLH" or len(words) < 3 or words[1].lower() not in TOP_SECTIONS:
            continue
        if name not in paths:
            path = f"{words[1]}.{'_'.join(words[2:])}".lower()
            faults.append(Fault(path, unknown(path), name))
        elif environ[name]:
            given[paths[name]] = Given(environ[name], name)
    return given, faults


def from_flags(flags: Mapping[str, tuple[str, object]]) -> Found:
    """Path to (name of the flag, value); the command line knows its own names, so nothing can be unknown."""
    return {path: Given(value, flag) for path, (flag, value) in flags.items() if value is not None}, []


def _leaves(tree: object, prefix: str) -> Iterator[tuple[str, object]]:
    """Values by dotted path. A key without a value (`name:`) is not given; a section without one is empty."""
    if isinstance(tree, dict) and (not prefix or prefix in SECTIONS):
        for key, value in tree.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif tree is not None or (prefix not in KEYS and prefix not in SECTIONS):
        yield prefix, tree
