"""The client library's lone ADD while it waits, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from quvatlh.api import straight
from quvatlh.service.tokens import hash_of
from tests.api.caller import SOON_S, Caller, add, call, health, judges_with, known_as, lines, sentence
from tests.api.client import Node, serving, until


@contextlib.asynccontextmanager
async def waiting(node: Node, raw: bytes | None = None) -> AsyncIterator[Caller]:
    """Its request waits in the pool until this is left."""
    caller = await call(node)
    node.pool.gate.clear()
    caller.writer.write(raw or sentence(node))
    await until(lambda: node.pool.waiting)
    try:
        yield caller
    finally:
        node.pool.gate.set()


async def test_what_comes_meanwhile_is_answered_afterwards(node: Node) -> None:
    async with waiting(node) as caller:
        (line,) = lines(node)
        for piece in (sentence(node, add(queue="b"), key="l"), health(node)[:9], health(node)[9:]):
            held = len(line._late)
            caller.writer.write(piece)
            await until(lambda held=held: len(line._late) > held)  # type: ignore[misc]
        assert len(node.pool.calls) == 1
    assert [(await caller.hear()).status for _ in range(3)] == [201, 201, 200]
    assert [record["spec"].get("queue") for record in node.pool.records.values()] == [None, "b"]
    assert not lines(node)


async def test_what_comes_meanwhile_is_bounded(node: Node) -> None:
    many = node.head("POST", "/v1/events", "Content-Type: application/x-ndjson", "Content-Length: 4000000")
    async with waiting(node) as caller:
        (line,) = lines(node)
        caller.writer.write(many + b"\n" * 4_000_000 + health(node))
        await until(lambda: not line._transport.is_reading())
        assert len(line._late) <= straight.LATE_BYTES_MAX + 256 * 1024
    assert (await caller.hear()).status == 201
    async with asyncio.timeout(SOON_S):
        assert (await caller.reader.readline()).startswith(b"HTTP/1.1 200")
        await caller.reader.readuntil(b'{"status":"ok"}')


async def test_it_is_cancelled_when_its_client_goes_away(node: Node) -> None:
    for leave in (asyncio.StreamWriter.close, asyncio.StreamWriter.write_eof):
        async with waiting(node) as caller:
            leave(caller.writer)
            await until(lambda: not node.pool.waiting)
            await until(lambda: not lines(node))
        assert node.notes.pop()["status"] == 499
        assert not node.server._under_way
    assert node.pool.records == {}


@pytest.mark.parametrize(("role", "status", "code"), [(None, 401, "unauthorized"), ("viewer", 403, "forbidden")])
async def test_it_ends_when_its_token_is_over_or_may_something_else(role: str | None, status: int, code: str) -> None:
    async with serving(judged_each_s=0.001) as node:
        known_as("producer")(node)
        async with waiting(node, sentence(node, token="of-ann")) as caller:
            node.pool.watching.principals.pop(hash_of("of-ann"))
            if role:
                known_as(role)(node)
            answer = await caller.hear()
            assert (answer.status, answer.code) == (status, code)
            assert not node.pool.waiting
            assert len(lines(node)) == 1
        again = await caller.ask(sentence(node, token="of-ann"))
        assert (again.status, again.code) == (status, code)
        assert node.pool.records == {}
        assert [note["status"] for note in node.notes] == [status, status]


async def test_a_token_that_is_over_is_no_longer_taken_on_the_same_connection(node: Node) -> None:
    known_as("producer")(node)
    caller = await call(node)
    assert (await caller.ask(sentence(node, token="of-ann"))).status == 201
    node.pool.watching.principals.pop(hash_of("of-ann"))
    assert (await caller.ask(sentence(node, token="of-ann"))).code == "unauthorized"


async def test_a_bug_before_it_is_carried_out_is_told(node: Node) -> None:
    judges_with(RuntimeError("a bug"))(node)
    caller = await call(node)
    assert (await caller.ask(sentence(node))).code == "broken"
    assert [str(error) for error in node.broken] == ["a bug"]


# --- the end of the node ---


async def test_stopping_answers_what_is_under_way_and_closes_the_others_at_once() -> None:
    async with serving() as node:
        idle, used = await call(node), await call(node)
        assert (await used.ask(sentence(node))).status == 201
        async with waiting(node, sentence(node, key="l")) as caller:
            stopping = asyncio.create_task(node.server.stop())
            assert [await idle.end(), await used.end()] == [b"", b""]
            assert len(lines(node)) == 1
            caller.writer.write(sentence(node, add(queue="late"), key="m"))
            await until(lambda: any(line._late for line in lines(node)))
        assert (await caller.hear()).status == 201
        assert await caller.end() == b""
        await stopping
        assert not lines(node)
        assert len(node.pool.records) == 2


async def test_stopping_does_not_wait_longer_than_its_grace() -> None:
    async with serving() as node, waiting(node) as caller:
        await node.server.stop(grace_s=0.0)
        assert not node.pool.waiting
        assert node.notes[-1]["status"] == 499
        assert await caller.end() == b""
