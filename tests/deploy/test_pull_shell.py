"""The example worker in shell, against a node that dies in the middle of its answers; and how the examples end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.program import ROOT

EXAMPLES = ROOT / "deploy" / "examples" / "pull"
WITH = {"worker.py": sys.executable, "worker.mjs": "node", "worker.rb": "ruby", "worker.sh": "sh"}
ACTION = {"actions": [{"action": "a1", "token": 7, "task": "t1", "payload": [1, 2, 3]}]}
WAIT_S = 60


class Node(ThreadingHTTPServer):
    """Answers one after the other: a status and what is said, whole or cut; None where it dies instead. When they are all
    given, whoever asks waits until he goes."""

    daemon_threads = True

    def __init__(self, answers: list[tuple[int, Any, bool] | None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.waits = threading.Event()
        self.is_left = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Node

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path.removeprefix("/v1/work/"), json.loads(body)))
        self.close_connection = True
        if not self.server.answers:
            self.server.waits.set()
            with contextlib.suppress(ConnectionError):
                self.rfile.read(1)
            self.server.is_left.set()
            return
        answer = self.server.answers.pop(0)
        if answer is None:
            return
        status, said, is_whole = answer
        data = json.dumps(said, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if is_whole else data[: len(data) // 2])

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def node() -> Iterator[Node]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    node = Node([])
    thread = threading.Thread(target=node.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield node
    node.shutdown()
    thread.join()
    node.server_close()


def start(node: Node, example: str, path: Path | None = None) -> subprocess.Popen[bytes]:
    if shutil.which(WITH[example]) is None:
        pytest.skip(f"{WITH[example]} is not installed")
    environ = {
        **os.environ,
        "QUVATLH_URL": f"http://127.0.0.1:{node.server_port}",
        "QUVATLH_TOKEN": "x",
        "LEASE": "600",
    }
    command = [WITH[example], str(path or EXAMPLES / example), "sums"]
    return subprocess.Popen(command, env=environ, start_new_session=True)


def ended(worker: subprocess.Popen[bytes]) -> int:
    try:
        return worker.wait(WAIT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):  # what it waits in between two renewals goes with it
            os.killpg(worker.pid, 9)


@pytest.mark.parametrize("example", WITH)
def test_an_example_that_is_to_end_while_it_waits_asks_no_more(node: Node, example: str) -> None:
    worker = start(node, example)
    try:
        assert node.waits.wait(WAIT_S)
        worker.terminate()
        assert node.is_left.wait(WAIT_S)
    finally:
        status = ended(worker)
    assert status in {0, -signal.SIGTERM}
    assert [verb for verb, _ in node.asked] == ["claim"]


def test_a_worker_in_shell_that_is_to_end_finishes_what_it_was_given(node: Node, tmp_path: Path) -> None:
    text, gate, path = (EXAMPLES / "worker.sh").read_text(), tmp_path / "gate", tmp_path / "worker.sh"
    assert "    sum=0\n" in text
    path.write_text(text.replace("    sum=0\n", f"    sum=0 gate=$(cat '{gate}')\n"))
    os.mkfifo(gate)
    node.answers += [(200, ACTION, True), None, (200, {}, True)]
    worker = start(node, "worker.sh", path)
    try:
        with gate.open("w"):  # it is at work
            worker.terminate()
            with pytest.raises(subprocess.TimeoutExpired):
                worker.wait(0.5)
    finally:
        status = ended(worker)
    finish = ("finish", {"action": "a1", "token": 7, "result": {"sum": 6}})
    assert [each if each[0] == "finish" else each[0] for each in node.asked] == ["claim", finish, finish]
    assert status == 0


def test_a_worker_in_shell_outlives_answers_that_do_not_come_or_are_cut(node: Node) -> None:
    gone = {"error": {"code": "stale"}}
    node.answers += [None, (200, ACTION, True), None, (200, {}, False), (200, {}, True)]
    node.answers += [(200, ACTION, False), (200, ACTION, True), (409, gone, True), (401, {}, True)]
    status = ended(start(node, "worker.sh"))
    finish = ("finish", {"action": "a1", "token": 7, "result": {"sum": 6}})
    asked = [each if each[0] == "finish" else each[0] for each in node.asked]
    assert asked == ["claim", "claim", finish, finish, finish, "claim", "claim", finish, "claim"]
    assert status == 22, "it may not claim"
