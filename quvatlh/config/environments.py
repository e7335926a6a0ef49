"""Environments: the programs that stay loaded and take calls. One value each, checked; what they are for is in runner/."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from quvatlh.core.calls import DEFAULT_ENVIRONMENT

ENVIRONMENTS_MAX: Final = 100
CHILDREN_MAX: Final = 1000
NAME_CHARS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    command: tuple[str, ...] = ()
    """A program that speaks the protocol of warm processes. Empty: a Python interpreter, that we bring the rest for."""
    python: str = ""
    """Interpreter, or directory of a virtual environment. Empty: the daemon's own."""
    cwd: str = ""
    """Empty: the daemon's. Of Python, modules are found here."""
    env: tuple[tuple[str, str], ...] = ()
    """Over the daemon's own."""
    preload: tuple[str, ...] = ()
    """Modules that are imported once, before children are forked, so that these share them."""
    children: int | None = None
    """At most so many at once. None: as many as there are slots."""
    recycle_tasks: int | None = None
    """A child ends after so many. None: never for that."""
    recycle_megabytes: int | None = None
    """A child that has grown beyond that ends after its task."""
    start_s: int = 120
    """How long a child may take until it is ready. Too short, and it never is; too long, and tasks wait for a dead one."""

    @property
    def interpreter(self) -> str:
        if not self.python:
            return sys.executable
        inside = os.path.join(self.python, "bin", "python")
        return inside if os.path.isdir(self.python) else self.python


def with_default(given: tuple[Environment, ...], app: str | None, cwd: str) -> tuple[Environment, ...]:
    """All that a daemon in this directory has: always one by the name `default`, with the application that is loaded in it."""
    placed = {each.name: each if each.cwd else replace(each, cwd=cwd) for each in given}
    default = placed.pop(DEFAULT_ENVIRONMENT, None) or Environment(DEFAULT_ENVIRONMENT, cwd=cwd)
    if app is not None and app not in default.preload:
        default = replace(default, preload=(*default.preload, app))
    return (default, *placed.values())


def environments(given: object) -> tuple[Environment, ...]:
    """A kind (kinds.py): a mapping of names to mappings; from the environment, the same as JSON."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise ValueError("must be a mapping of names to environments, as JSON") from None
    if not isinstance(given, Mapping):
        raise ValueError("must be a mapping of names to environments")  # noqa: TRY004 - a fault of the value, for people
    if len(given) > ENVIRONMENTS_MAX:
        raise ValueError(f"has {len(given)} environments; at most {ENVIRONMENTS_MAX}")
    return tuple(_environment(name, value) for name, value in given.items())


def module(given: object) -> str:
    """A kind: the dotted name of a module."""
    if not isinstance(given, str) or not all(part.isidentifier() for part in given.split(".")):
        path = given.removesuffix(".py").strip("./").replace("/", ".") if isinstance(given, str) else ""
        better = f" (did you mean {path}?)" if all(part.isidentifier() for part in path.split(".")) else ""
        raise ValueError(f"must be the name of a module such as pkg.mod, not {given}{better}")
    return given


def _environment(name: object, given: object) -> Environment:
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable() or "/" in name:
        raise ValueError(f"{name!r} is no name: 1 to {NAME_CHARS_MAX} characters, no '/', no control characters")
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise ValueError(f"{name}: must be a mapping of {', '.join(_FIELDS)}")  # noqa: TRY004 - as above
    made: dict[str, Any] = {}
    for field, value in given.items():
        if field not in _FIELDS:
            raise ValueError(f"{name}.{field}: is not a key; there are {', '.join(_FIELDS)}")
        if value is not None:
            try:
                made[field] = _FIELDS[field](value)
            except ValueError as error:
                raise ValueError(f"{name}.{field}: {error}") from None
    if made.get("command") and (made.get("python") or made.get("preload")):
        raise ValueError(f"{name}: command goes with neither python nor preload")
    return Environment(name, **made)


def _text(given: object) -> str:
    if not isinstance(given, str) or not given or "\0" in given:
        raise ValueError("must be text, not empty")
    return given


def _path(given: object) -> str:
    path = os.path.expanduser(_text(given))
    if not os.path.isabs(path):
        raise ValueError("must be absolute: the daemon may be started anywhere")
    return path


def _command(given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not given:
        raise ValueError("must be a list of program and arguments")
    return tuple(_text(each) for each in given)


def _modules(given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple):
        raise ValueError("must be a list of modules")  # noqa: TRY004 - as above
    return tuple(module(each) for each in given)


def _variables(given: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(given, Mapping):
        raise ValueError("must be a mapping of names to values")  # noqa: TRY004 - as above
    pairs = tuple((str(name), value if isinstance(value, str) else json.dumps(value)) for name, value in given.items())
    for name, value in pairs:
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} is not the name of a variable")
    return pairs


def _count(high: int) -> Callable[[object], int]:
    def count(given: object) -> int:
        if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= high:
            raise ValueError(f"must be a whole number from 1 to {high}")
        return given

    return count


_FIELDS: Final[Mapping[str, Callable[[object], object]]] = {
    "command": _command,
    "python": _path,
    "cwd": _path,
    "env": _variables,
    "preload": _modules,
    "children": _count(CHILDREN_MAX),
    "recycle_tasks": _count(10**9),
    "recycle_megabytes": _count(10**6),
    "start_s": _count(3600),
}
