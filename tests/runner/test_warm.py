"""Warm processes of any language: the reference files for Ruby and Node.js, and programs that do not keep to the protocol."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quvatlh.config.environments import Environment
from quvatlh.core.work import Work
from quvatlh.ports import ActionFinished
from quvatlh.runner.pools.lines import Said
from tests.runner.bed import is_alive
from tests.runner.calls import APP, Calls, code, text

WARM = Path(__file__).parents[2] / "deploy" / "warm"
COMMANDS = {
    "ruby": ("ruby", str(WARM / "quvatlh_warm.rb"), "jobs.rb"),
    "node": ("node", str(WARM / "quvatlh_warm.mjs"), "./jobs.mjs"),
}
CALLS = {
    "ruby": (
        "Add",
        "Whose",
        "Speak",
        "Steps",
        "Broken",
        "Later",
        "Never",
        "Vanish",
        "Tidy",
        "Spin",
        "Shapeless",
        "Starts",
        "Finishes",
        "Tools.pid",
        "Reads",
        "GivesUp",
    ),
    "node": (
        "add",
        "whose",
        "speak",
        "steps",
        "broken",
        "later",
        "never",
        "vanish",
        "tidy",
        "spin",
        "shapeless",
        "starts",
        "finishes",
        "pid",
        "reads",
        "givesUp",
    ),
}


def environment(name: str, *command: str, **given: Any) -> Environment:
    return Environment(name, command=command, cwd=str(APP), **given)


@dataclass
class Language:
    name: str
    calls: Calls

    def start(self, which: str, *args: Any, **given: Any) -> str:
        """By the name that it has in Node.js."""
        call = dict(zip(CALLS["node"], CALLS[self.name], strict=True))[which]
        return self.calls.start(call, *args, adapter="warm", environment=self.name, **given)

    async def run(self, which: str, *args: Any, **given: Any) -> ActionFinished:
        return await self.calls.end(self.start(which, *args, **given))


@pytest.fixture(params=["ruby", "node"])
async def language(request: pytest.FixtureRequest, calls: Calls) -> Language:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    calls.pools.configure([environment(name, *COMMANDS[name])])
    return Language(name, calls)


async def test_a_job_gets_its_arguments_and_gives_its_result(language: Language) -> None:
    assert (await language.run("add", 1, 2)).result == b"3"
    assert (await language.run("whose", payload=b"data")).result == b'["t2","a2",2,102,"w1","data"]'


async def test_a_process_is_kept_for_the_next_job(language: Language) -> None:
    assert (await language.run("pid")).result == (await language.run("pid")).result


async def test_what_a_job_writes_is_its_own(language: Language) -> None:
    for word in ("one", "two"):
        end = await language.run("speak", word)
        assert end.stdout_tail == f"{word} printed\n"
        assert sorted(end.stderr_tail.splitlines()) == [f"{word} complained", f"{word} from a shell", f"{word} noted"]


async def test_standard_input_is_empty_for_jobs_and_what_they_start(language: Language) -> None:
    assert (await language.run("reads", timeout_s=10)).result == b'[true,"","/dev/null"]'


async def test_what_stops_without_being_told_to_is_an_error(language: Language) -> None:
    end = await language.run("givesUp")
    name = {"ruby": "Quvatlh::Cancelled: Quvatlh::Cancelled", "node": "AbortError: not told to"}[language.name]
    assert (code(end), text(end)) == ("exception", name)


async def test_an_error_has_its_class_and_trace(language: Language) -> None:
    end = await language.run("broken")
    kind = {"ruby": "ArgumentError", "node": "RangeError"}[language.name]
    assert end.error is not None
    assert (end.error.text, end.error.exception, end.error.permanent) == (f"{kind}: no good", kind, False)
    assert f"jobs.{'rb' if language.name == 'ruby' else 'mjs'}" in end.stderr_tail
    later, never = await language.run("later"), await language.run("never")
    assert later.error is not None
    assert never.error is not None
    assert (later.error.retry_after_s, never.error.permanent) == (7.0, True)


async def test_progress_is_told(language: Language) -> None:
    await language.run("steps")
    assert [(each.percent, each.text) for each in language.calls.progress] == [
        (10, "10 done"), (60, "60 done"), (100, "100 done"),
    ]  # fmt: skip


async def test_a_job_that_is_stopped_may_tidy_up(language: Language, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    name = language.start("tidy", str(mark), grace_s=20)
    await language.calls.told()
    language.calls.stop(name)
    assert code(await language.calls.end(name)) == "stopped"
    assert mark.read_text() == "tidied"
    assert (await language.run("add", 1, 2)).result == b"3"


async def test_whatever_a_job_does_the_next_one_runs(language: Language) -> None:
    ends = [await language.run(which) for which in ("vanish", "shapeless")]
    ends.append(await language.run("spin", timeout_s=0.2, grace_s=0.1))
    unknown = language.calls.start("Nothing", adapter="warm", environment=language.name)
    ends.append(await language.calls.end(unknown))
    codes = [code(end) for end in ends]
    assert codes[0] == "crash"
    assert codes[1:] == ["unrunnable", "timeout", "unrunnable"]
    assert (await language.run("add", 1, 2)).result == b"3"


@pytest.mark.parametrize("how", ["leaves it", "hides", "fails", "waits"])
async def test_what_a_job_leaves_running_ends_with_it(language: Language, tmp_path: Path, how: str) -> None:
    before = await language.run("pid")
    path = tmp_path / "pid"
    name = language.start("starts", str(path), how, grace_s=20)
    await language.calls.told()
    if how == "waits":
        language.calls.stop(name)
    end = await language.calls.end(name)
    assert not is_alive(int(path.read_text()))
    assert (code(end), end.signal) == ({"fails": "exception", "waits": "stopped"}.get(how), None)
    assert (await language.run("pid")).result != before.result


async def test_a_job_that_ends_its_processes_keeps_its_process(language: Language) -> None:
    before = await language.run("pid")
    assert (await language.run("finishes")).result == b'"done\\n"'
    assert (await language.run("pid")).result == before.result


async def test_a_program_behind_a_shell_is_seen_to_leave_something_running(language: Language, tmp_path: Path) -> None:
    behind = ("sh", "-c", '"$@"; exit 0', "sh")
    language.calls.pools.configure([environment(language.name, *behind, *COMMANDS[language.name])])
    before = await language.run("pid")
    path = tmp_path / "pid"
    assert (await language.run("starts", str(path), "leaves it")).error is None
    assert not is_alive(int(path.read_text()))
    assert (await language.run("pid")).result != before.result


@pytest.mark.parametrize("before", [(), ("sh", "-c", '"$@"; exit 0', "sh")], ids=["by itself", "behind a shell"])
async def test_helpers_from_the_beginning_stay(calls: Calls, tmp_path: Path, before: tuple[str, ...]) -> None:
    path = tmp_path / "pid"
    calls.pools.configure([environment("hostile", *before, sys.executable, "hostile.py", "helped")])
    first = await hostile(calls, "pid")
    assert (await hostile(calls, "pid")).result == first.result
    end = await hostile(calls, "starts", args=(str(path),))
    assert (end.error, is_alive(int(path.read_text()))) == (None, False)
    assert (await hostile(calls, "pid")).result != first.result


@pytest.fixture
async def ruby(calls: Calls) -> Calls:
    if shutil.which("ruby") is None:
        pytest.skip("ruby is not installed")
    calls.pools.configure([environment("ruby", *COMMANDS["ruby"])])
    return calls


async def test_arguments_that_do_not_fit_are_unrunnable_unless_they_are_those_of_a_call_within(ruby: Calls) -> None:
    assert code(await ruby.run("Add", adapter="warm", environment="ruby")) == "unrunnable"
    assert code(await ruby.run("Add", 1, adapter="warm", environment="ruby", kwargs={"time": 1})) == "unrunnable"
    assert code(await ruby.run("Tools.pid", 1, adapter="warm", environment="ruby")) == "unrunnable"
    end = await ruby.run("Misuses", adapter="warm", environment="ruby")
    assert (code(end), text(end)[:40]) == ("exception", "ArgumentError: wrong number of arguments")


async def test_standard_output_is_what_ruby_code_takes_it_for(ruby: Calls) -> None:
    end = await ruby.run("Prints", adapter="warm", environment="ruby")
    assert end.error is None
    assert end.stdout_tail == "logged\nchained\np\n007\nprinted\n:shown\nwritten\né\n\ufffdé1\n"
    assert end.result == b"[8,3,5,false,false,true,false,null]"


@pytest.fixture
async def node(calls: Calls) -> Calls:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    calls.pools.configure([environment("node", *COMMANDS["node"])])
    return calls


async def test_half_a_character_is_replaced_in_all_that_node_says(node: Calls) -> None:
    end = await node.run("halves", adapter="warm", environment="node")
    assert end.error is None
    assert end.result is not None
    assert json.loads(end.result) == {"\ufffd": ["\U0001f4a1", "\ufffd", "\\\ufffd", "\\ud83d"]}
    end = await node.run("cut", adapter="warm", environment="node")
    assert end.error is not None
    assert (end.error.code, end.error.permanent) == ("exception", True)
    assert end.error.text == "Error: x" + 999 * "\U0001f4a1"


@pytest.mark.parametrize("which", ["function", "bigint", "within", "toJSON"])
async def test_what_node_returns_without_a_form_in_json_is_unrunnable(node: Calls, which: str) -> None:
    end = await node.run("shapes", which, adapter="warm", environment="node")
    assert code(end) == "unrunnable"
    assert text(end).startswith("what it returned has no form in JSON: ")


async def hostile(calls: Calls, call: str, args: tuple[str, ...] = (), **given: Any) -> ActionFinished:
    return await calls.run(call, *args, adapter="warm", environment="hostile", **given)


@pytest.fixture
async def wild(calls: Calls) -> Calls:
    calls.pools.configure([environment("hostile", sys.executable, "hostile.py")])
    return calls


@pytest.mark.parametrize(
    ("call", "fault", "words"),
    [
        ("garbage", "protocol", "wrote what is no message to its protocol channel: 'hello from the program'"),
        ("half", "crash", "its process ended with exit status 1, before the task did"),
        ("stranger", "protocol", 'answered what it was not asked: "nobody\'s"'),
        ("wrong", "protocol", "wrote what is no message to its protocol channel"),
        ("timeless", "protocol", "wrote what is no message to its protocol channel"),
        ("nan", "protocol", "wrote what is no message to its protocol channel"),
        ("endless", "protocol", "wrote a line that does not end"),
    ],
)
async def test_a_process_that_does_not_keep_to_the_protocol_fails_its_task_alone(
    wild: Calls, call: str, fault: str, words: str
) -> None:
    end = await hostile(wild, call)
    assert code(end) == fault
    assert text(end).startswith(words)
    assert (await hostile(wild, "hello")).result == b'"hello"'


@pytest.mark.parametrize("before", ["raw\n", "{}\n", "raw "], ids=["a line", "no type", "no end"])
async def test_garbage_before_the_answer_fails_the_task(wild: Calls, before: str) -> None:
    assert code(await hostile(wild, "garbled", args=(before,))) == "protocol"


async def test_garbage_before_the_answer_fails_the_task_however_soon_that_comes(wild: Calls) -> None:
    name = wild.start("silent", adapter="warm", environment="hostile")
    await wild.begun(name)
    pool = wild.pools.pool("hostile")
    (child,) = pool.brood.children.values()
    for said in (
        Said("garbage", text="raw"),
        Said("result", id=name),
    ):  # before the process has heard that it is killed
        pool._heard(child, said)
    end = await wild.end(name)
    assert (code(end), text(end)) == ("protocol", "raw")


async def test_an_answer_too_many_harms_nobody(wild: Calls) -> None:
    first = await hostile(wild, "pid")
    assert (await hostile(wild, "again")).result == first.result
    assert (await hostile(wild, "twice")).error is None
    assert (await hostile(wild, "hello")).error is None
    assert (await hostile(wild, "pid")).result != first.result, "what it will say next nobody knows"


async def test_what_a_newer_process_says_is_no_fault(wild: Calls) -> None:
    assert (await hostile(wild, "newer")).result == b"1"


async def test_a_large_result_of_any_process_is_a_file(wild: Calls) -> None:
    end = await hostile(wild, "large")
    assert end.result is not None
    assert b'"bytes":100002' in end.result


async def test_a_process_may_leave_when_it_likes(wild: Calls) -> None:
    first = await hostile(wild, "pid")
    assert (await hostile(wild, "leaving")).error is None
    assert (await hostile(wild, "pid")).result != first.result


async def test_a_silent_process_is_ended_by_the_timeout(wild: Calls) -> None:
    assert code(await hostile(wild, "silent", timeout_s=0.1, grace_s=0.1)) == "timeout"
    assert (await hostile(wild, "hello")).error is None


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("dies", "environment hostile: its process ended with exit status 7, before it was ready"),
        ("old", "environment hostile: speaks version 0 of the protocol; this is version 1"),
        ("never-ready", "environment hostile: was not ready within 1 s"),
    ],
)
async def test_an_environment_that_does_not_start_says_why(calls: Calls, mode: str, words: str) -> None:
    calls.pools.configure([environment("hostile", sys.executable, "hostile.py", mode, start_s=1)])
    end = await hostile(calls, "hello")
    assert (code(end), text(end)) == ("environment", words)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"command": ("no-such-program",)}, "environment hostile: no-such-program: No such file or directory"),
        ({"cwd": "/nowhere"}, "environment hostile does not start: /nowhere: No such file or directory"),
    ],
)
async def test_an_environment_that_is_not_there_says_so(calls: Calls, given: dict[str, Any], words: str) -> None:
    made = {"command": (sys.executable, "hostile.py"), "cwd": str(APP), **given}
    calls.pools.configure([Environment("hostile", **made)])
    end = await hostile(calls, "hello")
    assert (code(end), text(end)) == ("environment", words)


async def test_surroundings_belong_to_the_environment(wild: Calls) -> None:
    end = await hostile(wild, "hello", around=Work((), cwd="/"))
    assert (code(end), text(end)) == (
        "unrunnable", "env, cwd, user, rlimits and stdin belong to the environment of a warm process",
    )  # fmt: skip


async def test_python_and_warm_are_told_apart(wild: Calls) -> None:
    end = await wild.run("jobs:noop", environment="hostile")
    assert (code(end), text(end)) == ("unrunnable", "environment hostile is a program of its own: call it by warm")
