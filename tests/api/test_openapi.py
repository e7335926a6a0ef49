"""The description that is served: sound in itself, and true of what is served."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quvatlh.api.openapi import SCHEMAS, document
from quvatlh.api.routes import ROUTES
from quvatlh.api.tasks import FIELDS
from tests.api.client import WORK, Node, serving
from tests.examples import examples

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document()))
OPERATIONS = [
    (method, path, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


def parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from parts(each)


def schema_at(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "components": DOCUMENT["components"]}


def test_it_names_every_route_and_no_other() -> None:
    assert {(method.upper(), path) for method, path, _ in OPERATIONS} == {(r.method, r.path) for r in ROUTES}


def test_it_is_openapi_of_version_3_1() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT.keys() <= {"openapi", "info", "paths", "components", "security"}
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(ids)) == len(ids)
    for _, path, operation in OPERATIONS:
        inside = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
        assert inside == re.findall(r"{(\w+)}", path)
        assert all(response["description"] for response in operation["responses"].values())
        assert {"400", "401", "404", "500", "503"} <= operation["responses"].keys()
    templates = [re.sub(r"{\w+}", "{}", path) for path in DOCUMENT["paths"]]
    assert len(set(templates)) == len(templates)


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    for part in parts(DOCUMENT):
        if "$ref" in part:
            assert part["$ref"].removeprefix("#/components/schemas/") in SCHEMAS
        if "schema" in part:
            jsonschema_rs.meta.validate(part["schema"])
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


def test_a_new_task_may_have_every_field_of_the_contract() -> None:
    assert DOCUMENT["components"]["schemas"]["NewTask"]["properties"].keys() == FIELDS.keys()


def test_headers_that_mean_something_are_described() -> None:
    def described(path: str, status: str = "200") -> set[str]:
        return set(DOCUMENT["paths"][path]["get"]["responses"][status]["headers"])

    assert described("/v1/tasks/{id}/log") == {"Quvatlh-Action", "Quvatlh-Offset", "Quvatlh-Bytes", "Quvatlh-Log"}
    assert "Quvatlh-Index" in described("/v1/cluster/backup")
    assert described("/v1/tasks", "503") == {"Retry-After"}
    assert described("/v1/tasks", "401") == {"WWW-Authenticate"}


def fits(answer_schema: str, value: object) -> None:
    jsonschema_rs.validator_for(schema_at({"$ref": f"#/components/schemas/{answer_schema}"})).validate(value)


NAMED = {"tokens": "root", "workers": "one", "policies": "p", "queues": "q", "classes": "c", "schedules": "s"}
"""What there is one of, by the collection it is in."""


async def test_what_is_answered_fits_what_is_described(node: Node) -> None:
    client = node.client
    fits("Added", (await client.add({"work": WORK, "id": "a", "retry": {"attempts": 2}})).json)
    await client.ask("PUT", "/v1/policies/p", {"source": "return true"})
    await client.ask(
        "PUT", "/v1/queues/q", {"rate": "100/m", "unique": {}, "retry": {"backoff": ["1s"]}, "lease": "3s"}
    )
    await client.ask("PUT", "/v1/classes/c", {"rate": 4.5, "ceil": 4.5})
    await client.ask(
        "PUT", "/v1/schedules/s", {"cron": "@daily", "task": {"work": WORK, "expires": "5m", "payload": 1}}
    )
    fits("ScheduleRun", (await client.ask("POST", "/v1/schedules/s/run")).json)
    announced = dict.fromkeys(("task", "action", "group", "name", "worker"), "a")
    node.pool.announced = [{**announced, "at_ms": 1, "data": {"port_ms": 1}}]
    live = dict.fromkeys(("id", "task", "worker", "state", "name", "group", "queue", "kind"), "a")
    rest = (
        "exit_code",
        "signal",
        "error",
        "progress",
        "announcement",
        "output_tail",
        "started_at_ms",
        "finished_at_ms",
    )
    node.pool.owns = [{**live, "token": 1, "attempt": 1, **dict.fromkeys(rest)}]
    for route in ROUTES:
        name = route.answers.get(200, "")
        if route.method == "GET" and name in SCHEMAS and "bulk" not in route.path and "result" not in route.path:
            name_of = NAMED.get((route.path + "//").split("/")[2], "")
            path = route.path.replace("{id}", "a").replace("{name}", name_of)
            answer = await client.get(path)
            assert answer.status == 200, path
            fits(name, answer.json)
    fits("TasksOrGroups", (await client.get("/v1/tasks?group_by=state")).json)
    fits("ActionsOrGroups", (await client.get("/v1/actions?group_by=worker")).json)
    spread = "/v1/tasks?group_by=state&parts=4&finished_after=2020-01-01T00:00:00Z"
    fits("TasksOrGroups", (await client.get(spread)).json)
    for line in (await client.add_lines(b'{"work":{"command":["a"]}}\n' * 1000 + b"x")).lines:
        fits("AddedLine", line)
    fits("Problem", (await client.get("/nowhere")).json)
    test = {"source": "return true", "task": "a"}
    fits("PolicyTests", (await client.ask("POST", "/v1/policies/test", test)).json)
    balance = {"event": "BALANCE", "group": "default", "dry_run": True}
    fits("Balanced", (await client.ask("POST", "/v1/events", balance)).json)
    verbs: dict[str, dict[str, Any]] = {
        "kill": {},
        "retry": {"queue": "default"},
        "relocate": {},
        "update": {"set": {"limit": None}},
        "delete": {},
    }
    for verb, more in verbs.items():
        fits("Done", (await client.ask("POST", f"/v1/tasks/{verb}", {"ids": ["a"], **more})).json)
    for path, answer_schema in (
        ("queues/q/pause", "Queue"),
        ("queues/q/resume", "Queue"),
        ("queues/default/purge", "Done"),
    ):
        fits(answer_schema, (await client.ask("POST", f"/v1/{path}")).json)
    fits("Queue", (await client.ask("PATCH", "/v1/queues/q", {"limit": None})).json)
    fits("Class", (await client.ask("PATCH", "/v1/classes/c", {"ceil": None})).json)
    fits("Deleted", (await client.ask("DELETE", "/v1/queues/q")).json)
    fits("Deleted", (await client.ask("DELETE", "/v1/classes/c")).json)
    fits("Deleted", (await client.ask("DELETE", "/v1/policies/p")).json)
    assert (await client.get("/openapi.json")).json == DOCUMENT


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3),
    max_leaves=6,
)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Mostly what the schema says, sometimes something else."""
    made = fitting(schema)  # once: each level that were made twice would double all below it
    return st.one_of(made, made, ANY_JSON)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    for key in ("anyOf", "oneOf"):
        if key in schema and "type" not in schema:
            return st.one_of([fitting(each) for each in schema[key]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type", [])
    made = [FITTING[kind](schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return st.one_of(made) if made else ANY_JSON


def texts(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    words = st.sampled_from(
        ["a", "5m", "10%", "2030-01-01T00:00:00Z", "pkg.mod:fn", "http://x/", "command: [a]", "YQ=="]
    )
    return words | st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 20), 20))


def objects(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties = {name: values(each) for name, each in schema.get("properties", {}).items()}
    required = {name: properties.pop(name) for name in schema.get("required", []) if name in properties}
    known = st.fixed_dictionaries(required, optional=properties)
    return known | st.tuples(known, st.dictionaries(st.text(max_size=4), ANY_JSON, max_size=2)).map(
        lambda t: t[0] | t[1]
    )


FITTING: dict[str, Any] = {
    "string": texts,
    "number": lambda _: st.floats(0, 1e6),
    "integer": lambda s: st.integers(s.get("minimum", -10), min(s.get("maximum", 100), 2**40)),
    "boolean": lambda _: st.booleans(),
    "null": lambda _: st.none(),
    "array": lambda s: st.lists(values(s.get("items", {})), min_size=s.get("minItems", 0), max_size=3),
    "object": objects,
}


WAITING = {"wait", "follow"}
"""Parameters by which an answer may take for ever, as nothing runs here."""


def addresses(path: str, operation: dict[str, Any]) -> st.SearchStrategy[str]:
    query = {
        p["name"]: fitting(p["schema"]) | st.text(max_size=6) for p in operation["parameters"] if p["in"] == "query"
    }
    inside = st.text(min_size=1, max_size=8) | st.sampled_from(["a", "n1", "root", "b1", "one", "p", "default", "q"])

    def written(drawn: tuple[dict[str, Any], list[str]]) -> str:
        pairs, names = drawn
        whole = path
        for name in names:
            whole = re.sub(r"{\w+}", lambda _: quote(name, safe=""), whole, count=1)  # noqa: B023 - used at once
        text = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in pairs.items() if name not in WAITING)
        return f"{whole}?{text}" if text else whole

    names = st.lists(inside, min_size=path.count("{"), max_size=path.count("{"))
    return st.tuples(st.fixed_dictionaries({}, optional=query), names).map(written)


ENDLESS = {"/v1/stream"}


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [each for each in OPERATIONS if each[1] not in ENDLESS],
    ids=lambda value: value if isinstance(value, str) else "",
)
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_asked_is_answered_as_described(
    method: str, path: str, operation: dict[str, Any], data: Any
) -> None:
    body_schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    address = data.draw(addresses(path, operation))
    body = data.draw(values(body_schema)) if body_schema else None

    async def ask() -> None:
        async with serving() as node:
            await node.client.add({"work": WORK, "id": "a"})
            raw = json.dumps(body).encode() if body_schema else None
            answer = await node.client.ask(method.upper(), address, raw=raw)
            assert not node.broken, answer.body
            described = operation["responses"][str(answer.status)]["content"]
            content_type = answer.headers["Content-Type"]
            assert content_type in described
            if content_type.endswith("json"):
                jsonschema_rs.validator_for(schema_at(described[content_type]["schema"])).validate(answer.json)

    asyncio.run(ask())


@pytest.mark.parametrize(
    "raw", [b"\x00", b"\xff\xfe", b"{}" * 3, b"null", b"0", b'"x"', b"[[]]", b'{"event":{}}', b"\r\n"]
)
@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson", "text/plain", ""])
async def test_any_bytes_are_answered(node: Node, raw: bytes, content_type: str) -> None:
    answer = await node.client.ask("POST", "/v1/events", raw=raw, headers={"Content-Type": content_type})
    assert answer.status in {200, 400}
    assert not node.broken
