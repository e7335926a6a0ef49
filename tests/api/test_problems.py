from __future__ import annotations

import asyncio
import logging

import pytest

from quvatlh.api.problems import TITLES
from quvatlh.core.rejections import STATUS
from quvatlh.service.pool import CODES, Broken, Problem, Rejected, Unavailable, Unknown
from tests.api.client import WORK, Node, until

CONTRACT = """bad_request, unknown_field, invalid 400 · unauthorized 401 · forbidden 403 · not_found 404 ·
conflict, unique_held, stale_token, not_empty 409 · gone 410 · too_large 413 · rate_limited 429 · broken 500 ·
no_master, disk_full, stopping 503 · unknown 504"""


def test_the_codes_are_those_of_the_contract() -> None:
    expected: dict[str, int] = {}
    for part in CONTRACT.split("·"):
        *names, status = part.replace(",", " ").split()
        expected |= dict.fromkeys(names, int(status))
    assert expected == CODES
    assert TITLES.keys() == expected.keys()
    assert STATUS.items() <= expected.items()


KINDS: list[Problem] = [
    *[Rejected(code, "no") for code in Rejected.codes],
    *[Unavailable(code, "not now", retry_after_s=2.5) for code in Unavailable.codes],
    Unknown("perhaps"),
    Broken("a bug"),
]


@pytest.mark.parametrize("problem", KINDS, ids=lambda problem: problem.code)
async def test_each_kind_of_no_looks_like_itself(node: Node, problem: Problem) -> None:
    node.pool.fail_next(problem)
    answer = await node.client.get("/v1/cluster")
    assert (answer.status, answer.code, answer.json["detail"]) == (CODES[problem.code], problem.code, problem.detail)
    assert answer.headers.get("Retry-After") == ("3" if isinstance(problem, Unavailable) else None)
    assert ("WWW-Authenticate" in answer.headers) == (problem.code == "unauthorized")


def test_a_kind_has_no_code_of_another() -> None:
    with pytest.raises(ValueError, match="no_master is not a code of Rejected"):
        Rejected("no_master", "")


async def test_a_bug_is_told_by_an_id_and_to_the_daemon(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    bug = RuntimeError("a secret of the inside")
    node.pool.fail_next(bug)
    with caplog.at_level(logging.ERROR):
        answer = await node.client.add({"work": WORK})
    assert (answer.status, answer.code) == (500, "broken")
    assert b"secret" not in answer.body
    assert node.broken == [bug]
    incident = answer.json["detail"].split()[-1]
    (record,) = [record for record in caplog.records if incident in record.getMessage()]
    assert record.exc_info is not None
    assert record.exc_info[1] is bug


async def test_each_request_leaves_one_line_without_its_secrets(node: Node) -> None:
    await node.client.get("/v1/tasks?q=password")
    (note,) = node.notes
    assert {name: note[name] for name in ("event", "method", "path", "status", "token", "client")} == {
        "event": "request",
        "method": "GET",
        "path": "/v1/tasks",
        "status": 200,
        "token": "root",
        "client": "127.0.0.1",
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    ],
)
async def test_what_is_no_http_gets_a_problem_too(node: Node, raw: bytes) -> None:
    answer = await node.say(raw)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert b"application/problem+json" in head
    assert b"Traceback" not in body
    assert not node.broken


async def test_stopping_waits_for_what_is_under_way(node: Node) -> None:
    node.pool.gate.clear()
    adding = asyncio.create_task(node.client.add({"work": WORK}))
    await until(lambda: node.pool.waiting)
    stopping = asyncio.create_task(node.server.stop())
    await asyncio.sleep(0)
    node.pool.gate.set()
    assert (await adding).status == 201
    await stopping
