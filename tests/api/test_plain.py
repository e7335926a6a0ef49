"""What is read the quick way is what would be read the usual way, and nothing that would not be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quvatlh.api import plain, tasks
from quvatlh.api.formats import decode
from quvatlh.core.model import TaskSpec

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each))
NAMES = st.sampled_from(["a", "a b", "a/b", "", "x" * 300, "é", "\n", ":", None, 1])
WORKS = st.fixed_dictionaries(
    {},
    optional={
        "python": st.sampled_from(["a:b", "pkg.mod:f.g", "a", "é:b", "a:" + "b" * 1100, "", None, 7]),
        "args": st.lists(VALUES, max_size=3) | st.sampled_from([[1] * 64, [1] * 65, ["x" * 1020], ["x" * 1100], None]),
        "kwargs": st.sampled_from([{}, {"a": 1}, None, []]),
        "command": st.sampled_from([["true"], [], [""], ["é"], ["a", "b" * 2000], ["x\0"], ["a"] * 65, None, "true"]),
        "shell": st.just("true"),
        "env": st.just({"A": "b"}),
    },
)
PLAIN = st.sampled_from([{"python": "a:b"}, {"python": "a:b", "args": ["x", 1]}, {"command": ["true"]}])
TASKS = st.fixed_dictionaries(
    {"work": PLAIN | WORKS | st.just("echo hello")},
    optional={
        "name": NAMES,
        "queue": NAMES,
        "group": NAMES,
        "key": NAMES,
        "priority": st.sampled_from([0, -5, 2**31 - 1, 2**31, True, 1.0, 1.5, "1", None]),
        "id": st.just("x"),
        "delay": st.just("5s"),
        "payload": VALUES,
        "unknown": st.just(1),
    },
)


def task(line: bytes) -> Any:
    made = plain.tasks_of(b'{"event":"ADD","tasks":[' + line + b"]}")
    return None if made is None else made[0]


def usual(line: bytes) -> Any:
    """None where it is refused."""
    try:
        return tasks.check(decode(line))
    except ValueError:
        return None


@given(TASKS)
@example({"work": {"python": "a:b", "args": [2**64 - 1]}})
@example({"work": {"python": "a:b", "args": [2**64]}})
@example({"work": {"python": "a:b", "args": [1.0, -0.0, True, None, "\u2028"]}, "priority": 3})
def test_a_task_is_what_it_is_the_usual_way(given_: dict[str, Any]) -> None:
    line = msgspec.json.encode(given_)
    made, expected = task(line), usual(line)
    if made is not None:
        assert expected is not None
        assert made["spec"] == msgspec.convert(expected.pop("spec"), TaskSpec)
        assert expected == {}
        assert len(made) == 1


@given(st.lists(TASKS, max_size=3))
def test_an_event_is_its_tasks(given_: list[dict[str, Any]]) -> None:
    made = plain.tasks_of(msgspec.json.encode({"event": "ADD", "tasks": given_}))
    each = [task(msgspec.json.encode(one)) for one in given_]
    assert made == (None if not each or None in each else each)


@pytest.mark.parametrize(
    "line",
    [
        b'{"work":{"command":["true"]}}',
        b'{"name":"n/m","queue":"q","group":"g","key":"k","priority":-1,"work":{"command":["echo","a:b"]}}',
        b' {"work": {"python": "m:f", "args": [1, 2.5, "x", null, true], "kwargs": {}}}\r',
    ],
)
def test_the_commonest_are_read_so(line: bytes) -> None:
    assert task(line) is not None
    assert plain.tasks_of(b'{"event":"ADD","tasks":[' + line + b"," + line + b"]}") is not None


@pytest.mark.parametrize(
    "line",
    [
        b'{"work":{"command":["true"],"command":["false"]}}',
        b'{"work":{"command":["true"]},"work":{"command":["true"]}}',
        b'{"name":"a","n\\u0061me":"b","work":{"command":["true"]}}',
        b'{"name":"a:b","name":"c","work":{"command":["true"]}}',
        b'{"name":"c","name":"a\\u003ab","work":{"command":["true"]}}',
        b'{"work":{"python":"a:b","args":[12345678901234567890123]}}',
        b'{"work":{"python":"a:b","args":[1e400]}}',
        b'{"work":{"python":"a:b","args":["\\ud800"]}}',
        b'{"work":{"python":"a:b","args":["\xff"]}}',
        b'{"name":"","work":{"command":["true"]}}',
        b'{"queue":"a/b","work":{"command":["true"]}}',
        b'{"queue":"..","work":{"command":["true"]}}',
        b'{"group":"a/b","work":{"command":["true"]}}',
        b'{"key":"\\u0001","work":{"command":["true"]}}',
        b'{"priority":2147483648,"work":{"command":["true"]}}',
        b'{"work":{"command":["true"]}} x',
        b'{"work":{"command":["true"]}',
        b"[]",
        b"",
    ],
)
def test_what_is_not_taken_is_none_of_them(line: bytes) -> None:
    assert task(line) is None
    assert usual(line) is None


def test_an_event_of_another_kind_is_none_of_them() -> None:
    line = b'{"work":{"command":["true"]}}'
    assert plain.tasks_of(b'{"event":"DELETE","tasks":[' + line + b"]}") is None
    assert plain.tasks_of(b'{"tasks":[' + line + b"]}") is None
    assert plain.tasks_of(b'{"event":"ADD","tasks":[]}') is None
    assert plain.tasks_of(b'{"event":"ADD","tasks":[' + b",".join([line] * 5001) + b"]}") is None
