"""Promises of voters and the lease they make, by themselves."""

from __future__ import annotations

import pytest

from quvatlh.raft.lease import Lease, Promise
from quvatlh.raft.settings import Settings
from tests.fakes.clock import FakeClock
from tests.raft.rig import cluster

SETTINGS = Settings()
PROMISE_S = SETTINGS.election_min_s
LEASE_S = PROMISE_S * SETTINGS.lease_fraction


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def promise(clock: FakeClock) -> Promise:
    made = Promise(clock, SETTINGS)
    clock.advance(2 * PROMISE_S)
    return made


class Links:
    """Serials of the current connections."""

    def __init__(self, **serials: int) -> None:
        self.serials: dict[str, int] = serials

    def __call__(self, node_id: str) -> int | None:
        return self.serials.get(node_id)


def lease(clock: FakeClock, links: Links) -> Lease:
    made = Lease("a", clock, SETTINGS, links)
    made.begin()
    return made


# --- promises ---------------------------------------------------------------------------------------------------------


def test_who_was_just_started_refuses_everybody_for_the_length_of_a_promise(clock: FakeClock) -> None:
    promise = Promise(clock, SETTINGS)
    assert promise.binds_against("b")
    clock.advance(PROMISE_S * 0.99)
    assert promise.binds_against("b")
    clock.advance(PROMISE_S * 0.02)
    assert not promise.binds_against("b")


def test_a_promise_binds_against_all_but_the_node_that_was_heard(clock: FakeClock, promise: Promise) -> None:
    promise.heard("m")
    assert (promise.binds_against("m"), promise.binds_against("b")) == (False, True)
    clock.advance(PROMISE_S * 1.01)
    assert not promise.binds_against("b")


def test_each_append_renews_the_promise(clock: FakeClock, promise: Promise) -> None:
    for _ in range(10):
        promise.heard("m")
        clock.advance(PROMISE_S * 0.9)
        assert promise.binds_against("b")


def test_a_later_master_takes_the_promise_over(promise: Promise) -> None:
    promise.heard("m")
    promise.heard("n")
    assert (promise.binds_against("m"), promise.binds_against("n")) == (True, False)


def test_the_end_of_a_process_ends_what_it_was_promised_and_nothing_else(promise: Promise) -> None:
    promise.heard("m")
    promise.released("b")
    assert promise.binds_against("b")
    promise.released("m")
    assert not promise.binds_against("b")


def test_the_end_of_another_process_does_not_shorten_what_a_start_owes(clock: FakeClock) -> None:
    promise = Promise(clock, SETTINGS)
    promise.heard("m")
    promise.released("m")
    assert promise.binds_against("b")


# --- the lease --------------------------------------------------------------------------------------------------------


def test_a_leadership_begins_without_a_lease(clock: FakeClock) -> None:
    assert not lease(clock, Links(b=1, c=2)).holds(cluster())


def test_it_holds_from_the_sending_of_what_a_majority_answered(clock: FakeClock) -> None:
    made = lease(clock, Links(b=1, c=2, d=3, e=4))
    made.answered("b", clock.boot(), 1)
    assert not made.holds(cluster("abcde"))
    sent = clock.boot() - 0.1
    made.answered("c", sent, 2)
    assert made.holds(cluster("abcde"))
    clock.advance(LEASE_S - 0.1 - 0.001)
    assert made.holds(cluster("abcde"))
    clock.advance(0.002)
    assert not made.holds(cluster("abcde"))


def test_an_answer_out_of_order_takes_nothing_back(clock: FakeClock) -> None:
    made = lease(clock, Links(b=1))
    now = clock.boot()
    made.answered("b", now, 1)
    made.answered("b", now - 5, 1)
    assert made.holds(cluster("ab"))


def test_a_new_connection_starts_from_nothing_and_an_old_one_counts_no_more(clock: FakeClock) -> None:
    links = Links(b=1)
    made = lease(clock, links)
    made.answered("b", clock.boot(), 1)
    links.serials["b"] = 2
    assert not made.holds(cluster("ab"))
    made.answered("b", clock.boot() - 0.2, 2)
    assert made.holds(cluster("ab"))
    del links.serials["b"]
    assert not made.holds(cluster("ab"))


def test_a_new_leadership_knows_nothing_of_the_answers_to_the_last(clock: FakeClock) -> None:
    made = lease(clock, Links(b=1))
    made.answered("b", clock.boot(), 1)
    made.begin()
    assert not made.holds(cluster("ab"))


def test_learners_and_strangers_do_not_count(clock: FakeClock) -> None:
    made = lease(clock, Links(d=1, x=2))
    made.answered("d", clock.boot(), 1)
    made.answered("x", clock.boot(), 2)
    assert not made.holds(cluster("abc", learners="d"))


def test_a_master_that_is_no_voter_any_more_needs_a_majority_of_the_others(clock: FakeClock) -> None:
    made = lease(clock, Links(b=1, c=2))
    made.answered("b", clock.boot(), 1)
    assert not made.holds(cluster("bc"))
    made.answered("c", clock.boot(), 2)
    assert made.holds(cluster("bc"))


def test_silence_counts_from_the_beginning_of_the_leadership_at_the_earliest(clock: FakeClock) -> None:
    made = lease(clock, Links(b=1))
    clock.advance(0.4)
    assert made.silent_since(cluster("ab")) == pytest.approx(0.4)
    made.answered("b", clock.boot() - 0.1, 1)
    assert made.silent_since(cluster("ab")) == pytest.approx(0.1)
    clock.advance(1.0)
    assert made.silent_since(cluster("ab")) == pytest.approx(1.1)
