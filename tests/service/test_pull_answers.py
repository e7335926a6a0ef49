"""Claims that come twice, and answers that meet nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.service.pool import Rejected, Unavailable
from tests.service.pulling import PULL, claim, ids, pass_time, say, wanted
from tests.service.stand import Stand, asked, one


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


async def test_what_runs_longer_than_its_timeout_is_gone_and_has_timed_out(tmp_path: Path) -> None:
    """However often its worker renews."""
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="long", work=PULL, timeout_ms=5000, retry={"attempts": 2, "first_ms": 0})
        for tried in (1, 2):
            (action,) = await claim(stand, lease_ms=3000, call=asked(key=f"k{tried}"))
            assert await say(stand, "renew", action) == [""]
            for _ in range(2):
                await pass_time(stand, 2.0)
                assert await say(stand, "renew", action) == [""]
            await pass_time(stand, 1.5)
            assert await say(stand, "renew", action) == await say(stand, "progress", action, text="on") == ["gone"]
            assert await claim(stand, lease_ms=3000, call=asked(key=f"k{tried}")) == []
            await pass_time(stand, 4.0)
            await stand.until(lambda: not stand.live())
            assert await say(stand, "finish", action) == await say(stand, "renew", action) == ["stale_token"]
        record = await stand.pool.task(asked(), "long")
        assert (record["state"], record["error"]["code"]) == ("failed", "timeout")
        assert [each["error"]["text"] for each in record["actions"]] == ["ran longer than 5 s"] * 2


async def test_who_fails_what_is_gone_for_its_timeout_has_it_retried_at_once(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="long", work=PULL, timeout_ms=1000, retry={"attempts": 2, "first_ms": 0})
        await stand.add(id="once", work=PULL, timeout_ms=1000, delivery="at-most-once")
        actions = await claim(stand, most=2)
        await pass_time(stand, 1.5)
        assert await say(stand, "renew", *actions) == ["gone", "gone"]
        assert await say(stand, "fail", *actions, error="told to") == ["", ""]
        assert await say(stand, "fail", *actions) == ["", ""]
        record = await stand.pool.task(asked(), "once")
        assert (record["state"], record["error"]["code"]) == ("failed", "timeout")
        assert ids(await claim(stand, wait_ms=2000)) == ["long"]


async def test_the_end_of_what_a_pull_worker_wrote_is_the_log_of_its_task(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        for name in ("short", "long", "failed"):
            await stand.add(id=name, work=PULL, retry={"attempts": 1})
        short, long, failed = await claim(stand, most=3)
        await say(stand, "finish", short, output="hello\nworld\n")
        await say(stand, "finish", long, output="begun\n" + "x" * 5000 + "end", result=b"1")
        await say(stand, "fail", failed, output="Traceback\n", error="broken")
        assert await written(stand, "short") == (b"hello\nworld\n", False)
        text, is_tail = await written(stand, "long")
        assert (len(text) <= 4096, text[-4:], is_tail) == (True, b"xend", True)
        assert await written(stand, "failed") == (b"Traceback\n", False)
        record = await stand.pool.task(asked(), "failed")
        assert record["actions"][0]["output_tail"] == "Traceback\n"


async def written(stand: Stand, task: str) -> tuple[bytes, bool]:
    """Its log, and whether that is only the end of it."""
    log = await stand.pool.log(asked(), task, "stdout", None, follow=False)
    return b"".join([chunk async for chunk in log.chunks]), log.tail_only
