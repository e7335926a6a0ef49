"""Pull workers on one node and on two: claims, leases, reports, and what becomes of those who go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.model import QueueSettings, Rate
from quvatlh.core.scopes import Scope
from quvatlh.service.pool import Call, Principal, Rejected, Unavailable, Until
from quvatlh.service.presence import PULL_SILENT_S
from quvatlh.service.pullasks import Report, Verb
from quvatlh.service.pullpool import Wanted
from tests.service.bidding import POLICY
from tests.service.stand import Stand, asked, lead, one, two

PULL = {"pull": True}


def wanted(worker: str = "w", most: int = 1, *, wait_ms: int = 0, lease_ms: int = 30_000, **more: Any) -> Wanted:
    return Wanted(worker, most=most, wait_ms=wait_ms, lease_ms=lease_ms, **more)


async def claim(stand: Stand, *args: Any, call: Call | None = None, **more: Any) -> list[dict[str, Any]]:
    return list((await stand.pool.claim(call or asked(), wanted(*args, **more))).actions)


async def say(stand: Stand, verb: Verb, *actions: dict[str, Any], **more: Any) -> Sequence[str]:
    return await stand.pool.report(asked(), verb, [Report(a["action"], a["token"], **more) for a in actions])


def ids(actions: Sequence[dict[str, Any]]) -> list[str]:
    return [action["task"]["id"] for action in actions]


def pull_live(stand: Stand) -> int:
    return len(stand.live())


def hand_over(old: Stand, new: Stand) -> None:
    """What the new master applies the old one does, and no more the other way round."""
    for mirror in old.mirrors:
        old.log._listeners.remove(mirror)
    old.mirrors.clear()
    old.log.depose(new.name)
    lead(new, [old])


async def pass_time(stand: Stand, seconds: float, step_s: float = 0.5) -> None:
    """Of the clock that leases are counted by; the loops get their turns in between."""
    for _ in range(round(seconds / step_s)):
        stand.clock.advance(step_s)
        await asyncio.sleep(0.06)


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


async def test_a_claim_with_a_key_is_answered_the_same_again(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        for n in range(4):
            await stand.add(id=f"t{n}", work=PULL)
        first = await claim(stand, most=2, call=asked(key="k"))
        again = await claim(stand, most=2, call=asked(key="k"))
        assert (ids(first), [a["token"] for a in again]) == (["t0", "t1"], [a["token"] for a in first])
        await say(stand, "finish", first[0])
        assert ids(await claim(stand, most=2, call=asked(key="k"))) == ["t1"]
        with pytest.raises(Rejected, match="another request"):
            await claim(stand, most=2, call=asked(key="k", digest=b"other"))
        assert ids(await claim(stand, most=2, call=asked(key="l"))) == ["t2", "t3"]


async def test_a_claim_that_was_answered_waits_for_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked the master again at once for as long as it waits would leave its loop to nobody else."""
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="a", work=PULL)
        await stand.add(id="b", work=PULL)
        (action,) = await claim(stand, call=asked(key="k"))
        await say(stand, "finish", action)
        asks: list[object] = []
        real = stand.node.pulls.stand

        async def stand_once(ask: Any) -> Any:
            asks.append(ask)
            return await real(ask)

        monkeypatch.setattr(stand.node.pulls, "stand", stand_once)
        assert await claim(stand, call=asked(key="k"), wait_ms=500) == []
        assert len(asks) == 1


async def test_what_a_claim_brings_again_is_renewed(tmp_path: Path) -> None:
    """Its worker counts from the last asking."""
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="asked", work=PULL)
        await stand.add(id="left", work=PULL)
        await claim(stand, lease_ms=3000, call=asked(key="k"))
        await claim(stand, lease_ms=3000)
        for _ in range(3):
            await pass_time(stand, 2.0)
            assert ids(await claim(stand, lease_ms=3000, call=asked(key="k"))) == ["asked"]
        await stand.until_state("left", "pending")
        await stand.node.door.propose(c.Kill(("asked",)), 1)
        assert await claim(stand, lease_ms=3000, call=asked(key="k")) == []
        await pass_time(stand, 4.0)
        await stand.until_state("asked", "failed")


async def test_an_empty_answer_is_not_remembered(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        assert await claim(stand, call=asked(key="k")) == []
        await stand.add(id="a", work=PULL)
        assert ids(await claim(stand, call=asked(key="k"))) == ["a"]


async def test_a_client_that_goes_away_leaves_nothing_claimed(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        waiting = asyncio.create_task(claim(stand, wait_ms=20_000))
        await stand.until(lambda: stand.node.pulls._claims)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await stand.until(lambda: not stand.node.pulls._claims)
        await stand.add(id="a", work=PULL)
        await asyncio.sleep(0.05)
        assert stand.peek("a") == "pending"


async def test_an_award_that_meets_nobody_goes_back_unless_it_will_be_asked_for_again(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        assert await claim(stand) == []
        await stand.add(id="a", work=PULL)
        for call in (asked(), asked(key="k")):
            stand.log.hold()
            waiting = asyncio.create_task(claim(stand, wait_ms=20_000, call=call))
            await stand.until(lambda: any(each.under_way for each in stand.node.pulls._claims.values()))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            stand.log.release()
            await stand.until(lambda: not stand.node.pulls._claims)
            if call.key is None:
                await stand.until_state("a", "pending")
                assert (await stand.pool.task(asked(), "a"))["attempts"] == 0
        assert ids(await claim(stand, call=asked(key="k"))) == ["a"]


async def test_what_could_not_be_sent_goes_back(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="a", work=PULL)
        pulled = await stand.pool.claim(asked(), wanted())
        await stand.pool.give_back(pulled)
        await stand.until_state("a", "pending")


async def test_payloads_for_which_an_answer_has_no_room_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quvatlh.service.pulling.ANSWER_BYTES_MAX", 10)
    async with one(tmp_path, slots=0) as stand:
        for n in range(3):
            await stand.add(id=f"t{n}", work=PULL, payload=b'"234567"')
        assert ids(await claim(stand, most=3)) == ["t0"]
        await stand.until(lambda: len(stand.live()) == 1)
        assert ids(await claim(stand, most=3, wait_ms=1000)) == ["t1"]


async def test_who_waits_at_a_node_that_stops_is_told(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        waiting = asyncio.create_task(claim(stand, wait_ms=20_000))
        await stand.until(lambda: stand.node.pulls._claims)
        await stand.node.stop()
        with pytest.raises(Unavailable, match="stopping"):
            await waiting


async def test_a_worker_with_an_executor_keeps_its_name(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        with pytest.raises(Rejected, match="n1 is the name of a worker that has an executor") as told:
            await claim(stand, "n1")
        assert told.value.code == "conflict"


async def test_actions_of_workers_with_an_executor_are_not_for_reports_over_http(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.add(id="native")
        await stand.until(stand.running)
        ((token, _),) = stand.live()
        native = {"action": f"a{token}", "token": token}
        for verb in ("renew", "progress", "finish", "fail"):
            assert await say(stand, verb, native) == ["stale_token"]
        stand.end(stand.running()[0])
        await stand.until_state("native", "succeeded")


async def test_tokens_of_other_roles_may_not_pull(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        call = Call(Principal("eve", "producer"))
        with pytest.raises(Rejected, match="eve is not for workers"):
            await stand.pool.claim(call, wanted())
        with pytest.raises(Rejected, match="eve is not for workers"):
            await stand.pool.report(call, "renew", [Report("a1", 1)])


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


# --- whose name it is ---

HAND, OTHER = (Call(Principal(name, "worker", (queue,))) for name, queue in (("hand", "mail"), ("other", "images")))
ANY_GROUP = ("*",)


async def tokens_of(stand: Stand, *calls: Call) -> None:
    for call in calls:
        who = call.principal
        await stand.pool.add_token(asked(), who.name, "worker", Scope(who.queues, ANY_GROUP))


async def test_no_token_claims_under_the_name_of_anothers_worker(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        await tokens_of(master, HAND, OTHER)
        await master.add(id="a", work=PULL, queue="mail")
        await master.add(id="b", work=PULL, queue="images")
        assert ids(await claim(follower, call=HAND, queues=("mail",), wait_ms=20_000)) == ["a"]
        for stand in (master, follower):
            with pytest.raises(
                Rejected, match="w is the name of a pull worker that another token claims for"
            ) as caught:
                await claim(stand, call=OTHER, queues=("images",), tags=("gpu",))
            assert caught.value.code == "conflict"
        (worker,) = [each for each in await master.pool.workers(asked()) if each["name"] == "w"]
        assert ("gpu" in worker["tags"], worker["facts"]["token"]) == (False, "hand")
        assert ids(await claim(master, "v", call=OTHER, queues=("images",), wait_ms=20_000)) == ["b"]


async def test_of_two_that_open_a_name_at_once_one_gets_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await tokens_of(stand, HAND, OTHER)
        asking = (claim(stand, call=HAND, queues=("mail",)), claim(stand, call=OTHER, queues=("images",)))
        said = await asyncio.gather(*asking, return_exceptions=True)
        assert said[0] == []
        assert isinstance(said[1], Rejected)


async def test_a_token_that_replaces_another_of_its_name_goes_on_with_its_workers(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await tokens_of(stand, HAND)
        await stand.add(id="a", work=PULL, queue="mail")
        (action,) = await claim(stand, call=HAND, queues=("mail",), wait_ms=20_000)
        await stand.pool.revoke_token(asked(), "hand")
        await tokens_of(stand, HAND)
        assert await claim(stand, call=HAND, queues=("mail",)) == []
        assert await stand.pool.report(HAND, "finish", [Report(action["action"], action["token"])]) == [""]


@pytest.mark.parametrize("how", ["revoked", "expired", "silent"])
async def test_a_name_is_free_when_its_token_is_over_or_nobody_goes_by_it(tmp_path: Path, how: str) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.pool.add_token(asked(), "hand", "worker", Scope(("mail",), ANY_GROUP), Until(in_ms=3_600_000))
        await tokens_of(stand, OTHER)
        assert await claim(stand, call=HAND, queues=("mail",)) == []
        if how == "revoked":
            await stand.pool.revoke_token(asked(), "hand")
        elif how == "expired":
            stand.clock.set_wall(stand.clock.wall_ms() + 3_600_000)
        else:
            await pass_time(stand, PULL_SILENT_S + 1)
        assert await claim(stand, call=OTHER, queues=("images",)) == []
        (worker,) = [each for each in await stand.pool.workers(asked()) if each["name"] == "w"]
        assert worker["facts"]["token"] == "other"
