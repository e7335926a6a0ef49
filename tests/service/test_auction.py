"""The market: auctions of tasks with policies, strategies without, claims ahead of slots."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.ports import Unavailable
from quvatlh.service import asks
from quvatlh.service.auction import Auction
from quvatlh.service.offers import CLOSES_S, TASKS_MAX
from quvatlh.service.placing import weight
from quvatlh.service.pool import Turn
from tests.fakes.judge import bid
from tests.service.bidding import POLICY, offer, owner_of, ready, seq_of, session_of
from tests.service.stand import Stand, asked, one, two


async def test_the_best_bid_wins_once_all_have_answered(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        await offer(master, "n1", task, 1.0)
        await asyncio.sleep(0.02)
        assert master.peek(task) == "pending", "the other one was not waited for"
        await offer(master, "n2", task, 2.0)
        assert await owner_of(master, task) == "n2"


async def test_one_that_does_not_bid_is_not_waited_for(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        await offer(master, "n2", task, "failed", "line 1: no luck")
        await offer(master, "n1", task, 1.0)
        assert await owner_of(master, task) == "n1"


async def test_an_auction_closes_after_its_time_without_the_silent_ones(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        await offer(master, "n1", task, 1.0)
        await asyncio.sleep(0.02)
        assert master.peek(task) == "pending"
        master.clock.advance(CLOSES_S)
        assert await owner_of(master, task) == "n1"


async def test_a_later_bid_wins_at_once(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        master.clock.advance(2 * CLOSES_S)
        await offer(master, "n1", task, "no_bid")
        await asyncio.sleep(0.02)
        assert master.peek(task) == "pending"
        await offer(master, "n2", task, 0.5)
        assert await owner_of(master, task) == "n2"


async def test_ties_go_to_the_most_free_slots_then_to_the_hash(tmp_path: Path) -> None:
    async with two(tmp_path, slots=4) as (master, follower, _):
        await ready(master, follower)
        await master.until_state(await master.add(tags=["node=n1"]), "running")
        freest = await master.add(policy=POLICY)
        for name in ("n1", "n2"):
            await offer(master, name, freest, 1.0)
        assert await owner_of(master, freest) == "n2"
        tasks = [await master.add(policy=POLICY, slots=0) for _ in range(3)]
        for task in tasks:
            for name in ("n1", "n2"):
                await offer(master, name, task, 1.0)
            _, first = max((weight(name, task), name) for name in ("n1", "n2"))
            assert await owner_of(master, task) == first


async def test_a_bid_stands_until_a_slot_is_free(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await stand.until_state(await stand.add(), "running")
        task = await stand.add(policy=POLICY)
        await offer(stand, "n1", task, 1.0)
        await asyncio.sleep(0.02)
        assert stand.peek(task) == "pending"
        stand.end("a1")
        await stand.until_state(task, "running")


async def test_a_bid_that_was_taken_back_wins_nothing(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await stand.until_state(await stand.add(), "running")
        task = await stand.add(policy=POLICY)
        await offer(stand, "n1", task, 1.0)
        await offer(stand, "n1", task, "no_bid")
        stand.end("a1")
        await asyncio.sleep(0.05)
        assert stand.peek(task) == "pending"


async def test_offers_of_a_session_that_is_not_the_workers_are_ignored(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await ready(stand)
        task = await stand.add(policy=POLICY)
        await offer(stand, "n1", task, 1.0, session="another")
        stand.clock.advance(2 * CLOSES_S)
        await asyncio.sleep(0.05)
        assert stand.peek(task) == "pending"
        assert stand.node.book.verdicts(seq_of(stand, task)) == {}


async def test_only_a_master_takes_offers_and_a_new_one_has_heard_nothing(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await stand.until_state(await stand.add(), "running")
        task = await stand.add(policy=POLICY)
        await offer(stand, "n1", task, 1.0)
        stand.log.depose(None)
        with pytest.raises(Unavailable):
            stand.node.book.take(asks.Offers("n1", session_of(stand, "n1"), ()))
        stand.log.elect()
        assert stand.node.book.lanes() == []
        stand.end("a1")
        await asyncio.sleep(0.05)
        assert stand.peek(task) == "pending"
        await offer(stand, "n1", task, 1.0)
        await stand.until_state(task, "running")


async def test_an_award_ends_all_bids_for_the_task(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        for name in ("n1", "n2"):
            await offer(master, name, task, 1.0)
        owner = await owner_of(master, task)
        await master.pool.act(asked(), Turn("relocate"), [task])
        await master.until_state(task, "pending")
        master.clock.advance(2 * CLOSES_S)
        await asyncio.sleep(0.05)
        assert master.peek(task) == "pending", "an old bid has won"
        (other,) = {"n1", "n2"} - {owner}
        await offer(master, owner, task, 9.0)
        await offer(master, other, task, 1.0)
        assert await owner_of(master, task) == other, "it went back to where it was moved away from"


async def test_a_service_gets_as_many_as_it_wants_from_different_bids(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        task = await master.add(kind="service", limit=2, policy=POLICY)
        for name in ("n1", "n2"):
            await offer(master, name, task, 1.0)
        await master.until(lambda: len(master.live()) == 2)
        assert {worker for _, worker in master.live()} == {"n1", "n2"}


async def test_policies_hold_nobody_up_and_cost_nothing_while_they_wait(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await ready(stand)
        for _ in range(50):
            await stand.add(policy=POLICY, priority=9)
        plain = await stand.add()
        await stand.until_state(plain, "running")
        before = stand.machine.applied_index
        await asyncio.sleep(0.1)
        assert stand.machine.applied_index == before


async def test_tasks_of_one_policy_go_in_the_order_of_their_queue(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await stand.until_state(await stand.add(), "running")
        late, first = await stand.add(policy=POLICY), await stand.add(policy=POLICY, priority=5)
        for task in (late, first):
            await offer(stand, "n1", task, 1.0)
        stand.end("a1")
        await stand.until_state(first, "running")
        assert stand.peek(late) == "pending"
        await stand.pool.act(asked(), Turn("update", changes={"priority": 7}), [late])
        another = await stand.add(policy=POLICY, priority=6)
        await offer(stand, "n1", another, 1.0)
        stand.end("a2")
        await stand.until_state(late, "running")


async def test_what_is_kept_of_offers_is_bounded(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.node.door.write(
            asks.Open("w", "s", b"x" * 32, "d", stand.node.session.facts), 1, stand.node.door.request_id()
        )
        book = stand.node.book
        for first in range(0, TASKS_MAX + 2000, 1000):
            said = tuple(asks.Offer(first + n, "no_bid") for n in range(1000))
            book.take(asks.Offers("w", "s", said))
        assert len(book._tasks) == TASKS_MAX
        assert book.verdicts(0) == {}
        assert book.verdicts(TASKS_MAX + 1999)["w"].word == "no_bid"


@pytest.mark.parametrize(("strategy", "expected"), [("spread", {"n1", "n2"}), ("pack", {"n1"})])
async def test_strategies(strategy: str, expected: set[str], tmp_path: Path) -> None:
    async with two(tmp_path, strategy=strategy) as (master, follower, _):
        await ready(master, follower)
        for _ in range(2):
            await master.until_state(await master.add(), "running")
        assert {worker for _, worker in master.live()} == expected


async def test_by_hash_a_key_has_its_worker_while_that_has_room(tmp_path: Path) -> None:
    async with two(tmp_path, strategy="hash", slots=2) as (master, follower, _):
        await ready(master, follower)
        home = max(("n1", "n2"), key=lambda name: weight(name, "k"))
        owners = [await owner_of(master, await master.add(key="k")) for _ in range(3)]
        assert owners[:2] == [home, home]
        assert owners[2] != home


async def ended(stand: Stand, count: int, run_s: float, **spec: Any) -> None:
    """So many tasks that ran so long."""
    for _ in range(count):
        task = await stand.add(**spec)
        await stand.until(stand.running)
        stand.clock.advance(run_s)
        stand.end(stand.running()[0])
        await stand.until_state(task, "succeeded")


async def test_short_tasks_are_claimed_ahead_only_as_far_as_they_will_soon_begin(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await ended(stand, 6, 0.010)
        await stand.many(20)
        await stand.until(lambda: len(stand.live()) > 1)
        await asyncio.sleep(0.1)
        run_ms = stand.node.pace.run_ms("default")
        assert run_ms is not None
        assert len(stand.live()) == 1 + int(50 / run_ms)


async def test_what_is_too_much_for_one_entry_goes_on_in_the_next_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[int] = []
    real = Auction._begin

    def begin(auction: Auction, proposal: Coroutine[Any, Any, None]) -> None:
        real(auction, proposal)
        under_way.append(len(auction._proposals))

    monkeypatch.setattr(Auction, "_begin", begin)
    monkeypatch.setattr("quvatlh.service.auction.AWARDS_MAX", 3)
    async with one(tmp_path, slots=20) as stand:
        await ready(stand)
        await stand.many(20)
        await stand.until(lambda: len(stand.live()) == 20)
    assert under_way[:2] == [1, 2]


async def test_claims_come_by_the_dozen_once_half_of_them_have_begun(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await ended(stand, 6, 0.010)
        await stand.many(20)
        await stand.until(lambda: len(stand.live()) == 1 + 5)
        ahead = []
        for _ in range(6):
            stand.clock.advance(0.010)
            stand.end(stand.running()[0])
            await asyncio.sleep(0.05)
            ahead.append(len(stand.live()) - 1)
        assert ahead == [4, 3, 5, 4, 3, 5]


@pytest.mark.parametrize(
    "spec", [{"kind": "service"}, {"delivery": "at-most-once"}, {"queue": "unknown"}, {"slots": 2}, {"policy": POLICY}]
)
async def test_nothing_else_is_claimed_ahead(spec: dict[str, Any], tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await ready(stand)
        await ended(stand, 6, 0.001)
        for _ in range(2):
            await stand.until_state(await stand.add(), "running")
        tasks = [await stand.add(**spec) for _ in range(3)]
        for task in tasks if "policy" in spec else ():
            await offer(stand, "n1", task, 1.0)
        await asyncio.sleep(0.1)
        assert len(stand.live()) == 2


async def test_nothing_is_claimed_ahead_on_the_word_of_one(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await ended(stand, 2, 0.001)
        for _ in range(5):
            await stand.add()
        await asyncio.sleep(0.1)
        assert len(stand.live()) == 1


async def test_long_tasks_are_not_claimed_ahead_and_nothing_behind_a_long_one(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await ended(stand, 6, 0.2, queue="long")
        await ended(stand, 6, 0.001)
        await stand.until_state(await stand.add(queue="long"), "running")
        await stand.add(queue="long")
        await stand.add()
        await asyncio.sleep(0.1)
        assert len(stand.live()) == 1


async def test_what_is_given_back_is_not_claimed_ahead_again(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await ended(stand, 6, 0.010)
        tasks = [await stand.add() for _ in range(3)]
        await stand.until(lambda: len(stand.live()) == 3)
        session = session_of(stand, "n1")
        back = tuple(token for token, _ in stand.live()[1:])
        for token in back:
            stand.machine.db.execute("UPDATE live SET started_at = NULL WHERE token = ?", (token,))
        await stand.node.door.write(asks.Do(c.GiveBack(session, back[:1])), 1)
        await stand.node.door.write(asks.Do(c.GiveBack(session, back[1:])), 1)
        await asyncio.sleep(0.05)
        assert stand.node.pace.run_ms("default") > 50  # type: ignore[operator]
        assert len(stand.live()) == 1
        assert [stand.peek(task) for task in tasks[1:]] == ["pending", "pending"]


# --- with workers that speak for themselves ---


async def test_policies_of_live_workers_decide(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await master.working()
        await follower.working()
        master.judge.teach(POLICY["source"], bid(1.0))
        follower.judge.teach(POLICY["source"], bid(2.0))
        assert await owner_of(master, await follower.add(policy=POLICY)) == "n2"
        master.judge.teach(POLICY["source"], bid(3.0))
        assert await owner_of(master, await master.add(policy=POLICY)) == "n1"


async def test_a_policy_that_hangs_delays_no_other_worker(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await master.working()
        await follower.working()

        async def hang(*_: object) -> Any:
            await asyncio.Event().wait()

        follower.judge.judge = hang  # type: ignore[assignment, method-assign]
        task = await master.add(policy=POLICY)
        await master.until(lambda: master.node.book.verdicts(seq_of(master, task)))
        assert master.peek(task) == "pending"
        master.clock.advance(CLOSES_S)
        assert await owner_of(master, task) == "n1"


async def test_a_new_master_hears_all_bids_again(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        first = await stand.add()
        await stand.until_state(first, "running")
        task = await stand.add(policy=POLICY)
        await stand.until(stand.node.book.lanes)
        stand.log.depose(None)
        stand.log.elect()
        await stand.until(stand.node.book.lanes, "nothing is offered to the new master")
        stand.end("a1")
        await stand.until_state(task, "running")
