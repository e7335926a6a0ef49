from __future__ import annotations

import asyncio
import errno
from base64 import b64decode
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import FILED_RESULT, OUTPUT_SHORT_BYTES_MAX, OUTPUT_TAIL_BYTES_MAX, PACKED_RESULT
from quvatlh.ports import ActionFinished, OutputChunk, StreamName
from quvatlh.service import tails
from quvatlh.service.packedresult import PackedResult
from quvatlh.service.pool import BrokeOff, Bulk, LargeResult, Position, Rejected, TaskQuery, Turn, Unavailable
from quvatlh.service.reads import Reads
from tests.fakes.executor import FakeExecutor
from tests.fakes.peers import Switchboard
from tests.service.stand import Stand, asked, one, text, two


def finish(name: str, stdout: str = "", stderr: str = "", *, stdout_bytes: int | None = None) -> ActionFinished:
    total = len(stdout.encode()) if stdout_bytes is None else stdout_bytes
    return ActionFinished(name, 0, None, None, stdout, stderr, total, len(stderr.encode()), 1, 2)


def test_tails_come_back_as_they_went() -> None:
    packed = tails.pack(finish("a1", "out\n", "err\n"))
    assert tails.unpack(packed) == tails.Tails(4, 4, "out\n", "err\n")
    assert tails.unpack(packed).is_whole("stdout")
    assert tails.pack(finish("a1")) == b""
    assert tails.unpack(None) == tails.unpack(b"") == tails.NOTHING


@pytest.mark.parametrize("text", ["x" * 4096, "é" * 2048, "x" + "é" * 2047])
def test_a_full_tail_fits_and_is_not_called_whole(text: str) -> None:
    packed = tails.pack(finish("a1", text, stdout_bytes=9000))
    assert len(packed) <= OUTPUT_TAIL_BYTES_MAX
    assert text.endswith(tails.unpack(packed).stdout)
    assert not tails.unpack(packed).is_whole("stdout")


@pytest.mark.parametrize("other", [OUTPUT_SHORT_BYTES_MAX, OUTPUT_TAIL_BYTES_MAX])
@pytest.mark.parametrize("order", [1, -1])
def test_a_short_output_is_whole_beside_any_other(other: int, order: int) -> None:
    stdout, stderr = (OUTPUT_SHORT_BYTES_MAX, other)[::order]
    packed = tails.pack(finish("a1", "x" * stdout, "y" * stderr))
    assert len(packed) <= OUTPUT_TAIL_BYTES_MAX
    short: StreamName = "stdout" if order == 1 else "stderr"
    assert tails.unpack(packed).is_whole(short)


def test_plain_text_of_others_is_standard_output() -> None:
    assert tails.unpack("hé".encode()).stdout == "hé"
    assert tails.unpack(b"\xff\xfe").stdout


async def ended(stand: Stand, event: ActionFinished) -> None:
    for listener in stand.executor._listeners:
        listener.finished(event)
    stand.process.held.pop(event.action_id)


async def running(stand: Stand, other: Stand | None = None) -> str:
    await stand.working()
    task = await (other or stand).add(tags=[f"node={stand.name}"])
    await stand.until_state(task, "running")
    return task


async def test_a_short_output_is_in_the_finish(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task = await running(stand)
        await ended(stand, finish("a1", "hello\n", "oh\n"))
        await stand.until_state(task, "succeeded")
        for stream, expected in (("stdout", b"hello\n"), ("stderr", b"oh\n")):
            output = await stand.pool.log(asked(), task, stream, None, follow=False)  # type: ignore[arg-type]
            assert (await text(output.chunks), output.tail_only) == (expected, False)
        record = await stand.pool.task(asked(), task)
        assert record["actions"][0]["output_tail"] == "hello\noh\n"


async def test_a_long_output_comes_from_its_owner_and_the_tail_when_that_is_gone(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        task = await running(follower, master)
        _written(follower, b"all of it")
        await ended(follower, finish("a1", "it", stdout_bytes=9))
        await master.until_state(task, "succeeded")
        output = await master.pool.log(asked(), task, "stdout", None, follow=False)
        assert (await text(output.chunks), output.tail_only) == (b"all of it", False)
        switchboard.cut("n2")
        output = await master.pool.log(asked(), task, "stdout", "a1", follow=False)
        assert (await text(output.chunks), output.tail_only, output.is_there) == (b"it", True, False)


async def test_an_output_goes_on_at_an_offset_wherever_it_is_kept(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        task = await running(follower, master)
        _written(follower, b"all of it")
        live = await master.pool.log(asked(), task, "stdout", None, follow=False, offset=4)
        assert (await text(live.chunks), live.action, live.offset) == (b"of it", "a1", 4)
        await ended(follower, finish("a1", "it", stdout_bytes=9))
        await master.until_state(task, "succeeded")
        for offset, expected in ((4, b"of it"), (7, b"it"), (8, b"t"), (9, b""), (50, b"")):
            output = await master.pool.log(asked(), task, "stdout", "a1", follow=False, offset=offset)
            assert (await text(output.chunks), output.tail_only, output.offset) == (expected, False, offset)
        switchboard.cut("n2")
        rest = await master.pool.log(asked(), task, "stdout", "a1", follow=False, offset=7)
        assert (await text(rest.chunks), rest.tail_only, rest.offset) == (b"it", False, 7)
        lost = await master.pool.log(asked(), task, "stdout", "a1", follow=False, offset=4)
        assert (await text(lost.chunks), lost.tail_only, lost.offset) == (b"it", True, 7)


async def lost(master: Stand, follower: Stand, switchboard: Switchboard, *, wrote: bytes) -> str:
    """A task whose action was given up while its worker was out of touch, and has it all the same."""
    task = await running(follower, master)
    _written(follower, wrote)
    switchboard.cut("n2")
    master.clock.advance(10)
    await master.node.presence._look()
    await master.until_state(task, "pending")
    switchboard.heal()
    return task


async def test_what_a_lost_action_wrote_is_still_with_its_owner(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        task = await lost(master, follower, switchboard, wrote=b"so far")
        output = await master.pool.log(asked(), task, "stdout", "a1", follow=False)
        assert (await text(output.chunks), output.tail_only) == (b"so far", False)


async def test_files_that_cannot_be_read_are_the_trouble_of_who_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too many files are open, say. What the record has is told all the same."""

    async def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with one(tmp_path) as stand:
        monkeypatch.setattr(FakeExecutor, "result", fails)
        monkeypatch.setattr("quvatlh.service.outputs.read", fails)
        task = await stand.add()
        await stand.until_state(task, "running")
        output = await stand.pool.log(asked(), task, "stdout", None, follow=False)
        assert (await text(output.chunks), output.tail_only) == (b"", True)
        stand.process.answer("a1", result=LARGE)
        await stand.until_state(task, "succeeded")
        with pytest.raises(Rejected, match="cannot be asked now"):
            await stand.pool.result(asked(), task)


LARGE = FILED_RESULT + b'{"file":"result.json","bytes":11,"worker":"two","path":"/somewhere"}'


async def test_a_large_result_comes_from_its_owner_and_it_is_said_when_that_is_away_or_keeps_it_no_more(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        task = await running(follower, master)
        follower.process.answer("a1", result=LARGE)
        await master.until_state(task, "succeeded")
        with pytest.raises(Rejected, match="does not keep it any more") as gone:
            await master.pool.result(asked(), task)
        follower.host.results["a1"] = b'"123456789"'
        found = await master.pool.result(asked(), task)
        assert isinstance(found, LargeResult)
        assert (found.size_bytes, found.worker, await text(found.chunks)) == (11, follower.name, b'"123456789"')
        broken = await master.pool.result(asked(), task)
        assert isinstance(broken, LargeResult)
        assert await anext(broken.chunks) == b'"123'
        switchboard.cut("n2")
        with pytest.raises(BrokeOff):
            await text(broken.chunks)
        with pytest.raises(Rejected, match=f"a file of worker {follower.name}, which cannot be asked now") as away:
            await master.pool.result(asked(), task)
        assert (gone.value.code, away.value.code) == ("gone", "conflict")


async def test_a_result_in_msgpack_is_shown_as_far_as_json_goes_and_whole_to_who_asks(tmp_path: Path) -> None:
    data = msgspec.msgpack.encode([float("nan"), {1: b"\0\xff"}, datetime(2026, 1, 2, tzinfo=UTC)])
    shown = [None, {"1": "AP8="}, "2026-01-02T00:00:00Z"]
    async with one(tmp_path) as stand:
        for name, packed, readable in (
            ("good", data, shown),
            ("broken", b"\xc1", None),
            ("deep", b"\x91" * 99 + b"\1", None),
        ):
            task = await stand.add(id=name)
            await stand.until_state(task, "running")
            stand.process.answer(stand.running()[0], result=PACKED_RESULT + packed)
            await stand.until_state(task, "succeeded")
            record = await stand.pool.task(asked(), task)
            assert (record["result"], b64decode(record["result_msgpack"])) == (readable, packed)
            assert await stand.pool.result(asked(), task) == PackedResult(packed)


@pytest.mark.parametrize("form", ["json", "msgpack"])
async def test_the_place_of_a_large_result_says_what_it_is(tmp_path: Path, form: str) -> None:
    async with one(tmp_path) as stand:
        task = await running(stand)
        stand.process.answer("a1", result=LARGE.replace(b"result.json", f"result.{form}".encode()))
        stand.host.results["a1"] = b"12345678901"
        await stand.until_state(task, "succeeded")
        found = await stand.pool.result(asked(), task)
        assert isinstance(found, LargeResult)
        assert found.is_packed == (form == "msgpack")


async def test_what_only_looks_like_the_place_of_a_large_result_is_read_nowhere(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task = await running(stand)
        stand.process.answer("a1", result=LARGE.removeprefix(FILED_RESULT))
        await stand.until_state(task, "succeeded")
        assert isinstance(await stand.pool.result(asked(), task), dict)


@pytest.mark.parametrize(
    ("tail", "total", "offset", "rest"),
    [
        ("abc", 3, 0, b"abc"),
        ("abc", 3, 2, b"c"),
        ("abc", 3, 3, b""),
        ("abc", 9, 6, b"abc"),
        ("abc", 9, 5, None),
        ("a\ufffdc", 9, 8, None),
        ("", 0, 0, b""),
    ],
)
def test_a_tail_knows_whether_it_holds_the_rest(tail: str, total: int, offset: int, rest: bytes | None) -> None:
    assert tails.Tails(total, 0, tail, "").since("stdout", offset) == rest


@pytest.mark.parametrize("follow", [False, True])
async def test_an_output_ends_at_its_gap_and_goes_on_behind_it_from_any_node(tmp_path: Path, follow: bool) -> None:
    async with two(tmp_path) as (master, follower, _):
        task = await running(follower, master)
        _written(follower, b"begin", gap=30, then=b"end")
        for bytes_all in (None, 38):
            if bytes_all is not None:
                await ended(follower, finish("a1", "d", stdout_bytes=bytes_all))
                await master.until_state(task, "succeeded")
            for stand in (master, follower):
                for offset, begins, expected in ((0, 0, b"begin"), (2, 2, b"gin"), (5, 35, b"end"), (36, 36, b"nd")):
                    if follow and bytes_all is None and begins > 5:
                        continue  # what comes behind it is waited for
                    output = await stand.pool.log(asked(), task, "stdout", "a1", follow=follow, offset=offset)
                    assert (await text(output.chunks), output.offset) == (expected, begins)
                    assert (output.bytes_all, output.tail_only) == (bytes_all, False)


async def test_of_a_lost_action_nothing_more_is_no_end_that_is_left(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        task = await lost(master, follower, switchboard, wrote=b"so far")
        output = await master.pool.log(asked(), task, "stdout", "a1", follow=False, offset=6)
        assert (await text(output.chunks), output.offset, output.tail_only) == (b"", 6, False)


def _written(stand: Stand, data: bytes, *, gap: int = 0, then: bytes = b"") -> None:
    async def follow(action_id: str, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncIterator[OutputChunk]:
        if stdout_offset < len(data):
            yield OutputChunk("stdout", stdout_offset, data[stdout_offset:])
        behind = len(data) + gap
        if then and stdout_offset < behind + len(then):
            start = max(stdout_offset, behind)
            yield OutputChunk("stdout", start, then[start - behind :])

    stand.executor.follow = follow  # type: ignore[method-assign]


async def test_an_unknown_action_is_named(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add()
        with pytest.raises(Rejected, match="no action a9"):
            await stand.pool.log(asked(), task, "stdout", "a9", follow=False)


async def test_a_wait_ends_with_the_task_or_with_its_time(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task = await running(stand)
        assert (await stand.pool.task(asked(), task, 20))["state"] == "running"
        waiting = asyncio.create_task(stand.pool.task(asked(), task, 60_000))
        await asyncio.sleep(0.05)
        stand.end("a1")
        assert (await asyncio.wait_for(waiting, 5))["state"] == "succeeded"
        assert stand.node.feed._changes == {}


async def test_a_payload_is_given_with_the_task_and_not_in_lists(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add(payload=b'{"a": 1}')
        record = await stand.pool.task(asked(), task)
        assert (record["payload"], record["payload_json"]) == (b'{"a": 1}', True)
        page = await stand.pool.tasks(asked(), TaskQuery(TaskFilter()))
        assert [("payload" in item, item["id"]) for item in page.items] == [(False, task)]


async def test_pages_follow_each_other(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        ids = [await stand.add() for _ in range(5)]
        first = await stand.pool.tasks(asked(), TaskQuery(TaskFilter(), limit=3))
        second = await stand.pool.tasks(asked(), TaskQuery(TaskFilter(), limit=3, cursor=first.next))
        assert [item["id"] for item in (*first.items, *second.items)] == ids
        assert first.total == 5
        with pytest.raises(Rejected) as caught:
            await stand.pool.tasks(asked(), TaskQuery(TaskFilter(), cursor="nonsense"))
        assert (caught.value.code, caught.value.errors[0].path) == ("invalid", "cursor")
        groups = await stand.pool.groups(asked(), TaskFilter(), "state")
        assert groups == ([{"value": "pending", "count": 5}], False)


async def test_unknown_is_told_from_gone(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        with pytest.raises(Rejected) as caught:
            await stand.pool.task(asked(), "nobody")
        assert caught.value.code == "not_found"
        await stand.add(id="mine")
        await stand.pool.act(asked(), Turn("delete"), ["mine"])
        stand.clock.advance(25 * 3600)
        await stand.add()
        await stand.until(lambda: stand.peek("mine") is None)
        with pytest.raises(Rejected) as caught:
            await stand.pool.task(asked(), "mine")
        assert caught.value.code == "gone"


async def test_a_place_in_the_stream_that_no_node_has_reached_is_of_a_past_that_is_gone(tmp_path: Path) -> None:
    """As after a restore; ahead of this node alone it would come."""
    async with one(tmp_path, slots=0) as stand:
        last = stand.log.applied_index
        await stand.pool.events(asked(), Position(last, 0))
        for follow in (stand.pool.events, partial(stand.pool.watching.summaries, every_ms=1000)):
            with pytest.raises(Rejected) as caught:
                await follow(asked(), Position(last + 1000, 0))
            assert caught.value.code == "gone"


async def test_a_bulk_waits_for_a_state_that_is_being_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with one(tmp_path, slots=0) as stand:
        work = {"spec": {"work": {"command": ["true"]}}}
        await stand.pool.add(asked(), [work] * 1500)  # type: ignore[list-item]
        bulk = await stand.pool.act(asked(), Turn("delete"), TaskFilter(queue="default"))
        assert isinstance(bulk, Bulk)
        asked_for = 0

        async def once(*given: Any) -> Any:
            nonlocal asked_for
            asked_for += 1
            if asked_for == 1:
                raise Unavailable("no_master", "this node's state is being replaced")
            return await matching_page(*given)

        matching_page = Reads.matching_page
        monkeypatch.setattr("quvatlh.service.bulks.AGAIN_S", 0.0)
        monkeypatch.setattr(Reads, "matching_page", once)
        await asyncio.wait_for(asyncio.gather(*stand.node.tree.named("bulk")), 10)
        assert (await stand.pool.bulk(asked(), bulk.id))["done"] == 1500
        assert asked_for > 1


async def test_a_filter_over_many_is_worked_off_in_the_background(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        work = {"spec": {"work": {"command": ["true"]}, "group": "g"}}
        await stand.pool.add(asked(), [work] * 1500)  # type: ignore[list-item]
        kept = await stand.add(group="other")
        bulk = await stand.pool.act(asked(), Turn("delete"), TaskFilter(group="g"))
        assert isinstance(bulk, Bulk)
        await asyncio.wait_for(asyncio.gather(*stand.node.tree.named("bulk")), 10)
        state = await stand.pool.bulk(asked(), bulk.id)
        assert state == {"id": bulk.id, "matched": 1500, "done": 1500, "state": "done"}
        assert stand.peek(kept) == "pending"
        with pytest.raises(Rejected):
            await stand.pool.bulk(asked(), "b0")


async def test_while_the_state_is_replaced_reads_are_unavailable_and_nothing_breaks(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add()
        machine, stand.state._machine = stand.state._machine, None
        for read in (
            stand.pool.task(asked(), task),
            stand.pool.tasks(asked(), TaskQuery(TaskFilter())),
            stand.pool.log(asked(), task, "stdout", None, follow=False),
            stand.pool.tokens(asked()),
        ):
            with pytest.raises(Unavailable):
                await read
        assert not stand.pool.readiness().ready
        assert stand.pool.metrics()
        stand.state._machine = machine
        assert await stand.state_of(task) == "pending"


async def test_a_list_tells_who_runs_its_tasks_and_not_who_did(tmp_path: Path) -> None:
    async with one(tmp_path, slots=12) as stand:
        await stand.working()
        service = await stand.add(kind="service", limit=11)
        await stand.until(lambda: len(stand.live()) == 11)
        waiting = await stand.add(tags=["nobody"])
        tries = await stand.add(retry={"attempts": 2, "backoff": "constant", "first_ms": 0})
        await stand.until_state(tries, "running")
        stand.end("a12", 1)
        await stand.until(lambda: "a13" in stand.process.held)
        await stand.until_state(tries, "running")
        items = (await stand.pool.tasks(asked(), TaskQuery(TaskFilter()))).items
        told = {item["id"]: [action["id"] for action in item["actions"]] for item in items}
        assert told == {service: [f"a{n}" for n in range(1, 11)], waiting: [], tries: ["a13"]}
        assert {action["worker"] for item in items for action in item["actions"]} == {"n1"}


async def test_a_task_is_told_with_what_its_queue_holds_for_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        settings = {"retry": {"attempts": 3}, "lease_ms": 10_000, "unique": {"while": "queued"}}
        await stand.pool.queueing.patch_queue(asked(), "q", settings)
        plain, own = (
            await stand.add(queue="q"),
            await stand.add(queue="q", name="own", retry={"attempts": 4}, lease_ms=5000),
        )
        free = await stand.add()
        told = {each["id"]: each["spec"] for each in (await stand.pool.tasks(asked(), TaskQuery(TaskFilter()))).items}
        assert told == {each: (await stand.pool.task(asked(), each))["spec"] for each in (plain, own, free)}
        assert told[plain]["retry"] | {"lease_ms": told[plain]["lease_ms"]} == {"attempts": 3, "lease_ms": 10_000}
        assert told[plain]["unique"] == {"while": "queued"}
        assert told[own]["retry"] | {"lease_ms": told[own]["lease_ms"]} == {"attempts": 4, "lease_ms": 5000}
        assert (told[free]["retry"], told[free]["lease_ms"], "unique" in told[free]) == ({}, 2000, False)
        await stand.pool.queueing.patch_queue(asked(), "q", {"retry": None})
        assert (await stand.pool.task(asked(), plain))["spec"]["retry"] == {}
