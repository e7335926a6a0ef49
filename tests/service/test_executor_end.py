"""A session is over with its executor; whom tasks have killed with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from quvatlh.core import commands as c
from quvatlh.core import limits
from quvatlh.service import asks
from quvatlh.service.presence import ELECTION_S, SILENT_S
from quvatlh.service.seat import secret_hash
from tests.fakes.executorprocess import FakeProcess
from tests.service.sessions import own_beat, running
from tests.service.stand import Stand, asked, one, two


async def died(stand: Stand) -> FakeProcess:
    process = stand.process
    process.kill()
    await stand.until(lambda: stand.host.process not in {None, process}, "there is no new executor")
    return process


@pytest.mark.parametrize("isolated", [True, False])
async def test_with_the_executor_its_session_is_over_and_the_actions_run_again(tmp_path: Path, isolated: bool) -> None:
    async with one(tmp_path, isolated=isolated) as stand:
        task, action = await running(stand, lease_ms=60_000)
        session = stand.node.session.id
        await died(stand)
        stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
        await stand.until(lambda: stand.node.session.is_confirmed and stand.node.session.id != session)
        if not isolated:
            await asyncio.sleep(0.1)
            assert [token for token, _ in stand.live()] == [int(action[1:])], "its children may live on"
            stand.clock.advance(60.0)
            await stand.node.presence._look()
        await stand.until(lambda: stand.peek(task) == "running" and action not in stand.running())
        assert (await stand.pool.task(asked(), task))["attempts"] == 2


async def test_a_copy_of_another_directory_does_not_end_what_runs(tmp_path: Path) -> None:
    async with one(tmp_path, isolated=True) as stand:
        await running(stand, lease_ms=60_000)
        await stand.node.tree.stop("session")
        stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
        facts = stand.node.session.facts
        wish = asks.Open("n1", "another", secret_hash(b"x"), "another directory", facts, isolated=True, fresh=True)
        assert not stand.node.presence.is_ended_with(wish)
        with pytest.raises(Exception, match="still run"):
            await stand.node.door.write(wish, 1)


async def test_an_end_that_was_told_to_the_daemon_before_the_executor_died_still_counts(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        stand.log.hold()
        stand.end(action)
        await stand.until(lambda: not stand.node.worker.held())
        stand.process.kill()
        await asyncio.sleep(0.02)
        stand.log.release()
        await stand.until_state(task, "succeeded")


async def test_what_a_lease_ended_is_told_and_runs_again(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        once, second = await running(stand, delivery="at-most-once")
        await stand.node.tree.stop("session")
        stand.clock.advance(2.1)
        stand.process.look()
        await stand.until(lambda: not {action, second} & {f"a{token}" for token, _ in stand.live()})
        assert stand.peek(task) in {"pending", "claimed"}
        record = await stand.pool.task(asked(), once)
        assert (record["state"], record["error"]["code"]) == ("failed", "lost")


async def test_of_an_executor_that_cannot_be_started_people_are_told_and_it_is_tried_again(tmp_path: Path) -> None:
    async with one(tmp_path, elect=False) as stand:
        stand.host.broken = OSError("no room")
        await stand.until(lambda: any("no executor" in text for text, _ in stand.notes))
        stand.host.broken = None
        stand.log.elect()
        await stand.working()


async def test_a_session_that_the_cluster_ended_takes_its_executor_with_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        await follower.working()
        process = follower.process
        switchboard.cut("n2")
        master.clock.advance(SILENT_S + ELECTION_S + 0.1)
        await master.node.session.beat()
        await master.node.presence._look()
        switchboard.heal()
        await follower.until(lambda: not process.alive)
        await follower.working()
        assert follower.process is not process


async def test_a_worker_silent_for_longer_than_a_tasks_lease_gets_none_of_it(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        stand.clock.advance(ELECTION_S + 1.2)
        short, long = await stand.add(lease_ms=1000), await stand.add(lease_ms=5000)
        await stand.until_state(long, "running")
        record = await stand.pool.task(asked(), short)
        assert (record["state"], record["attempts"]) == ("pending", 0)
        await stand.node.session.beat()
        await stand.until_state(short, "running")


async def test_a_worker_that_is_heard_just_before_it_would_be_lost_gets_what_waits(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        await stand.node.tree.stop("presence")
        stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
        task = await stand.add()
        await asyncio.sleep(0.01)
        assert stand.peek(task) == "pending"
        await stand.node.session.beat()
        await stand.node.presence._look()
        await stand.until_state(task, "running")


async def test_slots_of_what_was_taken_away_are_used_again_once_it_has_ended(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        stand.node.presence.beat(structs.replace(own_beat(stand), surplus_slots=1))
        task = await stand.add()
        await asyncio.sleep(0.01)
        assert stand.peek(task) == "pending"
        await stand.node.session.beat()
        await stand.until_state(task, "running")


async def test_a_word_that_comes_while_the_one_before_it_is_told_is_told_too(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        _, action = await running(stand)
        seat, token = stand.node.worker.session._seat, int(action[1:])
        report, told = seat.report, asyncio.Event()

        async def slow(said: Any, deadline_s: float) -> None:
            if isinstance(said, c.Progress) and not told.is_set():
                told.set()
                stand.node.worker._reports.said(token, "done", 100)
            await report(said, deadline_s)

        seat.report = slow  # type: ignore[assignment, method-assign]
        stand.node.worker._reports.said(token, "half of it", 50)
        await told.wait()
        sql = "SELECT progress FROM live WHERE token = ?"
        await stand.until(lambda: "100" in (stand.machine.db.execute(sql, (token,)).fetchone()[0] or ""))


# --- whom tasks have killed ---


def deaths(stand: Stand, task: str) -> int:
    return int(stand.machine.db.execute("SELECT deaths FROM task WHERE id = ?", (task,)).fetchone()[0])


async def test_a_worker_that_is_cut_off_again_and_again_makes_no_task_poison(tmp_path: Path) -> None:
    async with two(tmp_path, slots=1) as (master, follower, switchboard):
        await follower.working()
        task = await master.add(tags=["node=n2"])
        for _ in range(limits.DEATHS_MAX + 1):
            await master.until_state(task, "running")
            process = follower.process
            switchboard.cut("n2")
            master.clock.advance(SILENT_S + ELECTION_S + 0.1)
            await master.node.session.beat()
            await master.node.presence._look()
            await master.node.presence._look()
            assert (master.peek(task), deaths(master, task)) == ("pending", 1), "as far as anybody knows by then"
            switchboard.heal()
            await follower.until(lambda: not process.alive)  # noqa: B023 - awaited at once
            await follower.working()
            assert deaths(master, task) == 0
        assert follower.peek(task) in {"pending", "claimed", "running"}


async def test_a_session_that_lives_on_takes_its_deaths_back_when_it_is_heard(tmp_path: Path) -> None:
    async with two(tmp_path, slots=2) as (master, follower, switchboard):
        await follower.working()
        await master.until_state(await master.add(tags=["node=n2"], lease_ms=60_000), "running")
        task = await master.add(tags=["node=n2"])
        await master.until_state(task, "running")
        session = follower.node.session.id
        switchboard.cut("n2")
        master.clock.advance(SILENT_S + ELECTION_S + 0.1)
        await master.node.session.beat()
        await master.node.presence._look()
        assert deaths(master, task) == 1
        switchboard.heal()
        await master.until(lambda: deaths(master, task) == 0)
        assert follower.node.session.id == session


async def test_a_new_masters_grace_is_no_sign_of_life(tmp_path: Path) -> None:
    async with two(tmp_path, slots=2) as (master, follower, switchboard):
        await follower.working()
        await master.until_state(await master.add(tags=["node=n2"], lease_ms=60_000), "running")
        task = await master.add(tags=["node=n2"])
        await master.until_state(task, "running")
        switchboard.cut("n2")
        master.clock.advance(SILENT_S + ELECTION_S + 0.1)
        await master.node.session.beat()
        await master.node.presence._look()
        await master.node.presence._look()
        master.log.depose(None)
        master.log.elect()
        await master.node.presence._look()
        assert [each["state"] for each in await master.pool.workers(asked())] == ["up", "up"]
        assert deaths(master, task) == 1


async def test_three_executors_that_ended_with_it_make_a_task_poison_and_not_what_waited_behind_it(
    tmp_path: Path,
) -> None:
    async with one(tmp_path, slots=1, isolated=True) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until_state(task, "running")
        behind = await stand.add()
        for _ in range(limits.DEATHS_MAX):
            await stand.until_state(task, "running")
            await stand.claim(behind)
            await died(stand)
            stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
            await stand.working()
        record = await stand.pool.task(asked(), task)
        assert (record["state"], record["error"]["code"]) == ("failed", "poison")
        assert deaths(stand, behind) == 0
