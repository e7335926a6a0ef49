"""Tokens of workers that are for some queues: what is claimed, reported, awarded, and what nobody can widen."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from quvatlh.core import commands as c
from quvatlh.core.model import WorkerFacts
from quvatlh.core.rejections import Rejection
from quvatlh.ports import Refused
from quvatlh.service import asks
from quvatlh.service.door import Refusal
from quvatlh.service.pool import Call, Principal, Rejected, Unavailable
from quvatlh.service.pullasks import Report, Verb
from quvatlh.service.pullpool import Wanted
from quvatlh.service.wire import Do, Hello, Link
from tests.fakes.judge import ALWAYS
from tests.service.outposts import Cable, Field, posted
from tests.service.stand import Stand, asked, one, two

PULL = {"pull": True}
MAIL = Principal("hand", "worker", ("mail*",))


def by(who: Principal) -> Call:
    return Call(who)


async def claimed(stand: Stand, *queues: str, who: Principal = MAIL) -> list[dict[str, Any]]:
    wanted = Wanted("w", queues or ("*",), most=10, wait_ms=0)
    return list((await stand.pool.claim(by(who), wanted)).actions)


async def say(stand: Stand, verb: Verb, action: dict[str, Any], who: Principal = MAIL) -> str:
    (code,) = await stand.pool.report(by(who), verb, [Report(action["action"], action["token"])])
    return code


async def test_a_claim_brings_what_is_of_its_tokens_queues(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        for queue in ("mail", "mail-bulk", "images"):
            await stand.add(id=queue, queue=queue, work=PULL)
        assert sorted(each["task"]["id"] for each in await claimed(stand)) == ["mail", "mail-bulk"]
        assert await claimed(stand, "*", "i*") == []
        for queues in (("images",), ("i*", "images")):
            with pytest.raises(Rejected) as caught:
                await claimed(stand, *queues)
            assert (caught.value.code, caught.value.errors[0].path) == ("forbidden", "queues")
        assert stand.peek("images") == "pending"


async def test_workers_are_for_queues_and_so_not_for_groups(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        of_a_group = Principal("hand", "worker", ("*",), ("a",))
        with pytest.raises(Rejected, match="workers are for queues"):
            await claimed(stand, who=of_a_group)
        with pytest.raises(Rejected, match="workers are for queues"):
            await stand.pool.connect(by(of_a_group), Cable().end(at_worker=False))


async def test_no_report_is_taken_of_actions_of_other_queues(tmp_path: Path) -> None:
    """Tokens of actions only grow, so they are easily guessed."""
    async with one(tmp_path, slots=0) as stand:
        await stand.add(id="i", queue="images", work=PULL)
        (action,) = await claimed(stand, who=Principal("all", "worker"))
        for verb in ("renew", "progress", "finish", "fail"):
            assert await say(stand, verb, action) == "stale_token"
        assert stand.peek("i") in {"claimed", "running"}
        assert await say(stand, "finish", action, Principal("all", "worker")) == ""
        for verb in ("finish", "fail"):
            assert await say(stand, verb, action) == "stale_token"  # type: ignore[arg-type]
        assert await say(stand, "finish", action, Principal("all", "worker")) == ""


async def test_a_worker_that_connects_takes_what_is_of_its_tokens_queues(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        field = Field(stand)
        field.principal = MAIL
        async with posted(field, stand.clock) as post:
            await post.working()
            image, mail = await stand.add(queue="images"), await stand.add(queue="mail")
            await stand.until_state(mail, "running")
            assert stand.peek(image) == "pending"
            told = await stand.pool.worker(asked(), "w1")
            assert (told["queues"], told["facts"]["token_queues"]) == (["mail*"], ["mail*"])
            with pytest.raises(Rejected) as caught:
                await stand.pool.patch_worker(asked(), "w1", {"queues": ["mail", "*"]})
            assert (caught.value.code, caught.value.errors[0].path) == ("conflict", "queues[1]")
            changed = await stand.pool.patch_worker(asked(), "w1", {"queues": ["mail"]})
            assert changed["queues"] == ["mail"]
            post.end("a1")
            await stand.until_state(mail, "succeeded")


@pytest.mark.parametrize(("who", "seen"), [(MAIL, {"mail": 2}), (Principal("all", "worker"), {"mail": 2, "images": 1})])
async def test_its_policies_see_how_much_waits_in_its_tokens_queues(
    tmp_path: Path, who: Principal, seen: dict[str, int]
) -> None:
    async with one(tmp_path, slots=0) as stand:
        for queue in ("mail", "mail", "images"):
            await stand.add(queue=queue, tags=["nowhere"])
        cable = Cable()
        served = asyncio.create_task(stand.pool.connect(by(who), cable.end(at_worker=False)))
        link = Link(cable.end(at_worker=True), _nothing, lambda _kind, _value: None)
        running = asyncio.create_task(link.run())
        link.put(Hello("w1"))
        await link.call("open", asks.Open("w1", "s1", b"h" * 32, "d", WorkerFacts("w1", "worker")), 2)
        assert (await link.call("look", None, 2)).queues == seen
        link.hang_up()
        await asyncio.gather(running, served)


async def test_with_another_token_it_is_bounded_otherwise(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        field = Field(stand)
        async with posted(field, stand.clock) as post:
            await post.working()
            assert (await stand.pool.worker(asked(), "w1"))["queues"] == ["*"]
            field.principal = MAIL
            for _, cable in field.cables:
                cable.near.put_nowait(None)
            workers = stand.node.presence.workers
            await stand.until(lambda: workers()["w1"].facts.queues == ("mail*",))
            field.principal = Principal("all", "worker")
            for _, cable in field.cables:
                cable.near.put_nowait(None)
            await stand.until(lambda: "token_queues" not in workers()["w1"].facts.facts)


async def test_a_worker_widens_nothing_by_itself(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        cable = Cable()
        served = asyncio.create_task(stand.pool.connect(by(MAIL), cable.end(at_worker=False)))
        link = Link(cable.end(at_worker=True), _nothing, lambda _kind, _value: None)
        running = asyncio.create_task(link.run())
        link.put(Hello("w1"))
        facts = WorkerFacts("w1", "worker", queues=("images",), facts={"token_queues": ["*"]})
        wish = asks.Open("w1", "s1", b"h" * 32, "d", facts)
        with pytest.raises(Refused, match="its token is for tasks of mail") as caught:
            await link.call("open", wish, 2)
        assert caught.value.code == "forbidden"
        await link.call("open", structs.replace(wish, facts=structs.replace(facts, queues=("mail", "*"))), 2)
        told = stand.node.presence.workers()["w1"].facts
        assert (set(told.queues), told.facts["token_queues"]) == ({"mail", "mail*"}, ["mail*"])
        for changes in (c.WorkerChanges(queues=("*",)), c.WorkerChanges(facts={})):
            with pytest.raises(Refused, match="not this connection's"):
                await link.call("report", c.PatchWorker("w1", changes), 2)
        await link.call("report", c.PatchWorker("w1", c.WorkerChanges(leaving=True)), 2)
        link.hang_up()
        await asyncio.gather(running, served)


async def test_whoever_only_has_the_name_of_a_worker_sees_nothing_of_what_it_may_do(tmp_path: Path) -> None:
    """A look holds the payloads of tasks of all queues of who looks; what is still listed is nobody else's business."""
    async with one(tmp_path, slots=0) as stand:
        field = Field(stand)
        async with posted(field, stand.clock) as post:
            await post.working()
            link, running, served = _greeted(stand, "w1")
            await stand.add(queue="images", policy={"source": ALWAYS})
            for kind, value in (("look", None), ("listed", (1,))):
                with pytest.raises(Refused, match="not this connection's"):
                    await link.call(kind, value, 2)
            link.hang_up()
            await asyncio.gather(running, served)


async def test_a_session_is_not_of_whoever_knows_its_name(tmp_path: Path) -> None:
    """It stands in logs. To open it again is answered as before, and proves nothing."""
    async with one(tmp_path, slots=0) as stand, posted(Field(stand), stand.clock) as post:
        await post.working()
        task = await stand.add(queue="images")
        await stand.until_state(task, "running")
        session = post.outpost.workplace.session.id or ""
        link, running, served = _greeted(stand, "w1")
        facts = WorkerFacts("w1", "worker", slots=1, queues=("mail",))
        with pytest.raises(Refused, match="not this connection's"):
            await link.call("open", asks.Open("w1", session, b"h" * 32, "d", facts), 2)
        with pytest.raises(Refused, match="not this connection's"):
            await link.call("report", c.EndSession(session), 2)
        link.hang_up()
        await asyncio.gather(running, served)


async def test_a_policy_is_not_tested_where_its_task_is_not_to_be_seen(tmp_path: Path) -> None:
    seen: list[str] = []

    async def look(kind: str, _value: object) -> asks.JudgeAnswer:
        seen.append(kind)
        return asks.JudgeAnswer((asks.Offer(0, "no_bid"),))

    async with one(tmp_path, slots=0) as stand:
        link, running, served = _greeted(stand, "w1", look)
        await link.call("open", asks.Open("w1", "s1", b"h" * 32, "d", WorkerFacts("w1", "worker")), 2)
        for queue, verdict in (("images", "not_asked"), ("mail-bulk", "no_bid")):
            task = await stand.add(queue=queue)
            (told,) = await stand.pool.test_policy(asked(), ALWAYS, task, "w1")
            assert told["verdict"] == verdict
        assert seen == ["judge"]
        link.hang_up()
        await asyncio.gather(running, served)


async def test_the_name_of_a_node_that_is_away_is_kept_for_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        await follower.working()
        switchboard.cut("n2")
        master.clock.advance(60)
        await master.until(lambda: master.node.presence.workers()[follower.name].session is None)
        link, running, served = _greeted(master, follower.name)
        wish = asks.Open(follower.name, "s1", b"h" * 32, "d", WorkerFacts(follower.name, "worker"))
        with pytest.raises(Refused, match="name of a node's own worker"):
            await link.call("open", wish, 2)
        link.hang_up()
        await asyncio.gather(running, served)


@pytest.mark.parametrize("name", ["w\r\nSet-Cookie: a=b", "a/b", "\x1b[2J"])
async def test_a_worker_has_a_name_that_can_stand_in_a_header(tmp_path: Path, name: str) -> None:
    async with one(tmp_path, slots=0) as stand:
        link, running, served = _greeted(stand, name)
        facts = WorkerFacts("w1", "worker", queues=("mail",))
        with pytest.raises(Refused, match="control characters") as caught:
            await link.call("open", asks.Open(name, "s1", b"h" * 32, "d", facts), 2)
        assert caught.value.code == "invalid"
        link.hang_up()
        await asyncio.gather(running, served)


@pytest.mark.parametrize("result", [b"{", b'"\xff"', b"[" * 100_000, b"[" * 300 + b"]" * 300])
async def test_a_worker_that_returns_no_json_spoils_no_list(tmp_path: Path, result: bytes) -> None:
    async with one(tmp_path, slots=0) as stand:
        link, running, served = _greeted(stand, "w1")
        facts = WorkerFacts("w1", "worker", slots=1, adapters=("command",), queues=("mail",))
        await link.call("open", asks.Open("w1", "s1", b"h" * 32, "d", facts), 2)
        task = await stand.add(queue="mail")
        await stand.until_state(task, "claimed")
        ((token, seq),) = stand.machine.db.execute("SELECT token, task FROM live").fetchall()
        end = c.End(token, seq, detail=c.EndDetail(result=result))
        await link.call("report", c.Finish("s1", (end,)), 2)
        assert (await stand.pool.task(asked(), task))["result_base64"] == base64.b64encode(result).decode()
        assert await stand.pool.result(asked(), task) == result
        link.hang_up()
        await asyncio.gather(running, served)


async def test_nothing_that_a_worker_says_is_nested_too_deep_to_be_told_on(tmp_path: Path) -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"a": [deep]}
    async with one(tmp_path, slots=0) as stand:
        link, running, served = _greeted(stand, "w1")
        facts = WorkerFacts("w1", "worker", slots=1, adapters=("command",), queues=("mail",), facts=deep)
        wish = asks.Open("w1", "s1", b"h" * 32, "d", facts)
        with pytest.raises(Refused, match="nested deeper than 64"):
            await link.call("open", wish, 2)
        await link.call("open", structs.replace(wish, facts=structs.replace(facts, facts={"a": [1]})), 2)
        task = await stand.add(queue="mail")
        await stand.until_state(task, "claimed")
        ((token, _),) = stand.live()
        for report in (c.Start("s1", (c.Started(token, 1, deep),)), c.Announce("s1", token, deep)):
            with pytest.raises(Refused, match="nested deeper than 64"):
                await link.call("report", report, 2)
        await link.call("report", c.Start("s1", (c.Started(token, 1, {"a": [1]}),)), 2)
        assert [each["data"] for each in await stand.pool.announcements(asked(), None)] == [{"a": [1]}]
        link.hang_up()
        await asyncio.gather(running, served)


async def test_a_worker_that_answers_with_a_refusal_is_one_that_cannot_be_asked(tmp_path: Path) -> None:
    async def no(_kind: str, _value: object) -> None:
        raise Refusal(Rejection("not_found", "what?"))

    async with one(tmp_path, slots=0) as stand:
        link, running, served = _greeted(stand, "w1", no)
        await link.call("open", asks.Open("w1", "s1", b"h" * 32, "d", WorkerFacts("w1", "worker")), 2)
        task = await stand.add(queue="mail")
        (told,) = await stand.pool.test_policy(asked(), ALWAYS, task, "w1")
        assert (told["verdict"], told["text"][:24]) == ("not_asked", "worker w1 did not answer")
        with pytest.raises(Unavailable, match="cannot be asked now"):
            await stand.pool.reload_worker(asked(), "w1", None)
        link.hang_up()
        await asyncio.gather(running, served)


def _greeted(stand: Stand, name: str, do: Do | None = None) -> tuple[Link, asyncio.Task[None], asyncio.Task[None]]:
    """A line to the stand by MAIL, that has said whose it is and proved nothing."""
    cable = Cable()
    served = asyncio.create_task(stand.pool.connect(by(MAIL), cable.end(at_worker=False)))
    link = Link(cable.end(at_worker=True), do or _nothing, lambda _kind, _value: None)
    link.put(Hello(name))
    return link, asyncio.create_task(link.run()), served


async def _nothing(_kind: str, _value: object) -> None:
    pass
