"""One truth of a work's bounds: what `check` takes fits the model, survives the log, and is run as it was checked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple

from quvatlh.codec import Values
from quvatlh.core import limits, model
from quvatlh.core.calls import Call
from quvatlh.core.work import RLIMITS, SHELL, Work, WorkError, check, native, runnable

CODEC = Values()
LONGEST = limits.WORK_STRING_BYTES_MAX

_FILL = st.sampled_from(["x", "é", "\N{GRINNING FACE}"])
_LONG = st.integers(0, LONGEST + 1)
_TEXT = st.builds(lambda fill, size: fill * (size // len(fill.encode())), _FILL, st.integers(0, 40) | _LONG)
_NUMBER = st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False)
_SCALAR = _TEXT | _NUMBER | st.just(10**17)
_ARGV = st.builds(lambda head, each, times: [*head, *[each] * times], st.lists(_SCALAR, max_size=3), _SCALAR, _LONG)
_SHORT_ARGV = st.builds(
    lambda head, each, times: ["x", *head, *[each] * times],
    st.lists(_SCALAR, max_size=2),
    st.just("y") | st.just(10**17),
    st.integers(0, limits.WORK_NODES_MAX),
)
_COMMANDS = st.builds(
    lambda some, each, times: [*some, *[each] * times],
    st.lists(_SHORT_ARGV | st.just("true"), max_size=2),
    st.just("true") | st.just("x" * 1300) | st.just(["a", 1]),
    st.integers(0, limits.WORK_COMMANDS_MAX + 1),
)
_FORM = (
    st.fixed_dictionaries({"command": _ARGV | _SHORT_ARGV})
    | st.fixed_dictionaries({"shell": _TEXT})
    | st.fixed_dictionaries({"commands": _COMMANDS})
)
_AROUND = st.fixed_dictionaries(
    {},
    optional={
        "env": st.builds(lambda n, value: {f"V{i}": value for i in range(n)}, st.integers(0, 2100), _SCALAR),
        "cwd": st.builds("/{}".format, _TEXT),
        "user": st.sampled_from(["www", "0", ""]),
        "stdin": _TEXT,
        "rlimits": st.dictionaries(st.sampled_from(sorted(RLIMITS)), st.integers(-1, 2**64), max_size=3),
    },
)
_WORK = st.builds(lambda form, around: form | around, _FORM, _AROUND)


def kept(given: dict[str, Any]) -> dict[str, Any]:
    """As a door keeps it: in the form it was given in, every scalar as its text. WorkError if it is not taken."""
    checked = check(given)
    form = next(iter(given))
    commands = [list(argv) for argv in checked.commands]
    what: Any = commands if form == "commands" else commands[0] if form == "command" else commands[0][-1]
    around = {"env": dict(checked.env), "cwd": checked.cwd, "user": checked.user, "stdin": checked.stdin}
    return {form: what, "rlimits": dict(checked.rlimits)} | {k: v for k, v in around.items() if v is not None}


@given(_WORK)
@example({"command": ["x"] * (limits.WORK_NODES_MAX - 10)})
@example({"shell": "x" * (LONGEST - 60)})
@example({"command": ["x", *[10**17] * 4000]})
@example({"commands": ["true"] * limits.WORK_COMMANDS_MAX})
@example({"commands": ["x" * 1300] * limits.WORK_COMMANDS_MAX})
@example({"commands": [["a"] * 3990, *["true"] * 30]})
@example({"command": ["x"], "rlimits": {"nofile": 2**53}})
def test_what_is_taken_fits_the_model_and_the_log_and_is_run_as_it_was_checked(work: dict[str, Any]) -> None:
    try:
        plain = kept(work)
    except WorkError:
        return
    spec = model.TaskSpec(msgspec.convert(plain, model.Work))
    assert CODEC.decode_spec(CODEC.encode_spec(spec)) == spec
    checked = check(work)
    assert native(spec.work) == checked
    assert check(plain) == checked


@pytest.mark.parametrize("size", [1, limits.LIST_ITEMS_MAX, limits.WORK_NODES_MAX - 12])
def test_as_many_arguments_are_taken_as_the_nodes_allow(size: int) -> None:
    work = kept({"command": ["x"] * size})
    assert len(native(msgspec.convert(work, model.Work)).commands[0]) == size


def test_a_text_is_as_long_as_the_bytes_of_a_work_allow() -> None:
    text = "x" * (limits.WORK_BYTES_MAX - 64)
    work = msgspec.convert(kept({"shell": text}), model.Work)
    assert native(work).commands == ((*SHELL, text),)


@pytest.mark.parametrize(
    "grown",
    [
        {"command": ["x", *[10**17] * 4000, "y" * 70_000]},
        {"commands": [["a"] * 3900, *["true"] * 90]},
    ],
)
def test_numbers_and_shell_texts_count_as_what_they_become(grown: dict[str, Any]) -> None:
    with pytest.raises(WorkError, match="has more than"):
        check(grown)


def test_an_empty_directory_is_none() -> None:
    with pytest.raises(WorkError, match="cwd: must be absolute"):
        check({"command": ["x"], "cwd": ""})


@pytest.mark.parametrize(
    "other", [{"python": "a:b"}, {"http": {}}, {"warm": {}}, {"pull": True}, {}, {"command": []}, {"commands": [[]]}]
)
def test_what_is_no_native_command_is_not_run_as_one(other: dict[str, Any]) -> None:
    with pytest.raises(WorkError, match="is not a native command"):
        native(msgspec.convert(other, model.Work))


def test_nothing_of_a_work_is_left_behind() -> None:
    given = {
        "commands": [["a", "b"], "c | d"],
        "env": {"A": "1"},
        "cwd": "/tmp",
        "user": "www",
        "stdin": "in",
        "rlimits": {"memory": "1M"},
    }
    checked = native(msgspec.convert(kept(given), model.Work))
    assert astuple(checked) == (
        (("a", "b"), (*SHELL, "c | d")),
        (("A", "1"),),
        "/tmp",
        "www",
        "in",
        (("memory", 1048576),),
        None,
    )


def test_a_call_is_run_as_one() -> None:
    python = {"python": "a.b:c", "args": [1, "x"], "kwargs": {"y": None}, "environment": "e", "env": {"A": "1"}}
    assert runnable(msgspec.convert(python, model.Work)) == Work(
        (), env=(("A", "1"),), call=Call("python", "e", "a.b:c", b'[1,"x"]', b'{"y":null}')
    )
    assert runnable(msgspec.convert({"python": "a:b"}, model.Work)) == Work((), call=Call("python", "default", "a:b"))
    warm = {"warm": {"environment": "rails", "call": "HardJob", "args": [1]}}
    assert runnable(msgspec.convert(warm, model.Work)) == Work((), call=Call("warm", "rails", "HardJob", b"[1]", b"{}"))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"warm": {}}, "must have environment and call"),
        ({"warm": {"environment": "e", "call": 1}}, "must have environment and call"),
        ({"python": "a:b", "args": [object()]}, "its arguments have no form in JSON"),
        ({"http": {}}, "is not a native command"),
    ],
)
def test_what_is_neither_command_nor_call_is_not_run(other: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkError, match=words):
        runnable(msgspec.convert(other, model.Work))


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (
            {"memroy": "1M"},
            "is not a field; did you mean memory? (it takes memory, data, stack, core, fsize, cpu, nofile, nproc)",
        ),
        ({"nofile": -5}, "must be from 0 to 9007199254740991"),
    ],
)
def test_a_limit_that_cannot_be_is_told_what_could(limit: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkError) as caught:
        check({"command": ["x"], "rlimits": limit})
    assert [each.message for each in caught.value.faults] == [words]
