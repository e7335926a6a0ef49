"""One round of asking before a campaign."""

from __future__ import annotations

from quvatlh.raft.prevote import PreVote


def test_a_majority_of_granted_words_is_taken_once() -> None:
    round_ = PreVote()
    number = round_.begin(10.0, 0.2)
    assert not round_.take(2, 10.0)
    round_.grant(number, "b")
    assert not round_.take(2, 10.1)
    round_.grant(number, "c")
    assert round_.take(2, 10.1)
    assert not round_.take(2, 10.1)


def test_one_voter_is_one_word() -> None:
    round_ = PreVote()
    number = round_.begin(0.0, 1.0)
    round_.grant(number, "b")
    round_.grant(number, "b")
    assert not round_.take(2, 0.0)


def test_words_of_an_earlier_round_do_not_count() -> None:
    round_ = PreVote()
    earlier = round_.begin(0.0, 1.0)
    round_.grant(earlier, "b")
    assert round_.begin(0.5, 1.0) > earlier
    round_.grant(earlier, "c")
    assert not round_.take(1, 0.5)


def test_a_round_is_over_with_its_time() -> None:
    round_ = PreVote()
    number = round_.begin(0.0, 1.0)
    round_.grant(number, "b")
    assert round_.running(0.999)
    assert not round_.running(1.0)
    assert not round_.take(1, 1.0)


def test_a_cancelled_round_gives_nothing() -> None:
    round_ = PreVote()
    number = round_.begin(0.0, 1.0)
    round_.grant(number, "b")
    round_.cancel()
    assert not round_.take(1, 0.0)
    round_.grant(number, "c")
    assert not round_.take(1, 0.0)


def test_before_the_first_round_there_is_nothing_to_take() -> None:
    assert not PreVote().take(0, 0.0)
