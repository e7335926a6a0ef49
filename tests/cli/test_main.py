from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from quvatlh.cli.main import main
from quvatlh.cli.status import ExitStatus

COMMAND = [sys.executable, "-c", "from quvatlh.cli.main import main; main()"]


def invoked(*args: str, **environ: str) -> Result:
    return CliRunner().invoke(main, args, env=environ)


def test_the_version_is_that_of_the_package() -> None:
    pytest.importorskip("quvatlh")
    try:
        expected = importlib.metadata.version("quvatlh")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed here")
    assert invoked("--version").output == f"quvatlh {expected}\n"


def test_statuses_are_those_that_scripts_know() -> None:
    assert {status.name: status.value for status in ExitStatus} == {
        "DONE": 0,
        "REJECTED": 1,
        "USAGE": 2,
        "UNAVAILABLE": 3,
        "UNKNOWN": 4,
        "TASK_FAILED": 5,
    }


def test_a_good_configuration_is_said_to_be_good(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("node: {name: one}\n")
    for result in (invoked("config", "check", str(tmp_path / "c.yaml")), invoked("config", "check")):
        assert (result.exit_code, result.stdout) == (ExitStatus.DONE, "the configuration is good\n")


def test_every_fault_of_a_configuration_is_a_line_on_standard_error(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("node: {nmae: one}\nlog: {level: loud}\n")
    result = invoked("config", "check", str(file))
    assert result.exit_code == ExitStatus.USAGE
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"node.nmae: is not a key; did you mean node.name? ({file})",
        f"log.level: must be one of debug, info, warning, error ({file})",
    ]


def test_faults_are_json_where_a_program_asks(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("log: {level: loud}\n")
    result = invoked("config", "check", "--json", str(tmp_path / "c.yaml"))
    assert result.exit_code == ExitStatus.USAGE
    assert [fault["path"] for fault in json.loads(result.stdout)["faults"]] == ["log.level"]
    assert json.loads(invoked("config", "check", "--json").stdout) == {"faults": []}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_of_its_own(shell: str) -> None:
    result = invoked("completion", shell)
    assert result.exit_code == ExitStatus.DONE
    assert f"_QUVATLH_COMPLETE={shell}_complete" in result.stdout
    assert shell != "bash" or "complete -o nosort -o default -F" in result.stdout, "files where we know nothing"


def test_faults_of_flags_name_the_flag() -> None:
    result = invoked("run", "--peer", "nowhere")
    assert result.exit_code == ExitStatus.USAGE
    assert (
        result.stderr == "peer.listen: must be host:port, such as 10.0.0.1:7421 or [::1]:7421, not 'nowhere' (--peer)\n"
    )


def test_an_unknown_command_is_a_usage_error() -> None:
    assert invoked("fly").exit_code == ExitStatus.USAGE


@pytest.mark.long
def test_a_missing_secret_is_a_fault(tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path), "--peers", "127.0.0.1:7421", "--secret-file", str(tmp_path / "none")]
    finished = subprocess.run([*COMMAND, "run", *flags], capture_output=True, text=True, timeout=30, check=False)
    assert finished.returncode == ExitStatus.USAGE
    assert "peer.secret_file: cannot be read" in finished.stderr


@pytest.mark.long
def test_a_node_runs_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        assert node.stderr is not None
        event_awaited(node, "node started")
        refused = subprocess.run(
            [*COMMAND, "run", "--data", str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
        )
        assert refused.returncode == ExitStatus.REJECTED
        assert "in use by process" in refused.stderr
        node.send_signal(signal.SIGTERM)
        rest = node.stderr.read()
        assert node.wait(timeout=10) == ExitStatus.DONE
        assert json.loads(rest.splitlines()[-1])["event"] == "node stops"
        assert node.stdout is not None
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/login\?once=[\w-]+\n", node.stdout.read())


@pytest.mark.long
def test_a_name_is_made_once_and_kept(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        with started(tmp_path) as node:
            event_awaited(node, "node started")
            node.send_signal(signal.SIGTERM)
            node.wait(timeout=10)
        names.append((tmp_path / "name").read_text())
    assert names[0] == names[1] != ""


def started(data: Path) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("QUVATLH_")}
    arguments = [*COMMAND, "run", "--data", str(data), "--http", "127.0.0.1:0"]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)


def event_awaited(node: subprocess.Popen[str], event: str) -> None:
    assert node.stderr is not None
    for line in node.stderr:
        if json.loads(line)["event"] == event:
            return
    raise AssertionError(f"the node ended before {event!r}")


@pytest.mark.parametrize(
    ("args", "detail"),
    [
        (("add", "--json", "--priority", "high", "--", "true"), "Invalid value for '--priority': 'high' is not"),
        (("show", "--json"), "Missing argument 'ID'."),
        (("queue", "puase", "q", "--json"), "there is no command 'puase'. Did you mean pause?"),
        (("lss", "--json"), "there is no command 'lss'. Did you mean ls?"),
        (("worker", "ls", "--json"), "there is no command 'ls'. Did you mean workers, without worker?"),
        (("queue", "list", "--json"), "there is no command 'list'. Did you mean queues, without queue?"),
        (("token", "lss", "--json"), "there is no command 'lss'. Did you mean ls?"),
        (("add", "--json", "nowhere.yaml"), "there is no file nowhere.yaml"),
        (("policy", "put", "p", "nowhere.lua", "--json"), "nowhere.lua: no such file or directory"),
    ],
)
def test_what_is_wrong_with_the_words_is_json_where_a_program_asks(args: tuple[str, ...], detail: str) -> None:
    result = invoked(*args)
    told = json.loads(result.stderr)
    assert (result.exit_code, result.stdout) == (ExitStatus.USAGE, "")
    assert (told["kind"], told["code"], told["errors"]) == ("rejected", "usage", [])
    assert told["detail"].startswith(detail)


def test_json_behind_two_dashes_is_the_commands_own() -> None:
    result = invoked("add", "--priority", "high", "--", "ls", "--json")
    assert result.exit_code == ExitStatus.USAGE
    assert result.stderr.startswith("Usage: ")
