"""What the bytes of a log entry are. The journal and the engine carry them; only this module looks inside.

An entry of ours opens with its kind, the term of the master that made it and its log time. pysyncobj's own no-op, one
byte, is the only entry without a head.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgpack

from quvatlh.ports import Member, Membership

NO_OP = 0x01
"""pysyncobj's; appended by every new leader."""
ITEMS = 0x10
"""Proposals, grouped. Without items it is a barrier."""
MEMBERSHIP = 0x11
"""The whole membership, in force from append."""

_HEAD = struct.Struct("<BQQ")


@dataclass(frozen=True, slots=True)
class Head:
    kind: int
    term: int
    """Of the master that made it: void in an entry of another term."""
    time_ms: int


def head(command: bytes) -> Head:
    """The head of an entry; of a no-op, one without term and time."""
    if command[0] == NO_OP:
        return Head(NO_OP, 0, 0)
    return Head(*_HEAD.unpack_from(command))


def pack_items(term: int, time_ms: int, items: list[bytes]) -> bytes:
    return _HEAD.pack(ITEMS, term, time_ms) + msgpack.packb(items)


def unpack_items(command: bytes) -> tuple[bytes, ...]:
    return tuple(msgpack.unpackb(memoryview(command)[_HEAD.size :]))


def pack_membership_entry(term: int, time_ms: int, membership: Membership) -> bytes:
    return _HEAD.pack(MEMBERSHIP, term, time_ms) + pack_membership(membership)


def unpack_membership_entry(command: bytes) -> Membership:
    return unpack_membership(command[_HEAD.size :])


def pack_membership(membership: Membership) -> bytes:
    def rows(members: tuple[Member, ...]) -> list[list[str]]:
        return [[m.id, m.name, m.peer, m.http] for m in sorted(members, key=lambda m: m.id)]

    return bytes(msgpack.packb([membership.cluster, rows(membership.voters), rows(membership.learners)]))


def unpack_membership(data: bytes) -> Membership:
    cluster, voters, learners = msgpack.unpackb(data)
    return Membership(cluster, tuple(Member(*row) for row in voters), tuple(Member(*row) for row in learners))
