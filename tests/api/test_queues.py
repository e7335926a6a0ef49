"""Queues and classes over HTTP: what good requests are answered. Bad ones: test_routes.py."""

from __future__ import annotations

from typing import Any

import pytest

from quvatlh.core.model import Keep, QueueSettings, Rate
from tests.api.client import WORK, Node

UNSET: dict[str, Any] = {
    "discipline": "priority",
    "weight": 1,
    "limit": None,
    "limit_per_key": None,
    "limit_per_worker": None,
    "rate": None,
    "burst": None,
    "paused": False,
    "unique": None,
    "retry": None,
    "lease": None,
    "keep": {"age": "1d", "count": 100_000},
    "keep_failed": {"age": "30d", "count": 1_000_000},
    "workers": ["*"],
    "class": None,
    "key_weights": {},
}
GIVEN: dict[str, Any] = {
    "discipline": "sfq",
    "weight": 3,
    "limit": 10,
    "limit_per_key": 2,
    "limit_per_worker": 4,
    "rate": "100/m",
    "burst": 20,
    "paused": True,
    "unique": {"key": "k", "while": "1h"},
    "lease": "1m",
    "keep": {"age": "2h", "count": 50},
    "keep_failed": {"age": "7d", "count": 1_000_000},
    "workers": ["mail-*"],
    "key_weights": {"acme_ms": 3},
}


async def test_queues_are_listed_by_what_is_in_them(node: Node) -> None:
    await node.client.add(*({"work": WORK, "queue": each} for each in ("a", "b", "b", "c", "c", "c")))
    first = (await node.client.get("/v1/queues?sort=-pending&limit=2")).json
    rest = (await node.client.get(f"/v1/queues?sort=-pending&limit=2&cursor={first['next']}")).json
    assert [[one["name"] for one in page["items"]] for page in (first, rest)] == [["c", "b"], ["a"]]
    assert (await node.client.get("/v1/queues?sort=pending")).code == "invalid"


async def test_a_queue_is_shown_with_its_settings_and_what_is_in_it(node: Node) -> None:
    await node.client.add({"work": WORK, "queue": "mail"}, {"work": WORK, "queue": "mail", "delay": "1h"})
    mail = (await node.client.get("/v1/queues/mail")).json
    assert mail.pop("rates") == {
        "in": 0.0, "out": 0.0, "failed": 0.0, "retried": 0.0, "wait": None, "run": None, "span": "1m",
    }  # fmt: skip
    assert mail == {
        "name": "mail",
        **UNSET,
        "counts": {"scheduled": 1, "pending": 1, "claimed": 0, "running": 0, "retrying": 0, "failed": 0},
        "over": {"succeeded": 0, "deleted": 0},
        "oldest_pending_at": "2023-11-14T22:13:20.000Z",
        "oldest_placeable_at": "2023-11-14T22:13:20.000Z",
        "unplaceable": None,
    }
    lacks = {"count": 1, "at_least": False, "lacks": [{"what": "tag", "value": "gpu_ms", "count": 1}]}
    node.pool.queueing.unplaceable["mail"] = lacks
    assert (await node.client.get("/v1/queues/mail")).json["unplaceable"] == lacks
    node.pool.queueing.rates["mail"] = {"wait": {"p50_ms": 1500, "p95_ms": 0, "p99_ms": 12}}
    rates = (await node.client.get("/v1/queues/mail")).json["rates"]
    assert rates["wait"] == {"p50": "1500ms", "p95": "0s", "p99": "12ms"}


async def test_put_replaces_and_what_is_shown_can_be_put_again(node: Node) -> None:
    answer = await node.client.ask("PUT", "/v1/queues/q", GIVEN)
    assert (answer.status, {name: answer.json[name] for name in GIVEN}) == (200, GIVEN)
    shown = {name: answer.json[name] for name in UNSET}
    assert (await node.client.ask("PUT", "/v1/queues/q", shown)).json == answer.json
    reset = await node.client.ask("PUT", "/v1/queues/q", {"limit": 1})
    assert {name: reset.json[name] for name in UNSET} == UNSET | {"limit": 1}


async def test_patch_merges_and_null_takes_a_setting_back(node: Node) -> None:
    await node.client.ask("PUT", "/v1/queues/q", GIVEN)
    changed = await node.client.ask("PATCH", "/v1/queues/q", {"limit": 7, "keep": "3d"})
    assert {name: changed.json[name] for name in GIVEN} == GIVEN | {"limit": 7, "keep": {"age": "3d", "count": 50}}
    back = await node.client.ask("PATCH", "/v1/queues/q", dict.fromkeys(GIVEN))
    assert {name: back.json[name] for name in UNSET} == UNSET
    assert node.pool.queueing.settings["q"] == QueueSettings()
    assert (await node.client.ask("PATCH", "/v1/queues/new", {"weight": 2})).json["weight"] == 2


@pytest.mark.parametrize(
    ("given", "rate", "shown"),
    [
        ("100/m", Rate(100, 60_000), "100/m"),
        ("5/s", Rate(5, 1000), "5/s"),
        ("1/30s", Rate(1, 30_000), "1/30s"),
        ("2/0.5h", Rate(2, 1_800_000), "2/30m"),
        ("3/1d", Rate(3, 86_400_000), "3/d"),
        ("9/500", None, None),
    ],
)
async def test_rates_are_written_as_people_do(node: Node, given: str, rate: Rate | None, shown: str | None) -> None:
    answer = await node.client.ask("PUT", "/v1/queues/q", {"rate": given})
    if rate is None:
        rate, shown = Rate(9, 500_000), "9/500s"
    assert (node.pool.queueing.settings["q"].rate, answer.json["rate"]) == (rate, shown)


async def test_a_keep_is_an_age_or_age_and_count(node: Node) -> None:
    await node.client.ask("PUT", "/v1/queues/q", {"keep": 60, "keep_failed": {"count": 5}})
    assert node.pool.queueing.settings["q"].keep == Keep(60_000)
    assert node.pool.queueing.settings["q"].keep_failed == Keep(30 * 86_400_000, 5)


async def test_a_patch_of_a_keep_leaves_what_it_does_not_name(node: Node) -> None:
    kept = {"keep": {"age": "3h", "count": 7}, "keep_failed": {"age": "3h", "count": 7}}
    for given, left in (
        ("2h", {"age": "2h", "count": 7}),
        ({"count": 5}, {"age": "3h", "count": 5}),
        ({"age": None, "count": 5}, {"age": "1d", "count": 5}),
        ({"count": None}, {"age": "3h", "count": 100_000}),
        ({}, {"age": "3h", "count": 7}),
    ):
        await node.client.ask("PUT", "/v1/queues/q", kept)
        assert (await node.client.ask("PATCH", "/v1/queues/q", {"keep": given})).json["keep"] == left
    changed = (await node.client.ask("PATCH", "/v1/queues/q", {"keep_failed": {"count": 5}})).json
    assert (changed["keep"], changed["keep_failed"]) == (kept["keep"], {"age": "3h", "count": 5})


@pytest.mark.parametrize(
    ("field", "given", "left"),
    [
        ("retry", {"first": "5s"}, {"first": "5s"}),
        ("retry", {"attempts": None, "max": None}, {"attempts": 25, "max": None}),
        ("retry", {"backoff": "linear"}, {"backoff": "linear"}),
        ("retry", {"backoff": "linear", "max": None}, {"backoff": "linear", "max": "1h"}),
        ("retry", {"backoff": None}, {"backoff": "exponential"}),
        ("retry", {"permanent_exit_codes": None, "jitter": 0.5}, {"permanent_exit_codes": [], "jitter": "50%"}),
        ("retry", {}, {}),
        ("unique", {"while": "active"}, {"while": "active"}),
        ("unique", {"while": "2h"}, {"while": "2h"}),
        ("unique", {"while": None}, {"while": "unfinished"}),
        ("unique", {"key": None}, {"key": None}),
        ("unique", {"key": "other"}, {"key": "other"}),
    ],
)
async def test_a_patch_of_a_retry_or_a_unique_leaves_what_it_does_not_name(
    node: Node, field: str, given: dict[str, Any], left: dict[str, Any]
) -> None:
    whole = {
        "retry": {"attempts": 4, "backoff": ["2s", "1m"], "max": "5m", "permanent_exit_codes": [64]},
        "unique": {"key": "k", "while": "1h"},
    }
    before = (await node.client.ask("PUT", "/v1/queues/q", whole)).json
    changed = (await node.client.ask("PATCH", "/v1/queues/q", {field: given})).json
    assert changed == before | {field: before[field] | left}
    assert (await node.client.ask("PATCH", "/v1/queues/q", {field: None})).json[field] is None
    assert (await node.client.ask("PUT", "/v1/queues/q", {field: given})).json[field] != before[field]


async def test_a_key_of_weight_may_hold_what_keys_hold(node: Node) -> None:
    weights = {"acme/eu": 3}
    assert (await node.client.ask("PUT", "/v1/queues/q", {"key_weights": weights})).json["key_weights"] == weights


async def test_a_queue_may_be_paused_before_it_is_used_and_goes_on(node: Node) -> None:
    assert (await node.client.ask("POST", "/v1/queues/q/pause")).json["paused"] is True
    assert (await node.client.ask("POST", "/v1/queues/q/resume")).json["paused"] is False


async def test_purge_deletes_what_waits_and_takes_off_the_list_what_is_over(node: Node) -> None:
    client = node.client
    await client.add(*[{"work": WORK, "id": f"t{n}"} for n in range(3)])
    node.pool.finish("t0", state="failed")
    assert (await client.ask("DELETE", "/v1/queues/default")).code == "not_empty"
    first = await client.ask("POST", "/v1/queues/default/purge")
    assert (first.json["matched"], first.json["done"]) == (2, 2)
    everything = ["scheduled", "pending", "retrying", "succeeded", "failed", "deleted"]
    second = await client.ask("POST", "/v1/queues/default/purge", {"states": everything})
    assert (second.json["matched"], node.pool.records) == (3, {})
    assert (await client.ask("DELETE", "/v1/queues/default")).json == {"name": "default"}
    assert (await client.get("/v1/queues/default")).code == "not_found"


async def test_a_large_purge_is_worked_off(node: Node) -> None:
    await node.client.add(*[{"work": WORK} for _ in range(3)])
    node.pool.queueing.bulk_above = 2
    started = await node.client.ask("POST", "/v1/queues/default/purge")
    assert (started.status, started.json) == (202, {"bulk": "b2"})
    assert (await node.client.get("/v1/bulk/b2")).json["matched"] == 3


async def test_queues_are_listed_by_name_page_by_page(node: Node) -> None:
    for name in ("c", "a", "b"):
        await node.client.ask("PUT", f"/v1/queues/{name}", {})
    page = (await node.client.get("/v1/queues?limit=2")).json
    assert ([one["name"] for one in page["items"]], page["total"]) == (["a", "b"], 3)
    rest = (await node.client.get(f"/v1/queues?limit=2&cursor={page['next']}")).json
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["c"], None)


async def test_classes_are_put_patched_listed_and_deleted(node: Node) -> None:
    client = node.client
    root = await client.ask("PUT", "/v1/classes/root", {"rate": 10})
    shown = {"name": "root", "parent": None, "rate": 10, "ceil": None, "burst": 1, "priority": 0, "of": "slots"}
    assert root.json == shown
    leaf = await client.ask("PUT", "/v1/classes/leaf", {"parent": "root", "rate": 2.5, "ceil": 7, "priority": -1})
    assert (leaf.json["rate"], leaf.json["ceil"]) == (2.5, 7)
    assert (await client.ask("PATCH", "/v1/classes/leaf", {"ceil": None, "rate": None})).json["rate"] == 0
    assert [one["name"] for one in (await client.get("/v1/classes")).json["items"]] == ["leaf", "root"]
    assert (await client.ask("DELETE", "/v1/classes/root")).code == "not_empty"
    await client.ask("PUT", "/v1/queues/q", {"class": "leaf"})
    assert (await client.get("/v1/queues/q")).json["class"] == "leaf"
    assert (await client.ask("DELETE", "/v1/classes/leaf")).json == {"name": "leaf"}


async def test_the_rate_of_a_class_of_starts_may_be_written_as_one_and_parts_fit_into_their_whole(node: Node) -> None:
    given = {"of": "starts", "rate": "100/m", "ceil": "10/s", "parent": "top"}
    await node.client.ask("PUT", "/v1/classes/top", {"of": "starts", "rate": "10/s"})
    whole = await node.client.ask("PUT", "/v1/classes/whole", given)
    assert (whole.json["rate"], whole.json["ceil"]) == (1.666, 10)
    parts = [(await node.client.ask("PUT", f"/v1/classes/c{n}", {"rate": "10/m"})).json["rate"] for n in range(10)]
    assert sum(round(rate * 1000) for rate in parts) <= 1666


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/queues/{}", {"limit": 5}),
        ("PATCH", "/v1/queues/{}", {"limit": 5}),
        ("POST", "/v1/queues/{}/pause", None),
        ("POST", "/v1/queues/{}/purge", None),
        ("PUT", "/v1/classes/{}", {"rate": 5}),
        ("PATCH", "/v1/classes/{}", {"rate": 5}),
        ("DELETE", "/v1/classes/{}", None),
    ],
)
async def test_a_key_stands_for_one_name_only(node: Node, method: str, path: str, body: Any) -> None:
    for name in ("one", "two"):
        await node.client.ask("PUT", f"/v1/queues/{name}", {})
        await node.client.ask("PUT", f"/v1/classes/{name}", {})
    digests = []
    for name in ("one", "two"):
        await node.client.ask(method, path.format(name), body, headers={"Idempotency-Key": "k"})
        key = node.pool.calls[-1].key
        assert key is not None
        digests.append(key.digest)
    assert digests[0] != digests[1]
