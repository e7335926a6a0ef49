"""Faults on purpose: each breaks one remedy, by name, so that the simulation can show that it would have seen it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

FAULTS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {}


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Break what `name` says while the context lasts; nothing with None."""
    if name is None:
        yield
        return
    with FAULTS[name]():
        yield
