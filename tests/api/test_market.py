"""Verbs, balance, workers, policies, announcements, explain: what good requests are answered. Bad ones: test_routes.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.client import WORK, Node
from tests.fakes.market import worker


async def test_verbs_say_what_matched_and_what_was_done(node: Node) -> None:
    client = node.client
    await client.add(*[{"work": WORK, "id": f"t{n}", "queue": "q"} for n in range(4)])
    for n in range(3):
        node.pool.records[f"t{n}"]["state"] = "running"
    killed = await client.ask("POST", "/v1/tasks/kill", {"ids": ["t0", "t1"]})
    assert (killed.status, killed.json["matched"], killed.json["done"]) == (200, 2, 2)
    again = await client.ask("POST", "/v1/tasks/kill", {"match": {"queue": "q"}})
    assert (again.json["matched"], again.json["done"]) == (4, 3)  # what is over is as asked, what waits is not killed
    assert [one["id"] for one in (await client.get("/v1/tasks?error=killed")).json["items"]] == ["t0", "t1", "t2"]
    retried = await client.ask("POST", "/v1/tasks/retry", {"match": {"error": "killed"}})
    assert (retried.json["matched"], retried.json["done"]) == (3, 3)
    moved = await client.ask("POST", "/v1/tasks/relocate", {"ids": ["t0"], "to": "one"})
    assert (moved.json["done"], node.pool.placed["t0"]) == (1, "one")
    assert (await client.ask("POST", "/v1/tasks/relocate", {"ids": ["t1"]})).json["done"] == 1


async def test_update_changes_what_is_named_and_null_takes_away(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a", "limit": 3, "expires": "2030-01-01T00:00:00Z", "tags": ["gpu"]})
    change = {"queue": "q2", "priority": 7, "keep": "2h", "at": "2029-01-01T00:00:00Z", "limit": None, "expires": None}
    answer = await node.client.ask("POST", "/v1/tasks/update", {"ids": ["a"], "set": change})
    assert answer.json["done"] == 1
    task = (await node.client.get("/v1/tasks/a")).json
    shown = {name: task[name] for name in (*change, "tags")}
    assert shown == change | {"at": "2029-01-01T00:00:00.000Z", "tags": ["gpu"]}


async def test_balance_tells_its_moves_and_a_dry_run_makes_none(node: Node) -> None:
    await node.client.add(*[{"work": WORK, "id": f"t{n}", "group": "g"} for n in range(4)])
    await node.client.ask("POST", "/v1/tasks/relocate", {"match": {"group": "g"}, "to": "one"})
    node.pool.crew["two"] = worker("two")
    event = {"event": "BALANCE", "group": "g"}
    plan = await node.client.ask("POST", "/v1/events", event | {"dry_run": True})
    moves = [{"task": "t0", "from": "one", "to": "two"}, {"task": "t1", "from": "one", "to": "two"}]
    assert (plan.status, plan.json) == (200, {"moves": moves, "index": None})
    assert node.pool.placed["t0"] == "one"
    done = await node.client.ask("POST", "/v1/events", event | {"max": 1})
    assert done.json == {"moves": moves[:1], "index": node.pool.index}
    assert node.pool.placed["t0"] == "two"


async def test_workers_are_listed_changed_drained_and_back(node: Node) -> None:
    client = node.client
    listed = (await client.get("/v1/workers")).json
    assert ([one["name"] for one in listed["items"]], listed["total"]) == (["one"], 1)
    changed = await client.ask("PATCH", "/v1/workers/one", {"slots": 8, "tags": ["gpu"], "queues": ["mail-*"]})
    assert {name: changed.json[name] for name in ("slots", "free", "tags", "queues")} == {
        "slots": 8,
        "free": 8,
        "tags": ["gpu"],
        "queues": ["mail-*"],
    }
    assert (await client.ask("POST", "/v1/workers/one/drain")).json["state"] == "draining"
    assert (await client.ask("POST", "/v1/workers/one/undrain")).json["state"] == "up"
    assert (await client.get("/v1/workers/one")).json == changed.json


async def test_a_worker_says_what_its_machine_bears_and_bore(node: Node) -> None:
    assert (await node.client.get("/v1/workers/one")).json["load"]["cpu_load"] == 0.25
    hour = (await node.client.get("/v1/workers/one/load")).json
    assert hour == {"step": "5s", "cpu": [None, 50, 25], "memory": [None, 24, 25]}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/v1/workers/{}", {"slots": 5}),
        ("POST", "/v1/workers/{}/drain", None),
        ("PUT", "/v1/policies/{}", {"source": "return true"}),
        ("DELETE", "/v1/policies/{}", None),
    ],
)
async def test_a_key_stands_for_one_name_only(node: Node, method: str, path: str, body: Any) -> None:
    node.pool.crew["two"] = worker("two")
    for name in ("one", "two"):
        await node.client.ask("PUT", f"/v1/policies/{name}", {"source": "return 7"})
    key = {"Idempotency-Key": "k"}
    assert (await node.client.ask(method, path.format("one"), body, headers=key)).status == 200
    assert node.pool.calls[-1].key is not None
    first = node.pool.calls[-1].key.digest
    await node.client.ask(method, path.format("two"), body, headers=key)
    assert node.pool.calls[-1].key is not None
    assert node.pool.calls[-1].key.digest != first


async def test_a_policy_is_stored_by_version_as_lua_or_json_and_tested(node: Node) -> None:
    client = node.client
    lua = {"Content-Type": "text/x-lua"}
    first = await client.ask("PUT", "/v1/policies/p", raw=b"return true", headers=lua)
    assert (first.status, first.json["version"], first.json["at"]) == (200, 1, "2023-11-14T22:13:20.000Z")
    assert (await client.ask("PUT", "/v1/policies/p", {"source": "return true"})).json == first.json
    assert (await client.ask("PUT", "/v1/policies/p", {"source": "return 7"})).json["version"] == 2
    assert (await client.get("/v1/policies/p")).json["source"] == "return 7"
    assert "source" not in (await client.get("/v1/policies")).json["items"][0]
    await client.add({"work": WORK, "id": "a", "policy": {"name": "p"}})
    for task in ("a", {"work": WORK}):
        test = await client.ask("POST", "/v1/policies/test", {"source": "return true", "task": task})
        (told,) = test.json["items"]
        state = told.pop("state")
        assert told == {"worker": "one", "verdict": "bid", "score": 1.0, "text": ""}
        asked = {"source": "return true", "task": task, "states": [state | {"worker": {"name": "gone"}, "at_ms": 7}]}
        (again,) = (await client.ask("POST", "/v1/policies/test", asked)).json["items"]
        assert (again["worker"], again["state"]["at_ms"]) == ("gone", 7)
    held = await client.ask("DELETE", "/v1/policies/p")
    assert (held.status, held.code) == (409, "not_empty")
    await client.ask("POST", "/v1/tasks/delete", {"ids": ["a"]})
    assert (await client.ask("DELETE", "/v1/policies/p")).code == "not_empty"  # it is listed yet
    await client.ask("POST", "/v1/queues/default/purge", {"states": ["deleted"]})
    assert (await client.ask("DELETE", "/v1/policies/p")).json == {"name": "p"}


@pytest.mark.parametrize(
    ("raw", "content_type", "code", "words"),
    [
        (b"return \xff", "text/x-lua", "bad_request", "the body is not UTF-8 at byte 7"),
        (b"", "text/x-lua", "invalid", "source must be 1 to"),
        (b"return \0", "text/x-lua", "invalid", "source must not hold NUL"),
        (b"return function(", "text/x-lua", "invalid", "line 1, column 9"),
        (b"return 1", "text/plain", "bad_request", "must be application/json or text/x-lua in UTF-8"),
    ],
)
async def test_a_source_that_cannot_be_taken_is_told(
    node: Node, raw: bytes, content_type: str, code: str, words: str
) -> None:
    answer = await node.client.ask("PUT", "/v1/policies/p", raw=raw, headers={"Content-Type": content_type})
    assert (answer.status, answer.code) == (400, code)
    assert words in answer.json["detail"]
    assert node.pool.stored == {}


async def test_announcements_are_filtered_by_group_and_their_data_is_untouched(node: Node) -> None:
    who = {"task": "t", "action": "a1", "name": "web", "worker": "one", "at_ms": 1_700_000_000_000}
    node.pool.announced = [{**who, "group": group, "data": {"ttl_ms": 5}} for group in ("g", "h")]
    found = (await node.client.get("/v1/announcements?group=g")).json
    assert [(one["group"], one["at"], one["data"]) for one in found["items"]] == [
        ("g", "2023-11-14T22:13:20.000Z", {"ttl_ms": 5})
    ]
    assert (await node.client.get("/v1/announcements")).json["total"] == 2


async def test_live_actions_are_listed_by_pages_and_counted(node: Node) -> None:
    who = {"task": "t", "group": "g", "queue": "q", "kind": "service", "started_at_ms": 1_700_000_000_000}
    node.pool.owns = [{**who, "id": f"a{n}", "token": n, "worker": "two" if n == 5 else "one"} for n in range(1, 6)]
    first = (await node.client.get("/v1/actions?worker=one&kind=service&limit=3")).json
    assert ([one["id"] for one in first["items"]], first["total"]) == (["a1", "a2", "a3"], 4)
    assert first["items"][0]["started_at"] == "2023-11-14T22:13:20.000Z"
    rest = (await node.client.get(f"/v1/actions?worker=one&cursor={first['next']}")).json
    assert ([one["id"] for one in rest["items"]], rest["next"]) == (["a4"], None)
    counted = (await node.client.get("/v1/actions?group=g&group_by=worker")).json
    assert counted == {"groups": [{"value": "one", "count": 4}, {"value": "two", "count": 1}]}
    assert (await node.client.get("/v1/actions?queue=other&group_by=worker")).json == {"groups": []}


async def test_explain_says_why_worker_by_worker(node: Node) -> None:
    await node.client.add({"work": WORK, "id": "a", "tags": ["gpu"]})
    node.pool.why["a"] = {
        "reason": "tags",
        "change": "give it",
        "eta": {"at_ms": 1_700_000_000_000, "low_ms": 0, "high_ms": None},
    }
    told = (await node.client.get("/v1/tasks/a/explain")).json
    assert told["workers"] == [{"name": "one", "verdict": "tags", "detail": "gpu", "score": None}]
    assert told["change"] == "give it"
    assert told["eta"] == {"at": "2023-11-14T22:13:20.000Z", "low": "1970-01-01T00:00:00.000Z", "high": None}


SEED = b"""
Group: shop
Name: web
Balancable: true
Limit: 2
Tags: [zone=eu-*, "!spot*"]
Policy: |
  PolicyFuncBase = function(state, task)
    return state.worker.free
  end
Announce: |
  function(state, task, action) return {port = 8080} end
Work:
  shell: exec ./serve --port 8080
---
- {id: b, work: {command: [echo, hi]}}
"""


@pytest.mark.parametrize("content_type", ["application/yaml", "text/yaml; charset=utf-8", "application/x-yaml"])
async def test_tasks_may_come_as_yaml_with_the_capitals_of_the_design(node: Node, content_type: str) -> None:
    added = await node.client.ask("POST", "/v1/events", raw=SEED, headers={"Content-Type": content_type})
    assert (added.status, added.json["ids"][1]) == (201, "b")
    task = (await node.client.get(f"/v1/tasks/{added.json['ids'][0]}")).json
    shown = {name: task[name] for name in ("group", "name", "limit", "tags", "balancable", "work")}
    assert shown == {
        "group": "shop",
        "name": "web",
        "limit": 2,
        "tags": ["zone=eu-*", "!spot*"],
        "balancable": True,
        "work": {"shell": "exec ./serve --port 8080"},
    }
    assert task["policy"].startswith("PolicyFuncBase = function")
