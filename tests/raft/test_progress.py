"""How much may be under way to a follower."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quvatlh.raft.progress import Progress

WINDOW = 100


def streaming() -> Progress:
    progress = Progress(1)
    progress.accepted(0)
    return progress


def test_while_probing_one_message_is_under_way() -> None:
    progress = Progress(1)
    assert progress.may_send(WINDOW)
    progress.sent(5, 10)
    assert not progress.may_send(WINDOW)


def test_an_accepted_append_ends_the_probing() -> None:
    progress = Progress(1)
    progress.sent(5, 10)
    progress.accepted(5)
    progress.sent(6, 10)
    assert progress.may_send(WINDOW)


def test_while_streaming_the_window_is_the_bound() -> None:
    progress = streaming()
    for index in range(1, 11):
        assert progress.may_send(WINDOW)
        progress.sent(index, 10)
    assert not progress.may_send(WINDOW)
    progress.accepted(3)
    assert (progress.may_send(WINDOW), progress.unanswered_bytes) == (True, 70)


def test_one_message_may_be_larger_than_the_window() -> None:
    progress = streaming()
    progress.sent(1, 10 * WINDOW)
    assert not progress.may_send(WINDOW)
    progress.accepted(1)
    assert progress.may_send(WINDOW)


def test_a_rejection_starts_again_with_nothing_under_way() -> None:
    progress = streaming()
    progress.sent(1, 90)
    progress.sent(2, 90)
    progress.rejected()
    assert (progress.probing, progress.unanswered_bytes, progress.may_send(WINDOW)) == (True, 0, True)


def test_an_answer_for_less_than_was_sent_together_frees_nothing() -> None:
    progress = streaming()
    progress.sent(5, 50)
    progress.accepted(4)
    assert progress.unanswered_bytes == 50


@given(st.lists(st.tuples(st.sampled_from(["send", "accept", "reject"]), st.integers(0, 60)), max_size=50))
def test_unanswered_is_the_sum_of_what_was_sent_beyond_the_last_accepted(steps: list[tuple[str, int]]) -> None:
    progress = streaming()
    under_way: list[tuple[int, int]] = []
    index = 0
    for step, number in steps:
        if step == "send" and progress.may_send(WINDOW):
            index += 1
            progress.sent(index, number)
            under_way.append((index, number))
        elif step == "accept":
            progress.accepted(number)
            under_way = [sent for sent in under_way if sent[0] > number]
        elif step == "reject":
            progress.rejected()
            under_way = []
        assert progress.unanswered_bytes == sum(nbytes for _, nbytes in under_way)
