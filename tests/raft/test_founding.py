"""What an empty node may write, given whom it is connected to."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.ports import Member, Membership
from quvatlh.raft import entries
from quvatlh.raft.founding import Waiting, cluster_id, decide, found_alone, refuses
from tests.raft.rig import cluster

FOUNDERS = ("a:1", "b:1", "c:1")


def node(name: str) -> Member:
    return Member(name, name, f"{name}:1")


def hello(name: str, **changes: Any) -> dict[str, Any]:
    said = {"id": name, "name": name, "peer": f"{name}:1", "http": "", "cluster": None, "membership": b""}
    return {**said, "founders": list(FOUNDERS), **changes}


def test_all_the_peers_empty_and_of_one_list_found_the_cluster() -> None:
    found = decide(node("a"), FOUNDERS, [hello("b"), hello("c")])
    assert isinstance(found, Membership)
    assert (found.voters, found.learners) == ((node("a"), node("b"), node("c")), ())
    assert found.cluster == cluster_id("abc")


def test_all_of_them_compute_the_same() -> None:
    found = [
        decide(node(own), tuple(order), [hello(other) for other in "cba" if other != own])
        for own in "abc"
        for order in itertools.permutations(FOUNDERS)
    ]
    assert len({entries.pack_membership(one) for one in found if isinstance(one, Membership)}) == 1
    assert all(isinstance(one, Membership) for one in found)


@pytest.mark.parametrize("reached", [[], ["b"], ["c"], ["b", "x"]])
def test_a_part_of_the_peers_waits_and_says_for_whom(reached: list[str]) -> None:
    verdict = decide(node("a"), FOUNDERS, [hello(name) for name in reached])
    missing = next(name for name in "bc" if name not in reached)
    assert isinstance(verdict, Waiting)
    assert verdict.why.startswith(f"waiting for {missing}:1")


def test_a_peer_with_another_list_is_waited_for() -> None:
    verdict = decide(node("a"), FOUNDERS, [hello("b"), hello("c", founders=["a:1", "c:1"])])
    assert isinstance(verdict, Waiting)
    assert "c:1 has another peer list (a:1, c:1)" in verdict.why


def test_a_peer_that_is_in_a_cluster_is_not_founded_with() -> None:
    packed = entries.pack_membership(cluster("bc"))
    verdict = decide(node("a"), FOUNDERS, [hello("b", membership=packed), hello("c")])
    assert isinstance(verdict, Waiting)
    assert "quvatlh cluster add a a:1" in verdict.why


def test_two_peers_of_one_id_are_a_copied_directory() -> None:
    verdict = decide(node("a"), FOUNDERS, [hello("b"), hello("c", id="b")])
    assert verdict == Waiting("two nodes of the peer list have the same id: a data directory was copied")


def test_a_membership_with_the_own_id_is_taken_over_whoever_shows_it() -> None:
    membership = cluster("abx")
    hellos = [hello("x", peer="elsewhere:1", membership=entries.pack_membership(membership))]
    assert decide(node("a"), FOUNDERS, hellos) == membership


def test_a_membership_in_which_the_own_id_is_a_learner_is_taken_over_too() -> None:
    membership = cluster("bc", learners="a")
    assert decide(node("a"), FOUNDERS, [hello("b", membership=entries.pack_membership(membership))]) == membership


def test_a_membership_without_the_own_id_is_not_taken_over() -> None:
    """The addresses may be the same: it is the id that counts, and that is made with the data."""
    others = Membership("c1", (Member("older", "a", "a:1"), node("b"), node("c")))
    packed = entries.pack_membership(others)
    hellos = [hello("b", membership=packed), hello("c", membership=packed)]
    assert isinstance(decide(node("a"), FOUNDERS, hellos), Waiting)


def test_a_node_founds_alone_with_an_id_of_its_own() -> None:
    assert found_alone(node("a")) == Membership(cluster_id("a"), (node("a"),))
    assert found_alone(node("a")).cluster != found_alone(node("b")).cluster


def test_the_id_of_a_cluster_is_that_of_its_founders_in_any_order() -> None:
    assert cluster_id(["a", "b"]) == cluster_id(["b", "a"])
    assert cluster_id(["a", "b"]) != cluster_id(["a", "b", "c"])
    assert cluster_id(["ab"]) != cluster_id(["a", "b"])


def test_only_another_cluster_is_refused() -> None:
    assert refuses(None, hello("b")) is None
    assert refuses(None, hello("b", cluster="c2")) is None
    assert refuses("c1", hello("b")) is None
    assert refuses("c1", hello("b", cluster="c1")) is None
    assert refuses("c1", hello("b", cluster="c2")) == "it belongs to cluster c2, not to c1"


@given(st.lists(st.sampled_from("bcd"), unique=True), st.sets(st.sampled_from("bcd")), st.sets(st.sampled_from("bcd")))
def test_nobody_founds_unless_every_peer_is_there_empty_and_agrees(
    reached: list[str], members: set[str], others: set[str]
) -> None:
    founders = (*FOUNDERS, "d:1")
    packed = entries.pack_membership(cluster("xyz"))
    hellos = [
        hello(
            name,
            membership=packed if name in members else b"",
            founders=list(FOUNDERS if name in others else founders),
        )
        for name in reached
    ]
    whole = set(reached) == set("bcd") and not members and not others
    assert isinstance(decide(node("a"), founders, hellos), Membership) == whole


@pytest.mark.parametrize(
    "changes",
    [
        {"membership": b"\xff"},
        {"membership": b"\x80\x05]\x94."},
        {"membership": entries.pack_membership(cluster("a"))[:-1]},
        {"membership": "text"},
        {"membership": 7},
        {"founders": None},
        {"founders": ["a:1", 1]},
        {"founders": "a:1"},
    ],
)
def test_a_hello_that_cannot_be_read_is_refused(changes: dict[str, Any]) -> None:
    reason = refuses(None, hello("b", **changes))
    assert reason is not None
    assert "is not readable" in reason
