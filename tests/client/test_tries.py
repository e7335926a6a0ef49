"""Who is asked next, and when: without any network."""

from __future__ import annotations

import pytest

from quvatlh.client import Unavailable, Unknown, Unreachable
from quvatlh.client.tries import REST_MAX_S, Tries

URLS = ("one", "two", "three")


def test_the_round_begins_at_the_preferred_node() -> None:
    tries = Tries(URLS, 1, deadline=10.0)
    order = []
    for _ in URLS:
        node, wait_s = tries.next(0.0)
        assert wait_s == 0.0
        order.append(node)
        tries.not_sent(node, 0.0, "refused")
    assert order == [1, 2, 0]


def test_a_node_rests_longer_each_time_and_never_longer_than_a_second() -> None:
    tries = Tries(("one",), 0, deadline=100.0)
    waits = []
    for _ in range(8):
        tries.not_sent(0, 0.0, "refused")
        waits.append(tries.next(0.0).wait_s)
    assert waits == sorted(waits)
    assert waits[0] < waits[1]
    assert waits[-1] == REST_MAX_S


def test_the_one_that_is_ready_first_is_next() -> None:
    tries = Tries(URLS, 0, deadline=10.0)
    for node, rest_s in enumerate((3.0, 1.0, 2.0)):
        tries.refused(node, 0.0, Unavailable("no_master", "", retry_after_s=rest_s))
    assert tries.next(0.0) == (1, 1.0)
    assert tries.next(0.4) == (1, 0.6)
    assert tries.next(5.0) == (1, 0.0)


def test_the_deadline_ends_it_with_what_was_said_last() -> None:
    tries = Tries(("one",), 0, deadline=1.0)
    problem = Unavailable("disk_full", "no room", retry_after_s=1.0)
    tries.refused(0, 0.0, problem)
    with pytest.raises(Unavailable) as caught:
        tries.next(0.5)
    assert caught.value is problem


def test_without_a_try_in_time_the_nodes_are_unreachable() -> None:
    with pytest.raises(Unreachable) as caught:
        Tries(("one",), 0, deadline=1.0).next(1.0)
    assert caught.value.failures == {"one": "not asked in time"}


def test_doubt_stays_although_nobody_listens_any_more() -> None:
    tries = Tries(("one",), 0, deadline=1.0, patient=False, is_write=True)
    tries.lost(0, 0.0, "reset")
    tries.not_sent(0, 0.1, "refused")
    assert tries.next(0.2).node == 0
    with pytest.raises(Unknown):
        tries.next(1.0)


def test_what_waiting_does_not_mend_is_not_waited_for() -> None:
    tries = Tries(("one",), 0, deadline=100.0)
    tries.not_sent(0, 0.0, "its certificate is not trusted", hopeless=True)
    with pytest.raises(Unreachable):
        tries.next(0.0)
