"""What only a process of its own shows: signals, pipes, completion, restoring."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from quvatlh.cli.lazy import INTERRUPTED
from quvatlh.cli.status import ExitStatus
from quvatlh.ports import STATE_FILE, Member
from quvatlh.raft import backup, entries
from quvatlh.raft.datadir import DataDir
from quvatlh.raft.disk import RealDisk
from quvatlh.raft.founding import found_alone
from quvatlh.raft.segment import Base
from quvatlh.raft.settings import Settings
from quvatlh.raft.snapshot import Source
from quvatlh.system import host
from quvatlh.system.entropy import RealEntropy
from tests.cli.stage import Stage
from tests.fakes.pool import TOKEN

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-c", "from quvatlh.cli.main import main; main(prog_name='quvatlh')"]
TASK = {"spec": {"work": {"command": ["true"]}}}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


def started(stage: Stage, *args: str) -> subprocess.Popen[bytes]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("QUVATLH_")}
    environ |= {"QUVATLH_URL": stage.url, "QUVATLH_TOKEN": TOKEN}
    pipe = subprocess.PIPE
    return subprocess.Popen([*COMMAND, *args], stdin=pipe, stdout=pipe, stderr=pipe, env=environ)


def test_ctrl_c_ends_a_command_without_a_word(stage: Stage) -> None:
    stage.call(lambda: stage.pool._add([TASK | {"id": "t"}]))  # type: ignore[list-item]
    with started(stage, "wait", "t") as process:
        assert stage.pool.is_waited_for.wait(timeout=30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (INTERRUPTED, b"", b"")


def test_a_reader_that_has_enough_is_no_failure_worth_a_word(stage: Stage) -> None:
    many = [{"spec": {"work": {"command": ["true", "x" * 200]}}} for _ in range(2000)]
    stage.call(lambda: stage.pool._add(many))  # type: ignore[arg-type]
    with started(stage, "ls", "--all") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"ID")
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(timeout=30)


def test_a_log_as_json_is_all_that_was_written_whatever_it_is(stage: Stage) -> None:
    written = b"one\n\n\xff\n" + b"x" * 150_000 + "\nä".encode()
    stage.call(lambda: stage.pool._add([{"id": "t", "spec": {"work": {"command": ["true"]}}}]))
    stage.call(lambda: stage.pool.write_output("t", written))
    stage.call(lambda: stage.pool.finish("t"))
    with started(stage, "logs", "t", "--json") as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (ExitStatus.DONE, b"")
    read = b""
    for line in out.splitlines():
        value = json.loads(line)
        assert (value["action"], value["stream"], value["offset"]) == ("a1", "stdout", len(read))
        read += value["text"].encode() if "text" in value else b64decode(value["base64"])
    assert read == written


def test_a_shell_completes_commands_and_values(stage: Stage) -> None:
    environ = os.environ | {"_QUVATLH_COMPLETE": "bash_complete", "COMP_WORDS": "quvatlh clu", "COMP_CWORD": "1"}
    done = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "plain,cluster\n"
    environ |= {"COMP_WORDS": "quvatlh logs --stream ", "COMP_CWORD": "3"}
    done = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "plain,stdout\nplain,stderr\n"


def test_a_backup_becomes_a_node_of_its_own(stage: Stage, tmp_path: Path) -> None:
    disk = RealDisk()
    (tmp_path / "state").write_bytes(b"the state")
    old = entries.pack_membership(found_alone(Member("old", "old", "h:1")))
    backup.write(Source(str(tmp_path / "state"), Base(77, 3, 5000, old)), str(tmp_path / "backup"), disk, Settings())
    data = tmp_path / "data"
    command = ["cluster", "restore", str(tmp_path / "backup"), "--data", str(data)]
    with started(stage, *command) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (ExitStatus.DONE, b"")
    assert out.decode() == f"restored up to log index 77 into {data}\nstart it with: quvatlh run --data {data}\n"
    opened = DataDir.open(disk, str(data), RealEntropy(), host.machine_id())
    assert Path(opened.generation_path(), STATE_FILE).read_bytes() == b"the state"
    opened.close()
    with started(stage, *command) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (ExitStatus.REJECTED, b"")
    assert b"holds a log already" in err


def test_a_backup_of_a_newer_version_is_refused_and_makes_nothing(stage: Stage, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "state")) as db:
        db.executescript("CREATE TABLE schema_version (version); INSERT INTO schema_version VALUES (99)")
    old = entries.pack_membership(found_alone(Member("old", "old", "h:1")))
    file, data = tmp_path / "backup", tmp_path / "data"
    backup.write(Source(str(tmp_path / "state"), Base(77, 3, 5000, old)), str(file), RealDisk(), Settings())
    with started(stage, "cluster", "restore", str(file), "--data", str(data)) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (ExitStatus.REJECTED, b"")
    assert f"not restored: the tables in {file} have version 99" in err.decode().replace("\n", " ")
    assert not data.exists()


def test_a_backup_that_is_not_complete_makes_nothing_and_leaves_what_stood_there(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"the state" * 1000)
    old = entries.pack_membership(found_alone(Member("old", "old", "h:1")))
    file, data = tmp_path / "backup", tmp_path / "data"
    backup.write(Source(str(tmp_path / "state"), Base(77, 3, 5000, old)), str(file), RealDisk(), Settings())
    whole = file.read_bytes()
    data.mkdir()
    (data / "token").write_text("t")
    for damaged in (whole[:-1], whole[:5000] + b"X" + whole[5001:]):
        file.write_bytes(damaged)
        for directory, left in ((data, ["token"]), (tmp_path / "none", None)):
            with started(stage, "cluster", "restore", str(file), "--data", str(directory)) as process:
                _, err = process.communicate(timeout=30)
            assert (process.returncode, b"not restored" in err) == (ExitStatus.REJECTED, True)
            assert (os.listdir(directory) if directory.exists() else None) == left
