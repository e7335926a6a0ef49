"""Whose actions are, whatever is killed: daemon, executor; and where they go when a daemon is asked to stop."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.program import PATIENCE_S, Program, until_there
from tests.support.certificates import certificate
from tests.support.executors import end_executor, executors

pytestmark = pytest.mark.long

Start = Callable[..., Program]
TOKEN = {"QUVATLH_TOKEN": "one-token-for-nodes-and-workers"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def begin(*flags: str, name: str = "one", ca: str | None = None, **environ: str) -> Program:
        started.append(Program(tmp_path / name, *flags, ca=ca, **environ))
        return started[-1]

    yield begin
    for program in started:
        program.kill()
    for data in {program.data for program in started}:
        end_executor(data)


def until(holds: Callable[[], Any], what: str = "it did not come about") -> Any:
    ends = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < ends, what
        time.sleep(0.02)
    return found


def beating(tmp_path: Path, name: str, times: int) -> tuple[str, Callable[[], list[str]]]:
    """A command that writes a line each tenth of a second, by whom and for which attempt; and what was written."""
    file = tmp_path / name
    line = "$QUVATLH_WORKER $QUVATLH_ATTEMPT $n"
    shell = f"n=0; while [ $n -lt {times} ]; do echo {line} >> {file}; n=$((n+1)); sleep 0.1; done"
    return shell, lambda: file.read_text().splitlines() if file.exists() else []


def test_a_daemon_that_is_killed_and_back_in_time_goes_on_with_its_actions(start: Start, tmp_path: Path) -> None:
    node = start("--name", "n").listening().ready()
    shell, lines = beating(tmp_path, "lines", 30)
    task = node.add(work={"shell": f"{shell}; exit 5"}, lease="30s", retry={"attempts": 1})
    gate, over = tmp_path / "gate", tmp_path / "over"
    short = node.add(work={"shell": f"{until_there(gate)}; echo done; touch {over}"}, lease="30s")
    node.until(task, "running")
    node.until(short, "running")
    (before,) = {tuple(executors(node.data))}
    node.kill()
    gate.touch()
    until(over.exists)
    again = start("--name", "n").listening().ready()
    record = again.done(task)
    assert (record["state"], record["attempts"], record["error"]["text"]) == ("failed", 1, "exit status 5")
    assert lines() == [f"n 1 {n}" for n in range(30)], "it was not left alone"
    assert again.done(short)["attempts"] == 1, "an end that no daemon saw"
    assert again.raw(f"/v1/tasks/{short}/log") == b"done\n"
    assert tuple(executors(again.data)) == before
    assert again.stop() == 0
    until(lambda: not executors(again.data), "the executor outlives a stop")


def test_a_daemon_that_is_killed_and_not_back_in_time_finds_its_actions_ended(start: Start, tmp_path: Path) -> None:
    node = start("--name", "n").listening().ready()
    shell, lines = beating(tmp_path, "lines", 600)
    task = node.add(work={"shell": shell}, lease="1s")
    node.until(task, "running")
    node.kill()
    until(lambda: not executors(node.data), "the executor outlives the last lease")
    seen = len(lines())
    again = start("--name", "n").listening().ready()
    until(lambda: any(line.startswith("n 2 ") for line in lines()[seen:]), "it does not run again")
    assert not any(line.startswith("n 1 ") for line in lines()[seen:])
    again.ask("/v1/tasks/delete", {"ids": [task]})


def test_a_killed_executors_tasks_run_again(start: Start, tmp_path: Path) -> None:
    node = start("--name", "n").listening().ready()
    shell, lines = beating(tmp_path, "lines", 600)
    task = node.add(work={"shell": shell}, lease="2s")
    node.until(task, "running")
    until(lines)
    end_executor(node.data)
    until(lambda: any(line.startswith("n 2 ") for line in lines()), "it does not run again")
    seen = [line.split()[1] for line in lines()]
    assert seen == sorted(seen), "two attempts at once"
    node.ask("/v1/tasks/delete", {"ids": [task]})
    assert node.stop() == 0


def test_asked_to_stop_it_lets_jobs_finish_and_the_rest_goes_back(start: Start, tmp_path: Path) -> None:
    node = start("--name", "n", QUVATLH_WORKER_DRAIN_MS="1500").listening().ready()
    gate = tmp_path / "gate"
    short = node.add(work={"shell": f"{until_there(gate)}; echo finished"})
    long, lines = beating(tmp_path, "lines", 600)
    job = node.add(work={"shell": f"trap 'echo asked >> {tmp_path}/asked; exit 1' TERM; {long}"})
    service = node.add(kind="service", work={"shell": "sleep 600"}, slots=0)
    for task in (short, job, service):
        node.until(task, "running")
    node.ask_to_stop()
    gate.touch()
    assert node.ended() == 0
    assert (tmp_path / "asked").read_text() == "asked\n", "no grace"
    assert executors(node.data) == []
    seen = len(lines())
    again = start("--name", "n", QUVATLH_WORKER_DRAIN_MS="0").listening().ready()
    assert again.done(short)["state"] == "succeeded"
    assert again.done(short)["attempts"] == 1
    until(lambda: len(lines()) > seen, "the job does not run again")
    again.until(service, "running")
    record = again.ask(f"/v1/tasks/{job}")
    assert [action["state"] for action in record["actions"]] == ["stopped", "running"]
    assert again.stop() == 0


def test_a_worker_without_a_replica_outlives_its_nodes_restart(start: Start, tmp_path: Path) -> None:
    node = start("--name", "n", name="node", QUVATLH_WORKER_SLOTS="0", **TOKEN).listening().ready()
    (node.data / "token").write_text(TOKEN["QUVATLH_TOKEN"])
    port = node.url.rpartition(":")[2]
    worker = start("--name", "w", "--role", "worker", "--server", node.url, name="worker", **TOKEN)
    shell, lines = beating(tmp_path, "lines", 40)
    task = node.add(work={"shell": f"{shell}; echo end"}, lease="20s", tags=["worker=w"])
    node.until(task, "running")
    node.kill()
    time.sleep(0.5)
    again = start("--name", "n", "--http", f"127.0.0.1:{port}", name="node", QUVATLH_WORKER_SLOTS="0", **TOKEN)
    again.listening().ready()
    record = again.done(task)
    assert (record["state"], record["attempts"]) == ("succeeded", 1)
    assert lines() == [f"w 1 {n}" for n in range(40)]
    assert again.raw(f"/v1/tasks/{task}/log") == b"end\n"
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert '"level": "error"' not in worker.told()


def test_a_worker_connects_over_tls_to_whom_its_authority_signed_and_to_nobody_else(
    start: Start, tmp_path: Path
) -> None:
    cert, key = certificate(tmp_path)
    tls = {"QUVATLH_HTTP_TLS_CERT": cert, "QUVATLH_HTTP_TLS_KEY": key, "QUVATLH_WORKER_SLOTS": "0"}
    node = start("--name", "n", ca=cert, **tls, **TOKEN).listening().ready()
    (node.data / "token").write_text(TOKEN["QUVATLH_TOKEN"])
    flags = ("--role", "worker", "--server", node.url)
    stranger = start("--name", "s", *flags, name="stranger", **TOKEN)
    start("--name", "w", *flags, name="worker", QUVATLH_NODE_SERVER_CA=cert, **TOKEN)
    task = node.add(work={"command": ["echo", "over TLS"]})
    assert node.done(task)["actions"][0]["worker"] == "w"
    assert node.raw(f"/v1/tasks/{task}/log") == b"over TLS\n"
    until(lambda: "CERTIFICATE_VERIFY_FAILED" in stranger.told(), "it does not say why it stays out")
    assert [worker["name"] for worker in node.ask("/v1/workers")["items"] if worker["slots"]] == ["w"]


def test_a_worker_without_a_token_says_where_to_put_one(start: Start) -> None:
    worker = start("--role", "worker", "--server", "http://127.0.0.1:1")
    assert worker.ended() == 1
    assert "there is no token" in worker.told()
    assert "Traceback" not in worker.told()


def test_a_worker_needs_a_server(start: Start) -> None:
    worker = start("--role", "worker")
    assert worker.ended() != 0
    assert "node.server" in worker.told()
