"""The work of a task: what is taken, what is refused, and where the fault stands."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.codec.work import TEXT_BYTES_MAX, parse, read
from quvatlh.core.limits import WORK_BYTES_MAX, WORK_DEPTH_MAX
from quvatlh.core.work import Fault, Work, WorkError, check


def faults(work: object) -> dict[str, str]:
    with pytest.raises(WorkError) as caught:
        parse(work) if isinstance(work, str) else check(work)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_every_field_has_its_place() -> None:
    text = """
commands:
  - [make, -j, 4]
  - echo done | tee out
env: {PORT: 8080, DEBUG: true, RATIO: 0.5}
cwd: /srv/app
user: app
stdin: |
  hello
rlimits: {memory: 512M, cpu: 10m, nofile: 1024, fsize: 2GiB, core: 0}
"""
    assert parse(text) == Work(
        commands=(("make", "-j", "4"), ("/bin/sh", "-c", "echo done | tee out")),
        env=(("PORT", "8080"), ("DEBUG", "true"), ("RATIO", "0.5")),
        cwd="/srv/app",
        user="app",
        stdin="hello\n",
        rlimits=(("memory", 512 << 20), ("cpu", 600), ("nofile", 1024), ("fsize", 2 << 30), ("core", 0)),
    )


def test_yaml_json_and_plain_data_say_the_same() -> None:
    data = {"command": ["true", 1, True], "env": {"A": "b"}}
    assert parse(json.dumps(data)) == parse("{command: [true, 1, true], env: {A: b}}") == check(data)


@pytest.mark.parametrize(
    "word", ["yes", "010", "22:22", "3.10", "1_000", "0x1F", "+1", "-0", "1e3", "True", ".5", "~", "2001-01-01"]
)
def test_an_argument_is_what_is_written(word: str) -> None:
    assert parse(f"command: [echo, {word}]").commands == (("echo", word),)


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans())
def test_a_plain_scalar_of_yaml_comes_out_as_it_went_in(value: float | bool) -> None:
    word = json.dumps(value)
    assert parse(f"command: [echo, {word}]").commands == (("echo", word),)


def test_all_faults_are_told_at_once_with_their_paths() -> None:
    text = """
comands: [x]
shell: ""
env: {A=B: 1, QUVATLH_TOKEN: x, NONE: null}
cwd: relative
user: no body
rlimits: {mem: 1, cpu: fast, nofile: "7", fsize: -1}
"""
    assert faults(text) == {
        "comands": "is not a field; did you mean commands?",
        "shell": "is empty",
        "env.A=B": "is not a name: 1 to 256 characters, no = and no zero character",
        "env.QUVATLH_TOKEN": "names beginning with QUVATLH_ are set by the worker",
        "env.NONE": "is empty; write it in quotes if it is meant as text",
        "cwd": "must be absolute: workers run in different places",
        "user": "is not the name or number of a user",
        "rlimits.mem": "is not a field; did you mean memory? (it takes memory, data, stack, core, fsize, cpu, nofile, nproc)",
        "rlimits.cpu": "must be whole seconds or a duration such as 10m",
        "rlimits.nofile": "must be a whole number",
        "rlimits.fsize": "must be from 0 to 9007199254740991",
    }


@pytest.mark.parametrize(
    ("work", "path", "words"),
    [
        ("", "", "must be a mapping with one of command, shell, commands"),
        ("[a]", "", "must be a mapping with one of command, shell, commands"),
        ("cwd: /", "", "must have exactly one of command, shell, commands"),
        ("{shell: a, command: [b]}", "", "must have exactly one of command, shell, commands, not 2"),
        (
            "command: ls -l",
            "command",
            "must be a list of program and arguments; a text with blanks belongs under shell",
        ),
        ("command: []", "command", "must be a list of program and arguments, at least the program"),
        ("command: ['']", "command[0]", "the program's name is empty"),
        ("commands: []", "commands", "must be a list of commands, at least one"),
        ("commands: [a, [b, {}]]", "commands[1][1]", "must be text"),
        ("shell: [a]", "shell", "must be a text for the shell"),
        ('command: ["a\\0b"]', "command[0]", "holds a zero character"),
        ('{"command": ["\\ud800"]}', "command[0]", "is not valid Unicode"),
        ('{"command": [1e999]}', "command[0]", "is not a finite number"),
        ('{"python": "a:b", "args": [[9223372036854775807000]]}', "args[0][0]", "is a number that cannot be taken"),
        ('{"http": {"a": -9223372036854775809}}', "http.a", "is a number that cannot be taken"),
        ('{"python": "a:b", "kwargs": {"\\ud800": 1}}', "kwargs", "is not valid Unicode"),
        ('{"http": {"\\ud800": 1e999}}', "http.\N{REPLACEMENT CHARACTER}", "is not a finite number"),
        ('{"python": "a:b", "args": ' + "[" * 20 + "]" * 20 + "}", "", "is nested more than 8 levels deep"),
        ('{"python": "a:b", "args": [' + "1," * 5000 + "1]}", "", "has more than 4096 values"),
        ("env: [A]\nshell: x", "env", "must be a mapping of names to values"),
        ("python: a:b", "python", "is not a native command and cannot be run by this version"),
        ("shell: a\nshell: b", "shell", "line 2, column 1: 'shell' stands twice"),
        ('{"shell": "a", "shell": "b"}', "shell", "'shell' stands twice"),
        ("shell: !!python/name:os.system x", "shell", "line 1, column 8: the tag !!python/name:os.system is not taken"),
        ("shell: a\n---\nshell: b", "", "holds 2 documents; a work is one"),
        ("shell: [a", "", "line 2, column 1: did not find expected ',' or ']'"),
        ('{"command": [NaN]}', "", "NaN is not JSON"),
        ("? [a]\n: b", "", "line 1, column 3: a key must be text"),
    ],
)
def test_a_fault_names_its_place(work: str, path: str, words: str) -> None:
    assert faults(work)[path] == words


EXPLODING = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        EXPLODING,
        "a: &a [*a]",
        "[" * 100_000,
        '{"a":' * 50_000,
        "{a: " * 50_000,
        "- " * 50_000,
        "x: " + "9" * (TEXT_BYTES_MAX - 3),
        '{"command": [' + "9" * 50_000 + "]}",
        '{"command": [' + "1," * 60_000 + "1]}",
        "shell: " + "x" * (WORK_BYTES_MAX + 1),
        "command: [" + "a," * 5_000 + "a]",
        " " * (TEXT_BYTES_MAX + 1),
    ],
)
def test_what_is_too_large_too_deep_or_explodes_is_refused(text: str) -> None:
    assert len(faults(text)) == 1


def test_plain_data_that_contains_itself_or_is_shared_too_often_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert faults({"command": circle}) == {"": f"is nested more than {WORK_DEPTH_MAX} levels deep"}
    shared: object = ["x"] * 10
    for _ in range(5):
        shared = [shared] * 10
    assert faults({"command": shared}) == {"": "has more than 4096 values"}


def test_an_alias_that_stays_small_is_taken() -> None:
    assert parse("commands: [&a [echo, hi], *a]").commands == (("echo", "hi"), ("echo", "hi"))


def test_faults_of_strange_names_are_printable_and_short() -> None:
    (path,) = (fault.path for fault in _faults({"shell": "x", "\x1b[2J" + "y" * 500: 1}))
    assert path.isprintable()
    assert len(path) <= 64


def _faults(work: object) -> tuple[Fault, ...]:
    with pytest.raises(WorkError) as caught:
        check(work)
    return caught.value.faults


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=20,
)
FIELD = st.sampled_from(["command", "shell", "commands", "env", "cwd", "user", "stdin", "rlimits", "python", "else"])


@given(st.dictionaries(FIELD, PLAIN) | PLAIN)
def test_any_data_is_taken_or_refused_with_words(data: object) -> None:
    try:
        work = check(data)
    except WorkError as error:
        assert error.faults  # noqa: PT017 - either is fine
    else:
        assert all(argv for argv in work.commands)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_words(text: str) -> None:
    try:
        read(text)
    except WorkError as error:
        assert str(error)  # noqa: PT017 - either is fine
