"""What a person does to tasks, by ids and by filter."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core.filters import TaskFilter
from quvatlh.core.rejections import FieldError
from quvatlh.service.pool import Bulk, Done, Rejected, TaskQuery, Turn, Unavailable, Unknown, Verb
from tests.service.stand import asked, one, two


async def test_kill_stops_and_fails_and_is_not_retried(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until_state(task, "running")
        done = await stand.pool.act(asked(), Turn("kill"), [task])
        assert isinstance(done, Done)
        assert (done.matched, done.done) == (1, 1)
        await stand.until(lambda: not stand.live())
        record = await stand.pool.task(asked(), task)
        assert (record["state"], record["error"]["code"]) == ("failed", "killed")
        again = await stand.pool.act(asked(), Turn("kill"), [task])
        assert isinstance(again, Done)
        assert again.done == 1, "what is over is as asked already"


async def test_a_killed_instance_of_a_service_is_replaced_after_its_rest(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add(kind="service")
        await stand.until_state(task, "running")
        await stand.pool.act(asked(), Turn("kill"), [task])
        await stand.until_state(task, "pending")
        await asyncio.sleep(0.05)
        assert not stand.live()
        stand.clock.advance(1.1)
        await stand.until_state(task, "running")


async def test_retry_gives_a_failed_task_another_life(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add(retry={"attempts": 1})
        await stand.until(stand.running)
        stand.end("a1", 1)
        await stand.until_state(task, "failed")
        await stand.pool.act(asked(), Turn("retry"), [task])
        await stand.until_state(task, "running")


async def test_relocate_goes_away_from_here_or_to_a_worker_and_pins_what_waits(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await master.working()
        await follower.working()
        task = await master.add()
        await master.until_state(task, "running")
        ((_, home),) = master.live()
        await master.pool.act(asked(), Turn("relocate"), [task])
        await master.until(lambda: [w for _, w in master.live()] not in ([], [home]))
        await master.pool.act(asked(), Turn("relocate", to=home), [task])
        await master.until(lambda: [w for _, w in master.live()] == [home])
        waiting = await master.add(tags=["nobody"])
        await master.pool.act(asked(), Turn("relocate", to="n2"), [waiting])
        told = await master.pool.explain(asked(), waiting)
        assert {each["name"]: each["detail"] for each in told["workers"]}["n1"] == "pinned to worker n2"


async def test_relocate_to_nobody_is_refused_by_ids_and_by_filter(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add()
        await stand.pool.add(asked(), [{"spec": {"work": {"command": ["true"]}, "queue": "many"}}] * 1001)
        for which in ([task, await stand.add()], TaskFilter(queue="default"), TaskFilter(queue="many")):
            with pytest.raises(Rejected) as refused:
                await stand.pool.act(asked(), Turn("relocate", to="nobody"), which)
            text = "there is no worker named nobody"
            assert (refused.value.code, refused.value.detail) == ("not_found", text)
            assert list(refused.value.errors) == [FieldError("to", text)]


async def test_update_changes_what_it_names(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add(tags=["gpu"])
        changes = {"queue": "other", "priority": 3, "tags": [], "limit": 2, "keep_ms": 1000, "expires_ms": 2**41}
        await stand.pool.act(asked(), Turn("update", changes=changes), [task])
        record = await stand.pool.task(asked(), task)
        spec = record["spec"]
        assert (spec["queue"], spec["priority"], spec.get("tags"), spec["limit"]) == ("other", 3, None, 2)
        assert (spec["keep_ms"], record["expires_ms"]) == (1000, 2**41)
        with pytest.raises(Rejected, match="cannot be set"):
            await stand.pool.act(asked(), Turn("update", changes={"name": "x"}), [task])


async def test_lowering_a_services_limit_stops_the_youngest(tmp_path: Path) -> None:
    async with one(tmp_path, slots=3) as stand:
        await stand.working()
        task = await stand.add(kind="service", limit=3)
        await stand.until(lambda: len(stand.live()) == 3)
        oldest = stand.live()[0]
        await stand.pool.act(asked(), Turn("update", changes={"limit": 1}), [task])
        await stand.until(lambda: stand.live() == [oldest])


async def test_an_unknown_id_refuses_the_whole_and_is_named(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add()
        with pytest.raises(Rejected) as refused:
            await stand.pool.act(asked(), Turn("delete"), [task, "nothing"])
        assert [error.path for error in refused.value.errors] == ["ids[1]"]
        assert stand.peek(task) == "pending"


async def test_a_thousand_and_more_are_worked_off_and_any_node_tells_how_far(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, switchboard):
        await master.pool.add(asked(), [{"spec": {"work": {"command": ["true"]}}}] * 1500)
        bulk = await follower.pool.act(
            asked(), Turn("update", changes={"priority": 4}), TaskFilter(queue="default", state=("pending",))
        )
        assert isinstance(bulk, Bulk)
        told = await master.pool.bulk(asked(), bulk.id)
        assert told["state"] == "working"
        await master.until(lambda: not follower.node.tree.named("bulk"))
        told = await master.pool.bulk(asked(), bulk.id)
        assert told["state"] == "done"
        assert (told["matched"], told["done"]) == (1500, 1500)
        rows = master.machine.db.execute("SELECT count(*) FROM task WHERE priority = 4").fetchone()
        assert rows == (1500,)
        switchboard.cut("n2")
        with pytest.raises(Unavailable, match="ask for the rest again"):
            await master.pool.bulk(asked(), bulk.id)
        with pytest.raises(Rejected, match="there is no bulk"):
            await master.pool.bulk(asked(), "b00000000-1234")


async def test_more_than_a_thousand_that_failed_are_moved_retried_in_another_queue_and_deleted(tmp_path: Path) -> None:
    """One that succeeded beside them is history, and said to be."""
    async with one(tmp_path, slots=0) as stand:
        clock = stand.clock
        spec = {"work": {"command": ["true"]}, "queue": "bad"}
        await stand.pool.add(asked(), [{"spec": spec, "expires_in_ms": 1000}] * 1500)
        clock.advance(2)

        async def all_of(verb: Verb, wanted: TaskFilter, **more: Any) -> tuple[int, int]:
            bulk = await stand.pool.act(asked(), Turn(verb, **more), wanted)
            assert isinstance(bulk, Bulk)
            await asyncio.wait_for(asyncio.gather(*stand.node.tree.named("bulk")), 10)
            told = await stand.pool.bulk(asked(), bulk.id)
            assert told["state"] == "done"
            return told["matched"], told["done"]

        async def failed(queue: str) -> Any:
            return (
                await stand.pool.tasks(asked(), TaskQuery(TaskFilter(queue=queue, state=("failed",)), limit=1))
            ).total

        sql = "SELECT count(*) FROM task WHERE state = 'failed'"
        await stand.until(lambda: stand.machine.db.execute(sql).fetchone() == (1500,))
        bad = TaskFilter(queue="bad", state=("failed",), error="expired")
        assert await all_of("update", bad, changes={"queue": "worse"}) == (1500, 1500)
        assert (await failed("bad"), await failed("worse")) == (0, 1500)
        worse = TaskFilter(queue="worse", state=("failed",))
        assert await all_of("retry", worse, queue="third") == (1500, 1500)
        third = TaskFilter(queue="third")
        assert await all_of("delete", third) == (1500, 1500)
        told = await stand.pool.groups(asked(), TaskFilter(), "state")
        assert told.groups == [{"value": "deleted", "count": 1500}]
        bulk = await stand.pool.act(asked(), Turn("delete"), third)
        assert isinstance(bulk, Bulk)
        await asyncio.wait_for(asyncio.gather(*stand.node.tree.named("bulk")), 10)
        assert (await stand.pool.bulk(asked(), bulk.id))["over"] == 1500


async def test_groups_tell_when_their_tasks_ended(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        began = stand.clock.wall_ms()
        for _ in range(3):
            await stand.pool.act(asked(), Turn("delete"), [await stand.add(queue="a")])
            stand.clock.advance(10)
        await stand.pool.act(asked(), Turn("delete"), [await stand.add(queue="b")])
        wanted = TaskFilter(state=("deleted",), finished_after=began - 1, finished_before=began + 40_000)
        told = await stand.pool.groups(asked(), wanted, "queue", 4)
        assert told == (
            [{"value": "a", "count": 3, "parts": [1, 1, 1, 0]}, {"value": "b", "count": 1, "parts": [0, 0, 0, 1]}],
            False,
        )
        until_now = TaskFilter(finished_after=began - 1)
        (one_part, _) = (await stand.pool.groups(asked(), until_now, "queue", 2)).groups
        assert one_part["parts"] == [2, 1]


async def test_services_leave_a_worker_that_drains_and_jobs_may_finish(tmp_path: Path) -> None:
    async with two(tmp_path, slots=2) as (master, follower, _):
        await master.working()
        await follower.working()
        service = await master.add(kind="service")
        await master.until_state(service, "running")
        ((_, home),) = master.live()
        job = await master.add(tags=[f"node={home}"])
        await master.until_state(job, "running")
        await master.pool.patch_worker(asked(), home, {"draining": True})
        await master.until(lambda: sorted({w for _, w in master.live()}) == ["n1", "n2"])
        assert master.peek(job) == "running"
        (moved,) = master.machine.db.execute("SELECT worker FROM live WHERE service = 1").fetchone()
        assert moved != home


async def test_a_bulk_is_begun_once_for_each_idempotency_key_and_any_node_tells_of_it(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        await master.pool.add(asked(), [{"spec": {"work": {"command": ["true"]}}}] * 1001)
        wanted = TaskFilter(queue="default")
        bulks = [await node.pool.act(asked(key="k"), Turn("delete"), wanted) for node in (follower, master, follower)]
        assert isinstance(bulks[0], Bulk)
        assert bulks == [bulks[0]] * 3
        await master.until(lambda: not [*follower.node.tree.named("bulk"), *master.node.tree.named("bulk")])
        assert (await master.pool.bulk(asked(), bulks[0].id))["done"] == 1001
        await master.pool.act(asked(), Turn("delete"), wanted)
        with pytest.raises(Rejected, match="another request"):
            await master.pool.act(asked(key="k", digest=b"e"), Turn("delete"), wanted)


async def test_what_was_done_at_once_stays_the_answer_though_a_bulk_would_match_now(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        new: Any = {"spec": {"work": {"command": ["true"]}}}
        wanted = TaskFilter(queue="default")
        for verb, purge in (("delete", False), ("purge", True)):

            async def ask(verb: str = verb, *, purge: bool = purge) -> Done | Bulk:
                if purge:
                    return await stand.pool.queueing.purge_queue(asked(key=verb), "default", ["pending"])
                return await stand.pool.act(asked(key=verb), Turn("delete"), wanted)

            await stand.pool.add(asked(), [new] * 2)
            first = await ask()
            assert isinstance(first, Done)
            assert (first.matched, first.done) == (2, 2)
            added = await stand.pool.add(asked(), [new] * 1001)
            again = await ask()
            assert isinstance(again, Done)
            assert (again.matched, again.done) == (2, 2)
            assert stand.peek(added.ids[0]) == "pending"
            await stand.pool.act(asked(), Turn("delete"), wanted)
            await asyncio.gather(*stand.node.tree.named("bulk"))
            await stand.pool.queueing.purge_queue(asked(), "default", ["deleted"])
            await asyncio.gather(*stand.node.tree.named("bulk"))


async def test_a_purge_of_more_than_a_thousand_is_begun_once_for_a_key(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.pool.add(asked(), [{"spec": {"work": {"command": ["true"]}}}] * 1001)
        first = await stand.pool.queueing.purge_queue(asked(key="k"), "default", ["pending"])
        assert isinstance(first, Bulk)
        await asyncio.gather(*stand.node.tree.named("bulk"))
        task = await stand.add()
        assert await stand.pool.queueing.purge_queue(asked(key="k"), "default", ["pending"]) == first
        assert stand.peek(task) == "pending"


async def test_a_bulk_whose_beginning_was_unknown_is_worked_off_once_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it any more; who asks again is told of this one."""
    monkeypatch.setattr("quvatlh.service.bulks.AGAIN_S", 0.0)
    async with two(tmp_path, slots=0) as (master, follower, switchboard):
        await master.pool.add(asked(), [{"spec": {"work": {"command": ["true"]}}}] * 1001)
        wanted = TaskFilter(queue="default")
        switchboard.mute("n1")
        with pytest.raises(Unknown):
            await follower.pool.act(asked(50, key="k"), Turn("delete"), wanted)
        switchboard.heal()
        bulk = await master.pool.act(asked(key="k"), Turn("delete"), wanted)
        assert isinstance(bulk, Bulk)
        await master.until(lambda: not [*follower.node.tree.named("bulk"), *master.node.tree.named("bulk")])
        assert (await master.pool.bulk(asked(), bulk.id))["done"] == 1001


async def test_a_retry_is_refused_while_another_has_the_unique_key(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        old = await stand.add(unique={"key": "k"}, retry={"attempts": 1})
        await stand.until(stand.running)
        stand.end("a1", 1)
        await stand.until_state(old, "failed")
        new = await stand.add(unique={"key": "k"}, tags=["nobody"])
        with pytest.raises(Rejected) as refused:
            await stand.pool.act(asked(), Turn("retry"), [old])
        text = f"the unique key of {old} is held by {new}"
        assert (refused.value.code, list(refused.value.errors)) == ("unique_held", [FieldError("ids[0]", text)])
        done = await stand.pool.act(asked(), Turn("retry"), TaskFilter(state=("failed",)))
        assert isinstance(done, Done)
        assert (done.matched, done.done) == (1, 0)
