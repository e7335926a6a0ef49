"""The program as a person has it: a process, HTTP, signals."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path

import pytest

from tests.cluster.ports import Reserved
from tests.daemon.program import COMMAND, PATIENCE_S, ROOT, Program, until_there

Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def begin(*flags: str, name: str = "one", **environ: str) -> Program:
        started.append(Program(tmp_path / name, *flags, **environ))
        return started[-1]

    yield begin
    for program in started:
        program.kill()


def test_hello_is_run_and_its_output_shown(start: Start) -> None:
    node = start().listening().ready()
    record = node.done(node.add(work={"command": ["echo", "hello"]}))
    assert (record["state"], record["actions"][0]["exit_code"]) == ("succeeded", 0)
    assert node.raw(f"/v1/tasks/{record['id']}/log") == b"hello\n"
    assert node.stop() == 0
    assert '"level": "error"' not in node.told()
    assert '"event": "request"' not in node.told()


@pytest.mark.long
def test_peers_that_a_founded_directory_knows_nothing_of_are_told(start: Start, tmp_path: Path) -> None:
    node = start().listening().ready()
    assert node.stop() == 0
    assert "none of the peers" not in node.told()
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    secret.chmod(0o600)
    own, other = Reserved(), Reserved()
    with contextlib.ExitStack() as stack:
        for place in (own, other):
            stack.callback(place.release)
        peers = [own.address, other.address]
        again = start("--peers", ",".join(peers), "--secret-file", str(secret), QUVATLH_PEER_LISTEN=peers[0])
        again.listening().ready()
        (line,) = [line for line in again.told().splitlines() if "none of the peers" in line]
        assert json.loads(line)["peers"] == peers[1:]
        assert again.stop() == 0


@pytest.mark.long
def test_requests_are_logged_for_who_looks_for_a_bug(start: Start) -> None:
    node = start(QUVATLH_LOG_LEVEL="debug").listening().ready()
    node.ask("/v1/cluster")
    assert node.stop() == 0
    assert any('"event": "request"' in line and "/v1/cluster" in line for line in node.told().splitlines())


def test_what_was_done_is_there_after_a_restart(start: Start) -> None:
    node = start().listening().ready()
    task = node.add(work={"shell": "echo out; echo err >&2; exit 3"}, retry={"attempts": 1})
    assert node.done(task)["state"] == "failed"
    later = node.add(work={"command": ["true"]}, delay="1h")
    node.kill()
    again = start().listening().ready()
    record = again.ask(f"/v1/tasks/{task}")
    assert (record["state"], record["error"]["text"]) == ("failed", "exit status 3")
    assert again.raw(f"/v1/tasks/{task}/log?stream=stderr") == b"err\n"
    assert again.ask(f"/v1/tasks/{later}")["state"] == "scheduled"


@pytest.mark.long
def test_a_stop_gives_what_runs_back_and_a_start_takes_it_up_again(start: Start, tmp_path: Path) -> None:
    node = start(QUVATLH_WORKER_DRAIN_MS="0").listening().ready()
    mark = tmp_path / "mark"
    task = node.add(work={"shell": f"test -e {mark} || {{ touch {mark}; sleep 60; }}"})
    node.until(task, "running")
    while not mark.exists():
        time.sleep(0.01)
    assert node.stop(signal.SIGINT) == 0
    again = start().listening().ready()
    record = again.done(task)
    assert (record["state"], record["attempts"]) == ("succeeded", 2)
    assert [action["state"] for action in record["actions"]] == ["stopped", "succeeded"]


@pytest.mark.long
def test_the_link_that_open_prints_logs_a_browser_in_once(start: Start) -> None:
    node = start().listening().ready()
    words = [*COMMAND[:-1], "open", "--print", "--url", node.url, "--data", str(node.data)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QUVATLH_")}
    said = subprocess.run(words, cwd=ROOT, env=clean, stdout=subprocess.PIPE, text=True, check=True)
    link = said.stdout.strip()
    assert link.startswith(f"{node.url}/login?once=")

    def get(path: str, cookie: str = "") -> tuple[int, Message]:
        door = http.client.HTTPConnection(link.split("/")[2], timeout=PATIENCE_S)
        with contextlib.closing(door):
            door.request("GET", path, headers={"Cookie": cookie} if cookie else {})
            answer = door.getresponse()
            return answer.status, answer.headers

    path = link.removeprefix(node.url)
    status, headers = get(path)
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert get("/v1/session", cookie)[0] == 200
    assert get("/v1/session")[0] == 401
    status, headers = get(path)
    assert (status, headers["Location"], headers["Set-Cookie"]) == (303, "/#/login?link=used", None)


def test_a_large_output_is_followed_to_its_end(start: Start, tmp_path: Path) -> None:
    node = start().listening().ready()
    gate = tmp_path / "gate"
    task = node.add(work={"shell": f"{until_there(gate)}; for n in 1 2 3 4 5; do seq 1 20000; sleep 0.05; done"})
    node.until(task, "running")
    gate.touch()
    expected = b"".join(b"%d\n" % n for n in range(1, 20_001)) * 5
    assert node.raw(f"/v1/tasks/{task}/log?follow=1") == expected
    assert node.done(task)["state"] == "succeeded"
    assert node.raw(f"/v1/tasks/{task}/log") == expected


@pytest.mark.long
def test_a_short_output_is_followed_too(start: Start) -> None:
    node = start().listening().ready()
    task = node.add(work={"shell": "sleep 0.3; echo late"})
    assert node.raw(f"/v1/tasks/{task}/log?follow=1") == b"late\n"


@pytest.mark.long
def test_a_killed_tree_ends_with_a_delete(start: Start, tmp_path: Path) -> None:
    node = start().listening().ready()
    command = f"sleep 60.{os.getpid()}"
    task = node.add(work={"shell": f"{command} & {command}; true"})
    ends = time.monotonic() + 20
    while processes(command) != 2:
        assert time.monotonic() < ends
        time.sleep(0.01)
    node.ask("/v1/tasks/delete", {"ids": [task]})
    while processes(command):
        assert time.monotonic() < ends
        time.sleep(0.01)


def processes(command: str) -> int:
    """Numbers of an action's own namespace say nothing here."""
    wanted = command.replace(" ", "\0") + "\0"
    found = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += Path(f"/proc/{pid}/cmdline").read_text() == wanted
        except OSError:
            continue
    return found


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody else listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield "127.0.0.1:%d" % listener.getsockname()[1]  # noqa: UP031


@pytest.mark.long
def test_a_port_in_use_is_named_with_status_1_and_nothing_has_changed(start: Start, taken: str) -> None:
    node = start(QUVATLH_HTTP_LISTEN=taken)
    assert node.ended() == 1
    assert f"http.listen: cannot listen at {taken}: another process listens there" in node.told().replace("\n", " ")
    assert "Traceback" not in node.told()
    assert not node.data.exists()


@pytest.mark.long
@pytest.mark.parametrize(("kinds", "status"), [(("HTTP_TLS_CERT", "HTTP_TLS_KEY"), 1), (("NOTIFY_SECRET_FILE",), 2)])
def test_files_that_are_not_there_are_named_and_nothing_has_changed(
    start: Start, kinds: tuple[str, ...], status: int
) -> None:
    node = start(**{f"QUVATLH_{kind}": f"/nowhere/{kind.lower()}" for kind in kinds})
    assert node.ended() == status
    assert "/nowhere/" in node.told()
    assert "Traceback" not in node.told()
    assert not node.data.exists()


@pytest.mark.long
def test_one_node_started_twice_is_told_by_its_directory_not_by_its_port(start: Start) -> None:
    node = start().listening()
    again = start("--http", node.url.removeprefix("http://"))
    assert again.ended() == 1
    told = again.told().replace("\n", " ")
    assert f"the data directory {node.data} is in use by process {node.process.pid}: stop that daemon" in told
    assert "http.listen" not in told


@pytest.mark.long
def test_a_peer_port_in_use_is_named_with_status_1(start: Start, tmp_path: Path, taken: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    node = start("--peers", f"{taken},127.0.0.1:1", "--secret-file", str(secret), QUVATLH_PEER_LISTEN=taken)
    assert node.ended() == 1
    assert f"cannot listen at {taken}: " in node.told().replace("\n", " ")


@pytest.mark.long
def test_a_certificate_that_is_not_there_is_named_with_status_1(start: Start, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    files = {f"QUVATLH_PEER_TLS_{kind}": f"/nowhere/{kind.lower()}" for kind in ("CERT", "KEY", "CA")}
    node = start("--peers", "127.0.0.1:1", "--secret-file", str(secret), **files)
    assert node.ended() == 1
    told = node.told().replace("\n", " ")
    assert "peer.tls: cannot be used (/nowhere/cert, /nowhere/key, /nowhere/ca): no such file or directory" in told


@pytest.mark.long
def test_a_token_that_no_client_could_send_is_refused(start: Start) -> None:
    node = start(QUVATLH_TOKEN="two words")
    assert node.ended() == 1
    assert "the token in QUVATLH_TOKEN must be 16 to 1024 of" in node.told().replace("\n", " ")
    assert "two words" not in node.told()
    assert not node.data.exists()


@pytest.mark.long
def test_a_nodes_directory_is_not_for_a_worker_nor_a_workers_for_a_node(start: Start) -> None:
    node = start().listening().ready()
    assert node.stop() == 0
    as_worker = ("--role", "worker", "--server", "http://127.0.0.1:1")
    worker = start(*as_worker)
    assert worker.ended() == 1
    assert f"the data directory {node.data} belongs to a node: a worker would" in worker.told().replace("\n", " ")
    alone = start(*as_worker, name="two", QUVATLH_TOKEN="one-token-for-the-worker")
    alone.tells("worker started")
    assert alone.stop() == 0
    other = start(name="two")
    assert other.ended() == 1
    assert f"the data directory {other.data} belongs to a worker: a node would" in other.told().replace("\n", " ")
    assert start().listening().ready().stop() == 0


@pytest.mark.long
def test_tables_of_a_newer_version_are_refused_with_status_1(start: Start) -> None:
    node = start().listening().ready()
    assert node.stop() == 0
    (state,) = node.data.glob("gen-*/state")
    with contextlib.closing(sqlite3.connect(state)) as db:
        db.execute("UPDATE schema_version SET version = 99")
        db.commit()
    again = start()
    assert again.ended() == 1
    told = again.told().replace("\n", " ")
    assert f"the tables in {state} have version 99, this program knows up to" in told
    assert "start the version that wrote them, or a newer one" in told
    assert "Traceback" not in told


@pytest.mark.long
def test_a_directory_that_cannot_be_written_is_named_with_status_1(start: Start) -> None:
    # Root may write wherever modes forbid it, but not there.
    node = start("--data", "/proc/quvatlh")
    assert node.ended() == 1
    assert "/proc/quvatlh" in node.told()
    assert "Traceback" not in node.told()


@pytest.mark.long
def test_a_file_in_place_of_the_directory_is_named_with_status_1(start: Start, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "data").write_text("")
    node = start()
    assert node.ended() == 1
    assert str(tmp_path / "one" / "data") in node.told()
    assert "Traceback" not in node.told()


@pytest.mark.long
def test_three_nodes_survive_the_loss_of_their_master(start: Start, tmp_path: Path) -> None:
    ports = [Reserved() for _ in range(3)]
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    secret.chmod(0o600)
    peers = ",".join(port.address for port in ports)
    token = {"QUVATLH_TOKEN": "one-token-for-all-three-nodes"}

    def node(number: int) -> Program:
        flags = ("--name", f"n{number}", "--peer", ports[number].address, "--peers", peers)
        return start(*flags, "--secret-file", str(secret), name=f"n{number}", QUVATLH_WORKER_SLOTS="2", **token)

    nodes = [node(number) for number in range(3)]
    for each in nodes:
        each.listening().ready()
        (each.data / "token").write_text(token["QUVATLH_TOKEN"])
    gate = tmp_path / "gate"
    work = {"shell": f"{until_there(gate)}; echo $QUVATLH_WORKER"}
    tasks = [nodes[n % 3].add(work=work) for n in range(6)]
    for task in tasks:
        nodes[0].until(task, "running")
    large = [{"work": {"command": ["true"]}, "payload": "x" * 1_000_000}] * 3
    assert len(nodes[1].ask("/v1/events", {"event": "ADD", "tasks": large})["ids"]) == 3
    master = int(nodes[0].ask("/v1/cluster")["master"][1:])
    nodes[master].kill()
    gate.touch()
    left = nodes[(master + 1) % 3]
    for task in tasks:
        record = left.done(task)
        assert record["state"] == "succeeded"
        assert left.raw(f"/v1/tasks/{task}/log").decode().strip() == record["actions"][-1]["worker"]
    again = node(master).listening().ready()
    assert [again.ask(f"/v1/tasks/{task}")["state"] for task in tasks] == ["succeeded"] * 6
    for each in (again, *(one for one in nodes if one is not nodes[master])):
        assert each.stop() == 0
    for port in ports:
        port.release()
