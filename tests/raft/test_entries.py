"""What the bytes of an entry are: all that is packed comes back, and nothing else passes for an entry."""

from __future__ import annotations

import contextlib
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.ports import Member, Membership
from quvatlh.raft import entries
from quvatlh.raft.entries import BadEntry

numbers = st.integers(0, 2**64 - 1)
text = st.text(max_size=20)
nodes = st.builds(Member, text, text, text, text)
memberships = st.builds(
    Membership,
    text,
    st.lists(nodes, min_size=1, max_size=7).map(lambda found: tuple(sorted(found, key=lambda m: m.id))),
    st.lists(nodes, max_size=3).map(lambda found: tuple(sorted(found, key=lambda m: m.id))),
)


@given(numbers, numbers, st.lists(st.binary(max_size=50), max_size=20))
def test_items_come_back_as_they_were_packed(term: int, time_ms: int, items: list[bytes]) -> None:
    packed = entries.pack_items(term, time_ms, items)
    entries.check(packed)
    assert entries.head(packed) == entries.Head(entries.ITEMS, term, time_ms)
    assert entries.unpack_items(packed) == tuple(items)


@given(numbers, numbers, memberships)
def test_a_membership_comes_back_as_it_was_packed(term: int, time_ms: int, membership: Membership) -> None:
    packed = entries.pack_membership_entry(term, time_ms, membership)
    entries.check(packed)
    assert entries.head(packed) == entries.Head(entries.MEMBERSHIP, term, time_ms)
    assert entries.unpack_membership_entry(packed) == membership
    assert entries.unpack_membership(entries.pack_membership(membership)) == membership


@given(st.permutations([Member(i, i, i) for i in "abcd"]))
def test_equal_memberships_are_equal_bytes_in_whatever_order(members: list[Member]) -> None:
    there = Membership("c", tuple(members))
    ordered = Membership("c", tuple(sorted(members, key=lambda m: m.id)))
    assert entries.pack_membership(there) == entries.pack_membership(ordered)


def test_the_engines_no_op_is_one_byte_without_term_and_time() -> None:
    assert entries.head(b"\x01") == entries.Head(entries.NO_OP, 0, 0)
    entries.check(b"\x01")


@pytest.mark.parametrize(
    "command",
    [
        b"",
        b"\x00",
        b"\x01\x00",
        b"\x02" + bytes(16),
        b"\x03" + bytes(16),
        b"\x12" + bytes(16),
        b"\x10",
        b"\x10" + bytes(15),
        b"\x80\x05\x95" + bytes(20),
    ],
)
def test_what_is_no_entry_has_no_head(command: bytes) -> None:
    with pytest.raises(BadEntry):
        entries.head(command)
    with pytest.raises(BadEntry):
        entries.check(command)


HEAD = struct.pack("<BQQ", entries.ITEMS, 1, 1)


@pytest.mark.parametrize("items", [None, 1, b"x", "x", ["x"], [1], [[b"x"]], {"a": b"x"}, {}])
def test_items_are_a_list_of_bytes_and_nothing_else(items: object) -> None:
    with pytest.raises(BadEntry):
        entries.unpack_items(HEAD + msgpack.packb(items))


@pytest.mark.parametrize(
    "membership",
    [
        None,
        [],
        ["c", []],
        ["c", [], []],
        ["c", [["a", "a", "a"]], []],
        ["c", [["a", "a", "a", 1]], []],
        ["c", [["a", "a", "a", "a", "a"]], []],
        ["c", ["aaaa"], []],
        [1, [["a", "a", "a", "a"]], []],
        ["c", [["a", "a", "a", "a"]], None],
        ["c", [["a", "a", "a", "a"]], [None]],
        ["c", [["a", "a", "a", "a"]], [], 1],
        {"c": 1},
    ],
)
def test_a_membership_is_a_cluster_voters_and_learners_and_nothing_else(membership: object) -> None:
    packed = msgpack.packb(membership)
    with pytest.raises(BadEntry):
        entries.unpack_membership(packed)
    with pytest.raises(BadEntry):
        entries.check(struct.pack("<BQQ", entries.MEMBERSHIP, 1, 1) + packed)


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda tail: HEAD + tail)))
def test_garbage_is_an_entry_or_says_that_it_is_none(data: bytes) -> None:
    for read in (entries.head, entries.check, entries.unpack_items, entries.unpack_membership):
        with contextlib.suppress(BadEntry):
            read(data)


@given(memberships, st.data())
def test_a_membership_with_a_changed_byte_is_one_or_says_that_it_is_none(
    membership: Membership, data: st.DataObject
) -> None:
    packed = bytearray(entries.pack_membership_entry(1, 1, membership))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(BadEntry):
        entries.check(bytes(packed))


def test_a_deep_nest_is_refused() -> None:
    with pytest.raises(BadEntry):
        entries.unpack_items(HEAD + b"\x91" * 100_000)
