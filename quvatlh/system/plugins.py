"""What other packages bring along, found by entry point: disciplines of queues (core/disciplines)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, cast

from quvatlh.core.disciplines import BUILT_IN, ENTRY_POINTS, Discipline

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def disciplines(note: Callable[..., None]) -> Mapping[str, Discipline]:
    """By name. What cannot be used is told, and is not there: a node starts without it."""
    found: dict[str, Discipline] = {}
    for point in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
        try:
            loaded = point.load()
            made = cast("Discipline", loaded() if isinstance(loaded, type) else loaded)
            fault = _fault(made, found)
            if fault is None:
                found[made.name] = made
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module does when it is loaded
            fault = f"{type(error).__name__}: {error}"
        if fault is not None:
            note("a discipline of a plug-in cannot be used", entry_point=point.value, why=fault)
    return found


def _fault(made: Any, found: Mapping[str, Discipline]) -> str | None:
    name, version = getattr(made, "name", None), getattr(made, "version", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "its name is no word of a-z, 0-9 and _ . -"
    if not isinstance(version, str) or not version:
        return "it has no version"
    if not callable(getattr(made, "place", None)):
        return "it has no method place(task)"
    if name in BUILT_IN:
        return f"{name} is built in"
    return f"another plug-in is named {name} as well" if name in found else None
