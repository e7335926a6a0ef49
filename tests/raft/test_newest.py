"""Both ends judge two connections alike."""

from __future__ import annotations

import itertools

import pytest

from quvatlh.raft.newest import PEERS_REMEMBERED_MAX, Key, Numbers, key_of, takes_over
from tests.sim.clock import WALL_START_MS, SimClock
from tests.sim.loop import SimLoop

DOC = {"incarnation": "1"}


def test_of_two_connections_one_is_greater_and_both_ends_agree_which() -> None:
    keys = [key_of(seq, *ends) for seq in (5, 6) for ends in (("b", "a"), ("a", "b"))]
    assert keys == sorted(set(keys))
    for older, newer in itertools.pairwise(keys):
        assert takes_over(newer, DOC, older, DOC)
        assert not takes_over(older, DOC, newer, DOC)


def test_a_connection_does_not_take_its_own_place() -> None:
    assert not takes_over(Key(5, True), DOC, Key(5, True), DOC)


def test_another_incarnation_takes_the_place_whatever_the_numbers() -> None:
    assert takes_over(Key(1, False), {"incarnation": "2"}, Key(9, True), DOC, knows_us=False)


def test_who_does_not_know_whom_it_dials_takes_no_place() -> None:
    assert not takes_over(Key(9, True), DOC, Key(1, True), DOC, knows_us=False)


@pytest.fixture
def numbers() -> Numbers:
    loop = SimLoop()
    loop.close()
    return Numbers(SimClock(loop))


def test_numbers_begin_at_the_wall_clock_and_none_is_used_twice(numbers: Numbers) -> None:
    got = [numbers.next(peer) for peer in (None, "a", "b", None, "a")]
    assert got == [WALL_START_MS + more for more in range(5)]


def test_a_number_is_above_all_that_were_seen_with_the_peer(numbers: Numbers) -> None:
    numbers.saw("a", 2**50)
    numbers.saw("a", 3)
    assert numbers.highest("a") == 2**50
    assert numbers.next("b") == WALL_START_MS
    assert numbers.next("a") == 2**50 + 1


def test_the_peers_that_are_remembered_are_bounded_and_the_busy_ones_stay(numbers: Numbers) -> None:
    numbers.saw("busy", 7)
    for number in range(2 * PEERS_REMEMBERED_MAX):
        numbers.saw(f"peer {number}", 1)
        numbers.saw("busy", 7)
    assert len(numbers._seen) == PEERS_REMEMBERED_MAX
    assert numbers.highest("busy") == 7
