from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.api import shapes
from quvatlh.api.checks import Faults
from quvatlh.api.tasks import FIELDS, check
from quvatlh.core.limits import PAYLOAD_BYTES_MAX
from quvatlh.core.model import TaskSpec, Work
from tests.api.client import WORK, Client

LUA = "function(state, task) return true end"

GOOD: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    # what is given, what stands in the spec, what stands beside it
    ({}, {}, {}),
    ({"id": "a.b:c-D_9"}, {}, {"id": "a.b:c-D_9"}),
    ({"name": "nightly/backup", "group": "prod"}, {"name": "nightly/backup", "group": "prod"}, {}),
    ({"name": None, "id": None, "payload": None}, {}, {}),
    ({"kind": "service", "limit": 3}, {"kind": "service", "limit": 3}, {}),
    ({"limit": 2.0}, {"limit": 2}, {}),
    ({"queue": "mail", "queue_limit": 0}, {"queue": "mail", "queue_limit": 0}, {}),
    ({"tags": ["zone=eu-*", "!spot*"]}, {"tags": ["zone=eu-*", "!spot*"]}, {}),
    ({"policy": LUA, "announce": {"name": "web"}}, {"policy": {"source": LUA}, "announce": {"name": "web"}}, {}),
    ({"payload": {"a": [1, "ü"]}}, {}, {"payload": '{"a":[1,"ü"]}'.encode()}),
    ({"payload": False}, {}, {"payload": b"false"}),
    ({"payload_base64": "AP8="}, {}, {"payload": b"\x00\xff", "payload_json": False}),
    ({"priority": -5, "key": "t/7", "cost": 2, "slots": 0}, {"priority": -5, "key": "t/7", "cost": 2, "slots": 0}, {}),
    ({"at": "2030-01-01T00:00:00Z"}, {}, {"at_ms": 1_893_456_000_000}),
    ({"at": "5m", "expires": 600}, {}, {"delay_ms": 300_000, "expires_in_ms": 600_000}),
    ({"delay": "10s"}, {}, {"delay_ms": 10_000}),
    ({"retry": {"attempts": 3, "backoff": "linear", "first": "2s", "factor": 1.5, "max": "1m", "jitter": "5%"}},
     {"retry": {"attempts": 3, "backoff": "linear", "first_ms": 2000, "factor_milli": 1500, "max_ms": 60_000,
                "jitter_permille": 50}}, {}),
    ({"retry": {"backoff": ["1s", 5], "jitter": 0}},
     {"retry": {"backoff": "list", "delays_ms": [1000, 5000], "jitter_permille": 0}}, {}),
    ({"delivery": "at-most-once"}, {"delivery": "at-most-once"}, {}),
    ({"unique": {}}, {"unique": {}}, {}),
    ({"unique": {"key": "k", "while": "active"}}, {"unique": {"key": "k", "while": "active"}}, {}),
    ({"unique": {"while": "1h"}}, {"unique": {"for_ms": 3_600_000}}, {}),
    ({"lease": "1h", "timeout": "1ms", "keep": 0}, {"lease_ms": 3_600_000, "timeout_ms": 1, "keep_ms": 0}, {}),
    ({"stop": {"signal": "INT", "grace": "1m"}}, {"stop": {"signal": "INT", "grace_ms": 60_000}}, {}),
    ({"notify": {"url": "https://x.example/hook", "on": ["failed"]}},
     {"notify": {"url": "https://x.example/hook", "on": ["failed"]}}, {}),
    ({"notify": {"url": "HTTP://[::1]:8080/"}}, {"notify": {"url": "HTTP://[::1]:8080/"}}, {}),
    ({"balancable": False}, {"balancable": False}, {}),
]  # fmt: skip

TOO_LONG = "x" * 257
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"id": ""}, ".id", "must be 1 to 128 of"),
    ({"id": "a/b"}, ".id", "must be 1 to 128 of"),
    ({"id": "x" * 129}, ".id", "must be 1 to 128 of"),
    ({"id": 5}, ".id", "must be 1 to 128 of"),
    ({"name": TOO_LONG}, ".name", "must be 1 to 256 characters, not 257"),
    ({"name": "a\nb"}, ".name", "must not hold control characters"),
    ({"name": ""}, ".name", "must be 1 to 256 characters, not 0"),
    ({"name": 5}, ".name", "must be text, not 5"),
    ({"group": "a/b"}, ".group", "must not hold '/'"),
    ({"queue": "a/b"}, ".queue", "must not hold '/'"),
    ({"queue": ".."}, ".queue", "must not be '..': no address can hold it"),
    (
        {"retry": {"permanent_exit_codes": [0, 256]}},
        ".retry.permanent_exit_codes[1]",
        "must be a whole number from 0 to 255",
    ),
    ({"retry": {"first": "2h", "max": "1h"}}, ".retry.first", "must not be longer than max"),
    ({"tags": "gpu"}, ".tags", "must be a list, not 'gpu'"),
    ({"tags": ["gpu", 5]}, ".tags[1]", "must be text, not 5"),
    ({"tags": ["x"] * 1001}, ".tags", "must have 0 to 1000 items, not 1001"),
    ({"kind": "cron"}, ".kind", "must be one of job, service, not 'cron'"),
    ({"limit": 0}, ".limit", "must be a whole number from 1"),
    ({"limit": True}, ".limit", "must be a whole number from 1"),
    ({"limit": 1.5}, ".limit", "must be a whole number from 1"),
    ({"limit": "5"}, ".limit", "must be a whole number from 1"),
    ({"slots": -1}, ".slots", "must be a whole number from 0"),
    ({"priority": 2**31}, ".priority", "must be a whole number from"),
    ({"balancable": "no"}, ".balancable", "must be true or false, not 'no'"),
    ({"policy": 5}, ".policy", "must be Lua source or {name: ...}"),
    ({"policy": {"name": "x", "nam": "x"}}, ".policy.nam", "is not a known field; did you mean name?"),
    ({"policy": {}}, ".policy.name", "is required"),
    ({"payload_base64": "%%"}, ".payload_base64", "is not base64"),
    ({"payload_base64": "AA==", "payload": 1}, ".payload_base64", "must not be given together with payload"),
    ({"payload": "x" * PAYLOAD_BYTES_MAX}, ".payload", "must be at most 1048576 bytes, not 1048578"),
    ({"at": "tomorrow"}, ".at", "must be a time such as"),
    ({"at": "2023-02-29T00:00:00Z"}, ".at", "is no day or time that exists"),
    ({"at": "5m", "delay": "5m"}, ".delay", "must not be given together with at"),
    ({"delay": -1}, ".delay", "must be a duration"),
    ({"at": "2030-01-01T00:00:00Z", "expires": "2030-01-01T00:00:00Z"}, ".expires", "must be later than the start"),
    ({"delay": "5m", "expires": "1m"}, ".expires", "must be later than the start"),
    ({"retry": 3}, ".retry", "must be an object, not 3"),
    ({"retry": {"attempts": 0}}, ".retry.attempts", "must be a whole number from 1"),
    ({"retry": {"bakoff": "linear"}}, ".retry.bakoff", "is not a known field; did you mean backoff?"),
    ({"retry": {"backoff": []}}, ".retry.backoff", "must have 1 to 1000 items"),
    ({"retry": {"backoff": ["1s", "x"]}}, ".retry.backoff[1]", "must be a duration"),
    (
        {"retry": {"permanent_statuses": [404, 99999]}},
        ".retry.permanent_statuses[1]",
        "must be a whole number from 100 to 599",
    ),
    ({"retry": {"jitter": "200%"}}, ".retry.jitter", "must be a share such as 10%"),
    ({"retry": {"jitter": "x%"}}, ".retry.jitter", "must be a share such as 10%"),
    ({"retry": {"factor": 0}}, ".retry.factor", "must be a number from 1 to 1000"),
    ({"unique": True}, ".unique", "must be an object, not true"),
    ({"unique": {"while": "always"}}, ".unique.while", "must be queued, active, unfinished, or a duration"),
    ({"lease": "500ms"}, ".lease", "must be from 1s to 1h, not '500ms'"),
    ({"timeout": 0}, ".timeout", "must be 1ms or more, not 0"),
    ({"stop": {"signal": "SIGTERM"}}, ".stop.signal", "must be one of"),
    ({"notify": {}}, ".notify", "must name exactly one of url, command"),
    ({"notify": {"url": "ftp://x"}}, ".notify.url", "must be an http or https URL"),
    *(
        ({"notify": {"url": url}}, ".notify.url", "must be an http or https URL, with a host and a port that can be")
        for url in (
            "http:///x",
            "https://u:p@/",
            "http://:80/",
            "http://n:99999/",
            "http://n:0/",
            "http://n:x/",
            "http://[::1/",
        )
    ),
    ({"work": {"http": {"url": "http:///x"}}}, ".work.http.url", "with a host and a port that can be"),
    ({"delivery": "exactly-once"}, ".delivery", "must be one of at-least-once, at-most-once"),
    ({"nmae": "x"}, ".nmae", "is not a known field; did you mean name?"),
    ({"a b": 1}, "['a b']", "is not a known field"),
    ({"work": None}, ".work", "is required"),
    ({"work": {}}, ".work", "must have exactly one of command, shell"),
    ({"work": []}, ".work", "must be YAML text or an object, not a list"),
]


@pytest.mark.parametrize(("given_", "spec", "beside"), GOOD)
def test_a_good_task_becomes_what_the_pool_takes(
    given_: dict[str, Any], spec: dict[str, Any], beside: dict[str, Any]
) -> None:
    made: dict[str, Any] = dict(check({"work": WORK} | given_))
    assert made.pop("spec") == {"work": WORK} | spec
    assert made == beside


def test_the_table_of_good_tasks_names_every_field() -> None:
    assert {name for given_, _, _ in GOOD for name in given_} | {"work"} == FIELDS.keys()


@pytest.mark.parametrize(("given_", "path", "words"), BAD)
def test_a_bad_field_is_named_with_its_path(given_: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(Faults) as caught:
        check({"work": WORK} | given_)
    assert [fault.path for fault in caught.value.faults] == [path]
    assert words in caught.value.faults[0].message


@pytest.mark.parametrize("given_", [None, 5, "x", [], True])
def test_a_task_is_an_object(given_: object) -> None:
    with pytest.raises(ValueError, match="must be an object"):
        check(given_)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(Faults) as caught:
        check({"nmae": 1, "tags": [1, "\n"], "retry": {"first": "x", "zzz": 1}})
    assert [fault.path for fault in caught.value.faults] == [
        ".nmae",
        ".tags[0]",
        ".tags[1]",
        ".retry.first",
        ".retry.zzz",
        ".work",
    ]


def as_shown(made: dict[str, Any]) -> dict[str, Any]:
    """As a GET answers for it, had it been added at 0."""
    record = {"id": "x", "state": "pending", "created_at_ms": 0, "actions": [], "attempts": 0} | made
    shown: dict[str, Any] = json.loads(msgspec.json.encode(shapes.task(record)))
    return shown


@pytest.mark.parametrize(("given_", "spec", "beside"), GOOD)
def test_the_core_takes_what_is_made(given_: dict[str, Any], spec: dict[str, Any], beside: dict[str, Any]) -> None:
    made = check({"work": WORK} | given_)
    converted = msgspec.convert(made["spec"], TaskSpec)
    assert converted.work == Work(command=("true",))


@pytest.mark.parametrize(("given_", "spec", "beside"), GOOD)
def test_what_is_shown_can_be_added_again(given_: dict[str, Any], spec: dict[str, Any], beside: dict[str, Any]) -> None:
    """The same task comes of it, up to defaults that are written out."""
    made = check({"work": WORK} | given_)
    shown = as_shown(dict(made))
    again = check({name: value for name, value in shown.items() if name in FIELDS and name != "id"})
    first, second = (msgspec.convert(each["spec"], TaskSpec) for each in (made, again))
    named = {"name", "limit", "retry", "lease_ms", "unique"}  # shown with the default that holds
    for field in set(TaskSpec.__struct_fields__) - named:
        assert getattr(second, field) == getattr(first, field)
    if first.retry is not None:
        assert second.retry == first.retry
    assert again.get("payload") == made.get("payload")


@pytest.mark.parametrize("state", ["scheduled", "pending", "claimed", "running", "retrying"])
def test_what_is_never_told_cannot_be_asked_for(state: str) -> None:
    with pytest.raises(Faults) as refused:
        check({"work": WORK, "notify": {"url": "https://x.example/", "on": ["failed", state]}})
    (fault,) = refused.value.faults
    assert (fault.path, fault.message) == (".notify.on[1]", f"must be one of succeeded, failed, deleted, not '{state}'")


FIELD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.lists(st.text(max_size=5) | st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=8) | st.sampled_from(["name", "key", "while", "first"]), st.text(max_size=5)),
    st.sampled_from(["5m", "10%", "2030-01-01T00:00:00Z", "job", "service", base64.b64encode(b"x").decode()]),
)


@given(st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(max_size=5), FIELD_VALUES, max_size=6))
def test_whatever_is_given_is_taken_by_the_core_or_refused_with_words(given_: dict[str, Any]) -> None:
    try:
        made = check({"work": WORK} | given_)
    except ValueError as error:
        words = str(error)
        assert words
    else:
        msgspec.convert(made["spec"], TaskSpec)
        as_shown(dict(made))


async def test_what_stands_in_the_environment_of_a_task_is_told_to_nobody(client: Client) -> None:
    task = {"id": "t", "work": {"command": ["true"], "env": {"PASSWORD": "s3cret"}}}
    await client.ask("POST", "/v1/events", {"event": "ADD", "tasks": [task]})
    for path in ("/v1/tasks/t", "/v1/tasks"):
        told = await client.get(path)
        assert b"s3cret" not in told.body
        assert b'"env":{"PASSWORD":null}' in told.body
