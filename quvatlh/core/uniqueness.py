"""Unique keys: what the key of a task is, and in which states its holder keeps others out.

Keys belong to a group: the default key is made of the group among others, and two tenants that use the same word as a key
do not meet.
"""

from __future__ import annotations

import hashlib

import msgspec

from quvatlh.core.model import ACTIVE, UNFINISHED, WAITING, TaskSpec, Unique

FOR = "for"
"""In `unique_while`: a duration from the ADD, whatever becomes of the task."""

HOLDS: dict[str, tuple[str, ...]] = {"queued": WAITING, "active": ACTIVE, "unfinished": UNFINISHED, FOR: ()}


def key_of(unique: Unique, spec: TaskSpec, payload: bytes | None) -> str:
    """The key as given, or a hash of group, name as given, work and payload. The work has a form in JSON."""
    if unique.key is not None:
        return unique.key
    work = msgspec.json.decode(msgspec.json.encode(spec.work))  # maps with odd keys cannot be sorted, their JSON can
    identity = msgspec.json.encode((spec.group, spec.name, work), order="sorted")
    return "#" + hashlib.blake2b(identity + b"\0" + (payload or b""), digest_size=16).hexdigest()


def while_of(unique: Unique) -> str:
    return unique.while_ if unique.for_ms is None else FOR
