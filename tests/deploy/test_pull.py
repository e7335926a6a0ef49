"""The example workers, each against a real daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.program import ROOT, Program

pytestmark = pytest.mark.long

EXAMPLES = ROOT / "deploy" / "examples" / "pull"
WITH = {"worker.py": sys.executable, "worker.mjs": "node", "worker.rb": "ruby", "worker.sh": "sh"}
NEEDS = {"worker.sh": "curl"}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path, "--slots", "0")
    try:
        yield program.listening().ready()
    finally:
        program.kill()


def start(daemon: Program, example: str, path: Path | None = None) -> subprocess.Popen[bytes]:
    for tool in (WITH[example], NEEDS.get(example)):
        if tool is not None and shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    token = (daemon.data / "token").read_text().strip()
    environ = {**os.environ, "QUVATLH_URL": daemon.url, "QUVATLH_TOKEN": token, "WORKER": "example"}
    if path is not None:
        environ["LEASE"] = "3"
    command = [WITH[example], str(path or EXAMPLES / example), "sums"]
    return subprocess.Popen(command, env=environ, start_new_session=True)


@pytest.mark.parametrize("example", WITH)
def test_an_example_does_what_waits_in_its_queue(daemon: Program, example: str) -> None:
    worker = start(daemon, example)
    try:
        for n in range(3):
            daemon.add(id=f"t{n}", queue="sums", work={"pull": True}, payload=[n, 10, 20])
        daemon.add(id="other", queue="elsewhere", work={"pull": True}, payload=[])
        done = [daemon.done(f"t{n}") for n in range(3)]
        assert [(task["state"], task["result"]) for task in done] == [("succeeded", {"sum": 30 + n}) for n in range(3)]
        assert done[0]["actions"][0]["worker"] == "example"
        assert daemon.ask("/v1/tasks/other")["state"] == "pending"
        if example != "worker.sh":
            daemon.add(id="bad", queue="sums", work={"pull": True}, payload={"no": "list"}, retry={"attempts": 1})
            assert daemon.done("bad")["state"] == "failed"
        assert worker.poll() is None
    finally:
        os.killpg(worker.pid, 9)
        worker.wait()


SLOW = {
    "worker.py": ("sum(payload)}", "time.sleep(sum(payload))}"),
    "worker.mjs": ("({ sum: payload.reduce((a, b) => a + b, 0) })", "sleep(payload[0] * 1000)"),
    "worker.rb": ("{ sum: payload.sum }", "sleep payload.sum"),
    "worker.sh": ("    printf '{", '    sleep "$sum"\n    printf \'{'),
}
"""In place of the sum: so many seconds."""


@pytest.mark.parametrize("example", WITH)
def test_an_example_ends_what_is_gone_and_goes_on(daemon: Program, tmp_path: Path, example: str) -> None:
    text, path = (EXAMPLES / example).read_text(), tmp_path / example
    old, new = SLOW[example]
    assert old in text
    path.write_text(text.replace(old, new))
    worker = start(daemon, example, path)
    try:
        for timeout in (None, "2s"):
            task = f"long-{timeout}"
            daemon.add(
                id=task, queue="sums", work={"pull": True}, payload=[1000], timeout=timeout, retry={"attempts": 1}
            )
            daemon.until(task, "running")
            if timeout is None:
                daemon.ask("/v1/tasks/kill", {"ids": [task]})
            daemon.add(id=f"after-{timeout}", queue="sums", work={"pull": True}, payload=[0], retry={"attempts": 1})
            daemon.done(f"after-{timeout}")
            assert daemon.ask(f"/v1/tasks/{task}")["error"]["code"] == ("killed" if timeout is None else "timeout")
        assert worker.poll() is None
    finally:
        os.killpg(worker.pid, 9)
        worker.wait()


def test_every_example_is_tried() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} - {"README.md"} == WITH.keys()
