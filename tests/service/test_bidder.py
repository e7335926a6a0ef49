"""What a worker's policies make of tasks that wait, and when the master is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quvatlh.core import commands as c
from quvatlh.ports import Verdict
from quvatlh.service import asks, bidder
from quvatlh.service.crew import JUDGE
from quvatlh.service.seat import LOOK_TASKS_MAX
from tests.fakes.judge import ALWAYS, FAILING, NEVER
from tests.service.stand import Stand, one, two

FEW = "function(state, task) few"


class Ear:
    """The master's, of offers."""

    def __init__(self, stand: Stand) -> None:
        self.said: list[asks.Offers] = []
        stand.node.seats.take_offers = self.said.append

    def words(self) -> dict[int, str]:
        return {offer.task: offer.word for offers in self.said for offer in offers.offers}

    def times(self, task: int) -> int:
        return sum(offer.task == task for offers in self.said for offer in offers.offers)


def policy(source: str) -> dict[str, Any]:
    return {"source": source}


async def test_each_policy_task_that_it_may_have_is_answered_in_one_batch(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        ear = Ear(stand)
        await stand.working()
        for source in (ALWAYS, NEVER, FAILING):
            await stand.add(policy=policy(source))
        await stand.add(policy=policy(ALWAYS), tags=["gpu"])
        await stand.until(lambda: len(ear.words()) == 3)
        assert list(ear.words().values()) == ["bid", "no_bid", "failed"]
        (failed,) = [offer for offers in ear.said for offer in offers.offers if offer.word == "failed"]
        assert failed.text == "line 1: no luck"


async def test_what_was_said_is_not_said_again_until_it_changes_or_the_master_does(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        ear = Ear(stand)
        await stand.working()
        await stand.add(policy=policy(ALWAYS))
        await stand.until(ear.words)
        for _ in range(3):
            await stand.node.workplace.bidder._look()
        assert ear.times(1) == 1
        stand.judge.teach(ALWAYS, lambda _state, _task: Verdict("bid", 7.0))
        await stand.node.workplace.bidder._look()
        assert ear.times(1) == 2
        stand.log.depose(None)
        stand.log.elect()
        await stand.until(lambda: ear.times(1) == 3)


async def test_a_bid_that_stands_is_said_again_once_in_a_while_and_what_became_ready_anew_at_once(
    tmp_path: Path,
) -> None:
    async with one(tmp_path) as stand:
        ear = Ear(stand)
        await stand.working()
        await stand.add(policy=policy(ALWAYS))
        no = await stand.add(policy=policy(NEVER))
        await stand.until(lambda: len(ear.words()) == 2)
        stand.clock.advance(bidder.SAY_AGAIN_S + 0.1)
        await stand.node.workplace.bidder._look()
        assert (ear.times(1), ear.times(2)) == (2, 1)
        token = await stand.claim(no)
        await stand.until_state(no, "running")
        await stand.node.door.propose(c.Lost((c.Loss(token, died=False),)), 1)
        await stand.until(lambda: ear.times(2) == 2)


async def test_bids_and_claims_count_in_what_the_next_policy_sees(tmp_path: Path) -> None:
    async with one(tmp_path, slots=8) as stand:
        ear = Ear(stand)

        def few(state: Mapping[str, Any], task: Mapping[str, Any]) -> Verdict:
            return Verdict("bid" if state["worker"]["actions"]["name"].get(task["name"], 0) < 2 else "no_bid")

        stand.judge.teach(FEW, few)
        await stand.working()
        await stand.add(name="a")
        await stand.until(stand.running)
        for _ in range(4):
            await stand.add(name="a", policy=policy(FEW))
        await stand.until(lambda: len(ear.words()) == 4)
        await stand.node.workplace.bidder._look()
        assert sorted(ear.words().values()) == ["bid", "no_bid", "no_bid", "no_bid"]
        stand.end("a1")
        await stand.until(lambda: sorted(ear.words().values()) == ["bid", "bid", "no_bid", "no_bid"])


async def test_what_was_awarded_elsewhere_does_not_count_any_more(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _switchboard):
        ear = Ear(master)
        await follower.working()
        await master.working()
        task = await master.add(policy=policy(ALWAYS))
        await master.until(ear.words)
        assert master.node.workplace.bidder.state()["worker"]["actions"]["total"] == 1
        await claim_for(master, follower, task)
        await master.until(lambda: master.node.workplace.bidder.state()["worker"]["actions"]["total"] == 0)


async def claim_for(master: Stand, follower: Stand, task: str) -> None:
    (seq,) = master.machine.db.execute("SELECT seq FROM task WHERE id = ?", (task,)).fetchone()
    session = follower.node.session.id or ""
    await master.node.door.propose(c.Awards((c.Award(seq, follower.name, session),)), 1)


async def test_it_looks_again_at_least_each_second(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(bidder, "LOOK_S", 0.02)
    async with one(tmp_path) as stand:
        ear = Ear(stand)
        await stand.working()
        await stand.add(policy=policy(NEVER))
        await stand.until(lambda: ear.words() == {1: "no_bid"})
        stand.judge.teach(NEVER, lambda _state, _task: Verdict("bid"))
        await stand.until(lambda: ear.words() == {1: "bid"})


async def test_all_are_looked_at_however_many_a_bounded_number_at_a_time(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        ear = Ear(stand)
        await stand.working()
        many = 3 * LOOK_TASKS_MAX
        for n in range(many):
            await stand.add(policy=policy(NEVER), priority=n % 3)
        await stand.until(lambda: len(ear.words()) == many)
        assert max(len(offers.offers) for offers in ear.said) <= LOOK_TASKS_MAX
        await stand.node.tree.stop("bidder")
        seen: set[int] = set()
        for _ in range(20):  # one that took long ends early
            seen |= {task.seq for task in (await stand.node.workplace._seat.look()).tasks}
        assert len(seen) == many


async def test_a_worker_that_drains_offers_nothing(tmp_path: Path) -> None:
    from tests.service.test_workplace import patch

    async with one(tmp_path) as stand:
        ear = Ear(stand)
        await stand.working()
        await patch(stand, draining=True)
        await stand.until(lambda: not stand.node.worker.takes)
        await stand.add(policy=policy(ALWAYS))
        await asyncio.sleep(0.05)
        assert ear.said == []
        await patch(stand, draining=False)
        await stand.until(ear.words)


async def test_a_judge_is_not_asked_where_there_are_no_policies(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.until_state(await stand.add(), "running")
        assert stand.judge.asked == {}


async def test_another_node_may_ask_what_a_worker_would_say(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _switchboard):
        await follower.working()
        questions = tuple(asks.JudgeQuestion(source, "default", {"name": "x"}) for source in (ALWAYS, FAILING))
        body = asks.JUDGE_ASK.encode(asks.JudgeAsk("n2", questions))
        answer = asks.JUDGE_ANSWER.decode(await master.peers.request("n2", JUDGE, body, deadline=1))
        assert [verdict.word for verdict in answer.verdicts] == ["bid", "failed"]
        assert master.machine.db.execute("SELECT count(*) FROM task").fetchone() == (0,)
