"""Queues and classes as a door sees them, on the real core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quvatlh.core.limits import BATCH_MAX
from quvatlh.service import unplaceable
from quvatlh.service.pool import Bulk, Done, Metric, Rejected
from quvatlh.service.queueing import PURGED
from tests.service.stand import WORK, Stand, asked, one, two


async def test_a_queue_is_made_on_first_use_and_tells_what_is_in_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        queueing = stand.pool.queueing
        task = await stand.add(queue="q")
        await stand.until_state(task, "running")
        stand.clock.advance(1)
        await stand.add(queue="q")
        await stand.add(queue="q", delay_ms=5000)
        shown = await queueing.queue(asked(), "q")
        assert shown["counts"] == {"scheduled": 1, "pending": 1, "claimed": 0, "running": 1, "retrying": 0, "failed": 0}
        assert shown["oldest_pending_at_ms"] == stand.clock.wall_ms()
        assert (shown["discipline"], shown["keep"]["count"], shown["workers"]) == ("priority", 100_000, ["*"])
        with pytest.raises(Rejected, match="no queue named none"):
            await queueing.queue(asked(), "none")


async def test_settings_are_put_patched_and_hold_from_then_on(tmp_path: Path) -> None:
    async with one(tmp_path, slots=4) as stand:
        await stand.working()
        queueing = stand.pool.queueing
        put = await queueing.put_queue(asked(), "q", {"limit": 1, "retry": {"attempts": 1}})
        assert (put["limit"], put["retry"]) == (1, {"attempts": 1})
        first, second = await stand.add(queue="q"), await stand.add(queue="q")
        await stand.until_state(first, "running")
        patched = await queueing.patch_queue(asked(), "q", {"limit": 2, "rate": {"count": 100, "per_ms": 60_000}})
        assert (patched["limit"], patched["rate"]) == (2, {"count": 100, "per_ms": 60_000})
        assert patched["retry"] == {"attempts": 1}
        await stand.until_state(second, "running")
        stand.end("a1", 1)
        await stand.until_state(first, "failed")
        await queueing.patch_queue(asked(), "q", {"paused": True})
        third = await stand.add(queue="q")
        assert (await stand.pool.explain(asked(), third))["reason"] == "paused"
        await queueing.patch_queue(asked(), "q", {"paused": False})
        await stand.until_state(third, "running")


@pytest.mark.parametrize(
    ("settings", "path"),
    [({"discipline": "lifo"}, "discipline"), ({"class": "none"}, "class"), ({"limit": -1}, ""), ({"weight": 0}, "")],
)
async def test_what_cannot_be_set_changes_nothing(tmp_path: Path, settings: Any, path: str) -> None:
    async with one(tmp_path, slots=0) as stand:
        queueing = stand.pool.queueing
        before = await queueing.put_queue(asked(), "q", {"limit": 3})
        for call in (queueing.put_queue, queueing.patch_queue):
            with pytest.raises(Rejected) as refused:
                await call(asked(), "q", settings)
            assert (refused.value.code, refused.value.errors[0].path) == ("invalid", path)
        assert await queueing.queue(asked(), "q") == before


async def test_purge_deletes_what_waits_then_what_is_over_and_an_empty_queue_goes(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        queueing = stand.pool.queueing
        running = await stand.add(queue="q")
        await stand.until_state(running, "running")
        waiting = await stand.add(queue="q")
        later = await stand.add(queue="q", delay_ms=5000)
        first = await queueing.purge_queue(asked(), "q", ("scheduled", "pending", "retrying"))
        assert isinstance(first, Done)
        assert (first.matched, first.done) == (2, 2)
        assert [stand.peek(each) for each in (running, waiting, later)] == ["running", "deleted", "deleted"]
        stand.end("a1")
        await stand.until_state(running, "succeeded")
        assert (await queueing.queue(asked(), "q"))["over"] == {"succeeded": 1, "deleted": 2}
        with pytest.raises(Rejected, match="1 succeeded, 2 deleted") as refused:
            await queueing.delete_queue(asked(), "q")
        assert refused.value.code == "not_empty"
        await stand.add(queue="q", tags=["nobody"])
        second = await queueing.purge_queue(asked(), "q", PURGED)
        assert isinstance(second, Done)
        assert (second.matched, second.done) == (4, 4)
        await queueing.delete_queue(asked(), "q")
        assert (await queueing.queues(asked(), 10, None)).items == []


async def test_a_large_purge_goes_on_in_the_background_and_says_how_far_it_is(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        count = 2 * BATCH_MAX + 500
        await master.pool.add(asked(), [{"spec": {"work": WORK, "queue": "q"}}] * count)
        await master.add(queue="other")
        bulk = await follower.pool.queueing.purge_queue(asked(), "q", PURGED)
        assert isinstance(bulk, Bulk)
        assert (await follower.pool.bulk(asked(), bulk.id))["matched"] == count
        await master.until(lambda: not follower.node.tree.named("bulk"))
        told = await master.pool.bulk(asked(), bulk.id)
        assert (told["matched"], told["done"], told["state"]) == (count, count, "done")
        assert master.machine.db.execute("SELECT queue, count(*) FROM task GROUP BY 1").fetchall() == [("other", 1)]


async def test_queues_come_page_by_page(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        queueing = stand.pool.queueing
        names = [f"q{n:02}é" for n in range(25)]
        for name in names:
            await queueing.patch_queue(asked(), name, {"weight": 2})
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = await queueing.queues(asked(), 10, cursor)
            assert page.total == len(names)
            seen += [each["name"] for each in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert seen == names
        with pytest.raises(Rejected, match="no cursor"):
            await queueing.queues(asked(), 10, "zz")


async def test_the_deepest_queues_come_first_where_that_is_asked_for(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        queueing = stand.pool.queueing
        deep = {f"q{n:02}": n % 3 for n in range(12)}
        for name, n in deep.items():
            await queueing.patch_queue(asked(), name, {"weight": 2})
            for _ in range(n):
                await stand.add(queue=name)
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = await queueing.queues(asked(), 5, cursor, "-pending")
            seen += [each["name"] for each in page.items]
            cursor = page.next
            if cursor is None:
                break
            with pytest.raises(Rejected, match="no cursor"):
                await queueing.queues(asked(), 5, cursor)
        assert seen == sorted(deep, key=lambda name: (-deep[name], name))
        assert [each["name"] for each in (await queueing.queues(asked(), 3, None, "-failed")).items] == [
            "q00",
            "q01",
            "q02",
        ]
        by_name = (await queueing.queues(asked(), 5, None)).next
        with pytest.raises(Rejected, match="no cursor"):
            await queueing.queues(asked(), 5, by_name, "-pending")


async def test_classes_make_a_tree(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        queueing = stand.pool.queueing
        await queueing.put_class(asked(), "root", {"rate_milli": 10_000})
        leaf = await queueing.patch_class(asked(), "leaf", {"parent": "root", "rate_milli": 3000})
        assert leaf == {
            "name": "leaf", "parent": "root", "rate_milli": 3000, "ceil_milli": None, "burst": 1, "priority": 0, "of": "slots",
        }  # fmt: skip
        with pytest.raises(Rejected) as refused:
            await queueing.patch_class(asked(), "root", {"parent": "leaf"})
        assert (refused.value.code, refused.value.errors[0].path) == ("invalid", "parent")
        await queueing.put_queue(asked(), "q", {"class": "leaf"})
        with pytest.raises(Rejected, match="queue q is in class leaf"):
            await queueing.delete_class(asked(), "leaf")
        await queueing.patch_queue(asked(), "q", {"class": None})
        await queueing.delete_class(asked(), "leaf")
        assert [each["name"] for each in await queueing.classes(asked())] == ["root"]


def value(found: list[Metric], name: str, **labels: str) -> float | None:
    (metric,) = (each for each in found if each.name == name)
    return next((n for given, n in metric.samples if labels.items() <= given.items()), None)


async def test_any_node_tells_how_busy_a_queue_is(tmp_path: Path) -> None:
    async with two(tmp_path, slots=2) as (master, follower, _):
        await master.working()
        await follower.working()
        for _ in range(12):
            task = await master.add(queue="q")
            await master.until_state(task, "running")
            (token, worker), stand = master.live()[0], master
            stand = master if worker == "n1" else follower
            advance(master, follower, 0.5)
            stand.end(f"a{token}")
            await master.until_state(task, "succeeded")
        for stand in (master, follower):
            rates = (await stand.pool.queueing.queue(asked(), "q"))["rates"]
            assert 1.5 < rates["in"] < 2.5
            assert 1.5 < rates["out"] < 2.5
            assert rates["wait"]["p99_ms"] <= 1
            assert 450 <= rates["run"]["p50_ms"] <= 550
            found = list(await stand.pool.queueing.numbers())
            assert value(found, "queue_added_total", queue="q") == 12
            assert value(found, "queue_tasks", queue="q", state="succeeded") == 12
            assert value(found, "queue_run_seconds", queue="q", quantile="0.95") == pytest.approx(0.5, abs=0.05)
            assert value(found, "queue_oldest_pending_seconds", queue="q") == 0


def advance(*stands_and_s: Any) -> None:
    *stands, seconds = stands_and_s
    for stand in stands:
        stand.clock.advance(seconds)


async def test_numbers_name_the_fullest_queues_and_sum_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quvatlh.service.queues.NUMBERED_MAX", 2)
    async with one(tmp_path, slots=0) as stand:
        for n, name in ((1, "a"), (3, "b"), (2, "c"), (1, "d")):
            for _ in range(n):
                await stand.add(queue=name)
        stand.clock.advance(5)
        found = list(await stand.pool.queueing.numbers())
        shown = {(labels["queue"], n) for labels, n in next(m for m in found if m.name == "queue_tasks").samples}
        assert shown == {("b", 3), ("c", 2), ("/others", 2)}
        assert value(found, "queue_oldest_pending_seconds", queue="b") == pytest.approx(5, abs=0.1)
        assert value(found, "queue_added_total", queue="a") is None


async def test_what_no_worker_may_have_is_told_apart_with_what_none_has(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await stand.working()
        queueing = stand.pool.queueing

        async def told(queue: str = "q") -> Any:
            return await queueing.queue(asked(), queue)

        for _ in range(2):
            await stand.add(queue="q", tags=["gpu"])
        assert (await told())["oldest_placeable_at_ms"] is None
        assert (await told())["oldest_pending_at_ms"] is not None
        await stand.add(queue="q", slots=3)
        await stand.add(queue="q", tags=["worker=n?", "!node=n1"])
        gpu = {"what": "tag", "value": "gpu", "count": 2}
        slots, both = {"what": "slots", "value": "3", "count": 1}, {"what": "all", "value": None, "count": 1}
        assert (await told())["unplaceable"] == {"count": 4, "at_least": False, "lacks": [gpu, slots, both]}
        stand.clock.advance(1)  # not so long that the worker might be lost
        running = [await stand.add(queue="q") for _ in range(3)][-1]
        assert stand.peek(running) == "pending"
        found = await told()
        assert found["oldest_placeable_at_ms"] >= found["oldest_pending_at_ms"] + 1000
        await stand.pool.patch_worker(asked(), "n1", {"tags": ["gpu"], "slots": 3})
        assert (await told())["unplaceable"] == {"count": 1, "at_least": False, "lacks": [both]}
        await stand.pool.patch_worker(asked(), "n1", {"queues": ["other"]})
        lacks = (await told())["unplaceable"]["lacks"]
        assert [(each["what"], each["value"]) for each in lacks] == [("queue", "q")]
        await stand.pool.patch_worker(asked(), "n1", {"draining": True})
        assert (await told())["unplaceable"] is None, "there is nobody to judge by"


async def test_very_many_shapes_are_judged_some_at_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unplaceable, "COMPARED_MAX", 2)
    async with one(tmp_path) as stand:
        await stand.working()
        for number in range(5):
            await stand.add(queue="q", tags=[f"gpu{number}"])
        looks = [(await stand.pool.queueing.queue(asked(), "q"))["unplaceable"]["count"] for _ in range(4)]
        assert looks == [2, 4, 5, 5]


def stays_small(stand: Stand) -> int:
    return len(stand.node.pool.queueing._traffic)  # type: ignore[attr-defined]


async def test_a_queue_that_was_deleted_costs_nothing(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(queue="q")
        assert stays_small(stand) == 1
        await stand.pool.queueing.purge_queue(asked(), "q", PURGED)
        await stand.pool.queueing.delete_queue(asked(), "q")
        assert stays_small(stand) == 0
