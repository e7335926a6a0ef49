"""The client library's lone ADD: answered straight as it is answered through aiohttp, and all else through aiohttp."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from quvatlh import App
from quvatlh.api import straight
from quvatlh.api.server import Options
from quvatlh.client import http
from quvatlh.client.straight import Straight
from quvatlh.service.pool import Rejected, Unavailable, Unknown
from tests.api.caller import BODY, Caller, add, call, fails_with, health, judges_with, known_as, lines, sentence
from tests.api.client import WORK, Node, serving, until
from tests.fakes.pool import TOKEN
from tests.support.certificates import certificate

# --- both ways come to the same ---


def stands(node: Node) -> None:
    node.pool._new({"id": "a", "spec": {}}, 0)


@dataclass(frozen=True)
class Case:
    name: str
    status: int
    body: bytes = BODY
    code: str | None = None
    before: Callable[[Node], None] = lambda _: None
    first: bytes | None = None
    """A body asked before, under the same key."""
    token: str = TOKEN
    host: str = ""
    is_straight: bool = True


CASES = [
    Case("one task", 201),
    Case("all fields", 201, add(queue="mail", group="a", name="n", priority=-3, tags=["a"], payload={"a": [1]})),
    Case("many tasks", 201, json.dumps({"event": "ADD", "tasks": [{"work": WORK}] * 500}).encode()),
    Case("existing", 200, add(id="a"), before=stands),
    Case("asked again", 201, first=BODY),
    Case("another under the same key", 409, add(queue="other"), "conflict", first=BODY),
    Case("delete", 200, b'{"event":"DELETE","ids":["a"]}', before=stands),
    Case("delete of none", 404, b'{"event":"DELETE","ids":["a"]}', "not_found"),
    Case("balance of none", 404, b'{"event":"BALANCE","group":"a"}', "not_found"),
    Case("invalid", 400, add(priority="high"), "invalid"),
    Case("an unknown field", 400, add(quue="a"), "unknown_field"),
    Case("no JSON", 400, b"{", "bad_request"),
    Case("not UTF-8", 400, b"\xff", "bad_request"),
    Case("a key twice", 400, b'{"event":"ADD","event":"ADD"}', "bad_request"),
    Case("no master", 503, code="no_master", before=fails_with(Unavailable("no_master", "none", 7.2))),
    Case("too many", 429, code="rate_limited", before=fails_with(Unavailable("rate_limited", "too many"))),
    Case("unknown", 504, code="unknown", before=fails_with(Unknown("who knows"))),
    Case("rejected", 409, code="unique_held", before=fails_with(Rejected("unique_held", "a ünique one"))),
    Case("unauthorized while it was carried out", 401, code="unauthorized", before=fails_with(Rejected("unauthorized", "x"))),
    Case("a bug", 500, code="broken", before=fails_with(RuntimeError("a bug"))),
    Case("no token", 401, code="unauthorized", token="", is_straight=False),
    Case("a wrong token", 401, code="unauthorized", token="wrong", is_straight=False),
    Case("an odd token", 401, code="unauthorized", token="wr,ng", is_straight=False),
    Case("a role that may not", 403, code="forbidden", before=known_as("viewer"), token="of-ann", is_straight=False),
    Case("a role that may", 201, before=known_as("producer"), token="of-ann"),
    Case("who cannot know", 503, code="no_master", before=judges_with(Unavailable("no_master", "untold")), is_straight=False),
    Case("a wrong host", 403, code="forbidden", host="evil.example", is_straight=False),
]  # fmt: skip


async def told(case: Case, *more: str) -> tuple[Any, ...]:
    """All that the client and the node come to know."""
    async with serving() as node:
        case.before(node)
        caller = await call(node)
        if case.first is not None:
            await caller.ask(sentence(node, case.first, *more, token=case.token))
        asked = sentence(node, case.body, *more, token=case.token, host=case.host)
        answer = await caller.ask(asked)
        assert len(lines(node)) == (case.is_straight and not more)
        assert (answer.status, answer.code) == (case.status, case.code)
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.headers.pop("Date"))
        headers = list(answer.headers.items())
        body = re.sub(rb"incident [0-9a-f]{16}", b"incident", answer.body)
        notes = [{**note, "ms": note["ms"] > 0} for note in node.notes]
        meter = node.server.shared.meter._requests
        tasks = {name: record["spec"] for name, record in node.pool.records.items()}
        return headers, body, notes, meter, node.pool.calls, tasks, [*map(repr, node.broken)], node.server._under_way


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_it_is_answered_counted_and_noted_as_through_aiohttp(case: Case) -> None:
    assert await told(case) == await told(case, "Accept: */*")


async def test_each_connection_that_says_it_again_and_again_is_answered_straight(node: Node) -> None:
    caller = await call(node)
    other = await call(node)
    for number in range(3):
        for each in (caller, other):
            answer = await each.ask(sentence(node, add(queue=f"q{number}"), key=f"{id(each)}-{number}"))
            assert answer.status == 201
    assert len({record["id"] for record in node.pool.records.values()}) == 6
    assert [each.key.id for each in node.pool.calls if each.key][:2] == [f"{id(caller)}-0", f"{id(other)}-0"]
    assert len(lines(node)) == 2
    assert [note["status"] for note in node.notes] == [201] * 6


async def test_what_another_head_says_holds_from_then_on(node: Node) -> None:
    known_as("producer")(node)
    caller = await call(node)
    raw = sentence(node)
    for change in (raw, raw.replace(TOKEN.encode(), b"of-ann"), raw.replace(b"5000ms", b"7ms"), raw):
        assert (await caller.ask(change)).status == 201
    without = raw.replace(b"?deadline=5000ms", b"")
    assert (await caller.ask(without)).status == 201
    asked = [(each.principal.name, each.deadline_ms) for each in node.pool.calls]
    assert asked == [("root", 5000), ("ann", 5000), ("root", 7), ("root", 5000), ("root", 5000)]
    assert {note["path"] for note in node.notes} == {"/v1/events"}
    assert len(lines(node)) == 1


@pytest.mark.parametrize("token", ["", "secret"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:7420", "http://[::1]:7420", "http://node-1.example"])
def test_what_the_client_says_is_understood(url: str, token: str) -> None:
    said = Straight(http.Options((url,), token or None))._head(urlsplit(url))
    assert said is not None
    assert straight._HEAD.fullmatch(said)
    assert straight._REST.fullmatch(http.new_key().encode() + b"\r\nContent-Length: 97\r\n\r\n")


def greet(name: str, times: int = 1) -> str:
    return name * times


async def test_the_client_is_answered_straight(node: Node) -> None:
    app = App(node.client.base, token=TOKEN)
    try:
        task = app.task(greet)
        await task.aenqueue("usual")
        side: Any = app.side()
        await until(lambda: side.motor._straight._line is not None)
        for name in ("plain", "again"):
            await task.aenqueue(name)
        await task.aenqueue("with", times=2)
    finally:
        await asyncio.to_thread(app.close)
    assert [note["status"] for note in node.notes] == [201] * 4
    assert [len(record["spec"]["work"].get("kwargs", ())) for record in node.pool.records.values()] == [0, 0, 0, 1]


# --- whatever is not exactly that ---


async def test_cut_anywhere_it_is_aiohttps(node: Node) -> None:
    raw = sentence(node)
    for cut in range(1, len(raw)):
        caller = await call(node)
        caller.writer.write(raw[:cut])
        await until(lambda: not lines(node))
        assert (await caller.ask(raw[cut:])).status == 201
        caller.writer.close()
    assert len(node.pool.calls) == len(raw) - 1


async def test_several_at_once_are_answered_in_their_order(node: Node) -> None:
    caller = await call(node)
    for pieces in ((add(queue="a"), add(queue="b")), (add(queue="c"), add(queue="d"))):
        raw = b"".join(sentence(node, body, key=body[-9:].hex()) for body in pieces)
        answers = [await caller.ask(raw), await caller.hear()]
        assert [answer.status for answer in answers] == [201, 201]
    assert [record["spec"]["queue"] for record in node.pool.records.values()] == ["a", "b", "c", "d"]
    assert not lines(node)


@pytest.mark.parametrize("more", [b"G", b"\r\n", b"GET /healthz HTTP/1.1\r\n"])
async def test_bytes_behind_it_are_the_next_requests(node: Node, more: bytes) -> None:
    caller = await call(node)
    assert (await caller.ask(sentence(node) + more)).status == 201
    assert not lines(node)


async def test_a_connection_may_say_something_else_and_then_that_again(node: Node) -> None:
    caller = await call(node)
    assert (await caller.ask(sentence(node))).status == 201
    assert len(lines(node)) == 1
    assert (await caller.ask(health(node))).status == 200
    assert not lines(node)
    for more in ((), ("Accept: */*",)):
        assert (await caller.ask(sentence(node, BODY, *more))).status == 201
    assert (await caller.ask(health(node))).status == 200
    assert len(node.pool.records) == 1


async def test_a_large_one_is_aiohttps(node: Node) -> None:
    """Whether it came in pieces, too, is the kernel's matter; test_straight_line.py knows."""
    caller = await call(node)
    assert (await caller.ask(sentence(node, add(payload="x" * straight.BODY_BYTES_MAX)))).status == 201
    assert not lines(node)


async def test_over_tls_all_is_aiohttps(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=cert)
    async with serving(Options("127.0.0.1:0", cert, key), trust=trust) as node:
        host, _, port = node.address.rpartition(":")
        caller = Caller(*await asyncio.open_connection(host, int(port), ssl=trust))
        assert (await caller.ask(sentence(node))).status == 201
        assert node.server._web is not None
        assert len(node.server._web.connections) == 1
        caller.writer.close()
        await caller.writer.wait_closed()


FLAWS: list[Callable[[bytes], bytes]] = [
    lambda byte: bytes([byte[0] ^ 1]),
    lambda byte: bytes([byte[0] ^ 0x20]),
    lambda byte: b"",
    lambda byte: byte * 2,
]


@pytest.mark.parametrize("flaw", FLAWS, ids=["other", "case", "missing", "twice"])
async def test_with_one_byte_wrong_anywhere_it_is_what_aiohttp_takes_it_for(
    node: Node, flaw: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """What follows ends whatever was begun, so that nobody waits for more."""
    assert node.server._lines is not None
    usual = node.server._lines.ask
    raw = sentence(node)
    more = health(node, f"X: {'x' * 1000}") + health(node, "Connection: close")
    head, _, _ = raw.partition(b"\r\n\r\n")
    for place in range(len(head) + 4):
        wrong = raw[:place] + flaw(raw[place : place + 1]) + raw[place + 1 :]
        answers = []
        for ask in (usual, lambda *_: None):
            node.server._lines.ask = ask
            caller = await call(node)
            asked = len(node.pool.calls)
            caller.writer.write(wrong)
            await until(lambda asked=asked: not lines(node) or len(node.pool.calls) > asked)  # type: ignore[misc]
            await until(lambda: all(line.task is None for line in lines(node)))
            caller.writer.write(more)
            answers.append(re.findall(rb"HTTP/1\.1 (\d+) ", await caller.end()))
            caller.writer.close()
        assert answers[0] == answers[1], (place, wrong)
    caplog.clear()
