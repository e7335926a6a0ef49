"""Changes of the membership, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.ports import Member, Membership, Refused
from quvatlh.raft import members
from quvatlh.raft.settings import Settings
from tests.raft.rig import cluster

SETTINGS = Settings()


def node(name: str, peer: str = "") -> Member:
    return Member(name, name, peer or f"{name}:1")


def test_a_new_node_becomes_a_learner() -> None:
    assert members.with_learner(cluster("abc"), node("d"), SETTINGS) == cluster("abc", learners="d")


def test_a_learner_becomes_a_voter() -> None:
    now = cluster("abd", learners="ce")
    assert members.with_voter(now, "c", SETTINGS) == cluster("abcd", learners="e")


def test_who_is_a_voter_already_stays_one() -> None:
    assert members.with_voter(cluster("abc"), "b", SETTINGS) == cluster("abc")
    assert members.with_learner(cluster("abc"), node("b"), SETTINGS) == cluster("abc")


def test_admitting_a_member_again_brings_its_address_up_to_date() -> None:
    moved = node("b", "elsewhere:2")
    after = members.with_learner(cluster("abc", learners="d"), moved, SETTINGS)
    assert (after.get("b"), [m.id for m in after.voters]) == (moved, ["a", "b", "c"])
    after = members.with_learner(cluster("abc", learners="d"), node("d", "elsewhere:3"), SETTINGS)
    assert after.learners == (node("d", "elsewhere:3"),)


KNOWN = Member("b", "b", "b:1", "b:2")
THREE = members.with_learner(cluster("abc"), KNOWN, SETTINGS)


@pytest.mark.parametrize(
    ("own", "listed", "known"),
    [
        (KNOWN, (), None),
        (Member("b", "b", "b:9", "b:8"), (), Member("b", "b", "b:9", "b:8")),
        (Member("b", "new", "b:1", "b:2"), (), Member("b", "new", "b:1", "b:2")),
        (Member("b", "c", "b:1", "b:2"), (), None),
        (Member("b", "b", "10.0.0.2:1", "b:2"), ("a:1", "b:1"), None),
        (Member("b", "b", "0.0.0.0:1", "0.0.0.0:2"), (), None),
        (Member("b", "b", "", ""), (), None),
        (Member("b", "b", "b:0", "b:8"), (), Member("b", "b", "b:1", "b:8")),
        (node("stranger"), (), None),
    ],
)
def test_a_node_is_known_as_it_was_started_but_for_what_its_peers_know_better(
    own: Member, listed: tuple[str, ...], known: Member | None
) -> None:
    assert members.renewed(THREE, own, listed) == known


@pytest.mark.parametrize("taken", ["a:1", "d:1"])
def test_two_members_do_not_have_one_address(taken: str) -> None:
    now = cluster("abc", learners="d")
    with pytest.raises(Refused, match=f"{taken} belongs to node {taken[0]}"):
        members.with_learner(now, node("e", taken), SETTINGS)
    with pytest.raises(Refused, match=f"{taken} belongs to node {taken[0]}"):
        members.with_learner(now, node("b", taken), SETTINGS)


def test_beyond_seven_voters_nobody_is_admitted() -> None:
    with pytest.raises(Refused, match="at most 7 voters"):
        members.with_learner(cluster("abcdefg"), node("h"), SETTINGS)
    with pytest.raises(Refused, match="at most 7 voters"):
        members.with_voter(cluster("abcdefg", learners="h"), "h", SETTINGS)


def test_who_was_removed_meanwhile_becomes_no_voter() -> None:
    with pytest.raises(Refused) as caught:
        members.with_voter(cluster("abc"), "d", SETTINGS)
    assert caught.value.code == "not_found"


def test_voters_and_learners_can_be_removed() -> None:
    assert members.without(cluster("abc", learners="d"), "b") == cluster("ac", learners="d")
    assert members.without(cluster("abc", learners="d"), "d") == cluster("abc")


def test_the_last_voter_cannot_be_removed() -> None:
    with pytest.raises(Refused, match="last voter"):
        members.without(cluster("a", learners="b"), "a")
    assert members.without(cluster("a", learners="b"), "b") == cluster("a")


def test_nobody_is_removed_who_is_not_in() -> None:
    with pytest.raises(Refused) as caught:
        members.without(cluster("abc"), "x")
    assert caught.value.code == "not_found"


@given(st.lists(st.tuples(st.sampled_from(["add", "promote", "remove"]), st.sampled_from("abcdefghi")), max_size=40))
def test_the_majorities_of_any_membership_and_the_next_one_overlap(steps: list[tuple[str, str]]) -> None:
    now = cluster("abc")
    for step, name in steps:
        before = now
        try:
            if step == "add":
                now = members.with_learner(now, node(name), SETTINGS)
            elif step == "promote":
                now = members.with_voter(now, name, SETTINGS)
            else:
                now = members.without(now, name)
        except Refused:
            continue
        old, new = voters(before), voters(now)
        assert len(old ^ new) <= 1
        assert before.majority + now.majority > len(old | new)
        assert 1 <= len(new) <= 7
        assert [m.id for m in now.voters] == sorted(new)
        assert not new & {m.id for m in now.learners}


def voters(membership: Membership) -> set[str]:
    return {m.id for m in membership.voters}


# --- heirs ------------------------------------------------------------------------------------------------------------


def everybody(_node_id: str) -> bool:
    return True


def test_leadership_goes_to_the_voter_furthest_on() -> None:
    now = cluster("abc", learners="d")
    assert members.heir(now, "a", None, {"b": 5, "c": 7, "d": 9}, everybody) == "c"


def test_leadership_goes_to_the_voter_asked_for_however_far_it_is() -> None:
    assert members.heir(cluster("abc"), "a", "b", {"b": 5, "c": 7}, everybody) == "b"


def test_leadership_goes_to_nobody_out_of_reach() -> None:
    assert members.heir(cluster("abc"), "a", None, {"b": 5, "c": 7}, lambda node_id: node_id != "c") == "b"
    for wanted in (None, "b"):
        with pytest.raises(Refused, match="no voter that could take over"):
            members.heir(cluster("abc"), "a", wanted, {}, lambda _node_id: False)


@pytest.mark.parametrize("wanted", ["a", "d", "x"])
def test_leadership_goes_to_other_voters_only(wanted: str) -> None:
    with pytest.raises(Refused) as caught:
        members.heir(cluster("abc", learners="d"), "a", wanted, {}, everybody)
    assert caught.value.code == "not_found"
