"""One request over failing nodes: what is repeated, what is not, and what is raised in the end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiohttp import web

from quvatlh.client import Broken, Fault, Options, Rejected, Unavailable, Unknown, Unreachable
from quvatlh.client.http import ERROR_BYTES_MAX, MSGPACK, Answer, Http, Request
from tests.client.nodes import (
    Time,
    added,
    answers,
    client,
    drops,
    drops_after,
    hangs,
    nobody,
    node,
    problem,
    sends,
)

TASK = {"work": {"command": ["true"]}}


async def test_a_node_that_refuses_the_connection_is_passed_over() -> None:
    async with node(added("a")) as good, nobody() as closed, client(closed, good.url) as asker:
        assert (await asker.add([TASK])).ids == ["a"]


async def test_the_node_that_answered_is_asked_first_the_next_time() -> None:
    async with node(drops()) as bad, node(added("a"), added("b")) as good, client(bad.url, good.url) as asker:
        await asker.add([TASK])
        await asker.add([TASK])
        assert (len(bad.asked), len(good.asked)) == (1, 2)


async def test_an_unavailable_node_is_passed_over_at_once() -> None:
    time = Time()
    resting = problem(503, "no_master", Retry_After="3")
    async with node(resting) as one, node(added("a")) as other, client(one.url, other.url, time=time) as asker:
        assert (await asker.add([TASK])).ids == ["a"]
    assert time.waits == []


@pytest.mark.parametrize("status", [503, 429])
async def test_where_all_are_unavailable_retry_after_is_obeyed(status: int) -> None:
    time = Time()
    code = "no_master" if status == 503 else "rate_limited"
    async with node(problem(status, code, Retry_After="3"), added("a")) as only, client(only.url, time=time) as asker:
        assert (await asker.add([TASK])).ids == ["a"]
    assert time.waits == [3.0]


async def test_who_says_to_come_after_the_deadline_is_not_waited_for() -> None:
    time = Time()
    async with (
        node(problem(503, "disk_full", "no room", Retry_After="60")) as only,
        client(only.url, time=time) as asker,
    ):
        with pytest.raises(Unavailable) as caught:
            await asker.add([TASK])
    assert (caught.value.code, caught.value.detail, caught.value.retry_after_s) == ("disk_full", "no room", 60.0)
    assert time.waits == []


@pytest.mark.parametrize("failure", [drops(), drops_after(b'{"ids":["a'), problem(504, "unknown")])
async def test_a_write_in_doubt_is_asked_again_with_the_same_bytes_and_key(failure: object) -> None:
    async with node(failure) as one, node(added("a")) as other, client(one.url, other.url) as asker:  # type: ignore[arg-type]
        assert (await asker.add([TASK])).ids == ["a"]
        assert one.keys == other.keys
        assert one.keys != [None]
        assert one.asked[0].body == other.asked[0].body


async def test_a_node_that_says_nothing_is_given_up_for_the_next() -> None:
    async with node(hangs()) as one, node(added("a")) as other, client(one.url, other.url, try_s=0.05) as asker:
        assert (await asker.add([TASK])).ids == ["a"]
        assert one.keys == other.keys


async def test_a_write_in_doubt_ends_as_unknown_however_certain_the_last_failures_are() -> None:
    time = Time()
    script = [drops(), *[problem(503, "no_master", Retry_After="4")] * 3]
    async with node(*script) as only, client(only.url, time=time) as asker:
        with pytest.raises(Unknown, match="the connection ended without an answer"):
            await asker.add([TASK])
        assert len(set(only.keys)) == 1


async def test_a_refusal_by_another_node_does_not_settle_a_write_in_doubt() -> None:
    async with node(drops()) as one, node(problem(401, "unauthorized")) as other, client(one.url, other.url) as asker:
        with pytest.raises(Unknown):
            await asker.add([TASK])


async def test_a_lost_reading_is_asked_again_and_never_in_doubt() -> None:
    time = Time()
    script = [drops(), drops_after(b'{"id"'), problem(504, "unknown"), answers({"id": "a"})]
    async with node(*script) as only, client(only.url, time=time) as asker:
        assert await asker.task("a") == {"id": "a"}
        assert only.keys == [None] * 4


async def test_nobody_there_is_told_at_once_by_the_impatient() -> None:
    async with nobody() as closed, nobody() as other:
        time = Time()
        async with client(closed, other, time=time, patient=False) as asker:
            with pytest.raises(Unreachable) as caught:
                await asker.cluster()
        assert caught.value.failures == {closed: "connection refused", other: "connection refused"}
        assert time.waits == []


async def test_a_node_that_was_there_is_waited_for_by_the_impatient() -> None:
    time = Time()
    async with contextlib.AsyncExitStack() as stack:
        only = await stack.enter_async_context(node(answers({"id": "a"})))
        async with client(only.url, time=time, patient=False, deadline_s=10.0) as asker:
            assert await asker.task("a") == {"id": "a"}
            await stack.aclose()
            with pytest.raises(Unreachable):
                await asker.task("a")
    assert 9.0 <= sum(time.waits) <= 10.0


async def test_nobody_there_is_told_at_the_deadline_by_the_patient() -> None:
    async with nobody() as closed:
        time = Time()
        async with client(closed, time=time, deadline_s=10.0) as asker:
            with pytest.raises(Unreachable):
                await asker.add([TASK])
        assert 9.0 <= sum(time.waits) <= 10.0


async def test_a_bug_of_a_node_is_not_tried_on_the_others() -> None:
    async with node(problem(500, "broken")) as one, node() as other, client(one.url, other.url) as asker:
        with pytest.raises(Broken):
            await asker.add([TASK])
        assert other.asked == []


async def test_a_rejection_has_code_detail_and_all_faults() -> None:
    errors = [{"path": "tasks[0].queue", "message": "must not hold '/'"}, {"path": "", "message": "x"}]
    async with node(problem(400, "invalid", "tasks[0].queue must not", errors)) as only, client(only.url) as asker:
        with pytest.raises(Rejected) as caught:
            await asker.add([TASK])
    assert (caught.value.code, caught.value.detail) == ("invalid", "tasks[0].queue must not")
    assert caught.value.errors == (Fault("tasks[0].queue", "must not hold '/'"), Fault("", "x"))


async def test_what_is_no_node_is_told_as_such() -> None:
    async with node(sends(b"<html>", "text/html"), answers("no", 404)) as only, client(only.url) as asker:
        with pytest.raises(Broken, match="is this the right address"):
            await asker.cluster()
        with pytest.raises(Rejected, match="answered 404 Not Found, but not as"):
            await asker.cluster()


async def test_a_redirection_is_not_followed_so_that_the_token_stays_here() -> None:
    async with node() as other, node(answers("go", 307, Location=other.url)) as only, client(only.url) as asker:
        with pytest.raises(Rejected):
            await asker.cluster()
        assert other.asked == []
        assert only.asked[0].headers["Authorization"] == "Bearer secret"


async def test_a_node_is_told_how_long_it_may_take() -> None:
    async with node(added("a")) as only, client(only.url, deadline_s=3.0) as asker:
        await asker.add([TASK])
        path, _, milliseconds = only.asked[0].path.removesuffix("ms").partition("?deadline=")
        assert path == "/v1/events"
        assert 0 < int(milliseconds) <= 3000


async def test_ids_are_quoted_in_paths_and_lists_in_queries() -> None:
    async with (
        node(answers({"id": "x"}), answers({"items": [], "next": None, "total": 0})) as only,
        client(only.url) as asker,
    ):
        await asker.task("a/b?c d")
        await asker.tasks(state=("pending", "running"), q="a&b", queue=None, eta=True)
        paths = [one.path.partition("deadline=")[0] for one in only.asked]
    assert paths[0] == "/v1/tasks/a%2Fb%3Fc%20d?"
    assert paths[1] == "/v1/tasks?state=pending%2Crunning&q=a%26b&eta=1&"


async def test_a_question_by_post_is_never_in_doubt() -> None:
    async with node(drops(), answers({"items": []})) as only, client(only.url) as asker:
        assert await asker.test_policy("return true", "t") == []
    assert only.keys == [None, None]
    async with node(*[drops()] * 30) as only, client(only.url, time=Time(), deadline_s=1.0) as asker:
        with pytest.raises(Unreachable):
            await asker.test_policy("return true", "t")
        only.script.clear()


async def test_a_bulk_is_waited_for_and_in_doubt_when_its_node_is_lost() -> None:
    working = answers({"id": "b1", "matched": 9, "done": 4, "state": "working"})
    done = answers({"id": "b1", "matched": 9, "done": 9, "state": "done"})
    seen: list[tuple[int, int]] = []
    async with node(answers({"bulk": "b1"}, 202), working, done) as only, client(only.url) as asker:
        found = await asker.act("kill", match={"queue": "q"}, on_progress=lambda *each: seen.append(each))
    assert ((found.matched, found.done, found.index), seen) == ((9, 9, None), [(4, 9), (9, 9)])
    unknown = problem(404, "not_found", "this node knows no bulk b1")
    async with node(answers({"bulk": "b1"}, 202), unknown) as only, client(only.url) as asker:
        with pytest.raises(Unknown, match="the same again does the rest"):
            await asker.act("kill", match={"queue": "q"})


@pytest.mark.parametrize("body", [b"\xc1", b"\xa1\xff", b"\xd7\xff" + b"\xff" * 8, b"\x91" * 5000 + b"\x01"])
def test_msgpack_that_cannot_be_read_is_told_like_json_that_cannot(body: bytes) -> None:
    with pytest.raises(Broken, match="an answer that cannot be read"):
        Answer(200, {"Content-Type": MSGPACK}, body, "http://node").value()


async def test_a_node_that_refused_a_stream_is_let_go_of_while_another_streams() -> None:
    left = asyncio.Event()

    async def refuses_at_length(request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(status=503)
        await response.prepare(request)
        try:
            while True:
                await response.write(b" " * ERROR_BYTES_MAX)
        finally:
            left.set()

    async with (
        node(refuses_at_length) as one,
        node(answers({})) as other,
        Http(Options((one.url, other.url))) as http,
        http.opened(Request("GET", "/v1/events")) as (_, url),
    ):
        assert url == other.url
        await asyncio.wait_for(left.wait(), 10)
