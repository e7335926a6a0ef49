"""A lone ADD over a connection of its own: what is sent, and that whatever goes wrong there is as if it had gone the usual way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from quvatlh import App
from quvatlh.client import Rejected, Task, Unknown
from quvatlh.client.http import KEEPALIVE_S, Answer, Http, Options, Request
from quvatlh.client.sides import Cluster
from quvatlh.client.straight import BYTES_MAX, Odd, Straight, _Line, _read
from tests.api.client import until
from tests.client.nodes import Behaviour, Node, added, drops, hangs, nobody, node, problem

HEAD = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"


def greet(name: str) -> str:
    return name


@contextlib.asynccontextmanager
async def opened(*urls: str) -> AsyncIterator[Task[[str], str, str]]:
    """Whose first task has gone the usual way, so that there is a connection now."""
    app = App(",".join(urls), token="secret")
    task = app.task(greet)
    try:
        await task.aenqueue("first")
        await line(app)
        yield task
    finally:
        await asyncio.to_thread(app.close)


async def line(app: App) -> _Line:
    """The connection, when there is one, and nothing is under way any more."""
    side = app.side()
    assert isinstance(side, Cluster)
    motor = side.motor
    await until(lambda: motor._straight._line is not None and not motor.feed._running)
    assert motor._straight._line is not None
    return motor._straight._line


async def alone(task: Task[[str], str, str], name: str) -> str:
    """Enqueued when nothing else is under way: its id."""
    assert isinstance(task._home, App)
    await line(task._home)
    return (await task.aenqueue(name)).id


def was_straight(one: Node) -> list[bool]:
    """Of what it was asked: another client says what it accepts."""
    return ["Accept" not in asked.headers for asked in one.asked]


async def test_the_first_goes_the_usual_way_and_each_lone_one_after_it_straight_with_the_same_words() -> None:
    async with node(added("a"), added("b"), added("c")) as one, opened(one.url) as task:
        assert await alone(task, "second") == "b"
        assert isinstance(task._home, App)
        await line(task._home)
        assert (await asyncio.to_thread(task.enqueue, "third")).id == "c"
    assert was_straight(one) == [False, True, True]
    usual, *straight = one.asked
    for asked in straight:
        assert asked.path.partition("=")[0] == usual.path.partition("=")[0] == "/v1/events?deadline"
        assert json.loads(asked.body).keys() == json.loads(usual.body).keys()
        common = asked.headers.keys() & usual.headers.keys() - {"Content-Length", "Idempotency-Key"}
        assert {"Host", "Authorization", "Content-Type", "User-Agent"} <= common
        assert {name: asked.headers[name] for name in common} == {name: usual.headers[name] for name in common}
    assert json.loads(straight[0].body)["tasks"][0]["work"]["args"] == ["second"]
    assert len(set(one.keys)) == 3


async def test_what_was_refused_is_told_and_the_next_goes_straight_again() -> None:
    no = problem(422, "invalid", "no such queue", [{"path": "tasks[0].queue", "message": "is none"}])
    async with node(added("a"), no, added("b")) as one, opened(one.url) as task:
        with pytest.raises(Rejected, match="queue: is none"):
            await task.aenqueue("bad")
        assert await alone(task, "good") == "b"
    assert was_straight(one) == [False, True, True]


def in_chunks(task_id: str) -> Behaviour:
    """As something between may send it."""

    async def behave(request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(status=201, headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(json.dumps({"ids": [task_id], "index": 7, "existing": {}}).encode())
        return response

    return behave


@pytest.mark.parametrize("failure", [drops(), problem(504, "unknown"), problem(503, "no_master", Retry_After="0")])
async def test_what_got_no_answer_is_asked_again_in_the_usual_way_with_the_same_bytes_and_key(
    failure: Behaviour,
) -> None:
    async with node(added("a"), failure, added("b"), added("c")) as one, opened(one.url) as task:
        assert await alone(task, "second") == "b"
        assert was_straight(one) == [False, True, False]
        assert one.asked[1].body == one.asked[2].body
        assert one.keys[1] == one.keys[2]
        assert await alone(task, "third") == "c"
    assert was_straight(one)[3]


async def test_a_node_that_says_nothing_is_given_up_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quvatlh.client.http.TRY_S", 0.05)
    monkeypatch.setattr("quvatlh.client.straight.GRACE_S", 0.05)
    async with node(added("a"), hangs()) as one, node(added("b")) as other, opened(one.url, other.url) as task:
        assert await alone(task, "second") == "b"
    assert (was_straight(one), was_straight(other)) == ([False, True], [False])
    assert one.keys[1] == other.keys[0]


async def test_a_connection_that_owes_an_answer_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quvatlh.client.http.TRY_ALONE_S", 0.05)
    monkeypatch.setattr("quvatlh.client.straight.GRACE_S", 0.05)
    async with node(added("a"), hangs(), added("b"), added("c")) as one, opened(one.url) as task:
        assert await alone(task, "second") == "b"
        assert await alone(task, "third") == "c"
    assert was_straight(one) == [False, True, False, True]


async def test_the_node_that_it_left_for_is_the_one_that_answered_though_another_did_since() -> None:
    class Left:
        request = Request("POST", "/v1/events", body=b"{}", key="k")

        def __init__(self, url: str) -> None:
            self.url = url

        async def answer(self) -> Answer:
            return Answer(200, {}, b'"yes"', self.url)

    async with node() as one, node() as other, Http(Options((one.url, other.url))) as http:
        begun = Left(other.url)
        assert await http.ask(begun.request, Answer.json, begun) == "yes"
        assert http.url == other.url


async def test_nothing_leaves_for_a_node_that_is_not_the_one_that_answered_last() -> None:
    async with node(added("a")) as one, opened(one.url) as task:
        assert isinstance(task._home, App)
        side = task._home.side()
        assert isinstance(side, Cluster)
        assert side.motor._straight.begin(b"{}", "http://127.0.0.1:1") is None
    assert len(one.asked) == 1


async def test_one_whose_answer_cannot_be_read_is_in_doubt_where_all_else_is_a_no() -> None:
    """It may have been carried out."""
    no = problem(503, "no_master", Retry_After="60")
    async with node(added("a"), in_chunks("lost"), no) as one, opened(one.url) as task:
        with pytest.raises(Unknown, match="no answer came for it"):
            await task.aenqueue("second")
    assert was_straight(one) == [False, True, False]


async def test_one_that_left_is_in_doubt_where_nobody_answers_then() -> None:
    async with node(added("a"), drops()) as one, nobody() as away:
        app = App(f"{one.url},{away}", token="secret", deadline_s=0.3)
        task = app.task(greet)
        await task.aenqueue("first")
        await line(app)
        one.script += [drops()] * 100
        with pytest.raises(Unknown, match="no answer came for it"):
            await task.aenqueue("second")
        one.script.clear()
        await asyncio.to_thread(app.close)
    assert was_straight(one)[:3] == [False, True, False]


async def test_where_answers_come_in_another_form_all_go_the_usual_way_from_then_on() -> None:
    async with node(added("a"), in_chunks("lost"), added("b"), added("c")) as one, opened(one.url) as task:
        assert await alone(task, "second") == "b"
        assert await alone(task, "third") == "c"
    assert was_straight(one) == [False, True, False, False]
    assert one.keys[1] == one.keys[2]


async def test_a_large_one_and_many_go_the_usual_way() -> None:
    async with node(added("a"), added("b"), added("c", "d"), added("e")) as one, opened(one.url) as task:
        await task.aenqueue("x" * BYTES_MAX)
        made = [task.call("1"), task.call("2")]
        one.script[0] = by_count
        one.script[1] = by_count
        app = task._home
        assert isinstance(app, App)
        await app.aenqueue_many(made)
        one.script[:] = []
    assert not any(was_straight(one))


async def by_count(_request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    ids = [f"t{number}" for number in range(len(json.loads(body)["tasks"]))]
    told = json.dumps({"ids": ids, "index": 7, "existing": {}}).encode()
    return web.Response(body=told, status=201, headers={"Content-Type": "application/json"})


async def test_who_closes_the_app_while_one_is_under_way_has_it_in_doubt() -> None:
    asked = asyncio.Event()

    async def waits(_request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with node(added("a"), waits) as one:
        app = App(one.url, token="secret")
        task = app.task(greet)
        await task.aenqueue("first")
        await line(app)
        side = app.side()
        assert isinstance(side, Cluster)
        enqueued = asyncio.create_task(task.aenqueue("second"))
        await asked.wait()
        await asyncio.to_thread(side.motor.close, 0.01)
        with pytest.raises(Unknown, match="the app was closed before the answer came"):
            await enqueued


async def test_from_many_threads_each_leaves_once_and_none_is_lost() -> None:
    count = 200
    async with node(*[by_count] * (count + 1)) as one, opened(one.url) as task:

        def some() -> None:
            for number in range(count // 4):
                task.enqueue(str(number))

        threads = [threading.Thread(target=some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        one.script.clear()
    tasks = [each for asked in one.asked for each in json.loads(asked.body)["tasks"]]
    assert len(tasks) == count + 1
    assert len(set(one.keys)) == len(one.asked)
    assert any(was_straight(one))


async def test_a_connection_that_the_node_may_be_closing_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(added("a"), added("b"), added("c")) as one, opened(one.url) as task:
        app = task._home
        assert isinstance(app, App)
        old = await line(app)
        old._used_s -= KEEPALIVE_S + 1
        await task.aenqueue("second")
        await until(lambda: old._transport is not None and old._transport.is_closing())
        await alone(task, "third")
    assert was_straight(one) == [False, False, True]


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:1", "http://name:secret@127.0.0.1:1", "http://127.0.0.1:1/söme"],
)
async def test_what_wants_more_than_this_way_has_is_left_to_the_usual_one(url: str) -> None:
    straight = Straight(Options((url,), "secret"))
    straight.follow(url)
    assert straight._opening is not None
    await straight._opening
    assert straight._odd == {url}
    assert straight.begin(b"{}", url) is None


async def test_a_token_that_would_be_more_than_a_header_is_left_to_the_usual_way() -> None:
    straight = Straight(Options(("http://127.0.0.1:1",), "a\r\nX: b"))
    straight.follow("http://127.0.0.1:1")
    assert straight._opening is not None
    await straight._opening
    assert straight._odd


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[tuple[_Line, socket.socket]]:
    """A line, and who is at its other end."""
    loop = asyncio.get_running_loop()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        made = _Line(loop, "http://here", b"")
        connecting = asyncio.create_task(loop.create_connection(lambda: made, *listening.getsockname()))
        other, _ = await asyncio.to_thread(listening.accept)
        await connecting
        with other:
            yield made, other
        made.cut()
        await asyncio.sleep(0)


async def test_what_the_socket_takes_only_in_part_has_not_left_and_ends_the_connection() -> None:
    async with pair() as (made, other):
        assert not made.send(bytes(64 * 1024 * 1024))
        assert not made.is_fresh
        assert not made.is_waiting
        assert not made.send(b"x")
        received = await asyncio.to_thread(_all_of, other)
    assert 0 < received < 64 * 1024 * 1024


def _all_of(other: socket.socket) -> int:
    count = 0
    with contextlib.suppress(ConnectionResetError):
        while data := other.recv(1024 * 1024):
            count += len(data)
    return count


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
async def test_who_is_interrupted_while_he_writes_is_told_so_and_the_connection_ends(
    raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_fd: int, _data: bytes) -> int:
        raise raised

    async with pair() as (made, _):
        with monkeypatch.context() as patched:
            patched.setattr("quvatlh.client.straight.os.write", write)
            with pytest.raises(raised):
                made.send(b"x")
        assert not made.is_fresh
        assert not made.is_waiting


async def test_nobody_writes_to_a_descriptor_that_was_closed() -> None:
    async with pair() as (made, other):
        other.close()
        await until(lambda: not made.is_fresh)
        reading, writing = os.pipe()  # takes the number that is free now
        assert not made.send(b"x")
        os.close(writing)
        assert os.read(reading, 1) == b""
        os.close(reading)


async def test_what_comes_unasked_ends_the_connection() -> None:
    async with pair() as (made, other):
        other.sendall(HEAD + b"{}")
        await until(lambda: not made.is_fresh)


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=5))
def test_an_answer_is_whole_when_its_last_byte_has_come(body: bytes, cuts: list[int]) -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    for cut in sorted(cuts):
        if cut < len(whole):
            assert _read(whole[:cut], "http://here") is None
    found = _read(whole, "http://here")
    assert found is not None
    assert (found[0].status, found[0].body, found[1]) == (200, body, True)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Encoding: gzip\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"x" * (2 * 1024 * 1024),
    ],
)
def test_what_is_no_answer_of_a_node_is_odd(data: bytes) -> None:
    with pytest.raises(Odd):
        _read(data, "http://here")


def test_a_node_that_will_close_says_so() -> None:
    found = _read(HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"{}", "http://here")
    assert found is not None
    assert (found[0].body, found[1]) == (b"{}", False)
