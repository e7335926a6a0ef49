"""Workers without a replica: through any node as if it were their own, and on to the next when that one goes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.limits import FILED_RESULT
from quvatlh.core.model import Work
from quvatlh.ports import Member, Refused, RequestHandler
from quvatlh.service import asks, wire
from quvatlh.service.crew import JUDGE
from quvatlh.service.pool import Call, LargeResult, Principal, Turn
from quvatlh.service.seat import Claim
from quvatlh.service.wire import Hello, Link
from tests.fakes.judge import ALWAYS
from tests.service.outposts import WORKER, Cable, Field, posted
from tests.service.stand import Stand, asked, one, two

AT_W1: dict[str, Any] = {"tags": ["worker=w1"]}


async def test_it_works_through_a_node_that_is_not_master(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _switchboard):
        field = Field(follower, master)
        async with posted(field, master.clock) as post:
            await post.working()
            task = await master.add(**AT_W1, payload=b"[1]")
            await master.until_state(task, "running")
            (view,) = master.node.presence.workers().values()
            assert (view.name, view.facts.role, view.facts.facts["node_id"]) == ("w1", "worker", "n2")
            post.end("a1")
            await master.until_state(task, "succeeded")
            await post.until(lambda: "a1" not in post.host.process.held)  # type: ignore[union-attr]


async def test_it_moves_to_another_node_and_its_actions_go_on(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _switchboard):
        field = Field(follower, master)
        follower.node._reception.servers = lambda: ("n2:7420", "n1:7420")  # type: ignore[method-assign]
        async with posted(field, master.clock) as post:
            await post.working()
            session = post.outpost.workplace.session.id
            task = await master.add(**AT_W1)
            await master.until_state(task, "running")
            field.drop("n2")
            later = await master.add(**AT_W1)
            await master.until_state(later, "running")
            assert post.outpost.workplace.session.id == session
            assert sorted(post.running()) == ["a1", "a2"]
            post.end("a1")
            await master.until_state(task, "succeeded")
            await master.until(lambda: master.node.presence.workers()["w1"].facts.facts["node_id"] == "n1")


async def test_it_learns_of_the_nodes_from_the_cluster(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand, posted(Field(stand), stand.clock) as post:
        await post.working()
        assert post.outpost.seat._learned == ("http://n1:7420",)


@pytest.mark.parametrize("http", ["0.0.0.0:7420", "[::]:7420"])
async def test_it_does_not_learn_of_a_node_that_says_no_address_to_dial(http: str, tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        stand.log.found(Member("n1", "n1", "n1:7421", http))
        async with posted(Field(stand), stand.clock) as post:
            await post.working()
            assert post.outpost.seat._learned == ()


async def test_a_node_that_does_not_answer_a_beat_is_left(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        field = Field(stand)
        async with posted(field, stand.clock) as post:
            await post.working()
            field.cables[0][1].deaf = True
            await post.until(lambda: len(field.cables) > 1)
            task = await stand.add(**AT_W1)
            await stand.until_state(task, "running")


async def test_what_happened_while_it_was_away_is_told_when_it_is_back(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        field = Field(stand)
        async with posted(field, stand.clock) as post:
            await post.working()
            tasks = [await stand.add(**AT_W1) for _ in range(2)]
            for task in tasks:
                await stand.until_state(task, "running")
            field.drop("n1")
            await post.until(lambda: not post.outpost.seat.is_connected)
            post.end("a1")
            await stand.pool.act(asked(), Turn("delete"), [tasks[1]])
            field.down.clear()
            await stand.until_state(tasks[0], "succeeded")
            await stand.until(lambda: not stand.live() and not post.running())


async def test_its_outputs_are_followed_through_its_node_from_any_other(tmp_path: Path) -> None:
    async with (
        two(tmp_path, slots=0) as (master, follower, _switchboard),
        posted(Field(follower), master.clock) as post,
    ):
        await post.working()
        task = await master.add(**AT_W1)
        await master.until_state(task, "running")
        assert post.host.process is not None
        post.host.process.write("a1", b"one ")
        output = await master.pool.log(asked(), task, "stdout", None, follow=True)
        chunks = output.chunks
        assert await anext(chunks) == b"one "
        post.host.process.write("a1", b"two")
        assert await anext(chunks) == b"two"
        post.end("a1")
        assert [chunk async for chunk in chunks] == []


async def test_its_large_results_come_through_its_node_from_any_other(tmp_path: Path) -> None:
    async with (
        two(tmp_path, slots=0) as (master, follower, _switchboard),
        posted(Field(follower), master.clock) as post,
    ):
        await post.working()
        task = await master.add(**AT_W1)
        await master.until_state(task, "running")
        post.host.results["a1"] = b'"123456789"'
        place = FILED_RESULT + b'{"file":"result.json","bytes":11,"worker":"w1","path":"/somewhere"}'
        assert post.host.process is not None
        post.host.process.answer("a1", result=place)
        await master.until_state(task, "succeeded")
        found = await master.pool.result(asked(), task)
        assert isinstance(found, LargeResult)
        assert [chunk async for chunk in found.chunks] == [b'"123', b"4567", b'89"']


async def test_its_policies_are_asked_and_bid(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _switchboard):
        said: list[asks.Offers] = []
        follower.node.seats.take_offers = said.append
        master.peers.handle("offers", _ear(said))
        async with posted(Field(follower), master.clock) as post:
            await post.working()
            await master.add(policy={"source": ALWAYS})
            await post.until(lambda: said)
            assert (said[0].worker, said[0].offers[0].word) == ("w1", "bid")
            ask = asks.JudgeAsk("w1", (asks.JudgeQuestion(ALWAYS, "default", {}),))
            body = await master.peers.request("n2", JUDGE, asks.JUDGE_ASK.encode(ask), deadline=1)
            assert asks.JUDGE_ANSWER.decode(body).verdicts[0].word == "bid"


def _ear(said: list[asks.Offers]) -> RequestHandler:
    async def hear(_asker: str, body: bytes) -> bytes:
        said.append(asks.OFFERS.decode(body))
        return b""

    return hear


async def test_drained_and_stopped_its_work_goes_back_and_its_session_ends(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand, posted(Field(stand), stand.clock) as post:
        await post.working()
        task = await stand.add(**AT_W1)
        await stand.until_state(task, "running")
        await post.outpost.drain(0)
        assert stand.peek(task) == "pending"
        await post.outpost.stop()
        assert stand.machine.db.execute("SELECT session FROM worker").fetchall() == [(None,)]
        assert post.host.process is None


# --- who may say what ---


async def raw(stand: Stand, worker: str) -> tuple[Link, list[str], asyncio.Task[None], asyncio.Task[None]]:
    """A connection that says what a test wants."""
    cable, told = Cable(), list[str]()

    async def no(_kind: str, _value: object) -> None:
        raise Refused("nothing")

    link = Link(cable.end(at_worker=True), no, lambda kind, _value: told.append(kind))
    link.put(Hello(worker))
    served = asyncio.create_task(stand.node._reception.connect(Call(WORKER), cable.end(at_worker=False)))
    return link, told, asyncio.create_task(link.run()), served


async def test_who_has_not_the_secret_hears_nothing_and_says_nothing_for_the_worker(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand, posted(Field(stand), stand.clock) as post:
        await post.working()
        session = post.outpost.workplace.session.id or ""
        link, told, running, served = await raw(stand, "w1")
        assert not (await link.call("beat", asks.Beat("w1", session, b"guess"), 1)).known
        await link.call("follow", session, 1)
        task = await stand.add(**AT_W1)
        await stand.until_state(task, "running")
        end = c.Finish(session, (c.End(1, 1),))
        for report in (end, c.EndSession(session), c.PatchWorker("w1", c.WorkerChanges(slots=9))):
            with pytest.raises(Refused, match="not this connection's"):
                await link.call("report", report, 1)
        with pytest.raises(Refused, match="not this connection's"):
            await link.call("offer", asks.Offers("w1", session, ()), 1)
        assert told == []
        assert stand.peek(task) == "running"
        link.hang_up()
        await asyncio.gather(running, served)
        post.end("a1")
        await stand.until_state(task, "succeeded")


@pytest.mark.parametrize("role", ["viewer", "producer", "operator"])
async def test_other_tokens_are_not_for_workers(tmp_path: Path, role: str) -> None:
    async with one(tmp_path, slots=0) as stand:
        with pytest.raises(Exception, match="not for workers"):
            await stand.pool.connect(Call(Principal("x", role)), Cable().end(at_worker=False))


async def test_bytes_that_are_no_frame_end_the_connection(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        cable = Cable()
        served = asyncio.create_task(stand.pool.connect(Call(Principal("w", "worker")), cable.end(at_worker=False)))
        cable.far.put_nowait(b"\x01\xff\xff")
        await asyncio.wait_for(served, 5)


async def _nothing(_kind: str, _value: object) -> None:
    pass


async def test_an_end_that_takes_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "OUT_FRAMES_MAX", 10)
    cable = Cable()
    link = Link(cable.end(at_worker=False), _nothing, lambda _kind, _value: None)
    running = asyncio.create_task(link.run())
    for _ in range(11):
        link.tell("news", None)
    assert not link.is_up
    await asyncio.wait_for(running, 5)


def test_each_message_has_a_form_and_comes_back_as_it_was() -> None:
    claim = Claim(7, 1, "t", 1, 1, 2000, Work(shell="true"), "g", "n", "q", b"\0")
    form = wire.TELLS["claimed"]
    assert form.decode(form.encode((claim,))) == (claim,)
    for kind, value in (("report", c.Finish("s", (c.End(1, 2),))), ("follow", "s"), ("look", None), ("listed", (1,))):
        asked_form = wire.CALLS[kind][0]
        assert asked_form.decode(asked_form.encode(value)) == value


async def test_a_connected_worker_that_is_lost_is_not_the_node_that_it_sat_at(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        workers = master.node.presence.workers
        async with posted(Field(follower), follower.clock) as post:
            await post.working()
        master.clock.advance(60)
        await master.until(lambda: (workers()["w1"].state, workers()[follower.name].state) == ("lost", "up"))
        nodes = (await master.pool.cluster(asked()))["nodes"]
        assert [each["state"] for each in nodes] == ["up", "up"]
