"""Which plug-ins the nodes announce: disciplines by name and version, as facts of the workers that are nodes.

Every voter has such a worker, of no slots where it is to run nothing. One that is lost counts as well: it may be master
again, with what it has.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from quvatlh.core.disciplines import BUILT_IN
from quvatlh.core.model import WorkerFacts

DISCIPLINES: Final = "disciplines"
"""The fact: name -> version."""
_FACTS: Final = msgspec.json.Decoder(WorkerFacts)


def announced(db: sqlite3.Connection, discipline: str) -> dict[str, str | None]:
    """Node -> the version that it has; None: it has none."""
    found: dict[str, str | None] = {}
    for (text,) in db.execute("SELECT facts FROM worker ORDER BY name"):
        facts = _FACTS.decode(text)
        if facts.role == "node":
            told = facts.facts.get(DISCIPLINES)
            version = told.get(discipline) if isinstance(told, dict) else None
            found[facts.node] = None if version is None else str(version)
    return found


def unannounced(db: sqlite3.Connection, discipline: str) -> str | None:
    """Why a queue cannot have it; None: it is built in, or every node has the same."""
    if discipline in BUILT_IN:
        return None
    versions = announced(db, discipline)
    missing = [node for node, version in versions.items() if version is None]
    if not versions or len(missing) == len(versions):
        return f"{discipline} is none of {', '.join(sorted(BUILT_IN))}, and no node has a plug-in of that name"
    if missing:
        return f"the plug-in {discipline} is missing on {', '.join(missing)}"
    if len(set(versions.values())) > 1:
        told = ", ".join(f"{version} on {node}" for node, version in versions.items())
        return f"the nodes have different versions of the plug-in {discipline}: {told}"
    return None
