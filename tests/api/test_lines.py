"""NDJSON over HTTP: cuts, answers, and a server that goes on reading."""

from __future__ import annotations

import asyncio
import errno
import json

import aiohttp
import pytest

from quvatlh.api.exchange import BODIES_MAX
from quvatlh.api.spool import Spool
from quvatlh.service.pool import Unavailable, Unknown
from tests.api.client import WORK, Client, Node, until

LINE = json.dumps({"work": WORK}).encode() + b"\n"


async def test_each_cut_is_answered_by_a_line(client: Client) -> None:
    answer = await client.add_lines(LINE * 2500)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-ndjson")
    assert [(line["from"], line["to"], len(line["ids"]), line["index"]) for line in answer.lines] == [
        (0, 1000, 1000, 1),
        (1000, 2000, 1000, 2),
        (2000, 2500, 500, 3),
    ]


async def test_cuts_of_one_body_are_added_in_turn(node: Node) -> None:
    for _ in range(2):
        await node.client.add_lines(LINE * 1500)
    first, second, *others = node.pool.turns
    assert first is second is not None
    assert others[0] is others[1] is not first


async def test_ids_may_be_left_out(client: Client) -> None:
    assert (await client.add_lines(LINE, "?ids=0")).lines == [{"from": 0, "to": 1, "index": 1, "existing": {}}]


async def test_positions_in_existing_count_from_the_cut(client: Client) -> None:
    chosen = b'{"id":"a","work":{"command":["true"]}}\n'
    answer = await client.add_lines(LINE * 1000 + LINE + chosen * 2)
    assert answer.lines[1]["existing"] == {"2": "id"}


async def test_a_bad_line_refuses_its_cut_and_later_cuts_go_on(node: Node) -> None:
    answer = await node.client.add_lines(LINE * 1000 + LINE + b"{\n" + b'{"nam":1}\n' + LINE * 997 + LINE)
    first, second, third = answer.lines
    assert (first["to"], second["from"], second["to"], third["to"]) == (1000, 1000, 2000, 2001)
    assert second.keys() == {"from", "to", "problem"}
    assert (second["problem"]["code"], second["problem"]["status"]) == ("bad_request", 400)
    assert [error["path"] for error in second["problem"]["errors"]] == [
        "lines[1001]",
        "lines[1002].nam",
        "lines[1002].work",
    ]
    assert len(node.pool.records) == 1001


async def test_a_line_that_is_too_long_is_a_cut_of_its_own(client: Client) -> None:
    answer = await client.add_lines(LINE + b" " * 2**21 + LINE + LINE)
    assert [(line["from"], line["to"], line.get("problem", {}).get("code")) for line in answer.lines] == [
        (0, 1, None),
        (1, 2, "too_large"),
        (2, 3, None),
    ]


async def test_nothing_is_answered_by_nothing(client: Client) -> None:
    for raw in (b"", b"\n", b" \r\n\n"):
        answer = await client.add_lines(raw)
        assert (answer.status, answer.body) == (200, b"")


async def test_a_repeated_body_is_answered_cut_by_cut_from_the_first_time(node: Node) -> None:
    first = await node.client.add_lines(LINE * 1500, Idempotency_Key="k")
    again = await node.client.add_lines(LINE * 1500, Idempotency_Key="k")
    assert again.body == first.body
    assert len(node.pool.records) == 1500
    other = await node.client.add_lines(LINE * 1000 + LINE * 499, Idempotency_Key="k")
    assert [line.get("problem", {}).get("code") for line in other.lines] == [None, "conflict"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unknown("it may have happened"), "unknown"),
        (Unavailable("no_master", "none"), "no_master"),
        (KeyError("bug"), "broken"),
    ],
)
async def test_what_the_pool_says_no_to_stands_in_its_cut(node: Node, error: Exception, code: str) -> None:
    node.pool.fail_next(error)
    answer = await node.client.add_lines(LINE * 1001)
    assert [line.get("problem", {}).get("code") for line in answer.lines] == [code, None]
    assert bool(node.broken) == (code == "broken")
    assert b"KeyError" not in answer.body


@pytest.mark.long
async def test_the_server_reads_on_though_nobody_reads_its_answers(node: Node) -> None:
    """Answers of many megabytes for a client that sends everything first."""
    node.pool.keeps_events = False
    cuts = 150
    head = node.head(
        "POST", "/v1/events", "Content-Type: application/x-ndjson", f"Content-Length: {cuts * 1000 * len(LINE)}"
    )
    reader, writer = await node.dial()
    writer.write(head)
    for _ in range(cuts):
        writer.write(LINE * 1000)
        await writer.drain()
    await until(lambda: node.pool.index == cuts)
    answers = await _all_of(reader)
    assert answers.count(b'"index"') == cuts
    writer.close()


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    """A chunked body, whole."""
    await reader.readuntil(b"\r\n\r\n")
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    return body


async def test_answers_come_while_the_body_still_goes_in(node: Node) -> None:
    reader, writer = await node.dial()
    writer.write(node.head("POST", "/v1/events", "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"))
    piece = LINE * 1000
    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    await reader.readuntil(b'"index":1')
    writer.write(b"0\r\n\r\n")
    await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()


async def test_a_client_that_breaks_off_leaves_nothing_behind(node: Node) -> None:
    _, writer = await node.dial()
    writer.write(node.head("POST", "/v1/events", "Content-Type: application/x-ndjson", "Content-Length: 1000000"))
    writer.write(LINE * 1000)
    await until(lambda: node.pool.index)
    writer.close()
    await until(lambda: not node.server.shared.bodies)
    assert not node.broken


async def test_a_disk_without_room_for_answers_ends_the_body_and_not_the_node(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_self: Spool, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Spool, "put", full)
        with pytest.raises(aiohttp.ClientError):
            await node.client.add_lines(LINE)
    assert node.broken == []
    assert (await node.client.add_lines(LINE)).status == 200


async def test_bodies_at_once_are_bounded(node: Node) -> None:
    node.server.shared.bodies = BODIES_MAX
    answer = await node.client.add_lines(LINE)
    assert (answer.status, answer.code) == (429, "rate_limited")
    assert int(answer.headers["Retry-After"]) >= 1
    node.server.shared.bodies = 0
