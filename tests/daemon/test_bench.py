"""`quvatlh bench` against a daemon: it measures, says why where it cannot, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quvatlh.cli.status import ExitStatus
from tests.daemon.program import ROOT, Program

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-c", "from quvatlh.cli.main import main; main(prog_name='quvatlh')", "bench"]
FLAGS = ("--name", "n", "--slots", "2")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path / "one", *FLAGS).listening().ready()
    yield program
    program.kill()


def bench(node: Program, *words: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"QUVATLH_URL": node.url, "QUVATLH_TOKEN": (node.data / "token").read_text().strip()}
    return subprocess.run([*COMMAND, *words], cwd=ROOT, env=environ, check=False, capture_output=True, text=True)


def left(node: Program) -> tuple[object, object]:
    return node.ask("/v1/queues")["items"], node.ask("/v1/tasks")["items"]


@pytest.mark.parametrize("what", ["command", "python"])
def test_it_tells_how_fast_tasks_are_taken_and_done_and_leaves_nothing(node: Program, what: str) -> None:
    found = bench(node, "--what", what, "--tasks", "1500", "--alone", "3", "--json")
    assert (found.returncode, found.stderr) == (ExitStatus.DONE, "")
    told = json.loads(found.stdout)
    assert (told["what"], told["tasks"], told["alone"], told["failed"]) == (what, 1500, 3, 0)
    assert 0 < told["answered_ms"]["p50"] <= told["answered_ms"]["p99"] <= told["done_ms"]["p99"]
    assert told["added_per_s"] > told["done_per_s"] > 0
    assert left(node) == ([], [])


def test_where_nothing_can_run_it_says_why_and_leaves_nothing(node: Program) -> None:
    node.ask("/v1/workers/n", {"slots": 0}, method="PATCH")
    found = bench(node, "--within", "2s")
    assert (found.returncode, found.stdout) == (ExitStatus.UNAVAILABLE, "")
    assert (
        found.stderr
        == "quvatlh: 1 task not done within 2 s: no worker may have it; n: it has no slots, so that it takes nothing\n"
    )
    assert left(node) == ([], [])
