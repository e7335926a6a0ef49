"""Who is next in the market: fair between queues and keys, limits that cost nothing, the head of a queue of limit 1."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.commands import QueueChanges
from quvatlh.core.model import HtbClass, Rate, TaskSpec, Work
from quvatlh.core.results import Answer, Awarded
from quvatlh.service.auction import Auction
from quvatlh.service.pool import Turn
from tests.service.bidding import POLICY, offer, ready
from tests.service.stand import Stand, asked, one, two

WORK = Work(command=("true",))


async def put(stand: Stand, queue: str = "default", **changes: Any) -> None:
    await stand.node.door.propose(c.PatchQueue(queue, QueueChanges(**changes)), 1.0)


async def fill(stand: Stand, names: list[str], **spec: Any) -> None:
    """So many at once."""
    tasks = tuple(c.NewTask(name, TaskSpec(WORK, **spec)) for name in names)
    await stand.node.door.propose(c.Add(tasks), 1.0)


async def quiet(stand: Stand) -> None:
    """Nothing is proposed any more."""
    before = -1
    while before != stand.machine.applied_index:
        before = stand.machine.applied_index
        await asyncio.sleep(0.15)


def live(stand: Stand) -> list[str]:
    return [row[0] for row in stand.machine.db.execute("SELECT id FROM live ORDER BY token")]


async def order(stand: Stand, count: int) -> list[str]:
    """Of the next starts in one slot, each ended at once."""
    started: list[str] = []
    while len(started) < count:
        await stand.until(lambda: live(stand) and live(stand)[-1] not in started and stand.running())
        started.append(live(stand)[-1])
        stand.end(stand.running()[0])
    return started


# --- the head of a queue of limit 1 ---


async def test_in_a_queue_of_limit_1_the_head_holds_up_the_rest(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await ready(stand)
        await put(stand, "narrow", limit=1)
        heads: list[dict[str, Any]] = [{"tags": ["gpu"]}, {"slots": 99}, {"policy": POLICY}]
        for n, spec in enumerate(heads):
            head = await stand.add(queue="narrow", **spec)
            await fill(stand, [f"next-{n}"], queue="narrow")
            await quiet(stand)
            assert (stand.peek(head), stand.peek(f"next-{n}")) == ("pending", "pending"), spec
            await stand.pool.act(asked(), Turn("delete"), [head])
            await stand.until_state(f"next-{n}", "running")
            stand.end(stand.running()[0])
            await stand.until_state(f"next-{n}", "succeeded")


async def test_a_head_that_waits_for_a_name_holds_up_the_rest_and_one_that_waits_for_a_time_does_not(
    tmp_path: Path,
) -> None:
    async with one(tmp_path) as stand:
        await ready(stand)
        await put(stand, "narrow", limit=1)
        await fill(stand, ["holder"], name="once", limit=1)
        await stand.until_state("holder", "running")
        await fill(stand, ["head"], name="once", limit=1, queue="narrow")
        await fill(stand, ["second"], queue="narrow")
        await quiet(stand)
        assert (stand.peek("head"), stand.peek("second")) == ("pending", "pending")
        told = await stand.pool.explain(asked(), "second")
        assert (told["reason"], told["holders"]) == ("head", ["head"])
        assert told["text"] == "queue narrow has a limit of 1, and its head head holds up the rest until it has run"
        at_ms = stand.clock.wall_ms() + 100_000
        await stand.node.door.propose(c.Update(("head",), c.TaskChanges(at_ms=at_ms)), 1.0)
        await stand.until_state("second", "running")


async def test_a_head_with_a_policy_starts_when_somebody_bids(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await ready(stand)
        await put(stand, "narrow", limit=1)
        head, second = await stand.add(queue="narrow", policy=POLICY), await stand.add(queue="narrow", policy=POLICY)
        await offer(stand, "n1", second, 5.0)
        await quiet(stand)
        assert stand.peek(second) == "pending"
        await offer(stand, "n1", head, 1.0)
        await stand.until_state(head, "running")


# --- fairness ---


async def test_keys_take_turns_by_weight(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1, ahead=False) as stand:
        await ready(stand)
        await put(stand, discipline="sfq", key_weights={"b": 2, "c": 3})
        await fill(stand, ["first"], slots=1)
        await stand.until_state("first", "running")
        for key in "abc":
            await fill(stand, [f"{key}{n}" for n in range(30)], key=key)
        stand.end(stand.running()[0])
        await stand.until_state("first", "succeeded")
        assert Counter(name[0] for name in await order(stand, 12)) == {"a": 2, "b": 4, "c": 6}


async def test_a_round_gives_out_many_of_one_flow(tmp_path: Path) -> None:
    async with one(tmp_path, slots=40, ahead=False) as stand:
        await ready(stand)
        await put(stand, discipline="sfq")
        await fill(stand, [f"a{n}" for n in range(100)], key="a")
        before = stand.machine.applied_index
        await stand.until(lambda: len(live(stand)) == 40)
        assert stand.machine.applied_index - before <= 5
        assert live(stand) == [f"a{n}" for n in range(40)]


async def test_queues_take_turns_by_weight(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1, ahead=False) as stand:
        await ready(stand)
        await fill(stand, ["first"])
        await stand.until_state("first", "running")
        for weight, queue in enumerate("abc", 1):
            await put(stand, queue, weight=weight)
            await fill(stand, [f"{queue}{n}" for n in range(30)], queue=queue)
        stand.end(stand.running()[0])
        await stand.until_state("first", "succeeded")
        assert Counter(name[0] for name in await order(stand, 12)) == {"a": 2, "b": 4, "c": 6}


async def test_tasks_with_a_policy_are_fair_by_key_too(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1, ahead=False) as stand:
        await ready(stand)
        await put(stand, discipline="sfq")
        await fill(stand, ["first"], queue="other")
        await stand.until_state("first", "running")
        tasks = [await stand.add(policy=POLICY, key="aaab"[n]) for n in range(4)]
        for task in tasks:
            await offer(stand, "n1", task, 1.0)
        stand.end(stand.running()[0])
        await stand.until_state("first", "succeeded")
        assert await order(stand, 4) == [tasks[0], tasks[3], tasks[1], tasks[2]]


async def test_classes_share_slots_and_borrow_what_others_leave(tmp_path: Path) -> None:
    async with one(tmp_path, slots=12, ahead=False) as stand:
        await ready(stand)
        for name, rate, ceil in (("root", 10, None), ("n0", 3, 3), ("n1", 2, 5), ("n2", 5, 7)):
            parent = None if name == "root" else "root"
            settings = HtbClass(parent, rate * 1000, None if ceil is None else ceil * 1000)
            await stand.node.door.propose(c.PutClass(name, settings), 1.0)
            await put(stand, f"q-{name}", class_=name)
        await fill(stand, [f"a{n}" for n in range(20)], queue="q-n1")
        await fill(stand, [f"b{n}" for n in range(20)], queue="q-n2")
        await quiet(stand)
        assert Counter(name[0] for name in live(stand)) == {"a": 5, "b": 5}
        await fill(stand, [f"c{n}" for n in range(20)], queue="q-n0")
        await fill(stand, [f"free{n}" for n in range(20)])
        await quiet(stand)
        assert Counter(name[0] for name in live(stand)) == {"a": 5, "b": 5, "f": 2}
        told = await stand.pool.explain(asked(), "c0")
        assert (told["reason"], told["text"]) == (
            "class",
            "class root has as much as it may: it waits until something of it ends, or its rate allows the next start",
        )
        for _ in range(3):
            row = stand.machine.db.execute(
                "SELECT token FROM live WHERE queue = 'q-n1' ORDER BY token LIMIT 1"
            ).fetchone()
            stand.end(f"a{row[0]}")
            await quiet(stand)
        assert Counter(name[0] for name in live(stand)) == {"a": 2, "b": 5, "c": 3, "f": 2}


# --- limits ---


async def test_what_a_limit_holds_up_is_not_proposed(tmp_path: Path) -> None:
    async with one(tmp_path, slots=4) as stand:
        await ready(stand)
        await put(stand, limit_per_key=1)
        await fill(stand, [f"k{n}" for n in range(3000)], key="k")
        await fill(stand, [f"n{n}" for n in range(3000)], name="one", limit=1, queue="names")
        await stand.until(lambda: len(live(stand)) == 2)
        await fill(stand, ["behind"])
        await fill(stand, ["behind-too"], queue="names")
        await stand.until(lambda: len(live(stand)) == 4)
        await quiet(stand)
        assert live(stand)[2:] == ["behind", "behind-too"]
        before = stand.machine.applied_index
        for _ in range(5):
            await stand.node.door.propose(c.Nothing(), 1.0)
            stand.node.auction._wake.set()
        await quiet(stand)
        assert stand.machine.applied_index == before + 5
        assert stand.machine.db.execute("SELECT a FROM tally WHERE scope = 'ready'").fetchall() == []
        stand.end("a1")
        await stand.until(lambda: "k1" in live(stand) or "n1" in live(stand))


async def test_a_worker_has_no_more_of_a_queue_than_it_may(tmp_path: Path) -> None:
    async with two(tmp_path, slots=4, ahead=False) as (master, follower, _):
        await ready(master, follower)
        await put(master, limit_per_worker=1)
        await fill(master, [f"t{n}" for n in range(6)])
        await quiet(master)
        assert sorted(worker for _, worker in master.live()) == ["n1", "n2"]


async def test_a_rate_lets_start_what_its_bucket_holds(tmp_path: Path) -> None:
    async with one(tmp_path, slots=9, ahead=False) as stand:
        await ready(stand)
        await put(stand, rate=Rate(2, 1000), burst=3)
        before = stand.machine.applied_index
        await fill(stand, [f"t{n}" for n in range(9)])
        await stand.until(lambda: len(live(stand)) == 3)
        await asyncio.sleep(0.1)
        assert len(live(stand)) == 3
        assert stand.machine.applied_index <= before + 3 + 3
        stand.clock.advance(1.0)
        await stand.until(lambda: len(live(stand)) == 5)


async def test_a_limit_that_is_lowered_starts_nothing_until_below(tmp_path: Path) -> None:
    async with one(tmp_path, slots=6, ahead=False) as stand:
        await ready(stand)
        await fill(stand, [f"t{n}" for n in range(9)])
        await stand.until(lambda: len(stand.running()) == 6)
        await put(stand, limit=4)
        for ended in (1, 2):
            stand.end(f"a{ended}")
            await quiet(stand)
            assert len(live(stand)) == 6 - ended
        stand.end("a3")
        await stand.until(lambda: "t6" in live(stand))
        assert len(live(stand)) == 4


async def test_a_round_gives_out_no_more_of_a_key_or_to_a_worker_than_their_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused by apply was proposed in vain, and is looked at again only when something has ended."""
    refused: list[dict[int, str]] = []
    real = Auction._refused

    def watched(self: Auction, awards: Sequence[c.Award], answer: Answer) -> None:
        if isinstance(answer, Awarded):
            refused.append(dict(answer.refused))
        real(self, awards, answer)

    monkeypatch.setattr(Auction, "_refused", watched)
    async with one(tmp_path, slots=8) as stand:
        await ready(stand)
        await put(stand, discipline="sfq", limit_per_key=2)
        await put(stand, "other", limit_per_worker=2)
        await fill(stand, [f"a{n}" for n in range(6)], key="a")
        await fill(stand, [f"o{n}" for n in range(6)], queue="other")
        await stand.until(lambda: len(live(stand)) == 4)
        await quiet(stand)
        assert sorted(name[0] for name in live(stand)) == ["a", "a", "o", "o"]
        assert refused
        assert not any(refused)
