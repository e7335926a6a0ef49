"""Entries as tests make them: every property from the index, so that content can be told from the index alone."""

from __future__ import annotations

from quvatlh.ports import Entry


def entry(index: int, *items: bytes, term: int = 1, time_ms: int | None = None) -> Entry:
    return Entry(index, term, 1000 + index if time_ms is None else time_ms, items)
