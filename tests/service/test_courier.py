"""Requests as actions: sent by the worker's own daemon, held to leases and stops as everything is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quvatlh.ports import SendFault
from quvatlh.service.courier import Errand
from quvatlh.service.pool import Turn
from tests.fakes.sender import FakeSender, answer
from tests.service.stand import Stand, asked, one

HOOK = "https://example.org/hook"


@asynccontextmanager
async def sending(directory: Path, **options: Any) -> AsyncIterator[tuple[Stand, FakeSender]]:
    sender = FakeSender()
    async with one(directory, sender=sender, adapters=("command", "http"), **options) as stand:
        await stand.working()
        yield stand, sender


async def get(stand: Stand, task_id: str) -> Any:
    return await stand.pool.task(asked(), task_id)


async def later(stand: Stand, seconds: int) -> None:
    """And the worker in touch all the time."""
    for _ in range(seconds):
        stand.clock.advance(1.0)
        await stand.node.session.beat()


async def test_the_end_of_a_task_is_delivered_once_it_is_over(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        task = await stand.add(notify={"url": HOOK})
        await stand.until(stand.running)
        assert not sender.sent
        stand.end(stand.running()[0])
        await stand.until_state("notify-1", "succeeded")
        (sent,) = sender.sent
        assert (sent.method, sent.url, sent.delivery, sent.timeout_s) == ("POST", HOOK, "notify-1", 30)
        assert sent.headers == {"content-type": "application/json"}
        assert json.loads(sent.body)["data"]["id"] == task


async def test_only_the_cluster_says_that_it_tells_of_an_end(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        work = {"http": {"url": HOOK, "method": "POST", "body": '{"type":"task.succeeded"}', "sign": True}}
        await stand.add(id="notify-1", queue="_notify", work=work)
        await stand.until_state("notify-1", "succeeded")
        await stand.add(notify={"url": HOOK})
        await stand.until(stand.running)
        stand.end(stand.running()[0])
        await stand.until_state("notify-2", "succeeded")
        assert [(each.delivery, each.is_end) for each in sender.sent] == [("notify-1", False), ("notify-2", True)]


async def test_a_delivery_that_was_answered_with_no_yes_is_retried_under_its_id(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.answers.extend([answer(503, b"not now", retry_after="7"), SendFault("unreachable", "refused")])
        task = await stand.add(notify={"url": HOOK})
        await stand.until(stand.running)
        await stand.pool.act(asked(), Turn("kill"), [task])
        await stand.until_state("notify-1", "retrying")
        found = await get(stand, "notify-1")
        assert found["error"] == {"code": "status", "text": "status 503: not now"}
        (due,) = stand.machine.db.execute("SELECT due_at FROM task WHERE id = 'notify-1'").fetchone()
        assert due == stand.clock.wall_ms() + 7000
        await later(stand, 7)
        await stand.until(lambda: len(sender.sent) == 2)
        await stand.until_state("notify-1", "retrying")
        assert (await get(stand, "notify-1"))["error"] == {"code": "unreachable", "text": "refused"}
        await later(stand, 10)
        await stand.until_state("notify-1", "succeeded")
        assert {sent.delivery for sent in sender.sent} == {"notify-1"}
        assert json.loads(sender.sent[-1].body)["data"]["error"]["code"] == "killed"


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (answer(410), "status", "wants to hear no more"),
        (SendFault("too_large", "status 200, with more than 5 bytes"), "status", "more than 5 bytes"),
        (SendFault("forbidden", "10.0.0.1 is no public address"), "unrunnable", "no public address"),
        (ValueError("the URL must be http or https, with a host"), "unrunnable", "must be http or https"),
    ],
)
async def test_what_can_never_arrive_is_not_tried_again(tmp_path: Path, given: Any, code: str, words: str) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.answers.append(given)
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until_state(task, "failed")
        error = (await get(stand, task))["error"]
        assert error["code"] == code
        assert words in error["text"]


async def test_any_request_may_be_a_task_and_its_answer_is_its_output(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.answers.append(answer(200, "grüße".encode()))
        http = {"url": HOOK, "method": "put", "headers": {"x-a": "b"}, "body": "hi"}
        task = await stand.add(work={"http": http}, timeout_ms=5000, payload=b"not this")
        await stand.until_state(task, "succeeded")
        (sent,) = sender.sent
        assert (sent.method, sent.body, sent.headers, sent.delivery, sent.timeout_s) == (
            "PUT",
            b"hi",
            {"x-a": "b"},
            None,
            5,
        )
        output = await stand.pool.log(asked(), task, "stdout", None, follow=False)
        assert b"".join([chunk async for chunk in output.chunks]) == "grüße".encode()


@pytest.mark.parametrize(
    ("http", "payload_json", "headers"),
    [
        ({}, True, {"content-type": "application/json"}),
        ({"headers": {"X-A": "b"}}, True, {"X-A": "b", "content-type": "application/json"}),
        ({"headers": {"Content-Type": "text/csv"}}, True, {"Content-Type": "text/csv"}),
        ({}, False, {}),
        ({"body": "hi"}, True, {}),
    ],
)
async def test_a_payload_of_json_is_sent_as_that_unless_the_task_says_otherwise(
    tmp_path: Path, http: dict[str, Any], payload_json: bool, headers: dict[str, str]
) -> None:
    async with sending(tmp_path) as (stand, sender):
        work = {"http": {"url": HOOK, **http}}
        task = await stand.add(work=work, payload=b'{"a":1}', payload_json=payload_json)
        await stand.until_state(task, "succeeded")
        assert sender.sent[0].headers == headers


async def test_where_nothing_is_sent_no_type_is_said(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        long = {"A": "x" * 20_000}  # a spec that stands where payloads do
        task = await stand.add(work={"http": {"url": HOOK}, "env": long})
        await stand.until_state(task, "succeeded")
        assert (sender.sent[0].headers, sender.sent[0].method) == ({}, "GET")


@pytest.mark.parametrize("body", [b"a" * 60_000 + b"z", b"\xff\x00 no text"])
async def test_an_answer_that_is_long_or_no_text_is_kept_whole(tmp_path: Path, body: bytes) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.answers.append(answer(200, body))
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until_state(task, "succeeded")
        for offset in (0, 5):
            output = await stand.pool.log(asked(), task, "stdout", None, follow=False, offset=offset)
            assert not output.tail_only
            assert b"".join([chunk async for chunk in output.chunks]) == body[offset:]


@pytest.mark.parametrize("body", [b"short", b"a" * 60_000 + b"z"])
async def test_who_follows_before_it_is_answered_sees_all_of_the_answer(tmp_path: Path, body: bytes) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.gate.clear()
        sender.answers.append(answer(200, body))
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until_state(task, "running")
        output = await stand.pool.log(asked(), task, "stdout", None, follow=True)
        first = asyncio.ensure_future(anext(output.chunks))
        sender.gate.set()
        assert await first + b"".join([chunk async for chunk in output.chunks]) == body


async def test_where_only_the_end_is_kept_its_worker_is_not_called_gone(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.answers.append(answer(200, b"a" * 60_000))
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until_state(task, "succeeded")
        stand.host.files.clear()
        output = await stand.pool.log(asked(), task, "stdout", None, follow=False)
        assert (output.tail_only, output.is_there, output.offset) == (True, True, 56_000)


@pytest.mark.parametrize(
    ("given", "after_ms"),
    [
        ({"retry_after": "7"}, 7000),
        ({"retry_after": "Fri, 02 Jan 2026 00:01:00 GMT", "date": "Fri, 02 Jan 2026 00:00:00 GMT"}, 60_000),
        ({"retry_after": "Thu, 01 Jan 2026 00:00:00 GMT", "date": "Fri, 02 Jan 2026 00:00:00 GMT"}, 5000),
        ({"retry_after": "0"}, 5000),
        ({"retry_after": "4"}, 5000),
        ({"retry_after": "soon"}, 5000),
        ({"retry_after": "999999999999"}, 24 * 3600 * 1000),
    ],
)
async def test_who_was_asked_says_how_long_to_wait_at_least_by_seconds_or_by_its_own_clock(
    tmp_path: Path, given: dict[str, str], after_ms: int
) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.answers.append(answer(500, b"", **given))
        retry = {"backoff": "list", "delays_ms": [5000], "jitter_permille": 0}
        task = await stand.add(work={"http": {"url": HOOK}}, retry=retry)
        await stand.until_state(task, "retrying")
        (due,) = stand.machine.db.execute("SELECT due_at FROM task WHERE id = ?", (task,)).fetchone()
        assert due == stand.clock.wall_ms() + after_ms


async def test_an_answer_that_is_expected_is_a_success_with_its_status_and_one_that_is_final_the_end(
    tmp_path: Path,
) -> None:
    async with sending(tmp_path) as (stand, sender):
        http = {"url": HOOK, "expect": [404, "3xx"], "permanent": ["4xx"], "max_bytes": 10}
        for status, state in ((404, "succeeded"), (301, "succeeded"), (400, "failed"), (200, "retrying")):
            sender.answers.append(answer(status))
            task = await stand.add(work={"http": http})
            await stand.until_state(task, state)
            assert (await get(stand, task))["result"] == ({"status": status} if state == "succeeded" else None)
        assert {sent.answer_bytes_max for sent in sender.sent} == {10}


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ({}, "missing required field `url`"),
        ({"url": 7}, "Expected `str`"),
        ({"url": HOOK, "metod": "GET"}, "unknown field `metod`"),
        ({"url": HOOK, "headers": {"a": "b\r\nc: d"}}, "header 'a' cannot be sent"),
    ],
)
async def test_what_is_no_request_fails_for_good_and_says_why(tmp_path: Path, http: Any, words: str) -> None:
    async with sending(tmp_path) as (stand, sender):
        task = await stand.add(work={"http": http})
        await stand.until_state(task, "failed")
        assert words in (await get(stand, task))["error"]["text"]
        assert not sender.sent


async def test_a_redirect_is_a_failure_that_names_the_place_without_its_secrets(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.answers.append(answer(301, location="https://me:mine@example.org/new?key=hidden"))
        task = await stand.add(work={"http": {"url": HOOK}}, retry={"attempts": 1})
        await stand.until_state(task, "failed")
        assert (await get(stand, task))["error"]["text"] == (
            "status 301: it points to https://example.org/new?…, and is not followed"
        )


async def test_one_that_is_killed_is_broken_off(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.gate.clear()
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until(lambda: sender.under_way == 1)
        await stand.until_state(task, "running")
        await stand.pool.act(asked(), Turn("kill"), [task])
        await stand.until(lambda: sender.under_way == 0 and not stand.live())
        assert stand.peek(task) == "failed"


async def test_one_that_is_stopped_in_the_moment_it_begins_ends_too(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        begin = stand.node.worker.send
        begun: list[str] = []

        def start(errand: Errand) -> None:
            assert begin is not None
            begin(errand)
            begun.append(errand.action_id)
            if len(begun) == 1:
                stand.node.worker._executor.stop(errand.action_id)

        stand.node.worker.send = start
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until_state(task, "succeeded")
        assert (len(begun), len(sender.sent)) == (2, 1)


async def test_one_whose_sender_breaks_ends_and_says_so(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.answers.append(RuntimeError("no more of it"))
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until_state(task, "retrying")
        error = (await get(stand, task))["error"]
        assert error == {"code": "resources", "text": "it broke: RuntimeError('no more of it')"}


async def test_one_whose_lease_is_over_is_broken_off(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.gate.clear()
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until_state(task, "running")
        stand.log.depose()  # nobody answers its beats
        stand.clock.advance(3)
        await stand.until(lambda: sender.under_way == 0)


async def test_one_that_is_under_way_when_the_daemon_ends_is_begun_again_by_the_next(tmp_path: Path) -> None:
    async with sending(tmp_path) as (stand, sender):
        sender.gate.clear()
        task = await stand.add(work={"http": {"url": HOOK}})
        await stand.until_state(task, "running")
        await stand.crash()
        assert sender.under_way == 0
        sender.gate.set()
        stand.begin()
        await stand.until_state(task, "succeeded")
        assert len(sender.sent) == 2


async def test_where_nobody_sends_requests_wait_and_explain_says_for_what(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add(work={"http": {"url": HOOK}})
        await asyncio.sleep(0.05)
        told = await stand.pool.explain(asked(), task)
        assert (told["reason"], told["workers"][0]["verdict"]) == ("unplaceable", "adapter")
