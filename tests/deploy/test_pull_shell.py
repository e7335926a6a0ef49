"""The example worker in shell, against a node that dies in the middle of its answers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.daemon.program import ROOT

WORKER = ROOT / "deploy" / "examples" / "pull" / "worker.sh"
ACTION = {"actions": [{"action": "a1", "token": 7, "task": "t1", "payload": [1, 2, 3]}]}
WAIT_S = 60


class Node(ThreadingHTTPServer):
    """Answers one after the other: a status and what is said, whole or cut; None where it dies instead."""

    daemon_threads = True

    def __init__(self, answers: list[tuple[int, Any, bool] | None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    server: Node

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path.removeprefix("/v1/work/"), json.loads(body)))
        answer = self.server.answers.pop(0)
        self.close_connection = True
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


def test_a_worker_in_shell_outlives_answers_that_do_not_come_or_are_cut(node: Node) -> None:
    gone = {"error": {"code": "stale"}}
    node.answers += [None, (200, ACTION, True), None, (200, {}, False), (200, {}, True)]
    node.answers += [(200, ACTION, False), (200, ACTION, True), (409, gone, True), (401, {}, True)]
    environ = {
        **os.environ,
        "QUVATLH_URL": f"http://127.0.0.1:{node.server_port}",
        "QUVATLH_TOKEN": "x",
        "LEASE": "600",
    }
    worker = subprocess.Popen(["sh", str(WORKER), "sums"], env=environ, start_new_session=True)
    try:
        status = worker.wait(WAIT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):  # what it waits in between two renewals goes with it
            os.killpg(worker.pid, 9)
    finish = ("finish", {"action": "a1", "token": 7, "result": {"sum": 6}})
    asked = [each if each[0] == "finish" else each[0] for each in node.asked]
    assert asked == ["claim", "claim", finish, finish, finish, "claim", "claim", finish, "claim"]
    assert status == 22, "it may not claim"
