"""Under which name a pull worker goes, and with which token."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quvatlh.core.scopes import Scope
from quvatlh.service.pool import Call, Principal, Rejected, Until
from quvatlh.service.presence import PULL_SILENT_S
from quvatlh.service.pullasks import Report
from tests.service.pulling import PULL, claim, ids, pass_time, say, wanted
from tests.service.stand import Stand, asked, one, two


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


# --- what a person sets of it ---


async def shown(stand: Stand) -> tuple[int, list[str], list[str]]:
    worker = await stand.pool.worker(asked(), "w")
    return worker["slots"], worker["tags"][:-2], worker["queues"]


async def test_slots_tags_and_queues_that_a_person_has_set_hold_whatever_is_claimed(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        assert await claim(stand, tags=("a",)) == []
        await stand.pool.patch_worker(asked(), "w", {"slots": 0, "tags": ["b"]})
        await stand.pool.patch_worker(asked(), "w", {"queues": ["zq"]})
        await stand.add(id="t", work=PULL, queue="zq", slots=0)
        assert await claim(stand, most=3, tags=("a",)) == []
        assert await shown(stand) == (0, ["b"], ["zq"])
        await pass_time(stand, PULL_SILENT_S + 1)
        await stand.until(lambda: stand.node.presence.workers()["w"].session is None)
        assert await claim(stand, most=3, tags=("a",)) == []
        assert await shown(stand) == (0, ["b"], ["zq"])
        waits = asyncio.create_task(claim(stand, most=3, tags=("a",), wait_ms=20_000))
        await stand.until(stand.node.duties.pulls.stand_any)
        await stand.pool.patch_worker(asked(), "w", {"slots": 2})
        assert ids(await waits) == ["t"]


async def test_slots_that_a_person_has_set_bound_all_claims_of_a_worker_together(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        assert await claim(stand) == []
        await stand.pool.patch_worker(asked(), "w", {"slots": 2})
        for n in range(6):
            await stand.add(id=f"t{n}", work=PULL)
        first = await claim(stand, most=3, wait_ms=20_000)
        assert ids(first) == ["t0", "t1"]
        both = [asyncio.create_task(claim(stand, most=2, wait_ms=1000)) for _ in range(2)]
        await stand.until(stand.node.duties.pulls.stand_any)
        assert await say(stand, "finish", *first) == ["", ""]
        assert sorted(ids([action for found in await asyncio.gather(*both) for action in found])) == ["t2", "t3"]
        assert len(stand.live()) == 2
