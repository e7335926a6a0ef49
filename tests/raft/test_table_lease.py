"""DESIGN.md section 6: the leadership lease, and handing leadership over."""

from __future__ import annotations

import asyncio

import pytest

from quvatlh.ports import Applied, LogError, Refused, Unavailable
from quvatlh.raft.settings import Settings
from tests.raft.nodes import SOON_S, Town, add, engine_of, held, log_of, play
from tests.raft.rig import Bench, bench, cluster
from tests.raft.teeth import fails_under
from tests.sim.net import Link


async def master_at_work(voters: str = "abc") -> Bench:
    master = await bench(membership=cluster(voters))
    await master.lead()
    return master


def lease_s(master: Bench) -> float:
    return master.settings.election_min_s * master.settings.lease_fraction


# --- acting -----------------------------------------------------------------------------------------------------------


@fails_under("acts-before-its-no-op")
async def test_a_new_master_acts_only_when_it_has_applied_its_no_op() -> None:
    node = await bench()
    await node.campaign("b", "c")
    node.hear("b", "vote", node.engine.term())
    node.echo("b")
    assert (node.engine.leads(), node.engine.acts()) == (True, False)
    node.holds("b", node.journal.last_index)
    await node.tick()
    assert node.engine.acts()


async def test_a_new_master_has_no_lease_before_a_majority_has_answered_it() -> None:
    node = await bench()
    await node.campaign("b", "c")
    node.hear("b", "vote", node.engine.term())
    node.holds("b", node.journal.last_index)
    await node.tick()
    node.holds("b", node.journal.last_index)
    await node.tick()
    assert (node.engine.acting(), node.engine.acts()) == (True, False)


# --- the lease --------------------------------------------------------------------------------------------------------


@fails_under("lease-by-receipt-time")
async def test_the_lease_counts_from_when_the_append_was_sent() -> None:
    master = await master_at_work()
    sent = master.clock.boot()
    master.clock.advance(0.2)
    master.echo("b", sent)
    master.clock.advance(lease_s(master) - 0.2 - 0.001)
    assert master.engine.acts()
    master.clock.advance(0.002)
    assert not master.engine.acts()


@fails_under("lease-by-receipt-time")
async def test_a_thawed_master_does_not_renew_itself_from_old_answers() -> None:
    """It was stopped for five seconds; the answers to what it had sent before are there at once, and others lead."""
    master = await master_at_work()
    before = [master.clock.boot() - 0.05 * number for number in range(5)]
    master.clock.advance(5.0)
    for sent in before:
        master.echo("b", sent)
        master.echo("c", sent)
        assert not master.engine.acts()


async def test_the_lease_is_over_before_the_first_promise_is() -> None:
    master = await master_at_work()
    voter = await bench("b")
    voter.append("a", master.engine.term(), (0, 0))
    held_s = promised_s = 0.0
    while master.engine.acts():
        master.clock.advance(0.001)
        held_s += 0.001
    while voter.engine._promise.binds_against("c"):
        voter.clock.advance(0.001)
        promised_s += 0.001
    assert 0.8 * promised_s < held_s < 0.95 * promised_s


@pytest.mark.parametrize(("voters", "needed"), [("ab", 1), ("abc", 1), ("abcd", 2), ("abcde", 2), ("abcdefg", 3)])
async def test_the_lease_needs_the_answers_of_a_majority(voters: str, needed: int) -> None:
    master = await master_at_work(voters)
    master.clock.advance(lease_s(master) * 1.01)
    others = [voter for voter in voters if voter != "a"]
    for number, voter in enumerate(others):
        assert master.engine.acts() == (number >= needed)
        master.echo(voter)


@fails_under("lease-of-an-older-connection")
async def test_an_answer_counts_only_while_its_connection_stands() -> None:
    """The other end may be a new process, which does not know what the old one promised."""
    master = await master_at_work()
    assert master.engine.acts()
    master.connect("b")
    master.connect("c")
    assert not master.engine.acts()
    master.echo("b")
    assert master.engine.acts()


async def test_the_answer_of_a_learner_renews_nothing() -> None:
    master = await bench(membership=cluster("abc", learners="d"))
    await master.lead()
    master.clock.advance(lease_s(master) * 1.01)
    master.echo("d")
    assert not master.engine.acts()


async def test_an_answer_from_the_future_renews_nothing() -> None:
    master = await master_at_work()
    for sent in (master.clock.boot() + 1000, float("nan"), float("inf")):
        master.echo("b", sent)
    master.clock.advance(lease_s(master) * 1.01)
    assert not master.engine.acts()


@fails_under("master-without-majority-stays")
async def test_a_master_without_a_majority_steps_down() -> None:
    master = await master_at_work()
    for _ in range(20):
        await master.tick(master.settings.heartbeat_s)
    assert (master.engine.leads(), master.engine.leader_id()) == (False, None)


async def test_a_master_with_a_majority_stays() -> None:
    master = await master_at_work()
    for _ in range(100):
        await master.tick(master.settings.heartbeat_s)
        master.echo("c")
    assert master.engine.acts()


@fails_under("lease-by-receipt-time")
def test_a_stopped_master_never_acts_beside_the_next_one() -> None:
    """Answers to what it had sent wait in its sockets; of the next master it hears nothing."""

    async def story(town: Town) -> None:
        first = await town.founded()
        await asyncio.sleep(0.2)
        due = engine_of(first).heartbeat_due()
        await town.until(lambda: engine_of(first).heartbeat_due() != due, look_s=0.0001)
        assert first.process is not None
        first.process.pause()
        await asyncio.sleep(0.05)
        town.isolate(first)
        await asyncio.sleep(town.settings.election_min_s)
        for other in town.others(first):
            engine_of(other).set_election_deadline(0.0)
        await town.master(other_than=first)
        first.process.resume()
        for _ in range(200):
            await asyncio.sleep(0.001)
            assert first not in town.masters()

    play(story, settings=Settings(election_max_s=5.0))


# --- handing over -----------------------------------------------------------------------------------------------------


@fails_under("hand-over-keeps-the-lease")
async def test_a_master_that_told_another_to_campaign_never_acts_again_in_its_term() -> None:
    master = await master_at_work()
    master.answer("b", "c")
    master.engine.hand_over("b")
    assert master.said("b", "take-over") == [["take-over", master.engine.term()]]
    for _ in range(5):
        assert not master.engine.acts()
        await master.tick(master.settings.heartbeat_s)
        master.answer("b", "c")


async def test_who_is_told_to_take_over_campaigns_at_once_and_says_so() -> None:
    heir = await bench()
    heir.append("b", 1, (0, 0))
    heir.hear("b", "take-over", 1)
    await heir.tick(0.001)
    assert heir.said("c") == [["campaign", 2, 0, 0, True]]


async def test_who_was_told_to_take_over_does_not_once_another_has_the_next_term() -> None:
    heir = await bench()
    heir.append("b", 1, (0, 0))
    heir.hear("b", "take-over", 1)
    heir.hear("c", "campaign", 2, 0, 0, True)
    heir.said("c")
    for _ in range(20):
        heir.append("c", 2, (0, 0))
        await heir.tick(heir.settings.heartbeat_s)
    assert heir.engine.term() == 2
    assert heir.said("c", "campaign", "canvass") == []


async def test_only_the_master_can_tell_a_node_to_take_over() -> None:
    heir = await bench()
    heir.append("b", 1, (0, 0))
    heir.said("b")
    heir.hear("c", "take-over", 1)
    heir.hear("b", "take-over", 0)
    await heir.tick(0.001)
    assert heir.engine.term() == 1


@fails_under("hand-over-without-draining")
def test_leadership_is_handed_over_with_entries_in_flight_and_all_of_them_are_answered() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        heir = town.others(master)[0]
        # The third node's answers commit all of it while those of the heir are on their way.
        town.net.set_link(heir.name, master.name, Link(latency_s=(0.02, 0.02), spike_chance=0.0))
        values = [str(number) for number in range(20)]

        async def at_once(log: object) -> list[object]:
            own = log_of(master)
            writes = []
            for value in values:
                writes.append(asyncio.ensure_future(own.propose(add(value), deadline=SOON_S)))
                await asyncio.sleep(0)
            handed = asyncio.ensure_future(own.transfer(log_of(heir).node_id, deadline=SOON_S))
            return list(await asyncio.gather(*writes, handed, return_exceptions=True))

        *outcomes, successor = await town.at(master, at_once)
        assert successor == log_of(heir).node_id
        assert await town.master() is heir
        done = [value for value, outcome in zip(values, outcomes, strict=True) if isinstance(outcome, Applied)]
        refused = [value for value, outcome in zip(values, outcomes, strict=True) if isinstance(outcome, Unavailable)]
        assert len(done) >= 2
        assert len(done) + len(refused) == len(values)
        await town.write(heir, "after")
        await town.all_hold(*done, "after")
        assert not set(refused) & set(held(heir))

    play(story)


def test_while_a_hand_over_waits_writes_are_unavailable_and_it_ends_by_its_deadline() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        heir, third = town.others(master)
        # Frames reach the heir, its answers never come back: it does not catch up as far as the master knows.
        await town.write(master, "x")
        town.net.block(heir.name, master.name)

        async def both(_: object) -> tuple[object, object]:
            log = log_of(master)
            first = asyncio.ensure_future(log.propose(add("y"), deadline=SOON_S))
            await first
            handing = asyncio.ensure_future(log.transfer(log_of(heir).node_id, deadline=0.4))
            await asyncio.sleep(0.05)
            outcomes = await asyncio.gather(log.propose(add("z"), deadline=0.1), handing, return_exceptions=True)
            return outcomes[0], outcomes[1]

        write, handing = await town.at(master, both)
        assert (type(write), type(handing)) == (Unavailable, Unavailable)
        assert master in town.masters()
        await town.write(master, "after")
        assert third.log is not None

    play(story)


def test_leadership_goes_to_who_is_furthest_on_and_reachable() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        away, near = town.others(master)
        away.crash(power=False)
        await town.write(master, "x")
        successor = await town.at(master, lambda log: log.transfer(deadline=SOON_S))
        assert successor == log_of(near).node_id
        await town.master(other_than=master)

    play(story)


def test_a_node_that_is_alone_has_nobody_to_hand_over_to() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        with pytest.raises(Refused):
            await town.at(master, lambda log: log.transfer(deadline=SOON_S))
        assert master in town.masters()

    play(story, nodes=1)


def test_a_hand_over_that_is_not_taken_up_ends_the_term_and_is_unknown() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        term = engine_of(master).term()
        heir = town.others(master)[0]
        await town.write(master, "x")
        await town.all_hold("x")
        assert heir.process is not None
        await town.until(lambda: engine_of(master).caught_up(log_of(heir).node_id))
        heir.process.pause()
        with pytest.raises(LogError) as caught:
            await town.at(master, lambda log: log.transfer(log_of(heir).node_id, deadline=SOON_S))
        assert caught.value.code == "unknown"
        assert not engine_of(master).leads()
        heir.process.resume()
        following = await town.master()
        assert engine_of(following).term() > term

    play(story)
