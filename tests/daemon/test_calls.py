"""Python tasks of a real node: what a person sees of them, and that they outlive its daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.program import Program
from tests.runner.calls import APP
from tests.support.executors import end_executor

pytestmark = pytest.mark.long

ENVIRONMENTS = {"QUVATLH_WORKER_ENVIRONMENTS": json.dumps({"default": {"cwd": str(APP)}})}
FLAGS = ("--name", "n", "--app", "jobs", "--slots", "2")
ONCE = {"retry": {"attempts": 1}}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path / "one", *FLAGS, **ENVIRONMENTS)
    yield program.listening().ready()
    program.kill()
    end_executor(program.data)


def test_python_tasks_run_and_say_what_became_of_them(node: Program) -> None:
    assert node.ask("/v1/workers/n")["adapters"] == ["command", "python", "http"]
    assert node.done(node.add(work={"python": "jobs:add", "args": [1], "kwargs": {"right": 4}}))["result"] == 5
    broken = node.done(node.add(work={"python": "jobs:broken"}, **ONCE))
    assert broken["error"] == {"code": "exception", "text": "ValueError: no good"}
    assert broken["actions"][0]["output_tail"].endswith("ValueError: no good\n")
    unknown = node.done(node.add(work={"python": "nowhere:fn"}))
    assert unknown["error"] == {"code": "unrunnable", "text": "there is no module nowhere in this environment"}
    assert unknown["attempts"] == 1
    crashed = node.done(node.add(work={"python": "jobs:segfault"}, **ONCE))
    assert (crashed["error"]["code"], crashed["actions"][0]["signal"]) == ("crash", "SEGV")
    endless = node.done(node.add(work={"python": "jobs:spin"}, timeout="300ms", stop={"grace": "0s"}, **ONCE))
    assert endless["error"]["code"] == "timeout"
    large = node.done(node.add(work={"python": "jobs:large", "args": [100_000]}))
    assert json.loads(Path(large["result"]["path"]).read_text()) == "x" * 100_000


def test_many_python_tasks_all_end(node: Program) -> None:
    tasks = [{"id": f"t{n}", "work": {"python": "jobs:add", "args": [n]}} for n in range(500)]
    node.ask("/v1/events", {"event": "ADD", "tasks": tasks})
    assert [node.done(f"t{n}")["result"] for n in range(500)] == [n + 1 for n in range(500)]


def test_a_call_outlives_its_daemon(node: Program, tmp_path: Path) -> None:
    task = node.add(work={"python": "jobs:rest", "args": [2]}, lease="30s")
    node.until(task, "running")
    node.kill()
    again = Program(tmp_path / "one", *FLAGS, **ENVIRONMENTS).listening().ready()
    try:
        found = again.done(task)
        assert (found["state"], found["attempts"], found["result"]) == ("succeeded", 1, 2)
        assert again.ask("/v1/workers/n/reload", {}) == {"worker": "n", "environments": ["default"]}
    finally:
        again.kill()
