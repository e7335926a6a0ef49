"""Why a task does not run yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.filters import TaskFilter
from quvatlh.core.model import HtbClass, QueueSettings, Rate
from quvatlh.service import asks
from quvatlh.service.forecast import at_once
from quvatlh.service.pool import Rejected, TaskQuery, Turn
from tests.service.bidding import POLICY, offer, owner_of, ready
from tests.service.pulling import claim, ids
from tests.service.stand import Stand, asked, one, two


async def why(stand: Stand, task: str) -> dict[str, Any]:
    return await stand.pool.explain(asked(), task)


def by_worker(told: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["name"]: (each["verdict"], each["detail"]) for each in told["workers"]}


async def put_queue(stand: Stand, name: str, **settings: Any) -> None:
    await stand.node.door.write(asks.Do(c.PutQueue(name, QueueSettings(**settings))), 1)


async def test_each_worker_says_the_first_thing_that_speaks_against_it(tmp_path: Path) -> None:
    async with two(tmp_path, slots=1) as (master, follower, _):
        await master.working()
        await follower.working()
        await master.pool.patch_worker(asked(), "n2", {"queues": ["a*"]})
        task = await master.add(tags=["gpu"])
        assert by_worker(await why(master, task)) == {
            "n1": ("tags", "no tag matches gpu"),
            "n2": ("queue", "takes tasks of a*, not of default"),
        }
        await master.pool.patch_worker(asked(), "n2", {"queues": ["*"], "draining": True})
        assert by_worker(await why(master, task))["n2"] == ("draining", "takes nothing new")
        await master.pool.patch_worker(asked(), "n2", {"draining": False, "tags": ["gpu"]})
        await master.until_state(task, "running")
        other = await master.add(tags=["gpu", "!worker=n1"])
        told = await why(master, other)
        assert (told["reason"], told["text"]) == ("slots", "all workers that may have it are full")
        assert by_worker(told)["n2"] == ("slots", "needs 1, of 1 are 0 free")
        python = await master.add(work={"python": "a:b"})
        assert by_worker(await why(master, python))["n1"] == ("adapter", "has command, not python")
        excluded = await master.add(tags=["!node=n*"])
        told = await why(master, excluded)
        assert told["reason"] == "unplaceable"
        assert told["text"] == "no worker may have it; n1: its tag node=n1 is excluded by !node=n*"


async def test_a_lost_worker_is_lost_as_soon_as_the_master_knows(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        await master.working()
        await follower.working()
        task = await master.add(tags=["node=n2", "never"])
        switchboard.cut("n2")
        master.clock.advance(3)
        await master.node.session.beat()
        assert by_worker(await why(master, task))["n2"][0] == "lost"


async def test_verdicts_of_policies_are_kept_and_known_on_every_node(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        assert by_worker(await why(follower, task))["n1"][0] == "not_asked"
        await offer(master, "n1", task, "no_bid")
        await offer(master, "n2", task, "failed", "line 3: attempt to index a nil value")
        for node in (master, follower):
            told = await why(node, task)
            assert by_worker(told) == {
                "n1": ("policy", "its policy does not want it"),
                "n2": ("policy", "its policy failed: line 3: attempt to index a nil value"),
            }
            assert (told["reason"], told["text"]) == ("policy", "no worker's policy wants it")
        switchboard.cut("n1")
        assert by_worker(await why(follower, task))["n1"][0] == "not_asked"


async def test_where_a_policy_has_bid_its_score_is_told_and_elsewhere_none(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        await put_queue(master, "p", paused=True)
        task = await master.add(queue="p", policy=POLICY)
        await offer(master, "n1", task, 2.5)
        await offer(master, "n2", task, "no_bid")
        for node in (master, follower):
            told = (await why(node, task))["workers"]
            assert {each["name"]: (each["verdict"], each["score"]) for each in told} == {
                "n1": ("would_run", 2.5),
                "n2": ("policy", None),
            }
        plain = await why(master, await master.add(queue="p"))
        assert [each["score"] for each in plain["workers"]] == [None, None]


async def test_of_a_pinned_task_the_pin_is_what_keeps_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        await master.pool.act(asked(), Turn("relocate", to="n2"), [task])
        await offer(master, "n1", task, 2.5)
        await offer(master, "n2", task, "no_bid")
        told = await why(master, task)
        assert (told["reason"], told["text"]) == (
            "policy",
            "it is pinned to worker n2: its policy does not want it",
        )
        assert told["change"] == f"let another worker have it: quvatlh move {task} --to WORKER"
        await master.pool.patch_worker(asked(), "n2", {"draining": True})
        told = await why(master, task)
        assert told["text"] == "it is pinned to worker n2: takes nothing new"


async def test_what_policies_said_is_told_of_a_task_that_was_awarded_too(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        await offer(master, "n2", task, "no_bid")
        await offer(master, "n1", task, 2.5)
        assert await owner_of(master, task) == "n1"
        await offer(master, "n2", task, 7.0)
        for node in (master, follower):
            told = (await why(node, task))["workers"]
            assert [tuple(each.values()) for each in told] == [
                ("n1", "bid", "", 2.5),
                ("n2", "policy", "its policy does not want it", None),
            ]
        plain = await master.add(tags=["node=n1"])
        await master.until_state(plain, "running")
        assert (await why(master, plain))["workers"] == []
        switchboard.cut("n2")
        assert (await why(follower, task))["workers"] == []


async def test_what_holds_it_is_named_with_who_holds_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=8) as stand:
        await stand.working()
        first = await stand.add(queue="q", queue_limit=1)
        await stand.until_state(first, "running")
        told = await why(stand, await stand.add(queue="q"))
        assert (told["reason"], told["holders"], told["position"]) == ("queue_limit", [first], 0)
        assert told["text"] == f"queue q has as many live actions as its limit of 1 allows: {first}"
        named = await stand.add(name="a", limit=1)
        await stand.until_state(named, "running")
        assert (await why(stand, named))["holders"] == []  # it fills its limit, and nothing holds it
        told = await why(stand, await stand.add(name="a", limit=1))
        assert (told["reason"], told["holders"]) == ("limit", [named])
        await put_queue(stand, "p", paused=True)
        told = await why(stand, await stand.add(queue="p"))
        assert (told["reason"], told["text"], told["eta"]) == ("paused", "its queue p is paused", None)
        await put_queue(stand, "r", rate=Rate(1, 60_000))
        await stand.until_state(await stand.add(queue="r"), "running")
        told = await why(stand, await stand.add(queue="r"))
        assert told["reason"] == "rate"
        await put_queue(stand, "w", limit_per_worker=1)
        await stand.until_state(await stand.add(queue="w"), "running")
        told = await why(stand, await stand.add(queue="w"))
        assert by_worker(told)["n1"] == ("limit", "queue w has 1 here, as many as a worker may have")
        assert (told["reason"], told["text"]) == (
            "worker_limit", "all workers that may have it have as many of queue w as one may"
        )  # fmt: skip
        assert str(told["change"]).endswith("quvatlh queue set w --limit-per-worker 2")


async def test_what_stays_is_named_before_what_goes_away_by_itself(tmp_path: Path) -> None:
    async with one(tmp_path, slots=8) as stand:
        await stand.working()
        await stand.node.door.write(asks.Do(c.PutClass("narrow", HtbClass(rate_milli=1000, ceil_milli=1000))), 1)
        await put_queue(stand, "q", class_="narrow")
        await stand.until_state(await stand.add(queue="q"), "running")
        told = await why(stand, await stand.add(queue="q"))
        assert (told["reason"], told["text"][:20]) == ("class", "class narrow has as ")
        tagged = await stand.add(queue="q", tags=["gpu"])
        nobody = ("unplaceable", "no worker may have it; n1: no tag matches gpu")
        told = await why(stand, tagged)
        assert (told["reason"], told["text"]) == nobody
        told = await why(stand, await stand.add(tags=["gpu"], delay_ms=120_000))
        assert (told["reason"], told["text"]) == nobody
        await put_queue(stand, "p", paused=True)
        for more in ({}, {"tags": ["gpu"]}, {"delay_ms": 120_000}):
            assert (await why(stand, await stand.add(queue="p", **more)))["reason"] == "paused"
        await stand.pool.patch_worker(asked(), "n1", {"draining": True})
        told = await why(stand, tagged)
        assert (told["reason"], told["text"]) == ("no_worker", "there is no worker that takes tasks")


async def test_more_slots_than_any_worker_has_are_no_matter_of_time(tmp_path: Path) -> None:
    async with two(tmp_path, slots=2) as (master, follower, _):
        await master.working()
        await follower.working()
        task = await master.add(slots=3, tags=["worker=n1"])
        told = await why(master, task)
        assert (told["reason"], told["eta"]) == ("unplaceable", None)
        assert told["text"] == "no worker may have it; n1: needs 3 slots, it has 2"
        assert by_worker(told)["n1"] == ("slots", "needs 3 slots, it has 2")
        await master.pool.patch_worker(asked(), "n1", {"slots": 3})
        await master.until_state(task, "running")


async def test_what_would_have_to_change_is_said_with_its_command(tmp_path: Path) -> None:
    async with two(tmp_path, slots=2) as (master, follower, _):
        await master.working()
        await follower.working()

        async def changed(**spec: Any) -> str | None:
            told = await why(master, await master.add(**spec))
            found: str | None = told["change"]
            return found

        assert await changed(tags=["gpu"]) == (
            "give a worker a tag that matches gpu: quvatlh worker set n1 --tags gpu; or ask for other tags: "
            "quvatlh move t-1 --tag TAG"
        ).replace("t-1", await last(master))
        assert "a tag that matches zone=eu-*: quvatlh worker set n1 --tags TAGS;" in str(
            await changed(tags=["zone=eu-*"])
        )
        assert "start another worker: quvatlh run; or ask for other tags" in str(await changed(tags=["!node=n*"]))
        assert await changed(slots=3) == "give a worker 3 slots: quvatlh worker set n1 --slots 3"
        assert await changed(work={"python": "a:b"}) == "start a worker that can run python: quvatlh run"
        assert await changed(work={"pull": True}) == "start a program that claims it (POST /v1/work/claim)"
        await put_queue(master, "my queue", paused=True)
        assert await changed(queue="my queue") == "resume the queue: quvatlh queue resume 'my queue'"
        await put_queue(master, "w", workers=("n7",))
        assert await changed(queue="w") == "let the queue be for more workers: quvatlh queue set w --workers n7,n1"
        await put_queue(master, "q", limit=1)
        await master.until_state(await master.add(queue="q"), "running")
        assert await changed(queue="q") == (
            "wait until one of them ends, or raise the limit: quvatlh queue set q --limit 2"
        )
        await master.until_state(await master.add(name="a b", limit=1), "running")
        assert await changed(name="a b", limit=1) == (
            "wait until one of them ends, or raise the limit of all of its name: quvatlh move --match group=default "
            "--match 'name=a b' --limit N"
        )
        assert await changed(delay_ms=60_000) is None
        await master.pool.patch_worker(asked(), "n2", {"tags": ["gpu"], "draining": True})
        assert await changed(tags=["gpu"]) == "let worker n2 take tasks again: quvatlh worker undrain n2"
        await master.pool.patch_worker(asked(), "n1", {"queues": ["a*"]})
        assert await changed(tags=["!node=n2"]) == (
            "let a worker take from queue default: quvatlh worker set n1 --queues 'a*,default'"
        )


async def last(stand: Stand) -> str:
    """The id of the task that was added last."""
    (found,) = stand.state.db.execute("SELECT id FROM task ORDER BY seq DESC LIMIT 1").fetchone()
    return str(found)


async def test_who_waits_for_others_is_told_what_would_free_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        await stand.node.door.write(asks.Do(c.PutClass("narrow", HtbClass(rate_milli=1000, ceil_milli=1000))), 1)
        await put_queue(stand, "q", class_="narrow", paused=True)
        running, alike = [await stand.add(queue="q", unique={"while": "active", "key": "u"}) for _ in range(2)]
        await put_queue(stand, "q", class_="narrow")
        await stand.until_state(running, "running")
        told = await why(stand, await stand.add(queue="q"))
        assert told["change"] == (
            "wait until something of class narrow ends, or raise what it may have: quvatlh class set narrow --rate N --ceil N"
        )
        await put_queue(stand, "q")
        told = await why(stand, alike)
        assert told["change"] == f"wait until the holder of its key ends, or delete it: quvatlh delete {running}"
        full = await stand.add()
        assert str((await why(stand, full))["change"]).startswith(
            "wait until one of them has room, start another worker"
        )
        await put_queue(stand, "h", limit=1)
        head, behind = await stand.add(queue="h"), await stand.add(queue="h")
        assert (await why(stand, behind))["change"] == (
            f"see what holds up the head: quvatlh explain {head}; or raise the limit, so that none holds up the rest: "
            "quvatlh queue set h --limit 2"
        )
        await stand.pool.patch_worker(asked(), "n1", {"draining": True})
        assert (await why(stand, full))["change"] == "let worker n1 take tasks again: quvatlh worker undrain n1"


async def test_what_no_policy_wants_is_told_how_to_try_another(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        task = await master.add(policy=POLICY)
        for name in ("n1", "n2"):
            await offer(master, name, task, "no_bid")
        told = await why(master, task)
        assert told["change"] == (
            f"see what workers say to a policy: quvatlh policy test FILE --task {task}; then delete it, and add it with another "
            f"policy: quvatlh delete {task}"
        )


async def test_times_are_told_and_waited_for(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add(delay_ms=120_000)
        told = await why(stand, task)
        assert (told["state"], told["reason"], told["text"]) == (
            "scheduled",
            "schedule",
            "it waits for its time, in 2 m",
        )
        record = await stand.pool.task(asked(), task)
        assert told["eta"]["at_ms"] == record["at_ms"]


async def paced(stand: Stand, queue: str = "default") -> None:
    """Tasks of the queue take a second."""
    for _ in range(6):
        task = await stand.add(queue=queue)
        await stand.until(stand.running)
        stand.clock.advance(1.0)
        await stand.node.session.beat()
        stand.end(stand.running()[0])
        await stand.until_state(task, "succeeded")


async def expected(stand: Stand, task: str) -> int | None:
    """In so many ms, as whoever is asked tells it."""
    told, record = await why(stand, task), await stand.pool.task(asked(), task)
    assert told["eta"] == record["eta"]
    now = max(stand.clock.wall_ms(), stand.state.time_ms)
    return None if told["eta"] is None else told["eta"]["at_ms"] - now


async def test_a_queue_of_limit_0_lets_nothing_start_and_says_what_would(tmp_path: Path) -> None:
    async with one(tmp_path, slots=8) as stand:
        await stand.working()
        await put_queue(stand, "q", limit=0)
        told = await why(stand, await stand.add(queue="q"))
        assert (told["reason"], told["holders"], told["eta"]) == ("queue_limit", [], None)
        assert told["text"] == "the limit of queue q is 0: nothing of it starts until that is raised"
        assert told["change"] == "raise the limit: quvatlh queue set q --limit 1"
        await put_queue(stand, "keyed", limit_per_key=0)
        told = await why(stand, await stand.add(queue="keyed", key="k"))
        assert (told["reason"], told["holders"], told["eta"]) == ("key_limit", [], None)
        assert told["text"] == "queue keyed allows 0 actions a key: none with a key starts until that is raised"
        assert told["change"] == "raise the limit: quvatlh queue set keyed --limit-per-key 1"


async def test_a_queue_that_is_full_goes_on_as_it_does(tmp_path: Path) -> None:
    async with one(tmp_path, slots=8) as stand:
        await stand.working()
        await put_queue(stand, "q", limit=1)
        await paced(stand, "q")
        await stand.until_state(await stand.add(queue="q"), "running")
        tasks = [await stand.add(queue="q") for _ in range(3)]
        assert (await why(stand, tasks[2]))["reason"] == "queue_limit"
        assert [await expected(stand, task) for task in tasks] == [1000, 2000, 3000]


async def test_behind_a_head_that_only_waits_for_a_slot_is_foretold(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        await put_queue(stand, "q", limit=1)
        await paced(stand, "q")
        await stand.until_state(await stand.add(), "running")
        await stand.add(queue="q")
        behind = await stand.add(queue="q")
        assert (await why(stand, behind))["reason"] == "head"
        assert await expected(stand, behind) == 2000


async def test_what_nobody_can_know_is_not_foretold_by_anybody(tmp_path: Path) -> None:
    async with one(tmp_path, slots=8) as stand:
        await stand.working()
        await put_queue(stand, "q", limit=1)
        await paced(stand, "q")
        await paced(stand)
        await stand.add(queue="q", tags=["gpu"])
        behind = await stand.add(queue="q")
        assert (await why(stand, behind))["reason"] == "head"
        await stand.until_state(await stand.add(name="a", limit=1), "running")
        held = [await stand.add(name="a", limit=1), await stand.add(tags=["gpu"]), await stand.add(slots=9)]
        for task in (behind, *held):
            assert await expected(stand, task) is None


async def test_what_has_no_slots_wide_enough_waits_for_its_turn(tmp_path: Path) -> None:
    async with one(tmp_path, slots=12) as stand:
        await stand.working()
        await paced(stand)
        await stand.until_state(await stand.add(slots=8), "running")
        wide = [await stand.add(slots=8) for _ in range(2)]
        assert [await expected(stand, task) for task in wide] == [1000, 2000]
        page = await stand.pool.tasks(asked(), TaskQuery(TaskFilter(state=("pending",)), eta=True))
        assert all(item["eta"]["at_ms"] > stand.state.time_ms for item in page.items)
        await stand.until_state(await stand.add(slots=3), "running")


async def test_how_many_begin_at_once_is_reckoned_by_their_slots_and_the_limit_of_a_worker(tmp_path: Path) -> None:
    async with one(tmp_path, slots=12) as stand:
        await stand.working()
        (worker,) = queries.workers(stand.state.db)
        told = [at_once(worker, slots, most, 2) for slots, most in ((5, None), (5, 3), (1, 1), (0, None), (13, None))]
        assert told == [2, 1, 0, 12, 0]


async def test_a_limit_per_worker_holds_and_its_end_is_foretold(tmp_path: Path) -> None:
    async with one(tmp_path, slots=12) as stand:
        await stand.working()
        await put_queue(stand, "q", limit_per_worker=1)
        await paced(stand, "q")
        await stand.until_state(await stand.add(queue="q"), "running")
        waiting = [await stand.add(queue="q") for _ in range(2)]
        assert [await expected(stand, task) for task in waiting] == [1000, 2000]


async def test_what_no_program_asks_for_is_not_foretold_to_start_now(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await stand.working()
        first = await stand.add(queue="other", work={"pull": True})
        assert ids(await claim(stand, "a-puller", queues=["other"])) == [first]
        await stand.working()
        told = await why(stand, await stand.add(queue="other", work={"pull": True}))
        assert (told["reason"], told["eta"]) == ("slots", None)
        assert told["text"] == "no program asks for it now: pull workers are given a task as they claim one"
        assert told["change"] == "start a program that claims it (POST /v1/work/claim)"
        told = await why(stand, await stand.add(tags=["gpu"]))
        assert told["text"] == "no worker may have it; n1: no tag matches gpu"
        await stand.pool.patch_worker(asked(), "n1", {"draining": True})
        told = await why(stand, await stand.add())
        assert (told["reason"], told["text"]) == (
            "unplaceable", "worker n1 may have it, and takes nothing now: it is draining"
        )  # fmt: skip


async def test_no_start_is_foretold_before_the_rate_allows_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=8) as stand:
        await stand.working()
        await paced(stand, "q")
        await put_queue(stand, "q", rate=Rate(1, 60_000))
        await stand.until_state(await stand.add(queue="q"), "running")
        eta = (await why(stand, await stand.add(queue="q")))["eta"]
        assert eta["low_ms"] == eta["at_ms"] < eta["high_ms"]


async def test_what_its_class_may_never_hold_lets_others_by_and_says_so(tmp_path: Path) -> None:
    async with one(tmp_path, slots=8) as stand:
        await stand.working()
        await stand.node.door.write(asks.Do(c.PutClass("narrow", HtbClass(rate_milli=3000))), 1)
        await put_queue(stand, "q", class_="narrow")
        large = await stand.add(queue="q", slots=5)
        await stand.until_state(await stand.add(queue="q"), "running")
        told = await why(stand, large)
        assert (told["reason"], told["text"]) == (
            "class", "class narrow may have 3 slots at most, and it takes 5: others go before it"
        )  # fmt: skip
        assert told["change"] == "let class narrow have 5 slots: quvatlh class set narrow --rate 5"


async def test_position_and_eta_come_from_the_pace_of_the_queue(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        await paced(stand)
        await stand.until_state(await stand.add(), "running")
        tasks = [await stand.add() for _ in range(3)]
        told = await why(stand, tasks[2])
        now = max(stand.clock.wall_ms(), stand.state.time_ms)
        assert told["position"] == 2
        assert told["eta"]["at_ms"] == now + 3000
        assert told["eta"]["low_ms"] < told["eta"]["at_ms"] < told["eta"]["high_ms"]


async def test_what_runs_and_what_is_over_says_so(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until_state(task, "running")
        told = await why(stand, task)
        assert (told["reason"], told["text"], told["workers"]) == ("running", "it is running on n1", [])
        await stand.pool.act(asked(), Turn("delete"), [task])
        assert (await why(stand, task))["text"] == "it was deleted"
        with pytest.raises(Rejected, match="no task"):
            await why(stand, "nothing")


async def test_without_any_worker_that_is_what_is_said(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        told = await why(stand, await stand.add())
        assert (told["reason"], told["text"]) == ("no_worker", "there is no worker")
