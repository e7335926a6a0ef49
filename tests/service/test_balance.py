"""BALANCE: planned on the master, made a few at a time, each stopped first and started after."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.service import asks, jury
from quvatlh.service.balance import AT_ONCE, MOVE_S
from quvatlh.service.pool import Rejected, Unavailable
from tests.service.bidding import POLICY, offer, ready, session_of
from tests.service.stand import Stand, asked, several, two


def load(stand: Stand) -> Counter[str]:
    return Counter(worker for _, worker in stand.live())


async def crowded(master: Stand, follower: Stand, count: int, **spec: Any) -> list[str]:
    """All of them on n1; n2 comes after."""
    await master.working()
    await follower.working()
    await master.pool.patch_worker(asked(), "n2", {"draining": True})
    tasks = [await master.add(group="g", **spec) for _ in range(count)]
    await master.until(lambda: load(master)["n1"] == count)
    await master.pool.patch_worker(asked(), "n2", {"draining": False})
    return tasks


def stopping(stand: Stand) -> int:
    return int(stand.machine.db.execute("SELECT count(*) FROM live WHERE state = 'stopping'").fetchone()[0])


async def test_the_plan_is_shown_and_nothing_moves(tmp_path: Path) -> None:
    async with two(tmp_path, slots=8) as (master, follower, _):
        tasks = await crowded(master, follower, 6)
        before = master.live()
        for node in (master, follower):
            plan = await node.pool.balance(asked(), "g", None, dry_run=True)
            assert plan.index is None
            assert len(plan.moves) == 3
            assert all(move["from"] == "n1" and move["to"] == "n2" and move["task"] in tasks for move in plan.moves)
        assert len((await master.pool.balance(asked(), "g", 2, dry_run=True)).moves) == 2
        await asyncio.sleep(0.05)
        assert master.live() == before
        assert stopping(master) == 0


async def test_moves_are_made_a_few_at_a_time_and_then_it_is_even(tmp_path: Path) -> None:
    """Packing would take them back to where they were."""
    async with two(tmp_path, slots=16, strategy="pack") as (master, follower, _):
        await crowded(master, follower, 14, kind="service")
        master.process.freeze()
        done = await follower.pool.balance(asked(), "g", None, dry_run=False)
        assert len(done.moves) == 7
        assert done.index is not None
        await asyncio.sleep(0.05)
        assert stopping(master) == AT_ONCE
        master.process.thaw()
        await master.until(lambda: load(master) == {"n1": 7, "n2": 7}, "it is not even")
        await asyncio.sleep(0.05)
        assert (await master.pool.balance(asked(), "g", None, dry_run=True)).moves == []
        shapes = master.machine.db.execute("SELECT body FROM shape").fetchall()
        assert not any("toward" in body for (body,) in shapes), "they are bound to where they went"


async def test_what_may_not_move_stays_and_counts(tmp_path: Path) -> None:
    async with two(tmp_path, slots=8) as (master, follower, _):
        await crowded(master, follower, 3, balancable=False)
        free = [await master.add(group="g", tags=["node=n1"]), await master.add(group="g", slots=2)]
        await master.until(lambda: sum(load(master).values()) == 5)
        plan = await master.pool.balance(asked(), "g", None, dry_run=True)
        assert {move["task"] for move in plan.moves} <= {free[1]}


async def test_instances_of_a_service_move_one_by_one(tmp_path: Path) -> None:
    async with two(tmp_path, slots=8) as (master, follower, _):
        await crowded(master, follower, 0)
        await master.pool.patch_worker(asked(), "n2", {"draining": True})
        await master.add(group="g", kind="service", limit=4)
        await master.until(lambda: load(master) == {"n1": 4})
        await master.pool.patch_worker(asked(), "n2", {"draining": False})
        master.process.freeze()
        await master.pool.balance(asked(), "g", None, dry_run=False)
        await asyncio.sleep(0.05)
        assert stopping(master) == 1
        master.process.thaw()
        await master.until(lambda: load(master) == {"n1": 2, "n2": 2}, f"{load(master)}")


async def _nobody(_asker: str, _body: bytes) -> bytes:
    raise RuntimeError


async def test_a_policy_is_asked_whether_it_wants_it_there(tmp_path: Path) -> None:
    async with two(tmp_path, slots=8) as (master, follower, _):
        await ready(master, follower)
        wanted = await master.add(group="g", policy=POLICY, priority=1)
        tasks = [wanted, *[await master.add(group="g", policy=POLICY) for _ in range(3)]]
        for task in tasks:
            await offer(master, "n2", task, "no_bid")
            await offer(master, "n1", task, 1.0)
        await master.until(lambda: load(master) == {"n1": 4})

        async def judge(_asker: str, body: bytes) -> bytes:
            ask: asks.JudgeAsk = asks.JUDGE_ASK.decode(body)
            said = [asks.Offer(0, "bid" if q.task["id"] == wanted else "no_bid") for q in ask.questions]
            return asks.JUDGE_ANSWER.encode(asks.JudgeAnswer(tuple(said)))

        follower.peers.handle(jury.KIND, _nobody)
        assert (await master.pool.balance(asked(), "g", None, dry_run=True)).moves == [], "nobody answers for n2"
        follower.peers.handle(jury.KIND, judge)
        plan = await master.pool.balance(asked(), "g", None, dry_run=True)
        assert plan.moves == [{"task": wanted, "from": "n1", "to": "n2"}]


async def test_one_whose_worker_is_gone_starts_elsewhere(tmp_path: Path) -> None:
    async with two(tmp_path, slots=8) as (master, follower, switchboard):
        await crowded(master, follower, 2, lease_ms=60_000)
        switchboard.cut("n2")
        master.process.freeze()
        (move,) = (await master.pool.balance(asked(), "g", None, dry_run=False)).moves
        (token,) = next(iter(master.machine.db.execute("SELECT token FROM live WHERE id = ?", (move["task"],))))
        await master.node.door.propose(c.Presence("n2", session_of(master, "n2"), up=False), 1)
        master.process.thaw()
        await master.until(lambda: token not in {token for token, _ in master.live()} and load(master) == {"n1": 2})


async def test_one_that_waits_too_long_for_its_worker_is_let_go(tmp_path: Path) -> None:
    async with two(tmp_path, slots=4) as (master, follower, _):
        await crowded(master, follower, 2)
        await master.pool.balance(asked(), "g", None, dry_run=False)
        balancer = master.node.balancer
        ((token, (step, _)),) = balancer._under_way.items()
        row = master.machine.db.execute(
            "SELECT toward FROM (SELECT body ->> '$.toward' toward FROM shape) WHERE toward = 'n2'"
        )
        assert row.fetchone() is not None
        balancer._under_way[token] = (step, asyncio.get_running_loop().time() - MOVE_S)
        await balancer._settle()
        assert token not in balancer._under_way


async def test_an_unknown_group_is_refused_and_without_a_master_nothing_is_done(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, switchboard):
        for node in (master, follower):
            with pytest.raises(Rejected, match="no task of group"):
                await node.pool.balance(asked(), "nobody", None, dry_run=False)
        switchboard.cut("n1")
        with pytest.raises(Unavailable):
            await follower.pool.balance(asked(100), "g", None, dry_run=False)


async def test_when_a_worker_joins_loads_are_evened_by_themselves(tmp_path: Path) -> None:
    async with two(tmp_path, slots=8, balance=True) as (master, follower, _):
        await crowded(master, follower, 4, kind="service")
        assert master.node.balancer._due_at is not None
        master.node.balancer._due_at = 0.0
        master.node.balancer._news.set()
        await master.until(lambda: load(master) == {"n1": 2, "n2": 2})


@pytest.mark.parametrize("how", ["draining", "lost"])
async def test_when_a_worker_leaves_loads_are_evened_by_themselves(tmp_path: Path, how: str) -> None:
    """What it had is packed onto one of the others, and then shared with the next."""
    async with several(tmp_path, 3, slots=8, strategy="pack", balance=True) as (stands, switchboard):
        master, stays, leaves = stands
        for stand in stands:
            await stand.working()
        balancer = master.node.balancer
        for stand in (master, stays):
            await master.pool.patch_worker(asked(), stand.name, {"draining": True})
        await master.add(group="g", kind="service", limit=4)
        await master.until(lambda: load(master) == {"n3": 4})
        for stand in (master, stays):
            await master.pool.patch_worker(asked(), stand.name, {"draining": False})
        balancer._due_at = None
        if how == "draining":
            await master.pool.patch_worker(asked(), leaves.name, {"draining": True})
        else:
            switchboard.cut(leaves.name)
            master.clock.advance(3)
            for stand in (master, stays):
                await stand.node.session.beat()
            await master.node.presence._look()
        await master.until(lambda: sorted(load(master).values()) == [4] and load(master)["n3"] == 0, f"{load(master)}")
        await master.until(lambda: balancer._due_at is not None, "its leaving is not noticed")
        balancer._due_at = 0.0
        balancer._news.set()
        await master.until(lambda: load(master) == {"n1": 2, "n2": 2}, f"{load(master)}")


async def test_by_itself_it_moves_no_job_that_has_just_begun(tmp_path: Path) -> None:
    async with two(tmp_path, slots=8, balance=True) as (master, follower, _):
        await crowded(master, follower, 4, lease_ms=60_000)
        master.node.balancer._due_at = 0.0
        await master.node.balancer._even_all()
        assert not master.node.balancer._under_way
        assert load(master) == {"n1": 4}
        master.clock.advance(11)
        for stand in (master, follower):
            await stand.node.session.beat()
        master.node.balancer._due_at = 0.0
        master.node.balancer._news.set()
        await master.until(lambda: load(master) == {"n1": 2, "n2": 2})


async def test_under_one_idempotency_key_it_plans_once_and_every_node_tells_of_that_plan(tmp_path: Path) -> None:
    async with two(tmp_path, slots=8) as (master, follower, _):
        await crowded(master, follower, 6)
        first = await follower.pool.balance(asked(key="k"), "g", 1, dry_run=False)
        assert len(first.moves) == 1
        await master.until(lambda: load(master) == {"n1": 5, "n2": 1})
        for node in (master, follower):
            assert await node.pool.balance(asked(key="k"), "g", 1, dry_run=False) == first
            with pytest.raises(Rejected, match="another request"):
                await node.pool.balance(asked(key="k", digest=b"e"), "g", 2, dry_run=False)
        assert load(master) == {"n1": 5, "n2": 1}
        nothing = await master.pool.balance(asked(key="other"), "g", 0, dry_run=False)
        assert nothing.moves == []
        assert await follower.pool.balance(asked(key="other"), "g", 0, dry_run=False) == nothing
