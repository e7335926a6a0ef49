"""DESIGN.md section 6: who may campaign, who is voted for, and how a node whose term ran ahead comes back."""

from __future__ import annotations

import pytest

from tests.raft.nodes import SOON_S, Town, engine_of, log_of, play
from tests.raft.rig import Bench, bench, cluster, row, rows
from tests.raft.teeth import fails_under


async def following(own: str = "a", master: str = "b") -> Bench:
    """A voter that has just heard a master, in term 1."""
    voter = await bench(own)
    voter.append(master, 1, (0, 0))
    return voter


# --- before a campaign ------------------------------------------------------------------------------------------------


@fails_under("campaign-without-pre-vote")
async def test_a_node_asks_for_a_majoritys_word_before_it_campaigns() -> None:
    node = await bench()
    for _ in range(100):
        await node.tick(0.1)
    assert node.engine.term() == 0
    assert {frame[0] for frame in node.said("b")} == {"canvass"}


@fails_under("campaign-without-pre-vote")
def test_a_node_that_was_away_disturbs_nobody() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        term = engine_of(master).term()
        away = town.others(master)[0]
        for _ in range(3):
            town.isolate(away)
            await town.until(lambda: engine_of(away).leader_id() is None)
            began = town.loop.now_s
            await town.until(lambda: town.loop.now_s - began > 2.0)  # noqa: B023 - asked at once
            town.net.heal()
            await town.until(lambda: engine_of(away).leader_id() == log_of(master).node_id)
        assert (town.masters(), engine_of(master).term()) == ([master], term)

    play(story)


async def test_a_word_is_good_for_one_campaign_in_its_round() -> None:
    node = await bench()
    await node.tick(node.settings.election_max_s)
    old = node.said("b", "canvass")[0][2]
    await node.tick(node.settings.election_max_s)
    assert node.said("b", "canvass")[0][2] > old
    node.hear("b", "would", 0, old, True)
    await node.tick()
    assert node.engine.term() == 0


async def test_a_refused_word_is_none() -> None:
    node = await bench()
    await node.tick(node.settings.election_max_s)
    number = node.said("b", "canvass")[0][2]
    node.hear("b", "would", 0, number, False)
    await node.tick()
    assert node.engine.term() == 0


async def test_the_word_of_one_who_has_no_vote_counts_for_nothing() -> None:
    node = await bench(membership=cluster("abc", learners="d"))
    await node.tick(node.settings.election_max_s)
    number = node.said("b", "canvass")[0][2]
    node.hear("d", "would", 0, number, True)
    await node.tick()
    assert node.engine.term() == 0


@pytest.mark.parametrize("membership", [cluster("bcd", learners="a"), cluster("bcd")])
async def test_who_has_no_vote_never_campaigns(membership: object) -> None:
    node = await bench(membership=membership)  # type: ignore[arg-type]
    for _ in range(20):
        await node.tick(0.5)
    assert (node.engine.term(), node.said("b", "canvass", "campaign")) == (0, [])


async def test_a_term_heard_of_while_asking_is_caught_up_with() -> None:
    node = await bench()
    await node.tick(node.settings.election_max_s)
    number = node.said("b", "canvass")[0][2]
    node.hear("b", "would", 8, number, False)
    assert node.engine.term() == 8
    await node.tick()
    frames = node.said("b", "canvass")
    assert frames[-1][1] == 8


# --- what a voter has promised ----------------------------------------------------------------------------------------


@fails_under("no-promise")
async def test_within_the_promise_another_is_given_neither_word_nor_vote() -> None:
    voter = await following()
    voter.clock.advance(voter.settings.election_min_s * 0.99)
    voter.hear("c", "canvass", 5, 1, 0, 0)
    voter.hear("c", "campaign", 6, 0, 0, False)
    assert voter.said("c") == [["would", 1, 1, False]]
    assert (voter.engine.term(), voter.engine.leader_id()) == (1, "b")


async def test_after_the_promise_another_is_given_word_and_vote() -> None:
    voter = await following()
    voter.clock.advance(voter.settings.election_min_s * 1.01)
    voter.hear("c", "canvass", 5, 1, 0, 0)
    voter.hear("c", "campaign", 6, 0, 0, False)
    assert voter.said("c") == [["would", 1, 1, True], ["vote", 6]]


async def test_the_node_that_was_heard_is_not_refused() -> None:
    """It has lost its leadership, or its process began anew; there is nobody else to be loyal to."""
    voter = await following()
    voter.hear("b", "canvass", 1, 1, 0, 0)
    voter.hear("b", "campaign", 2, 0, 0, False)
    assert voter.said("b", "would", "vote") == [["would", 1, 1, True], ["vote", 2]]


@fails_under("no-promise", "no-promise-at-the-start")
async def test_a_voter_that_was_just_started_behaves_as_if_it_had_promised() -> None:
    voter = await bench(freshly_started=True)
    voter.hear("c", "canvass", 5, 1, 9, 9)
    voter.hear("c", "campaign", 6, 9, 9, False)
    assert voter.said("c") == [["would", 0, 1, False]]
    assert voter.engine.term() == 0
    voter.clock.advance(voter.settings.election_min_s * 1.01)
    voter.hear("c", "campaign", 6, 9, 9, False)
    assert voter.said("c") == [["vote", 6]]


@fails_under("vote-request-let-through-to-a-master-with-the-lease")
async def test_a_master_with_the_lease_is_not_deposed_by_a_request() -> None:
    master = await bench()
    await master.lead()
    term = master.engine.term()
    master.said("c")
    master.hear("c", "canvass", term + 5, 1, 99, 99)
    master.hear("c", "campaign", term + 6, 99, 99, False)
    assert (master.engine.acts(), master.engine.term(), master.said("c")) == (True, term, [["would", term, 1, False]])


async def test_a_master_without_the_lease_gives_way() -> None:
    master = await bench()
    await master.lead()
    term = master.engine.term()
    master.clock.advance(master.settings.election_min_s * 1.01)
    master.hear("c", "campaign", term + 1, 99, 99, False)
    assert (master.engine.leads(), master.engine.term(), master.engine.voted_for()) == (False, term + 1, "c")


@fails_under("hand-over-refused-as-any-other")
async def test_a_request_by_hand_over_passes_the_promise() -> None:
    voter = await following()
    voter.hear("c", "campaign", 2, 0, 0, True)
    assert voter.said("c") == [["vote", 2]]


@pytest.mark.parametrize(
    ("last", "term", "yes"), [(5, 3, True), (6, 3, True), (4, 3, False), (9, 2, False), (1, 4, True)]
)
async def test_nobody_is_given_word_or_vote_whose_log_lacks_something(last: int, term: int, yes: bool) -> None:
    voter = await bench(log=[*rows(1, 3), *rows(4, 5, term=3)])
    voter.hear("c", "canvass", 4, 1, last, term)
    voter.hear("c", "campaign", 5, last, term, False)
    assert [frame[0] == "vote" or frame[3] for frame in voter.said("c")] == ([True, True] if yes else [False])


# --- counting votes ---------------------------------------------------------------------------------------------------


@fails_under("strangers-may-vote")
async def test_the_vote_of_one_who_has_none_counts_for_nothing() -> None:
    node = await bench(membership=cluster("abc", learners="d"))
    await node.campaign("b")
    node.hear("d", "vote", node.engine.term())
    assert not node.engine.leads()


@fails_under("a-voice-counts-twice")
async def test_one_voter_that_answers_twice_is_one_vote() -> None:
    node = await bench(membership=cluster("abcde"))
    await node.campaign("b", "c")
    for _ in range(4):
        node.hear("b", "vote", node.engine.term())
    assert not node.engine.leads()
    node.hear("c", "vote", node.engine.term())
    assert node.engine.leads()


@fails_under("a-voice-counts-once-a-candidacy")
async def test_who_stays_candidate_is_voted_for_anew_in_each_term() -> None:
    node = await bench(membership=cluster("abcde"))
    await node.campaign("b", "c")
    node.hear("b", "vote", node.engine.term())
    await node.campaign("b", "c")
    node.hear("b", "vote", node.engine.term())
    assert not node.engine.leads()
    node.hear("c", "vote", node.engine.term())
    assert node.engine.leads()


async def test_a_vote_of_another_term_counts_for_nothing() -> None:
    node = await bench()
    await node.campaign("b", "c")
    for term in (node.engine.term() - 1, node.engine.term() + 1):
        node.hear("b", "vote", term)
    assert not node.engine.leads()


# --- a term that ran ahead --------------------------------------------------------------------------------------------


@fails_under("lower-term-not-answered")
async def test_an_append_of_a_lower_term_is_answered_with_the_own_one() -> None:
    node = await bench(log=[row(1, 5)])
    node.append("b", 3, (0, 0))
    assert (node.said("b"), node.engine.leader_id()) == ([["stale", 5]], None)


async def test_a_master_that_hears_of_a_higher_term_steps_down_and_campaigns_above_it() -> None:
    master = await bench()
    await master.lead()
    master.hear("c", "stale", 40)
    assert (master.engine.leads(), master.engine.term()) == (False, 40)
    await master.lead("b", "c")
    assert master.engine.term() == 41


async def test_a_higher_term_of_one_who_is_no_member_moves_nobody() -> None:
    master = await bench()
    await master.lead()
    term = master.engine.term()
    master.connect("x")
    master.hear("x", "stale", 40)
    assert (master.engine.acts(), master.engine.term()) == (True, term)


@fails_under("lower-term-not-answered")
def test_a_node_whose_term_ran_ahead_comes_back() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        ahead = town.others(master)[0]
        engine_of(ahead).adopt_term(50)
        await town.until(lambda: engine_of(ahead).leader_id() is not None, within_s=5.0)
        master = await town.master()
        assert engine_of(master).term() > 50
        await town.write(master, "x")
        await town.all_hold("x")

    play(story)


# --- the death of a master --------------------------------------------------------------------------------------------


@fails_under("masters-death-not-noticed")
def test_a_killed_master_is_replaced_at_once() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        await town.write(master, "x")
        master.crash(power=False)
        began = town.loop.now_s
        following = await town.master(other_than=master)
        assert town.loop.now_s - began < town.settings.election_min_s / 2
        await town.write(following, "y")
        await town.all_hold("x", "y", boxes=town.others(master))

    play(story)


def test_a_master_whose_connections_were_cut_on_the_way_stays_master() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        term = engine_of(master).term()
        for _ in range(5):
            for other in town.others(master):
                town.net.cut(master.name, other.name)
            await town.write(master, f"{town.loop.now_s}", SOON_S)
        assert (town.masters(), engine_of(master).term()) == ([master], term)

    play(story)


def test_a_machine_that_vanished_is_replaced_after_an_election_time() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        master.crash(power=True)
        began = town.loop.now_s
        await town.master(other_than=master)
        assert town.loop.now_s - began < 3 * town.settings.election_max_s

    play(story)
