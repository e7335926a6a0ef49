"""An end told by the program itself: to a receiver on this machine, signed, and again until it is taken."""

from __future__ import annotations

import email.utils
import json
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.daemon.program import Program
from tests.notify.test_signing import is_ours

pytestmark = pytest.mark.long

SECRET = "a secret that receiver and node share"
Start = Callable[..., Program]
Told = tuple[dict[str, str], bytes]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def begin(**environ: str) -> Program:
        started.append(Program(tmp_path / "one", **environ))
        return started[-1]

    yield begin
    for program in started:
        program.kill()


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[Told]]]:
    """Takes only what it has refused once."""
    told: list[Told] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(200 if len(told) > 1 else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", told
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_end_is_told_signed_and_again_until_it_is_taken(
    start: Start, tmp_path: Path, receiver: tuple[str, list[Told]]
) -> None:
    url, told = receiver
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    node = start(QUVATLH_NOTIFY_SECRET_FILE=str(secret), QUVATLH_NOTIFY_ALLOW="127.0.0.1").listening().ready()
    task = node.add(work={"command": ["false"]}, retry={"attempts": 1}, notify={"url": url})
    (delivery,) = (each["id"] for each in _deliveries(node, task))
    assert node.done(delivery)["attempts"] == 2
    assert [headers["webhook-id"] for headers, _ in told] == [delivery] * 2
    assert all(is_ours(headers, body, SECRET) for headers, body in told)
    said = json.loads(told[-1][1])
    assert (said["type"], said["data"]["id"], said["data"]["error"]["text"]) == ("task.failed", task, "exit status 1")
    assert node.stop() == 0
    assert '"level": "error"' not in node.told()


def test_a_command_is_told_on_its_standard_input(start: Start, tmp_path: Path) -> None:
    node = start().listening().ready()
    into = tmp_path / "told"
    task = node.add(work={"command": ["true"]}, notify={"command": ["dd", f"of={into}", "status=none"]})
    (delivery,) = (each["id"] for each in _deliveries(node, task))
    assert node.done(delivery)["state"] == "succeeded"
    assert json.loads(into.read_text())["data"]["id"] == task


def test_this_machine_is_not_asked_unless_that_is_allowed(start: Start, receiver: tuple[str, list[Told]]) -> None:
    url, told = receiver
    node = start().listening().ready()
    task = node.add(work={"command": ["true"]}, notify={"url": url})
    (delivery,) = (each["id"] for each in _deliveries(node, task))
    record = node.done(delivery)
    assert (record["state"], record["error"]["code"]) == ("failed", "unrunnable")
    assert "notify.allow" in record["error"]["text"]
    assert not told


class Answers(BaseHTTPRequestHandler):
    """By the path: `/404` is that status, `/busy` asks for a moment once, `/away` points elsewhere, `/large` says much."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        word = self.path.strip("/")
        status = {"large": 200, "away": 302, "busy": 503 if self.asked.count("/busy") == 1 else 200}.get(word)
        self.send_response(int(word) if status is None else status)
        if word == "busy":
            self.send_header("Retry-After", email.utils.formatdate(time.time() + 1, usegmt=True))
        if word == "away":
            self.send_header("Location", "http://169.254.169.254/latest")
        self.end_headers()
        if status != 204 and word != "204":
            self.wfile.write(b"x" * (5000 if word == "large" else 2))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_are_tasks_and_their_statuses_what_becomes_of_them(start: Start, elsewhere: str) -> None:
    node = start(QUVATLH_NOTIFY_ALLOW="127.0.0.1").listening().ready()
    asked = {
        "well": {"url": f"{elsewhere}/204"},
        "wanted": {"url": f"{elsewhere}/404", "expect": ["2xx", 404]},
        "final": {"url": f"{elsewhere}/400", "permanent": ["4xx"]},
        "large": {"url": f"{elsewhere}/large", "max_bytes": 4999},
        "private": {"url": "http://169.254.169.254/latest"},
        "busy": {"url": f"{elsewhere}/busy"},
    }
    for name, http in asked.items():
        node.add(id=name, work={"http": http})
    node.add(id="away", work={"http": {"url": f"{elsewhere}/away"}}, retry={"attempts": 1})
    found = {name: node.done(name) for name in (*asked, "away")}
    told = {
        name: (each["state"], each["attempts"], (each["error"] or {}).get("text", "")) for name, each in found.items()
    }
    assert told == {
        "well": ("succeeded", 1, ""),
        "wanted": ("succeeded", 1, ""),
        "final": ("failed", 1, "status 400: xx"),
        "large": ("failed", 1, "status 200, with more than 4999 bytes"),
        "private": ("failed", 1, "169.254.169.254 is no public address, and not allowed by notify.allow"),
        "busy": ("succeeded", 2, ""),
        "away": ("failed", 1, "status 302: it points to http://169.254.169.254/latest, and is not followed"),
    }
    with pytest.raises(urllib.error.HTTPError) as refused:
        node.add(work={"http": {"url": "file:///etc/passwd"}})
    assert json.load(refused.value)["errors"][0]["path"] == "tasks[0].work.http.url"


@pytest.mark.parametrize(("text", "words"), [("short", "less than 16 bytes"), ("", "is empty")])
def test_a_file_without_a_key_is_told_at_the_start(start: Start, tmp_path: Path, text: str, words: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(text)
    node = start(QUVATLH_NOTIFY_SECRET_FILE=str(secret))
    assert node.ended() == 2
    assert words in node.told()


def _deliveries(node: Program, task: str) -> list[dict[str, str]]:
    node.done(task)
    found: list[dict[str, str]] = node.ask("/v1/tasks?queue=_notify")["items"]
    return found
