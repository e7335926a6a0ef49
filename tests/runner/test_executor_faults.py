"""What is left when daemon, executor, guard or starter is killed, stopped or comes back: real processes, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from quvatlh.core.work import check
from quvatlh.ports import ActionSpec, ActionStarted, Life
from quvatlh.runner import hatch, wire
from quvatlh.runner.connect import ProcessExecutor
from quvatlh.runner.executor import keeper
from tests.runner.perch import WAIT_S, Ear, ended, real

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: without it there is no PID namespace by default")

BEAT = 'echo $$ >>"{file}.pid"; while :; do date +%s%N >>"{file}"; sleep 0.02; done'
"""An action that says by its own clock that it is alive."""


HIDE = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sh", ["sh", "{script}"], {{"PATH": os.environ["PATH"]}})
    os._exit(0)
"""
"""Out of the session, without a parent, without the environment: nothing says whose it is."""


class Daemon:
    """The process of tests.runner.daemon_side."""

    def __init__(self, directory: Path, isolation: str = "auto", lease_s: float = 30) -> None:
        command = (sys.executable, "-m", "tests.runner.daemon_side", str(directory), isolation, str(lease_s))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        kind, self.session, self.isolated = self.hears()
        assert kind == "open"

    def hears(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line
        heard: list[str] = json.loads(line)
        return heard

    def starts(self, text: str) -> str:
        assert self.process.stdin is not None
        print(text, file=self.process.stdin, flush=True)
        kind, name = self.hears()
        assert kind == "started"
        return name

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.killpg(self.process.pid, number)

    def close(self) -> None:
        if self.process.returncode is None:
            self.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[list[Daemon]]:
    started: list[Daemon] = []
    yield started
    for each in started:
        each.close()


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[None]:
    """Whatever a test has left is ended."""
    yield
    for _ in range(2):  # a worker of another name first makes way
        last = real(tmp_path)
        await last.open()
        await last.close(0)


pytestmark = [pytest.mark.long, pytest.mark.usefixtures("ends")]


def pids_of(directory: Path, program: str = "quvatlh.runner.executor") -> list[int]:
    """Of the executor, or its starter, as this process sees them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
                here = any(os.readlink(fd) == f"{directory}/{hatch.LOG}" for fd in (entry / "fd").iterdir())
            except OSError:
                continue
            if program.encode() in command and here:
                found.append(int(entry.name))
    return sorted(found)


def guard_of(executor: int) -> int:
    return int(Path(f"/proc/{executor}/stat").read_text().rpartition(")")[2].split()[1])


def alive(file: Path, within_s: float = WAIT_S) -> bool:
    """Whether the action that writes to it is; looked at for no longer than it takes."""
    before = file.stat().st_size if file.exists() else 0
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if file.exists() and file.stat().st_size > before:
            return True
        time.sleep(0.01)
    return False


async def silence(file: Path) -> None:
    async with asyncio.timeout(WAIT_S):
        while alive(file, 0.2):  # noqa: ASYNC110 - a stranger's end tells nobody
            await asyncio.sleep(0)


def last_beat_s(file: Path) -> float:
    return int(file.read_text().split()[-1]) / 1e9


async def until_gone(directory: Path) -> None:
    async with asyncio.timeout(WAIT_S):
        while pids_of(directory):  # noqa: ASYNC110 - a stranger's end tells nobody
            await asyncio.sleep(0.05)


async def opened(directory: Path, isolation: str = "auto") -> tuple[ProcessExecutor, Ear, Life]:
    executor, ear = real(directory, isolation=isolation), Ear()  # type: ignore[arg-type]
    executor.listen(ear)
    return executor, ear, await executor.open()


def spec(name: str, fence: int, text: str, lease_s: float = 30) -> ActionSpec:
    return ActionSpec(name, "t", 1, fence, "w1", check({"shell": text}), lease_s=lease_s)


@pytest.mark.parametrize("isolation", ["auto", "plain"])
async def test_a_killed_daemon_is_followed_by_one_that_finds_actions_untouched_and_ends_kept(
    tmp_path: Path, daemons: list[Daemon], isolation: str
) -> None:
    first = Daemon(tmp_path, isolation)
    daemons.append(first)
    goes_on = first.starts(BEAT.format(file=tmp_path / "beat"))
    ends_alone = first.starts(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo bye; exit 3")
    first.kill()
    first.process.wait()
    (tmp_path / "go").touch()
    assert alive(tmp_path / "beat")
    async with asyncio.timeout(WAIT_S):
        while True:
            executor, ear, life = await opened(tmp_path, isolation)
            held = {each.id: each for each in life.held}
            if held[ends_alone].finished is not None:
                break
            await executor.leave()
            await asyncio.sleep(0.05)
    assert (life.session, life.fence, life.fresh) == (first.session, 2, False)
    end = held[ends_alone].finished
    assert end is not None
    assert (end.exit_code, end.stdout_tail) == (3, "bye\n")
    assert [chunk.data async for chunk in executor.follow(ends_alone)] == [b"bye\n"]
    assert (held[goes_on].finished, list(executor.live())) == (None, [goes_on])
    assert (tmp_path / "beat.pid").read_text().count("\n") == 1
    executor.stop(goes_on, 0)
    assert ended(await ear.end()) == (goes_on, "stopped")
    await executor.close(0)


@pytest.mark.parametrize("isolation", ["auto", "plain"])
async def test_of_a_killed_executor_nothing_is_left_whatever_it_did_to_hide(tmp_path: Path, isolation: str) -> None:
    executor, ear, _ = await opened(tmp_path, isolation)
    (tmp_path / "hidden.sh").write_text(BEAT.format(file=tmp_path / "hidden"))
    (tmp_path / "hide.py").write_text(HIDE.format(script=tmp_path / "hidden.sh"))
    executor.start(spec("a", 1, BEAT.format(file=tmp_path / "a")))
    executor.start(spec("b", 2, f"setsid sh -c '{BEAT.format(file=tmp_path / 'b')}' & wait"))
    executor.start(spec("c", 3, f"{sys.executable} {tmp_path}/hide.py; sleep 1000"))
    files = [tmp_path / name for name in ("a", "b", "hidden")]
    async with asyncio.timeout(WAIT_S):
        while not all(file.exists() for file in files):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    os.kill(pids_of(tmp_path)[-1], signal.SIGKILL)
    assert await ear.gone_because() == "the executor has died"
    sizes = [file.stat().st_size for file in files]  # when it is told, nothing of it is left
    await asyncio.sleep(0.3)
    assert [file.stat().st_size for file in files] == sizes
    assert (executor.life, list(executor.live()), pids_of(tmp_path)) == (None, [], [])


async def test_a_guard_that_is_killed_takes_executor_and_actions_with_it(tmp_path: Path) -> None:
    executor, ear, life = await opened(tmp_path, "plain")
    assert not life.isolated
    executor.start(spec("a", 1, BEAT.format(file=tmp_path / "a")))
    assert isinstance(await ear.next(), ActionStarted)
    assert alive(tmp_path / "a")
    (pid,) = pids_of(tmp_path)
    os.kill(guard_of(pid), signal.SIGKILL)
    assert await ear.gone_because()
    assert not alive(tmp_path / "a", 0.5)


async def test_of_guard_and_executor_killed_together_no_main_process_is_left(tmp_path: Path) -> None:
    executor, ear, _ = await opened(tmp_path, "plain")
    executor.start(spec("a", 1, BEAT.format(file=tmp_path / "a")))
    assert isinstance(await ear.next(), ActionStarted)
    assert alive(tmp_path / "a")
    (pid,) = pids_of(tmp_path)
    guard = guard_of(pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(pid, number)
        os.kill(guard, number)
    assert await ear.gone_because()
    assert not alive(tmp_path / "a", 0.5)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_lease_ends_on_time_though_the_daemon_is_stopped_or_dead(
    tmp_path: Path, daemons: list[Daemon], number: signal.Signals
) -> None:
    daemon = Daemon(tmp_path, lease_s=1)
    daemons.append(daemon)
    daemon.starts(f"trap '' TERM; {BEAT.format(file=tmp_path / 'beat')}")
    assert alive(tmp_path / "beat")
    began = time.time()
    daemon.kill(number)
    await silence(tmp_path / "beat")
    assert last_beat_s(tmp_path / "beat") <= began + 1


async def test_a_daemon_that_goes_on_hears_what_became_of_its_actions(tmp_path: Path, daemons: list[Daemon]) -> None:
    daemon = Daemon(tmp_path, lease_s=0.5)
    daemons.append(daemon)
    name = daemon.starts(BEAT.format(file=tmp_path / "beat"))
    daemon.kill(signal.SIGSTOP)
    await silence(tmp_path / "beat")
    daemon.kill(signal.SIGCONT)
    assert daemon.hears() == ["finished", name]


async def test_the_newest_of_two_daemons_has_the_executor(tmp_path: Path, daemons: list[Daemon]) -> None:
    first = Daemon(tmp_path)
    daemons.append(first)
    name = first.starts(BEAT.format(file=tmp_path / "beat"))
    second, _, life = await opened(tmp_path)
    assert first.hears() == ["gone", "another daemon has taken the executor"]
    assert (life.session, list(second.live())) == (first.session, [name])
    await second.close(0)


async def test_daemons_that_open_at_once_share_one_executor(tmp_path: Path) -> None:
    made = [real(tmp_path) for _ in range(3)]
    lives = await asyncio.gather(*(each.open() for each in made))
    assert len({life.session for life in lives}) == 1
    assert len(pids_of(tmp_path)) == 1
    for each in made:
        await each.leave()


async def test_without_daemon_and_lease_an_executor_ends_itself_and_what_it_runs(
    tmp_path: Path, daemons: list[Daemon]
) -> None:
    daemon = Daemon(tmp_path, lease_s=0.5)
    daemons.append(daemon)
    daemon.starts(BEAT.format(file=tmp_path / "beat"))
    daemon.kill()
    daemon.process.wait()
    await until_gone(tmp_path)
    assert not (tmp_path / hatch.SOCKET).exists()
    _, _, life = await opened(tmp_path)
    assert (life.fresh, life.session != daemon.session) == (True, True)


async def test_an_executor_that_does_not_answer_is_killed_and_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quvatlh.runner import connect

    monkeypatch.setattr(connect, "HELLO_S", 1.0)
    first, ear, life = await opened(tmp_path)
    first.start(spec("a", 1, BEAT.format(file=tmp_path / "beat")))
    assert isinstance(await ear.next(), ActionStarted)
    assert alive(tmp_path / "beat")
    os.kill(pids_of(tmp_path)[-1], signal.SIGSTOP)
    notes: list[str] = []
    second = real(tmp_path, notes=notes)
    found = await second.open()
    assert (found.fresh, found.session != life.session) == (True, True)
    assert not alive(tmp_path / "beat", 0.5)
    assert "does not answer" in notes[0]
    await second.close(0)


async def test_an_executor_of_another_version_is_ended_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, ear, life = await opened(tmp_path)
    first.start(spec("a", 1, BEAT.format(file=tmp_path / "beat")))
    assert isinstance(await ear.next(), ActionStarted)
    older = wire.VERSION
    monkeypatch.setattr(wire, "VERSION", older + 1)
    notes: list[str] = []
    second = real(tmp_path, notes=notes)
    opening = asyncio.create_task(second.open())  # the new executor is of the old version still
    async with asyncio.timeout(WAIT_S):
        while not notes:
            assert not opening.done()
            await asyncio.sleep(0.01)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert f"speaks version {older}" in notes[0]
    assert not alive(tmp_path / "beat", 0.5)
    assert life.session


async def test_a_starter_that_is_killed_is_replaced(tmp_path: Path) -> None:
    executor, ear, _ = await opened(tmp_path)
    limited = {"shell": "ulimit -n", "rlimits": {"nofile": 99}}
    for fence in (1, 2):
        executor.start(ActionSpec(f"a{fence}", "t", 1, fence, "w1", check(limited), lease_s=30))
        end = await ear.end()
        assert (end.error, end.stdout_tail) == (None, "99\n")
        (starter,) = pids_of(tmp_path, "starter.py")
        os.kill(starter, signal.SIGKILL)
        async with asyncio.timeout(WAIT_S):
            while pids_of(tmp_path, "starter.py") == [starter]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    await executor.close(0)


async def test_a_data_directory_may_have_a_path_longer_than_a_socket_address(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    executor, ear, _ = await opened(deep)
    executor.start(spec("a", 1, "echo here"))
    assert (await ear.end()).stdout_tail == "here\n"
    await executor.close(0)


@as_root
async def test_isolated_actions_see_no_process_but_their_own(tmp_path: Path) -> None:
    executor, ear, life = await opened(tmp_path)
    if not life.isolated:
        pytest.skip("root has no right to a PID namespace here")
    executor.start(spec("a", 1, f"kill -0 {os.getpid()} || echo strangers; kill -9 1; ls /proc | grep -c '^[0-9]'"))
    assert (await ear.end()).stdout_tail.startswith("strangers\n")
    assert await executor.ask()
    await executor.close(0)


async def test_a_user_namespace_isolates_without_root(tmp_path: Path) -> None:
    try:
        executor, ear, life = await opened(tmp_path, "userns")
    except OSError as error:
        pytest.skip(str(error))
    assert life.isolated
    executor.start(spec("a", 1, "id -u"))
    assert (await ear.end()).stdout_tail == f"{os.geteuid()}\n"
    await executor.close(0)


async def test_without_a_namespace_the_gap_is_said(tmp_path: Path) -> None:
    notes: list[str] = []
    executor = real(tmp_path, isolation="plain", notes=notes)
    await executor.open()
    assert "without a PID namespace" in notes[0]
    await executor.close(0)


async def test_actions_inherit_the_environment_without_the_daemons_own_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUVATLH_TOKEN", "secret")
    monkeypatch.setenv("OF_THE_DAEMON", "1")
    executor, ear, _ = await opened(tmp_path)
    executor.start(spec("a", 9, "env | grep -e QUVATLH -e OF_THE | sort"))
    assert (await ear.end()).stdout_tail.split() == [
        "OF_THE_DAEMON=1",
        "QUVATLH_ACTION_ID=a",
        "QUVATLH_ATTEMPT=1",
        "QUVATLH_FENCE=9",
        "QUVATLH_TASK_ID=t",
        "QUVATLH_WORKER=w1",
    ]
    for pid in pids_of(tmp_path):
        assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    await executor.close(0)


async def test_a_follower_of_one_stream_waits_in_peace_while_nothing_is_written(tmp_path: Path) -> None:
    """It asks for more before and after the piece: to be answered at once, without one, would never end."""
    executor, ear, _ = await opened(tmp_path)
    executor.start(spec("a", 1, "echo one; sleep 60"))
    asked: list[object] = []
    assert executor._link is not None
    send = executor._link.send

    def counted(kind: str, *more: object) -> None:
        asked.append(kind)
        send(kind, *more)

    executor._link.send = counted  # type: ignore[method-assign]
    following = executor.follow("a", 0, 2**62)
    assert (await anext(following)).data == b"one\n"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await anext(following)
    assert len(asked) <= 2
    await executor.close(0)
    await ear.end()


async def test_output_is_followed_as_it_comes_and_nothing_of_a_thousand_ends_is_missed(tmp_path: Path) -> None:
    executor, ear, _ = await opened(tmp_path)
    executor.start(spec("a", 1, "echo one; read line <&0; sleep 0.1; echo two; seq 1 20000"))
    data = b"".join([chunk.data async for chunk in executor.follow("a")])
    assert data == b"one\ntwo\n" + b"".join(b"%d\n" % n for n in range(1, 20_001))
    assert (await ear.end()).error is None
    for fence in range(2, 1002):
        executor.start(spec(f"b{fence}", fence, "exit 0"))
    found = {(await ear.end()).action_id for _ in range(1000)}
    assert len(found) == 1000
    await executor.close(0)


async def test_a_slow_daemon_does_not_make_the_executor_large_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends that do not fit the connection wait in the table where they are kept anyway."""
    executor, ear, _ = await opened(tmp_path)
    assert executor._link is not None
    transport = executor._link._transport
    assert transport is not None
    names = [f"b{fence}" for fence in range(1, 601)]
    transport.pause_reading()
    for fence, name in enumerate(names, 1):
        executor.start(spec(name, fence, f"printf %04000d 0; echo >>{tmp_path}/over"))
    async with asyncio.timeout(WAIT_S * 3):
        while not (tmp_path / "over").exists() or (tmp_path / "over").stat().st_size < len(names):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    transport.resume_reading()
    ends = [await ear.end() for _ in names]
    assert sorted(end.action_id for end in ends) == sorted(names)
    await executor.close(0)


def test_what_is_tried_depends_on_root_and_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (hatch.modes("auto"), hatch.modes("userns")) == (("pidns", "plain"), ("userns",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (hatch.modes("auto"), hatch.modes("plain")) == (("plain",), ("plain",))
    assert keeper.LINGER_S > 2.3  # a restart is over before the market takes the worker for lost
