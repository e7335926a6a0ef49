"""Every route: what a good request is answered. Bad ones are in test_bad_requests.py."""

from __future__ import annotations

import asyncio
import json

import pytest

from quvatlh.service.pool import Readiness, Unavailable
from tests.api.client import WORK, Client, Node, until
from tests.fakes.pool import TOKEN


async def test_add_answers_ids_in_order_and_who_was_there_already(client: Client) -> None:
    first = await client.add(
        {"work": WORK, "id": "a"}, {"work": WORK, "unique": {"key": "k"}}, {"work": WORK, "id": "a"}
    )
    assert first.status == 201
    assert first.json == {"ids": ["a", "000000000001-0001", "a"], "index": 1, "existing": {"2": "id"}}
    again = await client.add({"work": WORK, "id": "a"}, {"work": WORK, "unique": {"key": "k"}})
    assert again.status == 200
    assert again.json == {"ids": ["a", "000000000001-0001"], "index": 2, "existing": {"0": "id", "1": "unique"}}


async def test_a_repeated_key_is_answered_as_the_first_time(node: Node) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await node.client.add({"work": WORK}, headers=key)
    assert (await node.client.add({"work": WORK}, headers=key)).body == first.body
    assert len(node.pool.records) == 1
    other = await node.client.add({"work": WORK, "name": "other"}, headers=key)
    assert (other.status, other.code) == (409, "conflict")
    assert (await node.client.add({"work": WORK}, headers={"Idempotency-Key": "x" * 129})).code == "bad_request"


async def test_delete_by_ids_by_match_and_in_bulk(node: Node) -> None:
    await node.client.add(*[{"work": WORK, "id": f"t{n}", "queue": "q"} for n in range(4)])
    by_ids = await node.client.ask("POST", "/v1/events", {"event": "DELETE", "ids": ["t0", "t1"]})
    assert (by_ids.status, by_ids.json["matched"], by_ids.json["done"]) == (200, 2, 2)
    by_verb = await node.client.ask("POST", "/v1/tasks/delete", {"match": {"queue": "q", "state": "pending"}})
    assert by_verb.json["matched"] == 2
    unknown = await node.client.ask("POST", "/v1/tasks/delete", {"ids": ["t0", "x", "y"]})
    assert (unknown.status, unknown.code) == (404, "not_found")
    assert [error["message"] for error in unknown.json["errors"]] == ["there is no task x", "there is no task y"]
    node.pool.bulk_above = 1
    bulk = await node.client.ask("POST", "/v1/tasks/delete", {"match": {"queue": "q"}})
    assert (bulk.status, bulk.json) == (202, {"bulk": "b1"})
    assert (await node.client.get("/v1/bulk/b1")).json == {"id": "b1", "matched": 4, "done": 0, "state": "working"}


async def test_what_has_failed_is_moved_retried_elsewhere_and_deleted_and_what_succeeded_is_said_to_be_over(
    node: Node,
) -> None:
    await node.client.add(*[{"work": WORK, "id": f"t{n}", "queue": "q"} for n in range(4)])
    for n in range(3):
        node.pool.finish(f"t{n}", state="failed")
    node.pool.finish("t3")
    match = {"queue": "q", "state": "failed"}
    moved = await node.client.ask("POST", "/v1/tasks/update", {"ids": ["t0", "t3"], "set": {"queue": "night"}})
    assert (moved.json["matched"], moved.json["done"]) == (2, 1)
    retried = await node.client.ask("POST", "/v1/tasks/retry", {"ids": ["t1"], "queue": "day"})
    assert retried.json["done"] == 1
    assert (await node.client.get("/v1/tasks/t1")).json["queue"] == "day"
    deleted = await node.client.ask("POST", "/v1/tasks/delete", {"match": match})
    assert (deleted.json["matched"], deleted.json["done"], deleted.json.get("over")) == (1, 1, None)
    again = await node.client.ask("POST", "/v1/events", {"event": "DELETE", "ids": ["t2", "t3"]})
    assert (again.json["done"], again.json["over"]) == (2, 2)


async def test_groups_tell_when_their_tasks_ended(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "t", "queue": "q"})
    node.pool.finish("t", state="failed")
    since = "/v1/tasks?group_by=queue&state=failed&parts=3&finished_after=2020-01-01T00:00:00Z"
    assert (await node.client.get(since)).json == {"groups": [{"value": "q", "count": 1, "parts": [0, 0, 1]}]}


async def test_lists_filter_sort_page_and_group(client: Client) -> None:
    await client.add(*[{"work": WORK, "id": f"t{n}", "priority": n, "queue": f"q{n % 2}"} for n in range(5)])
    page = (await client.get("/v1/tasks?sort=-priority&limit=2")).json
    assert ([task["id"] for task in page["items"]], page["total"]) == (["t4", "t3"], 5)
    page = (await client.get(f"/v1/tasks?sort=-priority&limit=2&cursor={page['next']}")).json
    assert [task["id"] for task in page["items"]] == ["t2", "t1"]
    assert [task["id"] for task in (await client.get("/v1/tasks?queue=q1&state=pending,failed")).json["items"]] == [
        "t1",
        "t3",
    ]
    assert (await client.get("/v1/tasks?created_after=2999-01-01T00:00:00Z")).json["items"] == []
    groups = (await client.get("/v1/tasks?group_by=queue")).json
    assert groups == {"groups": [{"value": "q0", "count": 3}, {"value": "q1", "count": 2}]}


async def test_groups_that_were_counted_in_part_say_so(node: Node) -> None:
    await node.client.add({"work": WORK, "queue": "q"})
    node.pool.counts_in_part = True
    groups = (await node.client.get("/v1/tasks?group_by=queue")).json
    assert groups == {"groups": [{"value": "q", "count": 1}], "partial": True}


async def test_a_task_is_shown_with_defaults_and_its_payload(client: Client) -> None:
    await client.add({"work": "command: [echo, hi]", "id": "a", "payload": {"x_ms": 5}, "timeout": 90})
    task = (await client.get("/v1/tasks/a")).json
    assert {name: task[name] for name in ("id", "name", "group", "queue", "state", "timeout", "lease", "payload")} == {
        "id": "a",
        "name": "a",
        "group": "default",
        "queue": "default",
        "state": "pending",
        "timeout": "90s",
        "lease": "2s",
        "payload": {"x_ms": 5},
    }
    assert task["work"] == {"command": ["echo", "hi"]}
    assert task["created_at"] == "2023-11-14T22:13:20.000Z"


async def test_wait_answers_when_the_task_has_finished_or_time_is_up(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    assert (await node.client.get("/v1/tasks/a?wait=1ms")).json["state"] == "pending"
    waiting = asyncio.create_task(node.client.get("/v1/tasks/a?wait=1h"))
    await until(lambda: len(node.pool.calls) == 3)
    node.pool.finish("a", {"n": 1})
    assert (await waiting).json["state"] == "succeeded"
    assert (await node.client.get("/v1/tasks/a/result")).json == {"n": 1}


async def test_a_client_that_goes_away_no_longer_waits(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    node.pool.gate.clear()
    _, writer = await node.dial()
    writer.write(node.head("GET", "/v1/tasks/a?wait=1h"))
    await until(lambda: node.pool.waiting)
    writer.close()
    await until(lambda: not node.pool.waiting)


async def test_output_is_streamed_and_a_tail_is_marked(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    node.pool.write_output("a", b"one\n")
    node.pool.write_output("a", b"bad\n", "stderr")
    assert (await node.client.get("/v1/tasks/a/log")).body == b"one\n"
    assert (await node.client.get("/v1/tasks/a/log?stream=stderr&action=a1")).body == b"bad\n"
    reader, writer = await node.dial()
    writer.write(node.head("GET", "/v1/tasks/a/log?follow=1"))
    await reader.readuntil(b"one\n")
    node.pool.write_output("a", b"two\n")
    await reader.readuntil(b"two\n")
    node.pool.finish("a")
    await reader.readuntil(b"0\r\n\r\n")
    writer.close()
    node.pool.tail_only = True
    assert (await node.client.get("/v1/tasks/a/log")).headers["Quvatlh-Log"] == "tail"
    node.pool.is_worker_there = True
    assert (await node.client.get("/v1/tasks/a/log")).headers["Quvatlh-Log"] == "end"


async def test_output_goes_on_at_an_offset_and_says_whose_it_is_and_where_it_begins(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    node.pool.write_output("a", b"one two three")
    rest = await node.client.get("/v1/tasks/a/log?offset=8")
    assert (rest.body, rest.headers["Quvatlh-Action"], rest.headers["Quvatlh-Offset"]) == (b"three", "a1", "8")
    assert (await node.client.get("/v1/tasks/a/log?offset=13")).body == b""
    node.pool.log_begins = 4
    kept = await node.client.get("/v1/tasks/a/log")
    assert (kept.body, kept.headers["Quvatlh-Offset"]) == (b"two three", "4")


async def test_output_with_a_gap_ends_there_and_says_how_much_there_was_in_all(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    node.pool.write_output("a", b"one two three")
    node.pool.log_gap = (4, 8)
    before = await node.client.get("/v1/tasks/a/log")
    assert (before.body, before.headers.get("Quvatlh-Bytes")) == (b"one ", None)
    node.pool.finish("a")
    for offset, begins, body in ((0, "0", b"one "), (4, "8", b"three")):
        answer = await node.client.get(f"/v1/tasks/a/log?offset={offset}")
        said = answer.headers["Quvatlh-Offset"], answer.headers["Quvatlh-Bytes"]
        assert (answer.body, said) == (body, (begins, "13"))


@pytest.mark.parametrize("error", [RuntimeError("bug"), Unavailable("stopping", "going")])
async def test_output_that_fails_in_the_middle_ends_the_connection_unfinished(node: Node, error: Exception) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    node.pool.write_output("a", b"one\n")
    node.pool.output_error = error
    answer = await node.say(node.head("GET", "/v1/tasks/a/log"))
    assert b"one\n" in answer
    assert not answer.endswith(b"0\r\n\r\n")
    assert bool(node.broken) == isinstance(error, RuntimeError)


@pytest.mark.parametrize("path", ["/v1/stream", "/v1/tasks/a/log", "/v1/cluster/backup"])
async def test_what_streams_has_no_head(client: Client, path: str) -> None:
    answer = await client.ask("HEAD", path)
    assert (answer.status, answer.headers["Allow"]) == (404, "GET")


@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
async def test_a_client_that_asks_first_is_told_to_go_on(node: Node, content_type: str) -> None:
    """curl waits a second for it before it sends a large body."""
    one = {"event": "ADD", "tasks": [{"work": WORK}]}
    body = json.dumps(one if content_type.endswith("/json") else {"work": WORK}).encode()
    reader, writer = await node.dial()
    more = f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Expect: 100-continue"
    writer.write(node.head("POST", "/v1/events", *more))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await reader.readline()).split()[1] in {b"200", b"201"}


async def test_members_come_and_go(client: Client) -> None:
    added = await client.ask("POST", "/v1/cluster/members", {"id": "n2", "peer": "10.0.0.2:7421"})
    assert added.status == 201
    assert [node["id"] for node in added.json["nodes"]] == ["n1", "n2"]
    assert (await client.get("/v1/cluster")).json == added.json
    removed = await client.ask("DELETE", "/v1/cluster/members/n2")
    assert [node["id"] for node in removed.json["nodes"]] == ["n1"]
    assert (await client.ask("DELETE", "/v1/cluster/members/n1")).code == "conflict"


async def test_the_rest_of_the_good_answers(node: Node) -> None:
    backup = await node.client.get("/v1/cluster/backup")
    assert (backup.body, backup.headers["Quvatlh-Index"]) == (b"state of the pool", "0")
    assert backup.headers["Content-Length"] == "17"
    tokens = (await node.client.get("/v1/tokens")).json
    assert tokens["items"] == [(await node.client.get("/v1/tokens/root")).json]
    assert TOKEN not in str(tokens)
    assert (await node.client.get("/healthz", token=None)).json == {"status": "ok"}
    assert (await node.client.get("/readyz", token=None)).json == {"status": "ready"}
    shell = await node.client.get("/", token=None)
    assert "default-src 'none'" in shell.headers["Content-Security-Policy"]
    await node.client.add({"work": WORK, "id": "a"})
    assert (await node.client.get("/v1/tasks/a/actions")).json == {"items": [], "next": None, "total": 0}
    metrics = (await node.client.get("/metrics")).body.decode()
    assert 'quvatlh_tasks{state="a\\"b"} 1\n' in metrics
    assert 'quvatlh_http_requests_total{method="POST",route="/v1/events",status="201"} 1\n' in metrics


async def test_a_node_that_is_not_ready_says_what_is_missing(node: Node) -> None:
    node.pool.is_ready = Readiness(ready=False, code="no_master", detail="no master is known")
    answer = await node.client.get("/readyz", token=None)
    assert (answer.status, answer.code, answer.json["detail"]) == (503, "no_master", "no master is known")
    assert int(answer.headers["Retry-After"]) >= 1


async def test_a_node_that_is_ready_says_what_does_not_go(node: Node) -> None:
    node.pool.is_ready = Readiness(ready=True, code="disk_full", detail="the disk is full")
    answer = await node.client.get("/readyz", token=None)
    assert (answer.status, answer.json) == (200, {"status": "ready", "code": "disk_full", "detail": "the disk is full"})


async def test_deadline_and_consistency_reach_the_pool(node: Node) -> None:
    await node.client.get("/v1/cluster")
    await node.client.get("/v1/cluster?deadline=250ms&consistent=true")
    assert [(call.deadline_ms, call.consistent) for call in node.pool.calls] == [(5000, False), (250, True)]


async def test_head_is_get_without_a_body(client: Client) -> None:
    answer = await client.ask("HEAD", "/v1/cluster")
    assert (answer.status, answer.body) == (200, b"")
