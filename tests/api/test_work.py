from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import msgspec
import pytest

from quvatlh.api import work as api_work
from quvatlh.api.checks import Faults
from quvatlh.api.work import check
from quvatlh.core import work as native
from quvatlh.core.model import Work

GOOD: list[tuple[Any, dict[str, Any]]] = [
    ({"command": ["true"]}, {"command": ["true"]}),
    ("command: [sleep, 10]", {"command": ["sleep", "10"]}),
    ('{"command": ["a"], "env": {"A": "1"}}', {"command": ["a"], "env": {"A": "1"}}),
    ({"shell": "a | b", "cwd": "/tmp"}, {"shell": "a | b", "cwd": "/tmp"}),
    ({"commands": [["a"], "b | c"]}, {"commands": [["a"], ["/bin/sh", "-c", "b | c"]]}),
    ("shell: x\nenv: {A: yes, B: 010}", {"shell": "x", "env": {"A": "yes", "B": "010"}}),
    ({"command": ["a"], "stdin": "in", "user": "www"}, {"command": ["a"], "stdin": "in", "user": "www"}),
    ({"command": ["a"], "rlimits": {"memory": "1M"}}, {"command": ["a"], "rlimits": {"memory": 1048576}}),
    ({"command": ["a"], "shell": None, "pull": False}, {"command": ["a"]}),
    (
        {"python": "pkg.mod:fn", "args": [1], "kwargs": {"a": None}, "environment": "v1"},
        {"python": "pkg.mod:fn", "args": [1], "kwargs": {"a": None}, "environment": "v1"},
    ),
    ({"pull": True}, {"pull": True}),
    (
        {"warm": {"environment": "e", "call": "Job", "args": [1]}},
        {"warm": {"environment": "e", "call": "Job", "args": [1]}},
    ),
    *(
        (each, each)
        for each in (
            {"http": {"url": "http://me:mine@x/", "headers": {"X-Authorization": "x"}}},
            {"http": {"url": "http://x/", "headers": {"Authorization": "x", "Host": "y"}}},
        )
    ),
    ({"http": {"url": "http://x/"}, "env": {"A": 1}}, {"http": {"url": "http://x/"}, "env": {"A": "1"}}),
]

BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)

BAD: list[tuple[Any, list[str], str]] = [
    ({"comand": ["x"]}, [".comand"], "is not a known field; did you mean command?"),
    ({"command": ["x"], "shell": "y"}, [], "must have exactly one of"),
    ({"command": "x"}, [".command"], "must be a list"),
    ({"command": []}, [".command"], "at least the program"),
    ({"command": [""]}, [".command[0]"], "the program's name is empty"),
    ({"command": ["a", ["b"]]}, [".command[1]"], "must be text"),
    ({"command": ["a", "b\0"]}, [".command[1]"], "holds a zero character"),
    ({"command": ["x", "y" * 131_072]}, [""], "has more than 131072 bytes"),
    ({"command": ["x"] * 4096}, [""], "has more than 4096 values"),
    ({"command": ["x"], "cwd": ""}, [".cwd"], "must be absolute"),
    ({"command": ["x"], "env": {"QUVATLH_X": "1"}}, [".env.QUVATLH_X"], "are set by the worker"),
    ({"command": ["x"], "cwd": "tmp"}, [".cwd"], "must be absolute"),
    ({"command": ["x"], "rlimits": {"nofiles": 1}}, [".rlimits.nofiles"], "did you mean nofile?"),
    ({"command": ["x"], "args": [1]}, [".args"], "goes with python only"),
    ({"python": "no colon"}, [".python"], "must be pkg.mod:function"),
    ({"warm": {"call": "Job"}}, [".warm.environment"], "is required"),
    (
        {"warm": {"environment": "e", "call": "Job", "arg": 1}},
        [".warm.arg"],
        "is not a known field; did you mean args?",
    ),
    (
        {"warm": {"environment": "e", "call": "Job"}, "cwd": "/"},
        [".cwd"],
        "belongs to the environment of a warm process",
    ),
    ({"http": {"url": "http://x/", "body": "x" * 200_000}}, [".http.body"], "0 to 131072 characters"),
    ({"http": {"url": "http://x/", "body": "x" * 131_072}}, [".http"], "at most 131072"),
    ({"http": {}}, [".http.url"], "is required"),
    ({"http": {"url": "ftp://x/"}}, [".http.url"], "must be an http or https URL"),
    ({"http": {"url": "http://x/", "metod": "GET"}}, [".http.metod"], "did you mean method"),
    ({"http": {"url": "http://x/", "method": "GET /"}}, [".http.method"], "must be a method such as POST"),
    ({"http": {"url": "http://x/", "headers": {"a b": "c"}}}, [".http.headers['a b']"], "must be the name of a header"),
    ({"http": {"url": "http://x/", "headers": {"a": "b\r\nc: d"}}}, [".http.headers.a"], "on one line"),
    *(
        ({"http": {"url": "http://x/", "headers": {name: "1"}}}, [f".http.headers.{name}"], "of the message itself")
        for name in (
            "Content-Length",
            "transfer-encoding",
            "Connection",
            "UPGRADE",
            "TE",
            "trailer",
            "keep-alive",
            "Expect",
            "Proxy-Authorization",
            "proxy-connection",
        )
    ),
    *(
        (
            {"http": {"url": url, "headers": {"authorization": "x"}}},
            [".http.headers.authorization"],
            "a user or password",
        )
        for url in ("http://me:mine@x/", "http://me@x/", "http://:mine@x/")
    ),
    ({"http": {"url": "http://x/", "expect": [99]}}, [".http.expect[0]"], "must be a status such as 204 or 2xx"),
    ({"http": {"url": "http://x/", "retry": [True, "2x"]}}, [".http.retry[0]", ".http.retry[1]"], "such as 204"),
    ({"http": {"url": "http://x/", "max_bytes": 2_000_000}}, [".http.max_bytes"], "1048576"),
    ("command: [a", [""], "line 2, column 1"),
    ("- a", [], "must be YAML text or an object, not a list"),
    ("", [], "must be YAML text or an object, not null"),
    (BOMB, [""], "values"),
    ("a: &a [*a]", [""], ""),
    ("shell: !!python/object/apply:os.system [x]", [".shell"], "tag"),
    ("[" * 2000, [""], ""),
    ("shell: a\nshell: b", [".shell"], "twice"),
]


@pytest.mark.parametrize(("given", "expected"), GOOD)
def test_good_work_keeps_its_form_and_is_taken_by_the_core(given: Any, expected: dict[str, Any]) -> None:
    assert check(given) == expected
    msgspec.convert(expected, Work)


@pytest.mark.parametrize(("given", "paths", "words"), BAD)
def test_bad_work_is_refused_with_the_place(given: Any, paths: list[str], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        check(given)
    if isinstance(caught.value, Faults):
        assert [fault.path for fault in caught.value.faults] == paths
    else:
        assert paths == []
    assert words in str(caught.value)


SHORT = [{"command": ["x" * 1023] * 64}, {"command": ["x", ""]}, {"command": ["x\ny"]}]


@pytest.mark.parametrize("given", SHORT)
def test_what_is_taken_without_a_look_is_what_the_core_takes(given: dict[str, Any]) -> None:
    assert check(given) is given
    assert native.native(msgspec.convert(given, Work)) == native.check(given)


@pytest.mark.parametrize(
    "given", [{"command": ["\N{GRINNING FACE}" * 1023] * 64}, {"command": ["x", "\ud800"]}, {"command": ["\0"]}]
)
def test_what_the_core_does_not_take_is_looked_at(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"more than|valid Unicode|zero character"):
        check(given)


@pytest.mark.parametrize(("given", "expected"), GOOD)
def test_what_is_taken_is_run(given: Any, expected: dict[str, Any]) -> None:
    if expected.keys() & set(native.FORMS):
        assert native.native(msgspec.convert(check(given), Work)) == native.check(expected)


PARTS: dict[str, list[Any]] = {
    "python": ["a:b", "a.b:c.d", "a", "", None, 3, "x" * 2000 + ":a", "a:b "],
    "args": [[], [1], None, False, (), "x", {}, [None] * 65, ["x" * 2000], ["x" * 70_000], 0],
    "kwargs": [{}, None, {"a": 1}, [], 0, {"": 1}],
    "environment": [None, "e"],
}


def test_a_call_that_is_taken_without_a_look_is_judged_as_by_a_look() -> None:
    def judged(given: dict[str, Any], how: Callable[[Any], Any]) -> object:
        try:
            return how(given)
        except ValueError as error:
            return str(error)

    def looked_at(given: dict[str, Any]) -> Any:
        named = {name: value for name, value in given.items() if value is not None and value is not False}
        return api_work._other(named, api_work._form(named))

    for count in range(len(PARTS) + 1):
        for names in combinations(PARTS, count):
            for values in product(*(PARTS[name] for name in names)):
                given = dict(zip(names, values, strict=True))
                assert judged({**given}, check) == judged({**given}, looked_at), given


def test_names_that_are_kept_are_short_ones() -> None:
    before = api_work._is_target.cache_info().currsize
    with pytest.raises(ValueError, match=r"must be pkg\.mod:function"):
        check({"python": "pkg.mod:" + "f" * api_work.CALL_CHARS_MAX})
    assert api_work._is_target.cache_info().currsize == before
