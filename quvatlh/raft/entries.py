"""What the bytes of a log entry are. The journal and the engine carry them; only this module looks inside.

An entry of ours opens with its kind, the term of the master that made it and its log time. pysyncobj's own no-op, one
byte, is the only entry without a head.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import msgpack

from quvatlh.ports import Member, Membership

NO_OP = 0x01
"""pysyncobj's; appended by every new leader."""
ITEMS = 0x10
"""Proposals, grouped. Without items it is a barrier."""
MEMBERSHIP = 0x11
"""The whole membership, in force from append."""

_NO_OP = bytes([NO_OP])
_KINDS = frozenset({ITEMS, MEMBERSHIP})

_HEAD = struct.Struct("<BQQ")


class BadEntry(ValueError):
    """These bytes are no entry that this version knows."""


@dataclass(frozen=True, slots=True)
class Head:
    kind: int
    term: int
    """Of the master that made it: void in an entry of another term."""
    time_ms: int


def head(command: bytes) -> Head:
    """The head of an entry; of a no-op, one without term and time."""
    if command == _NO_OP:
        return Head(NO_OP, 0, 0)
    if len(command) < _HEAD.size or command[0] not in _KINDS:
        raise BadEntry(f"no entry begins with {command[: _HEAD.size].hex() or 'nothing'}")
    return Head(*_HEAD.unpack_from(command))


def check(command: bytes) -> None:
    """BadEntry for what could not even be kept. Items are looked at when they are applied."""
    if head(command).kind == MEMBERSHIP:
        unpack_membership_entry(command)


def pack_items(term: int, time_ms: int, items: list[bytes]) -> bytes:
    return _HEAD.pack(ITEMS, term, time_ms) + bytes(msgpack.packb(items))


def unpack_items(command: bytes) -> tuple[bytes, ...]:
    found = _unpack(memoryview(command)[_HEAD.size :])
    if not isinstance(found, list) or not {bytes}.issuperset(map(type, found)):
        raise BadEntry("the items of an entry are not a list of bytes")
    return tuple(found)


def pack_membership_entry(term: int, time_ms: int, membership: Membership) -> bytes:
    return _HEAD.pack(MEMBERSHIP, term, time_ms) + pack_membership(membership)


def unpack_membership_entry(command: bytes) -> Membership:
    return unpack_membership(command[_HEAD.size :])


def pack_membership(membership: Membership) -> bytes:
    def rows(members: tuple[Member, ...]) -> list[list[str]]:
        return [[m.id, m.name, m.peer, m.http] for m in sorted(members, key=lambda m: m.id)]

    return bytes(msgpack.packb([membership.cluster, rows(membership.voters), rows(membership.learners)]))


def unpack_membership(data: bytes) -> Membership:
    match _unpack(data):
        case [str(cluster), [_, *_] as voters, list(learners)] if all(map(_is_member, [*voters, *learners])):
            return Membership(cluster, tuple(Member(*row) for row in voters), tuple(Member(*row) for row in learners))
        case _:
            raise BadEntry("a membership is not a cluster, its voters and its learners")


def _is_member(row: object) -> bool:
    return isinstance(row, list) and [type(part) for part in row] == [str, str, str, str]


def _unpack(data: bytes | memoryview) -> Any:
    try:
        return msgpack.unpackb(data)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadEntry(f"not decodable: {error}") from error
