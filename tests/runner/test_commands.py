"""What a command is given, and what is told of its end."""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path

import pytest

from quvatlh.ports import ActionFinished, ActionStarted, RunError
from tests.runner.bed import ENVIRONMENT, Bed

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
LIBRARYS_OWN = 1 << 31 | 1 << 32
"""Signals 32 and 33, which posix_spawn of glibc leaves ignored; whoever uses threads takes them for itself."""


async def test_an_action_is_heard_to_start_and_then_to_finish(bed: Bed) -> None:
    name = bed.start({"command": ["echo", "hello"]})
    end = await bed.has_finished(name)
    start = await bed.has_started(name)
    assert bed.heard == [start, end]
    assert isinstance(start, ActionStarted)
    assert end == ActionFinished(
        name, 0, None, None, "hello\n", "", 6, 0, start.started_at_ms, end.finished_at_ms, output_error=""
    )
    assert end.finished_at_ms >= start.started_at_ms
    assert list(bed.runner.live()) == []


@pytest.mark.parametrize("status", [1, 42, 137, 255])
async def test_an_exit_status_is_told_as_it_is(bed: Bed, status: int) -> None:
    end = await bed.run(f"exit {status}")
    assert (end.exit_code, end.signal, end.error) == (status, None, RunError("exit", f"exit status {status}"))


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "HUP"])
async def test_an_end_by_signal_is_told_apart_from_a_status(bed: Bed, name: str) -> None:
    end = await bed.run(f"kill -{name} $$")
    assert (end.exit_code, end.signal, end.error) == (None, name, RunError("signal", f"ended by signal {name}"))


async def test_commands_run_one_after_the_other(bed: Bed) -> None:
    end = await bed.run({"commands": [["echo", "a b"], "echo c; echo d >&2"]})
    assert (end.stdout_tail, end.stderr_tail, end.error) == ("a b\nc\n", "d\n", None)


async def test_a_command_that_fails_ends_the_sequence(bed: Bed) -> None:
    end = await bed.run({"commands": ["echo a", "exit 3", "echo c"]})
    assert (end.stdout_tail, end.exit_code) == ("a\n", 3)
    assert end.error == RunError("exit", "command 2 of 3: exit status 3")


async def test_the_environment_is_the_daemons_without_its_own_names(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUVATLH_TOKEN", "secret")
    monkeypatch.setenv("FROM_DAEMON", "1")
    from quvatlh.runner.settings import RunnerSettings

    settings = RunnerSettings(str(tmp_path), str(tmp_path))
    assert "QUVATLH_TOKEN" not in settings.environment
    assert settings.environment["FROM_DAEMON"] == "1"
    end = await bed.run({"command": ["env"], "env": {"A": "x=y", "PORT": 8080}})
    found = dict(line.split("=", 1) for line in end.stdout_tail.splitlines())
    assert found == ENVIRONMENT | {
        "A": "x=y",
        "PORT": "8080",
        "QUVATLH_TASK_ID": "task-1",
        "QUVATLH_ACTION_ID": "action-1",
        "QUVATLH_ATTEMPT": "2",
        "QUVATLH_FENCE": "77",
        "QUVATLH_WORKER": "w1",
    }


async def test_the_payload_is_a_file_and_on_stdin_and_gone_afterwards(bed: Bed) -> None:
    payload = bytes(range(256)) * 4096
    end = await bed.run(
        {"commands": ['cmp - "$QUVATLH_PAYLOAD"', "wc -c", "stat -c %a $QUVATLH_PAYLOAD"]}, payload=payload
    )
    assert (end.error, end.stdout_tail) == (None, "1048576\n400\n")
    assert os.listdir(bed.inputs) == []


async def test_stdin_is_what_the_work_says_before_the_payload(bed: Bed) -> None:
    end = await bed.run({"shell": 'cat; cat "$QUVATLH_PAYLOAD"', "stdin": "said "}, payload=b"paid")
    assert end.stdout_tail == "said paid"


async def test_without_payload_stdin_is_empty(bed: Bed) -> None:
    end = await bed.run("cat; echo $?; echo ${QUVATLH_PAYLOAD-none}")
    assert end.stdout_tail == "0\nnone\n"


async def test_a_command_that_never_reads_a_large_payload_is_not_held_up(bed: Bed) -> None:
    assert (await bed.run("exec <&-; echo done", payload=b"x" * 1_048_576)).stdout_tail == "done\n"


async def test_cwd_is_where_it_runs(bed: Bed, tmp_path: Path) -> None:
    assert (await bed.run({"command": ["pwd"], "cwd": str(tmp_path)})).stdout_tail == f"{tmp_path}\n"


async def test_a_command_gets_three_descriptors_and_a_session_of_its_own(bed: Bed) -> None:
    end = await bed.run("ls /proc/self/fd | wc -l; ps -o pid=,pgid=,sid= -p $$ | tr -s ' ' '\\n' | sort -u | grep -c .")
    assert end.stdout_tail == "4\n1\n"  # ls holds the directory open


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize(
    ("work", "words"),
    [
        ({"command": ["no-such-program"]}, "no-such-program: not found"),
        ({"command": ["/no/such"]}, "/no/such: not found"),
        ({"command": ["/etc"]}, "/etc: not permitted to execute"),
        ({"command": ["/etc/passwd"]}, "/etc/passwd: not permitted to execute"),
        ({"command": ["true"], "cwd": "/no/such"}, "cwd /no/such: No such file or directory"),
        ({"command": ["true"], "cwd": "/etc/passwd"}, "cwd /etc/passwd: Not a directory"),
        ({"command": ["true"], "user": "no-such-user"}, "user no-such-user: no such user on this machine"),
        ({"command": ["true"], "user": "4242424242424242"}, "user 4242424242424242: no such user on this machine"),
        ({"commands": ["echo", ["no-such"]]}, "command 2 of 2: no-such: not found"),
    ],
)
async def test_what_can_never_run_is_a_permanent_failure_with_words(
    bed: Bed, work: dict[str, object], words: str, *, limited: bool
) -> None:
    end = await bed.run(work | ({"rlimits": {"nofile": 256}} if limited else {}))
    assert end.error == RunError("unrunnable", words)
    assert end.error.permanent
    assert (end.exit_code, end.signal) == (None, None)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("#!/no/such/interpreter\n", "the interpreter named in its first line was not found"),
        ("\x00\x01", "neither a binary of this machine nor a script with #! in its first line"),
    ],
)
async def test_a_file_that_is_no_program_is_told_so(bed: Bed, tmp_path: Path, head: str, words: str) -> None:
    program = tmp_path / "program"
    program.write_text(head)
    program.chmod(0o755)
    assert (await bed.run({"command": [str(program)]})).error == RunError("unrunnable", f"{program}: {words}")


async def test_arguments_beyond_the_systems_room_are_told_so(bed: Bed) -> None:
    end = await bed.run({"command": ["true", "x" * 131_000], "rlimits": {"stack": "256K"}})
    assert end.error == RunError("unrunnable", "true: arguments and environment are larger than the system takes")


async def test_limits_hold(bed: Bed) -> None:
    work = {
        "shell": "ulimit -n; ulimit -t; ulimit -v; ulimit -c",
        "rlimits": {"nofile": 99, "cpu": "1m", "memory": "1G", "core": 0},
    }
    assert (await bed.run(work)).stdout_tail == "99\n60\n1048576\n0\n"


async def test_a_file_over_its_limit_ends_by_signal(bed: Bed, tmp_path: Path) -> None:
    end = await bed.run(
        {"command": ["dd", "if=/dev/zero", f"of={tmp_path}/file", "bs=1M", "count=9"], "rlimits": {"fsize": "1M"}}
    )
    assert end.signal == "XFSZ"


async def test_behind_the_launcher_broken_pipes_end_a_command_as_everywhere(bed: Bed) -> None:
    end = await bed.run({"shell": "grep SigIgn /proc/self/status", "rlimits": {"nofile": 99}})
    assert end.stdout_tail == "SigIgn:\t0000000000000000\n"


@as_root
async def test_root_runs_as_another_user_with_its_groups_and_home(bed: Bed) -> None:
    bed.inputs.parent.chmod(0o711)
    nobody = pwd.getpwnam("nobody")
    end = await bed.run({"shell": "id -u; id -g; id -G; echo $HOME $USER", "user": "nobody", "cwd": "/"})
    assert end.stdout_tail == f"{nobody.pw_uid}\n{nobody.pw_gid}\n{nobody.pw_gid}\n{nobody.pw_dir} nobody\n"


@as_root
async def test_another_user_may_not_enter_what_it_may_not(bed: Bed, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o700)
    end = await bed.run({"command": ["pwd"], "user": "nobody", "cwd": f"{tmp_path}/closed"})
    assert end.error == RunError("unrunnable", f"cwd {tmp_path}/closed: Permission denied")


async def test_our_own_name_is_no_other_user(bed: Bed) -> None:
    assert (await bed.run({"command": ["true"], "user": str(os.geteuid())})).error is None


async def test_without_root_another_user_is_a_permanent_failure(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    end = await bed.run({"command": ["true"], "user": "nobody"})
    assert end.error == RunError("unrunnable", "user nobody: only a worker that runs as root can run as another user")


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "-a", "a" * 129, "ä"])
async def test_an_id_that_is_no_id_is_an_error_of_the_caller(bed: Bed, name: str) -> None:
    from quvatlh.core.work import check
    from quvatlh.ports import ActionSpec

    with pytest.raises(ValueError, match="not an action id"):
        bed.runner.start(ActionSpec(name, "t", 1, 1, "w", check({"command": ["true"]})))
    with pytest.raises(ValueError, match="not an action id"):
        await anext(bed.runner.follow(name))


async def test_an_action_ignores_no_signal_though_the_daemon_was_started_in_the_background(tmp_path: Path) -> None:
    given = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in given}
    try:
        bed = Bed(tmp_path)
        end = await bed.run("grep SigIgn /proc/self/status")
        await bed.runner.close(0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert int(end.stdout_tail.split()[1], 16) & ~LIBRARYS_OWN == 0
