from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quvatlh.core import commands as c
from quvatlh.service import asks
from quvatlh.service.pool import Turn
from quvatlh.service.presence import SILENT_S
from tests.fakes.judge import NEVER
from tests.service.stand import asked, one, two


async def test_a_task_is_awarded_run_and_done(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until(stand.running)
        (name,) = stand.running()
        stand.end(name)
        record = await stand.pool.task(asked(), task, 5000)
        assert (record["state"], record["attempts"], record["actions"][0]["worker"]) == ("succeeded", 1, "n1")


async def test_what_is_claimed_has_left_for_the_executor_when_its_entry_is_done_with(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await stand.working()
        for _ in range(2):
            await stand.add()
        await stand.until(stand.running)
        assert stand.executor.unsent == []


async def test_the_executor_is_told_what_may_begin_but_once(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await stand.working()
        await stand.add()
        await stand.add(delivery="at-most-once")
        await stand.until(lambda: len(stand.running()) == 2)
        assert [stand.process.held[name].spec.once for name in stand.running()] == [False, True]


async def test_no_more_run_than_there_are_slots_and_the_rest_follows(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await stand.working()
        tasks = [await stand.add() for _ in range(5)]
        seen = 0
        while any(stand.peek(task) != "succeeded" for task in tasks):
            await stand.until(stand.running)
            assert len(stand.running()) <= 2
            assert len(stand.live()) <= 2
            stand.end(min(stand.running()))
            seen += 1
            await asyncio.sleep(0.01)
        assert seen == 5


async def test_slots_of_a_task_are_counted(tmp_path: Path) -> None:
    async with one(tmp_path, slots=3) as stand:
        await stand.working()
        wide = await stand.add(slots=2)
        other = await stand.add(slots=2)
        light = await stand.add(slots=0)
        await stand.until_state(light, "running")
        await stand.until_state(wide, "running")
        assert stand.peek(other) == "pending"


async def test_tags_and_queues_decide_who_may(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        held = [
            await stand.add(tags=["gpu"]),
            await stand.add(tags=["!node=n*"]),
            await stand.add(policy={"source": NEVER}),
        ]
        free = await stand.add(tags=["worker=n1", "node=n*"])
        await stand.until_state(free, "running")
        assert [stand.peek(task) for task in held] == ["pending"] * 3


async def test_a_queue_limit_holds_and_the_next_starts_when_one_ends(tmp_path: Path) -> None:
    async with one(tmp_path, slots=4) as stand:
        await stand.working()
        tasks = [await stand.add(queue="q", queue_limit=1) for _ in range(3)]
        for task in tasks:
            await stand.until_state(task, "running")
            assert len(stand.running()) == 1
            stand.end(next(iter(stand.running())))
        await stand.until_state(tasks[-1], "succeeded")


async def test_a_limit_by_name_passes_over_and_does_not_hold_up_others(tmp_path: Path) -> None:
    async with one(tmp_path, slots=4) as stand:
        await stand.working()
        first = await stand.add(name="a", limit=1)
        second = await stand.add(name="a", limit=1)
        other = await stand.add()
        await stand.until_state(first, "running")
        await stand.until_state(other, "running")
        await asyncio.sleep(0.3)
        before = stand.machine.applied_index
        await asyncio.sleep(0.2)
        assert stand.peek(second) == "pending"
        assert stand.machine.applied_index == before, "it is proposed again and again"
        stand.end("a1")
        await stand.until_state(second, "running")


async def test_a_start_is_reported_only_of_what_still_runs(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        short, long = await stand.add(), await stand.add()
        await stand.until(lambda: len(stand.running()) == 2)
        stand.end("a1")
        await stand.until_state(short, "succeeded")
        assert stand.peek(long) == "claimed"
        await stand.until_state(long, "running")


async def test_a_failure_is_told_and_retried_after_its_wait(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add(retry={"first_ms": 500, "jitter_permille": 0})
        await stand.until(stand.running)
        stand.end("a1", 3)
        await stand.until_state(task, "retrying")
        record = await stand.pool.task(asked(), task)
        assert record["error"] == {"code": "exit", "text": "exit status 3"}
        assert record["actions"][0]["exit_code"] == 3
        stand.clock.advance(1)
        await stand.until_state(task, "running")


async def test_what_can_never_run_here_fails_for_good(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add(work={"commands": [[]]})
        await stand.until_state(task, "failed")
        assert (await stand.pool.task(asked(), task))["error"]["code"] == "unrunnable"


async def test_a_deleted_task_is_stopped(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until_state(task, "running")
        await stand.pool.act(asked(), Turn("delete"), [task])
        await stand.until(lambda: not stand.running() and not stand.live())
        assert stand.peek(task) == "deleted"


async def test_a_finish_outlives_the_master(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        stand.node.workplace.reports.deadline_s = 0.02
        task = await stand.add()
        await stand.until_state(task, "running")
        stand.log.depose(None)
        stand.end("a1")
        await asyncio.sleep(0.1)
        stand.log.elect()
        await stand.until_state(task, "succeeded")


async def test_an_action_ends_here_when_its_lease_is_over(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until_state(task, "running")
        await stand.node.tree.stop("session")
        await stand.node.session.beat()
        await asyncio.sleep(0.01)
        stand.clock.advance(1.9)
        stand.process.look()
        assert stand.running()
        stand.clock.advance(0.2)
        stand.process.look()
        assert not stand.running()


async def test_a_silent_workers_tasks_go_to_another(tmp_path: Path) -> None:
    async with two(tmp_path, slots=1) as (master, follower, switchboard):
        await master.working()
        await follower.working()
        tasks = [await master.add(), await master.add()]
        for task in tasks:
            await master.until_state(task, "running")
        (lost,) = [task for task, worker in master.machine.db.execute("SELECT id, worker FROM live") if worker == "n2"]
        switchboard.cut("n2")
        for _ in range(3):
            master.clock.advance(SILENT_S / 2)
            await master.node.session.beat()
        follower.clock.advance(3)
        await master.node.presence._look()
        await master.until_state(lost, "pending")
        assert [task for task in tasks if master.peek(task) == "running"] == [task for task in tasks if task != lost]
        master.end(next(iter(master.running())))
        await master.until_state(lost, "running")
        assert [worker for _, worker in master.live()] == ["n1"]
        follower.process.look()
        assert not follower.running(), "the old owner still runs it"


async def test_a_lease_is_not_over_before_its_time_by_the_masters_count(tmp_path: Path) -> None:
    async with two(tmp_path, slots=1) as (master, follower, switchboard):
        await follower.working()
        task = await master.add(tags=["node=n2"], lease_ms=10_000)
        await master.until_state(task, "running")
        master.clock.advance(1)
        await follower.node.session.beat()
        switchboard.cut("n2")
        master.clock.advance(10.3)
        await master.node.presence._look()
        assert master.peek(task) == "running"
        assert master.node.presence.workers()["n2"].state == "lost"
        master.clock.advance(0.03)
        await master.node.presence._look()
        assert master.peek(task) == "pending"


async def test_a_new_master_gives_every_lease_its_time_again(tmp_path: Path) -> None:
    async with two(tmp_path, slots=1) as (master, follower, switchboard):
        await follower.working()
        task = await master.add(tags=["node=n2"])
        await master.until_state(task, "running")
        switchboard.cut("n2")
        master.log.depose(None)
        master.clock.advance(60)
        master.log.elect()
        await master.node.presence._look()
        assert master.peek(task) == "running"
        master.clock.advance(2.5)
        await master.node.presence._look()
        assert master.peek(task) == "running"
        master.clock.advance(0.2)
        await master.node.presence._look()
        assert master.peek(task) == "pending"


async def test_a_second_daemon_of_the_same_name_waits_until_the_first_is_silent(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        facts = stand.node.session.facts
        wish = asks.Open("n1", "another", b"s" * 32, "another directory", facts)
        with pytest.raises(Exception, match="heard a moment ago"):
            await stand.node.door.write(wish, 1)


async def test_a_session_that_ended_is_opened_anew_and_its_actions_end(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        old = stand.node.session.id
        task = await stand.add()
        await stand.until_state(task, "running")
        token = stand.live()[0][0]
        await stand.node.door.write(asks.Do(c.Lost((c.Loss(token),))), 1)
        await stand.until(lambda: not stand.running() or "a1" not in stand.running())
        await stand.until_state(task, "running")
        stand.end("a2")
        await stand.until_state(task, "succeeded")
        await stand.node.door.write(asks.Do(c.EndSession(old or "")), 1)
        await stand.until(lambda: stand.node.session.id not in {None, old})
        again = await stand.add()
        await stand.until_state(again, "running")


async def test_with_the_session_its_actions_end(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.until_state(await stand.add(), "running")
        executor, session = stand.process, stand.node.session.id
        stand.node.session.over(session or "")
        await stand.until(lambda: not executor.alive)
        assert executor.running() == []
        await stand.until(lambda: stand.host.process not in {None, executor}, "no new executor")


async def test_stopped_in_order_it_gives_its_work_to_others_and_ends_its_session(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until_state(task, "running")
        await stand.node.drain()
        assert stand.peek(task) == "pending"
        assert stand.live() == []
        later = await stand.add()
        await asyncio.sleep(0.05)
        assert stand.peek(later) == "pending"
        await stand.node.stop()
        sessions = stand.machine.db.execute("SELECT session FROM worker").fetchall()
        assert sessions == [(None,)]
        assert (await stand_attempts(stand.machine.db, task)) == 1


async def stand_attempts(db: object, task: str) -> int:
    row = db.execute("SELECT attempts FROM task WHERE id = ?", (task,)).fetchone()  # type: ignore[attr-defined]
    return int(row[0])
