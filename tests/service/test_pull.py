"""Pull workers on one node and on two: claims, leases, reports, and what becomes of those who go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quvatlh.core import commands as c
from quvatlh.core.model import QueueSettings, Rate
from quvatlh.service.pool import Rejected
from quvatlh.service.presence import PULL_SILENT_S
from tests.service.bidding import POLICY
from tests.service.pulling import PULL, claim, hand_over, ids, pass_time, pull_live, say
from tests.service.stand import asked, one, two


async def test_a_claim_takes_what_is_for_pull_workers_with_its_payload(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="native")
        await stand.add(id="a", work=PULL, payload=b'{"n": 1}')
        (action,) = await claim(stand, most=5)
        assert (ids([action]), action["payload"], action["payload_json"]) == (["a"], b'{"n": 1}', True)
        assert (action["action"], action["lease_ms"]) == (f"a{action['token']}", 30_000)
        assert stand.peek("native") == "pending"
        assert await say(stand, "finish", action, result=b'{"ok":true}') == [""]
        task = await stand.pool.task(asked(), "a")
        assert (task["state"], task["result"]) == ("succeeded", {"ok": True})
        workers = await stand.pool.workers(asked())
        assert [(w["role"], w["adapters"]) for w in workers if w["name"] == "w"] == [("pull", ["pull"])]


async def test_a_pull_worker_that_is_to_load_its_programs_anew_has_none_of_ours(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        assert await claim(stand, wait_ms=20) == []
        with pytest.raises(Rejected, match="w is a pull worker: it has no environments") as caught:
            await stand.pool.reload_worker(asked(), "w", None)
        assert caught.value.code == "conflict"


async def test_a_claim_waits_for_work_and_ends_empty_when_there_is_none(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        assert await claim(stand, wait_ms=20) == []
        waiting = asyncio.create_task(claim(stand, wait_ms=20_000))
        await stand.until(lambda: stand.node.pulls._claims)
        await stand.add(id="a", work=PULL)
        assert ids(await waiting) == ["a"]


async def test_it_takes_up_to_max_fairly_by_weight_or_greedily_one_queue_after_the_other(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.node.door.propose(c.PutQueue("b", QueueSettings(weight=3)), 1)
        for queue in ("a", "b", "c"):
            for n in range(20):
                await stand.add(id=f"{queue}{n}", work=PULL, queue=queue)
        fair = ids(await claim(stand, most=10, queues=("a", "b")))
        assert sorted(one[0] for one in fair) == ["a"] * 3 + ["b"] * 7 or sorted(one[0] for one in fair) == (
            ["a"] * 2 + ["b"] * 8
        )
        greedy = ids(await claim(stand, most=45, queues=("c", "*"), greedy=True))
        assert [one[0] for one in greedy[:20]] == ["c"] * 20
        assert sorted({one[0] for one in greedy[20:]}) == ["a", "b"]
        assert ids(await claim(stand, most=50)) != []
        assert await claim(stand, most=50) == []


async def test_limits_of_queues_are_kept_and_drained_workers_get_nothing(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.node.door.propose(c.PutQueue("q", QueueSettings(limit=2)), 1)
        for n in range(4):
            await stand.add(id=f"t{n}", work=PULL, queue="q")
        first = await claim(stand, most=10)
        assert ids(first) == ["t0", "t1"]
        assert await claim(stand, most=10) == []
        assert await say(stand, "finish", first[0]) == [""]
        await stand.pool.patch_worker(asked(), "w", {"draining": True})
        assert await claim(stand, most=10, wait_ms=30) == []
        await stand.pool.patch_worker(asked(), "w", {"draining": False})
        assert ids(await claim(stand, most=10, wait_ms=1000)) == ["t2"]


async def test_tags_and_slots_are_respected(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="gpu", work=PULL, tags=["gpu"])
        await stand.add(id="wide", work=PULL, slots=3)
        assert await claim(stand, most=2) == []
        assert ids(await claim(stand, most=2, tags=("gpu",))) == ["gpu"]
        assert ids(await claim(stand, most=3)) == ["wide"]
        told = await stand.pool.worker(asked(), "w")
        assert (told["tags"], told["slots"]) == (["gpu", "worker=w", "node=w"], 3)


async def test_only_renewals_that_name_an_action_renew_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="kept", work=PULL)
        await stand.add(id="left", work=PULL)
        kept, left = await claim(stand, most=2, lease_ms=3000)
        for _ in range(4):
            await pass_time(stand, 1.5)
            assert await say(stand, "renew", kept) == [""]
        await stand.until_state("left", "pending")
        assert stand.peek("kept") == "running"
        assert await say(stand, "renew", left, kept) == ["stale_token", ""]
        assert await say(stand, "finish", left, kept) == ["stale_token", ""]
        (again,) = await claim(stand)
        assert again["token"] > kept["token"]
        assert (await stand.pool.task(asked(), "left"))["attempts"] == 2


async def test_what_is_said_again_is_ok_again_also_after_a_restart_of_the_node(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        for name in ("a", "b"):
            await stand.add(id=name, work=PULL, retry={"attempts": 1})
        good, bad = await claim(stand, most=2)
        for _ in range(2):
            assert await say(stand, "finish", good) == [""]
            assert await say(stand, "fail", bad, error="boom", text="it broke") == [""]
        assert (await stand.pool.task(asked(), "b"))["error"] == {"code": "boom", "text": "it broke"}
        await stand.crash()
        stand.begin()
        stand.log.depose(None)
        stand.log.elect()
        assert await say(stand, "finish", good, good) == ["", ""]
        assert await say(stand, "fail", bad) == [""]
        assert (await say(stand, "finish", bad), await say(stand, "fail", good)) == (["stale_token"], ["stale_token"])
        unknown = {"action": "a999", "token": 999}
        mixed = {"action": "a1", "token": good["token"] + 1}
        assert await say(stand, "finish", unknown, mixed) == ["stale_token", "stale_token"]


async def test_a_failure_may_be_permanent_or_name_when_to_try_again(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        for name in ("later", "never"):
            await stand.add(id=name, work=PULL)
        later, never = await claim(stand, most=2)
        await say(stand, "fail", later, retry_after_ms=60_000)
        await say(stand, "fail", never, permanent=True)
        assert (stand.peek("later"), stand.peek("never")) == ("retrying", "failed")
        (due,) = stand.machine.db.execute("SELECT due_at FROM task WHERE id = 'later'").fetchone()
        assert due - stand.machine.time_ms == 60_000


async def test_bytes_come_back_as_they_were(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="a", work=PULL)
        (action,) = await claim(stand)
        await say(stand, "finish", action, result=b"\0" + b"\xff\x00raw")
        assert await stand.pool.result(asked(), "a") == b"\xff\x00raw"
        assert (await stand.pool.task(asked(), "a"))["result_base64"] == "/wByYXc="


async def test_progress_is_shown_and_renews(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="a", work=PULL)
        (action,) = await claim(stand, lease_ms=3000)
        for _ in range(3):
            await pass_time(stand, 1.5)
            assert await say(stand, "progress", action, percent=30, text="a third") == [""]
        (told,) = await stand.pool.actions(asked(), "a")
        assert (told["progress"], told["state"]) == ({"percent": 30, "text": "a third"}, "running")


@pytest.mark.parametrize("verb", ["kill", "delete"])
async def test_who_renews_what_somebody_wants_ended_is_told(tmp_path: Path, verb: str) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="a", work=PULL)
        (action,) = await claim(stand, lease_ms=3000)
        command: c.AnyCommand = c.Kill(("a",)) if verb == "kill" else c.Delete(("a",))
        await stand.node.door.propose(command, 1)
        assert await say(stand, "renew", action) == ["gone"]
        assert await say(stand, "fail", action) == [""]
        assert stand.live() == []


async def test_what_is_moved_away_waits_for_another_when_its_worker_gives_up(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="a", work=PULL)
        (action,) = await claim(stand)
        await say(stand, "renew", action)
        await stand.node.door.propose(c.Relocate((c.Move("a", None),)), 1)
        assert await say(stand, "renew", action) == ["gone"]
        assert await say(stand, "fail", action) == [""]
        assert stand.peek("a") == "pending"
        assert await claim(stand, wait_ms=20) == []
        assert ids(await claim(stand, "other", wait_ms=1000)) == ["a"]


async def test_at_most_once_is_never_awarded_again_once_its_lease_is_over(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="a", work=PULL, delivery="at-most-once")
        (action,) = await claim(stand, lease_ms=1000)
        await pass_time(stand, 2)
        await stand.until_state("a", "failed")
        assert await say(stand, "finish", action) == ["stale_token"]


async def test_a_task_whose_workers_let_its_lease_go_by_three_times_is_poison(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="a", work=PULL)
        for _ in range(3):
            assert ids(await claim(stand, lease_ms=1000, wait_ms=20_000)) == ["a"]
            await pass_time(stand, 2)
        await stand.until_state("a", "failed")
        assert (await stand.pool.task(asked(), "a"))["error"]["code"] == "poison"


async def test_any_node_takes_a_claim_and_its_reports(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        await master.add(id="a", work=PULL)
        (action,) = await claim(follower, wait_ms=1000)
        assert await say(master, "renew", action) == [""]
        assert await say(follower, "finish", action) == [""]
        assert follower.peek("a") == "succeeded"
        waiting = asyncio.create_task(claim(follower, wait_ms=20_000))
        await master.until(lambda: master.node.pulls._claims)
        await follower.add(id="b", work=PULL)
        assert ids(await waiting) == ["b"]


async def test_a_claim_outlives_its_master(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        waiting = asyncio.create_task(claim(follower, wait_ms=20_000))
        await master.until(lambda: master.node.pulls._claims)
        hand_over(master, follower)
        await follower.until(lambda: follower.node.pulls._claims)
        await follower.add(id="a", work=PULL)
        (action,) = await waiting
        assert await say(master, "finish", action) == [""]


async def test_a_new_master_counts_every_lease_from_its_election(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        await master.add(id="a", work=PULL)
        (action,) = await claim(master, lease_ms=4000)
        await pass_time(master, 3)
        hand_over(master, follower)
        await pass_time(follower, 3)
        assert follower.peek("a") == "claimed"
        assert await say(follower, "renew", action) == [""]
        await pass_time(follower, 6)
        await follower.until_state("a", "pending")


async def test_the_rate_of_a_queue_holds_claims_too(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.node.door.propose(c.PutQueue("q", QueueSettings(rate=Rate(1, 60_000))), 1)
        for n in range(3):
            await stand.add(id=f"t{n}", work=PULL, queue="q")
        assert ids(await claim(stand, most=3, wait_ms=50)) == ["t0"]
        assert await claim(stand, most=3, wait_ms=50) == []
        assert pull_live(stand) == 1


async def test_explain_says_what_pull_workers_would_take(tmp_path: Path) -> None:
    async def verdict(task: str) -> tuple[str, str]:
        told = await stand.pool.explain(asked(), task)
        (said,) = (each for each in told["workers"] if each["name"] == "w")
        return said["verdict"], said["detail"]

    async with one(tmp_path, slots=0) as stand:
        assert await claim(stand) == []
        await stand.add(id="native")
        await stand.add(id="a", work=PULL)
        await stand.add(id="p", work=PULL, policy=POLICY)
        assert await verdict("native") == ("adapter", "has pull, not command")
        assert await verdict("a") == ("slots", "no claim of it waits")
        assert await verdict("p") == ("policy", "pull workers run no policies")
        assert ids(await claim(stand)) == ["a"]
        await stand.add(id="wide", work=PULL, slots=4)
        waiting = asyncio.create_task(claim(stand, most=3, wait_ms=5_000))
        await stand.until(lambda: stand.node.pulls._claims)
        assert await verdict("wide") == ("slots", "needs 4, its claim that waits is for 3")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_sessions_that_are_over_are_not_remembered(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        for _ in range(3):
            await stand.add(work=PULL)
            (action,) = await claim(stand)
            assert await say(stand, "finish", action) == [""]
            stand.clock.advance(PULL_SILENT_S + 1)
            await stand.node.presence._look()
            assert stand.machine.db.execute("SELECT session FROM worker WHERE name = 'w'").fetchone() == (None,)
        await stand.node.presence._look()
        assert not stand.node.presence._heard
