from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quvatlh.api.stream import Buffer, Streams, position
from quvatlh.service.pool import N_MAX, Position, Rejected
from tests.api.client import WORK, Node, serving, until

Event = tuple[str, str, Any]


class Listener:
    """A client of the stream, byte by byte, so that nothing reads ahead for it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.head = b""

    async def begin(self) -> None:
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        self.status = int(self.head.split()[1])

    async def events(self) -> AsyncIterator[Event]:
        held = b""
        while size := int(await self.reader.readline(), 16):
            held += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
            *whole, held = held.split(b"\n\n")
            for frame in whole:
                fields = dict(line.split(": ", 1) for line in frame.decode().splitlines() if not line.startswith(":"))
                if fields:
                    yield fields.get("id", ""), fields["event"], json.loads(fields["data"])

    async def take(self, count: int) -> list[Event]:
        taken: list[Event] = []
        async for event in self.events():
            taken.append(event)
            if len(taken) == count:
                break
        return taken


async def listening(node: Node, query: str = "", *headers: str) -> Listener:
    listener = Listener(*await node.dial())
    listener.writer.write(node.head("GET", f"/v1/stream{query}", *headers))
    await listener.begin()
    return listener


async def test_what_happens_is_told_with_ids_that_grow(node: Node) -> None:
    listener = await listening(node)
    assert (listener.status, b"text/event-stream" in listener.head) == (200, True)
    await node.client.add({"work": WORK, "id": "a"}, {"work": WORK, "id": "b"})
    node.pool.finish("a")
    assert await listener.take(3) == [
        ("1-0", "task.added", {"id": "a", "state": "pending", "queue": "default", "group": "default"}),
        ("1-1", "task.added", {"id": "b", "state": "pending", "queue": "default", "group": "default"}),
        ("2-0", "task.succeeded", {"id": "a", "state": "succeeded", "queue": "default", "group": "default"}),
    ]


@pytest.mark.parametrize(
    ("query", "header", "expected"),
    [
        ("?since=0", "", ["1-0", "1-1", "2-0"]),
        ("?since=1", "", ["2-0"]),
        ("?since=1-0", "", ["1-1", "2-0"]),
        ("?since=0", "Last-Event-ID: 1-1", ["2-0"]),
        ("?since=0&event=task.succeeded", "", ["2-0"]),
        ("?since=0&event=worker.*,task.a*", "", ["1-0", "1-1"]),
        ("?since=0&id=b", "", ["1-1"]),
        ("?since=0&queue=q", "", ["1-1"]),
        ("?since=0&group=default&queue=default", "", ["1-0", "2-0"]),
    ],
)
async def test_a_stream_goes_on_where_it_was_left(node: Node, query: str, header: str, expected: list[str]) -> None:
    await node.client.add({"work": WORK, "id": "a"}, {"work": WORK, "id": "b", "queue": "q"})
    node.pool.finish("a")
    listener = await listening(node, query, *([header] if header else []))
    assert [event[0] for event in await listener.take(len(expected))] == expected


async def test_what_is_no_longer_kept_is_gone(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    node.pool.forget_events()
    for headers in ({}, {"Last-Event-ID": "0-5"}):
        answer = await node.client.get("/v1/stream?since=0", headers=headers)
        assert (answer.status, answer.code) == (410, "gone")
    assert (await node.client.get("/v1/stream", headers={"Last-Event-ID": "x"})).code == "bad_request"


async def test_a_slow_client_is_cut_off_with_a_last_event_and_can_resume() -> None:
    """Its buffer is bounded, the pool is not held up, and nothing is lost between the two connections."""
    async with serving(streams=Streams(buffer_bytes_max=10_000, farewell_s=30)) as node:
        slow = await listening(node)
        (buffer,) = node.server.streams.open
        await node.client.add(*[{"work": WORK, "id": f"t{n}"} for n in range(5000)])
        assert buffer.bytes_seen_max <= 10_000
        events = [event async for event in slow.events()]
        last_id, kind, data = events[-1]
        assert (last_id, kind, data["reason"]) == ("", "stream.ended", "too_slow")
        assert data["last"] == events[-2][0]
        assert node.server.shared.meter.streams_cut_off == 1
        again = await listening(node, "", f"Last-Event-ID: {data['last']}")
        seen = [event[2]["id"] for event in events[:-1]]
        assert (await again.take(1))[0][2]["id"] == f"t{len(seen)}"
        assert seen == [f"t{n}" for n in range(len(seen))]


async def test_a_client_that_takes_nothing_is_ended() -> None:
    async with serving(streams=Streams(buffer_bytes_max=10_000, farewell_s=0)) as node:
        _, writer = await node.dial()
        writer.write(node.head("GET", "/v1/stream"))
        await until(lambda: node.server.streams.open)
        while node.server.streams.open:
            await node.client.add(*[{"work": WORK, "group": "g" * 256} for _ in range(1000)])
        assert node.server.shared.meter.streams_cut_off == 1
        writer.close()


async def test_a_client_that_leaves_is_forgotten_at_once(node: Node) -> None:
    listener = await listening(node)
    assert len(node.server.streams.open) == 1
    listener.writer.close()
    await until(lambda: not node.server.streams.open)


async def test_a_server_that_stops_says_so(node: Node) -> None:
    listener = await listening(node)
    stopping = asyncio.create_task(node.server.stop())
    assert await listener.take(1) == [("", "stream.ended", {"reason": "stopping", "last": None})]
    listener.writer.close()
    await stopping


async def test_a_reader_that_the_pool_left_behind_is_told_gone(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    listener = await listening(node, "?since=1")
    await node.client.get("/v1/cluster")
    node.pool.index += 5
    node.pool.forget_events()
    assert (await listener.take(1))[0][2]["reason"] == "gone"


async def test_a_quiet_stream_is_kept_alive_by_comments() -> None:
    buffer = Buffer(100)
    assert await buffer.take(0) == b":\n\n"
    buffer.put("1-0", b"x")
    assert await buffer.take(0) == b"x"
    buffer.end("stopping")
    assert await buffer.take(0) == b""


@pytest.mark.parametrize(
    ("text", "place"), [("5", Position(5, N_MAX)), ("5-0", Position(5, 0)), ("0", Position(0, N_MAX))]
)
def test_positions_are_read(text: str, place: Position) -> None:
    assert position(text) == place


async def test_a_stream_too_many_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.server.streams.open.update(Buffer(1) for _ in range(1000))
    assert (await node.client.get("/v1/stream")).code == "rate_limited"
    node.server.streams.open.clear()


async def test_a_refusal_of_the_pool_comes_before_the_stream(node: Node) -> None:
    node.pool.fail_next(Rejected("forbidden", "not for you"))
    assert (await node.client.get("/v1/stream")).status == 403
    assert not node.server.streams.open
