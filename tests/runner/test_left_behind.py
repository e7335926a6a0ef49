"""Whose a process is that was left behind, by what /proc says of it: as an environment's server and the runner ask it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from quvatlh.runner import tree
from quvatlh.runner.inside import server

LEADER = 7
MARK = b"QUVATLH_ACTION_ID=a1"
OTHERS = b"A=b\0"
EXITING = 0x4
NONE = b"(no such process)"
Of = Callable[[int, int], bool]


def stat(state: str = "S", session: int = 99, flags: int = 0, env: tuple[int, int] = (100, 200)) -> bytes:
    return f"1 (a) b) {state} 1 5 {session} 0 -1 {flags} {'0 ' * 40}{env[0]} {env[1]} 0".encode()


@pytest.fixture(params=["server", "runner"])
def proc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, list[bytes]], Of]:
    """What is read one after the other, the last again and again; and who judges."""
    files: dict[str, list[bytes]] = {}

    def read(path: str, *_: object, **__: object) -> io.BytesIO:
        found = files[path]
        said = found.pop(0) if len(found) > 1 else found[0]
        if said == NONE:
            raise ProcessLookupError
        return io.BytesIO(said)

    module = server if request.param == "server" else tree
    monkeypatch.setattr(module, "open", read, raising=False)
    monkeypatch.setattr(server, "reap", lambda _pid: True)
    by_server: Of = lambda pid, leader: server.belongs(pid, leader, MARK)  # noqa: E731
    by_runner: Of = lambda pid, leader: tree.belongs(pid, leader, "a1")  # noqa: E731
    return files, by_server if module is server else by_runner


@pytest.mark.parametrize(
    ("environ", "said", "expected"),
    [
        ([OTHERS + MARK + b"\0"], [stat()], True),
        ([OTHERS], [stat(session=LEADER)], True),
        ([OTHERS], [stat()], False),
        ([b""], [stat(env=(0, 0), flags=EXITING)], True),  # whose it was nobody can tell: it is waited for
        ([NONE], [stat(env=(0, 0), flags=EXITING)], True),
        ([NONE], [NONE], False),
        ([b""], [stat(env=(100, 100))], False),
        ([b"", b"", MARK + b"\0"], [stat(env=(0, 0)), stat()], True),
        ([b"", OTHERS], [stat(env=(0, 0)), stat()], False),
    ],
    ids=[
        "marked",
        "of the session",
        "a stranger",
        "exits",
        "exits, and says so",
        "is gone",
        "without any",
        "in an exec",
        "a stranger's exec",
    ],
)
def test_who_belongs_to_what_has_ended(
    proc: tuple[dict[str, list[bytes]], Of], environ: list[bytes], said: list[bytes], expected: bool
) -> None:
    files, belongs = proc
    files |= {"/proc/1/environ": list(environ), "/proc/1/stat": list(said)}
    assert belongs(1, LEADER) is expected


def test_nobody_waits_for_an_environment_that_was_put_out_of_sight(proc: tuple[dict[str, list[bytes]], Of]) -> None:
    files, belongs = proc
    files |= {"/proc/1/environ": 9 * [b""], "/proc/1/stat": [stat()]}
    assert not belongs(1, LEADER)
    assert len(files["/proc/1/environ"]) > 1, "it was looked at again and again"


def test_who_is_left_by_one_that_ends_just_then_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[LEADER, 8], [LEADER, 9], [LEADER, 9]]
    killed: list[int] = []
    monkeypatch.setattr(server, "own_children", lambda: looks.pop(0))
    monkeypatch.setattr(server, "belongs", lambda pid, _leader, _mark: pid == 9)  # 8 has ended, and 9 was its child
    monkeypatch.setattr(server, "kill", killed.append)
    monkeypatch.setattr(server, "reap", lambda _pid: True)
    monkeypatch.setattr(os, "killpg", lambda _group, _number: None)
    asked = server.Server.__new__(server.Server)
    asked.children = {LEADER: 1}
    assert asked.left_by(LEADER)
    assert killed == [9]


def test_who_has_lost_its_first_thread_and_not_the_others_is_waited_for() -> None:
    """It is called a zombie, and its children are not orphans yet."""
    another = "threading.Thread(target=time.sleep, args=(1000,)).start()"
    code = f"import ctypes, threading, time; {another}; print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            while server.stat(process.pid)[0] != b"Z":
                os.sched_yield()
            assert server.belongs(process.pid, LEADER, MARK)
        finally:
            process.kill()
    assert not server.belongs(process.pid, LEADER, MARK)
