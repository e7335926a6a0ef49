"""Pull workers over HTTP: what goes out and comes in, and answers that cannot be sent. Bad requests: test_routes.py too."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from quvatlh.api import pull
from quvatlh.service.pullasks import Report
from quvatlh.service.pullpool import RESULT_BYTES_MAX, Wanted
from tests.api.client import Node, until

PULL = {"pull": True}


async def claim(node: Node, headers: dict[str, str] | None = None, **more: Any) -> Any:
    return await node.client.ask("POST", "/v1/work/claim", {"worker": "w", "wait": 0} | more, headers=headers)


async def say(node: Node, verb: str, body: Any) -> Any:
    return await node.client.ask("POST", f"/v1/work/{verb}", body)


async def test_a_claim_brings_actions_with_their_tasks_and_payloads(node: Node) -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    await node.client.add(
        {"id": "a", "work": PULL, "payload": {"n": [1]}}, {"id": "b", "work": PULL, "payload_base64": raw}
    )
    answer = await claim(node, max=5, lease="1m")
    assert answer.status == 200
    a, b = answer.json["actions"]
    assert (a["action"], a["token"], a["lease_ms"], a["payload"]) == ("a1", 1, 60_000, {"n": [1]})
    assert "payload_base64" not in a
    assert (b["payload"], b["payload_base64"]) == (None, raw)
    assert (a["task"]["id"], a["task"]["state"], a["task"]["queue"], a["task"]["work"]) == (
        "a",
        "claimed",
        "default",
        PULL,
    )
    assert "payload" not in a["task"]


async def test_what_is_not_said_of_a_claim_is_usual(node: Node) -> None:
    await node.client.ask("POST", "/v1/work/claim", {"worker": "w"})
    await node.client.ask("POST", "/v1/work/claim", {"worker": "w", "lease": "10s", "order": "greedy", "tags": ["gpu"]})
    assert node.pool.wanted == [
        Wanted("w", ("*",), 1, 20_000, 30_000, greedy=False, tags=None),
        Wanted("w", ("*",), 1, 6_666, 10_000, greedy=True, tags=("gpu",)),
    ]


async def test_a_key_goes_with_the_claim(node: Node) -> None:
    await node.client.add({"id": "a", "work": PULL}, {"id": "b", "work": PULL})
    first = await claim(node, {"Idempotency-Key": "k"})
    again = await claim(node, {"Idempotency-Key": "k"})
    assert first.json == again.json
    other = await claim(node, {"Idempotency-Key": "k"}, max=2)
    assert (other.status, other.code) == (409, "conflict")


async def test_reports_are_one_or_many_and_are_answered_one_by_one(node: Node) -> None:
    await node.client.add(*[{"id": name, "work": PULL} for name in "abc"])
    a, b, c = (
        {"action": each["action"], "token": each["token"]} for each in (await claim(node, max=3)).json["actions"]
    )
    renewed = await say(node, "renew", [a, {"action": "a1", "token": 2}, b])
    assert renewed.json == {
        "results": [
            {"action": "a1", "ok": True},
            {"action": "a1", "code": "stale_token"},
            {"action": "a2", "ok": True},
        ]
    }
    await say(node, "progress", c | {"percent": 7, "text": "so far"})
    for _ in range(2):
        assert (await say(node, "finish", a | {"result": {"x": 1}})).json == {"results": [{"action": "a1", "ok": True}]}
    raw = base64.b64encode(b"\xff").decode()
    await say(node, "finish", c | {"result_base64": raw})
    await say(node, "fail", b | {"error": {"code": "Timeout", "text": "slow"}, "permanent": True, "retry_after": "1m"})
    assert node.pool.reports[2:] == [
        ("progress", Report("a3", 3, 7, "so far")),
        ("finish", Report("a1", 1, result=b'{"x":1}')),
        ("finish", Report("a3", 3, result=b"\0\xff")),
        ("fail", Report("a2", 2, text="slow", error="Timeout", permanent=True, retry_after_ms=60_000)),
    ]


async def test_an_error_may_be_plain_text(node: Node) -> None:
    await node.client.add({"id": "a", "work": PULL})
    await claim(node)
    await say(node, "fail", {"action": "a1", "token": 1, "error": "it broke"})
    assert node.pool.reports == [("fail", Report("a1", 1, text="it broke"))]


async def test_the_end_of_what_was_written_goes_with_the_last_word(node: Node) -> None:
    for name in ("a", "b"):
        await node.client.add({"id": name, "work": PULL})
    await claim(node, max=2)
    await say(node, "finish", {"action": "a1", "token": 1, "output": "one\0two\n"})
    await say(node, "fail", {"action": "a2", "token": 2, "output": "x" * 5000 + "end"})
    outputs = [report.output for _, report in node.pool.reports]
    assert outputs == ["one\N{REPLACEMENT CHARACTER}two\n", "x" * 4093 + "end"]


async def test_the_value_of_a_task_may_be_bytes(node: Node) -> None:
    await node.client.add({"id": "a", "work": PULL})
    node.pool.finish("a", b"\xff\x00")
    answer = await node.client.get("/v1/tasks/a/result")
    assert (answer.headers["Content-Type"], answer.body) == ("application/octet-stream", b"\xff\x00")


async def test_a_claim_of_a_client_that_went_away_is_cancelled(node: Node) -> None:
    node.pool.gate.clear()
    body = b'{"worker": "w"}'
    reader, writer = await node.dial()
    writer.write(
        node.head("POST", "/v1/work/claim", "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    )
    await until(lambda: node.pool.waiting == 1)
    writer.close()
    await until(lambda: node.pool.waiting == 0)
    del reader


async def test_an_answer_that_cannot_be_sent_gives_its_actions_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.client.add({"id": "a", "work": PULL})
    body = b'{"worker": "w"}'
    _, writer = await node.dial()
    shown = pull._shown

    async def slow(pulled: Any) -> Any:
        writer.transport.abort()
        await asyncio.sleep(0.2)
        return await shown(pulled)

    monkeypatch.setattr(pull, "_shown", slow)
    writer.write(
        node.head("POST", "/v1/work/claim", "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    )
    await until(lambda: node.pool.returned)
    assert node.pool.returned == [1]


@pytest.mark.parametrize(
    ("verb", "body", "status", "path", "words"),
    [
        ("claim", {}, 400, "worker", "is required"),
        ("claim", {"worker": ""}, 400, "worker", "must be 1 to 256 characters"),
        ("claim", {"worker": "w", "queues": []}, 400, "queues", "must have 1 to 1000 items"),
        ("claim", {"worker": "w", "queues": "*"}, 400, "queues", "must be a list"),
        ("claim", {"worker": "w", "max": 0}, 400, "max", "must be a whole number from 1 to 1000"),
        ("claim", {"worker": "w", "max": 1001}, 400, "max", "must be a whole number from 1 to 1000"),
        ("claim", {"worker": "w", "wait": "1m"}, 400, "wait", "must be shorter than lease, 30s"),
        ("claim", {"worker": "w", "wait": "soon"}, 400, "wait", "must be a duration such as"),
        ("claim", {"worker": "w", "lease": "10ms"}, 400, "lease", "must be from 1s to 1h, not '10ms'"),
        ("claim", {"worker": "w", "order": "lifo"}, 400, "order", "must be one of fair, greedy"),
        ("claim", {"worker": "w", "queue": "q"}, 400, "queue", "is not a known field"),
        ("renew", {"action": "a1"}, 400, "token", "is required"),
        ("renew", {"action": "a1", "token": "1"}, 400, "token", "must be a whole number"),
        ("renew", [], 400, "", "must have 1 to 1000 items"),
        ("renew", [{"action": "a1", "token": 1}, {"action": "a2"}], 400, "[1].token", "is required"),
        ("renew", [{"action": "a1", "token": 1}] * 1001, 413, "", "must be at most 1000 reports, not 1001"),
        ("renew", "a1", 400, "", "must be an object or a list of them"),
        ("progress", {"action": "a1", "token": 1}, 400, "", "must name at least one of percent, text"),
        ("progress", {"action": "a1", "token": 1, "percent": 101}, 400, "percent", "from 0 to 100"),
        (
            "finish",
            {"action": "a1", "token": 1, "result": "x" * RESULT_BYTES_MAX},
            413,
            "result",
            f"must be at most {RESULT_BYTES_MAX} bytes, not {RESULT_BYTES_MAX + 2}",
        ),
        ("finish", {"action": "a1", "token": 1, "result_base64": "?"}, 400, "result_base64", "is not base64"),
        (
            "finish",
            [{"action": "a1", "token": 1, "result": 1, "result_base64": "AA=="}],
            400,
            "[0].result_base64",
            "must not be given together with result",
        ),
        ("fail", {"action": "a1", "token": 1, "output": "x" * 65_537}, 400, "output", "must be 0 to 65536 characters"),
        ("fail", {"action": "a1", "token": 1, "output": 5}, 400, "output", "must be text"),
        ("fail", {"action": "a1", "token": 1, "error": 5}, 400, "error", "must be text"),
        ("fail", {"action": "a1", "token": 1, "error": {"kind": "x"}}, 400, "error.kind", "is not a known field"),
        ("fail", {"action": "a1", "token": 1, "permanent": "yes"}, 400, "permanent", "must be true or false"),
    ],
)
async def test_what_is_wrong_is_named(node: Node, verb: str, body: Any, status: int, path: str, words: str) -> None:
    answer = await say(node, verb, body)
    assert answer.status == status, answer.json
    (error,) = answer.json["errors"]
    assert (error["path"], words in error["message"]) == (path, True), error
    assert node.pool.reports == []
