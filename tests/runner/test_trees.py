"""Ending an action ends its whole tree; nothing and nobody else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quvatlh.ports import RunError
from tests.runner.bed import Bed, children, descriptors, is_alive

STOPPED = RunError("stopped", "stopped on request")

STUBBORN = "trap '' TERM; "
"""Ignored signals are inherited, so the whole tree ignores it."""


async def pids(bed: Bed, name: str, count: int) -> list[int]:
    """The process numbers that an action wrote, one a line, once there are so many."""
    found = b""
    async for chunk in bed.runner.follow(name):
        found += chunk.data
        if found.count(b"\n") == count:
            break
    return [int(line) for line in found.split()]


async def test_stop_ends_an_action_by_its_signal(bed: Bed) -> None:
    name = bed.start({"command": ["sleep", "1000"]}, stop_signal="INT")
    await bed.has_started(name)
    bed.runner.stop(name)
    end = await bed.has_finished(name)
    assert (end.exit_code, end.signal, end.error) == (None, "INT", STOPPED)


async def test_an_action_may_end_in_its_own_way_within_the_grace(bed: Bed) -> None:
    name = bed.start("trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    await bed.written(name, 6)
    bed.runner.stop(name)
    end = await bed.has_finished(name)
    assert (end.exit_code, end.stdout_tail, end.error) == (5, "ready\nbye\n", STOPPED)


@pytest.mark.parametrize("grace_s", [0, 0.05])
async def test_a_tree_that_ignores_its_signal_is_killed_after_the_grace(bed: Bed, grace_s: float) -> None:
    name = bed.start(STUBBORN + "sleep 1000 & sleep 1001 & echo $!; echo $$; wait")
    all_of_it = await pids(bed, name, 2)
    bed.runner.stop(name, grace_s)
    assert (await bed.has_finished(name)).signal == "KILL"
    assert [pid for pid in all_of_it if is_alive(pid)] == []


async def test_a_second_stop_shortens_the_grace_and_never_lengthens_it(bed: Bed) -> None:
    name = bed.start(STUBBORN + "echo ready; while :; do sleep 0.01; done")
    await bed.written(name, 6)
    bed.runner.stop(name, 1000)
    bed.runner.stop(name, 0.01)
    bed.runner.stop(name, 1000)
    assert (await bed.has_finished(name)).signal == "KILL"


async def test_grandchildren_in_sessions_of_their_own_end_too(bed: Bed) -> None:
    name = bed.start(STUBBORN + "setsid sh -c 'echo $$; sleep 1000; :' & setsid sh -c 'echo $$; sleep 1001; :' & wait")
    apart = await pids(bed, name, 2)
    assert all(os.getsid(pid) == pid for pid in apart)
    bed.runner.stop(name, 0.05)
    await bed.has_finished(name)
    assert [pid for pid in apart if is_alive(pid)] == []


DOUBLE_FORK = """
import os, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        if "quiet" in sys.argv:
            for fd in (0, 1, 2):
                os.close(fd)
        time.sleep(1000)
    os._exit(0)
os.wait()
if "stay" in sys.argv:
    time.sleep(1000)
"""


async def test_a_daemon_that_forked_twice_ends_with_its_stopped_action(bed: Bed) -> None:
    name = bed.start({"command": [sys.executable, "-c", DOUBLE_FORK, "stay", "quiet"]})
    (daemon,) = await pids(bed, name, 1)
    bed.runner.stop(name, 0.05)
    await bed.has_finished(name)
    assert not is_alive(daemon)


async def test_what_an_ended_action_leaves_behind_is_ended_with_its_grace(bed: Bed) -> None:
    work = {"command": [sys.executable, "-c", DOUBLE_FORK, "quiet"]}
    end = await bed.run(work, grace_s=0.05)
    assert end.error is None
    assert not is_alive(int(end.stdout_tail))


async def test_a_child_in_the_background_does_not_hold_up_the_end(bed: Bed) -> None:
    end = await bed.run("sleep 1000 & echo $!")
    assert (end.error, is_alive(int(end.stdout_tail))) == (None, False)


async def test_a_background_child_may_end_in_its_own_way_within_the_grace(bed: Bed) -> None:
    end = await bed.run(
        "(trap 'echo bye; exit' TERM; echo; while :; do sleep 0.01; done) & read x < /dev/null; sleep 0.2"
    )
    assert end.stdout_tail == "\nbye\n"


async def test_the_next_command_of_a_sequence_starts_when_nothing_of_the_last_is_left(bed: Bed) -> None:
    end = await bed.run({"commands": ["sleep 1000 & echo $! >&2", "echo next"]})
    assert end.stdout_tail == "next\n"
    assert not is_alive(int(end.stderr_tail))


async def test_a_timeout_ends_the_whole_tree(bed: Bed) -> None:
    name = bed.start(STUBBORN + "sleep 1000 & echo $!; wait", timeout_s=0.1, grace_s=0.05)
    (child,) = await pids(bed, name, 1)
    end = await bed.has_finished(name)
    assert (end.signal, end.error) == ("KILL", RunError("timeout", "ran longer than 0.1 s"))
    assert not is_alive(child)


async def test_a_timeout_is_of_the_whole_sequence(bed: Bed) -> None:
    end = await bed.run({"commands": ["true", "sleep 1000", "echo never"]}, timeout_s=0.1)
    assert (end.error, end.stdout_tail) == (RunError("timeout", "ran longer than 0.1 s"), "")


async def test_an_action_stopped_before_its_start_never_runs(bed: Bed, tmp_path: Path) -> None:
    name = bed.start(f"touch {tmp_path}/ran")
    bed.runner.stop(name)
    end = await bed.has_finished(name)
    assert (end.started_at_ms, end.error) == (None, STOPPED)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "work", [{"command": ["sleep", "1000"]}, {"command": ["sleep", "1000"], "rlimits": {"nofile": 99}}]
)
async def test_an_action_stopped_in_the_moment_of_its_start_ends(bed: Bed, work: object) -> None:
    names = [bed.start(work) for _ in range(20)]
    for name in names:
        await bed.has_started(name)
        bed.runner.stop(name)
    assert {(await bed.has_finished(name)).error for name in names} == {STOPPED}


async def test_stopping_one_action_leaves_the_others_alone(bed: Bed) -> None:
    one, other = bed.start("setsid sleep 1000 & echo $!; wait"), bed.start("setsid sleep 1000 & echo $!; wait")
    (mine,), (theirs,) = await pids(bed, one, 1), await pids(bed, other, 1)
    bed.runner.stop(one)
    await bed.has_finished(one)
    assert (is_alive(mine), is_alive(theirs)) == (False, True)
    assert list(bed.runner.live()) == [other]


async def test_a_child_that_is_anothers_is_left_alone(bed: Bed) -> None:
    with subprocess.Popen(["sleep", "1000"]) as stranger:  # noqa: ASYNC220 - somebody else's, not the loop's
        bed.runner.spare(stranger.pid)
        await bed.run("true")
        await bed.runner.close(0)
        assert stranger.poll() is None
        stranger.kill()


async def test_orphans_that_end_are_reaped_while_their_action_runs(bed: Bed) -> None:
    name = bed.start("(setsid true &); (setsid true &); echo; sleep 1000")
    await bed.written(name, 1)
    async with asyncio.timeout(60):
        while len(children() - {bed.runner.starter.pid}) > 1:  # noqa: ASYNC110 - nobody is told of a reaped orphan
            await asyncio.sleep(0.05)
    bed.runner.stop(name, 0)
    await bed.has_finished(name)


HIDDEN = """
import os
seen, said = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.dup2(said, 9)
        os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; echo $$; exec >&- 9>&-; sleep 1000; :"], {})
    os._exit(0)
os.wait()
os.close(said)
os.read(seen, 1)
"""
"""Out of the session, without a parent, without the environment: nothing says whose it is."""


async def test_a_stray_that_hid_is_ended_when_no_action_is_left(bed: Bed) -> None:
    end = await bed.run({"command": [sys.executable, "-c", HIDDEN]})
    stray = int(end.stdout_tail)
    fd = os.pidfd_open(stray)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(fd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), 20)
    finally:
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)


async def test_closing_stops_everything_and_takes_nothing_more(bed: Bed) -> None:
    names = [bed.start("sleep 1000") for _ in range(5)]
    await bed.has_started(names[-1])
    await bed.runner.close(5)
    assert [(await bed.has_finished(name)).error for name in names] == [STOPPED] * 5
    with pytest.raises(RuntimeError, match="closed"):
        bed.start("true")


@pytest.mark.long
@pytest.mark.parametrize(("count", "limits"), [(1000, {}), (500, {"nofile": 99})])
async def test_many_short_commands_leave_no_descriptor_and_no_zombie(
    bed: Bed, count: int, limits: dict[str, int]
) -> None:
    await bed.run({"command": ["true"], "rlimits": limits})
    before = len(descriptors()), children()
    names = [bed.start({"command": ["true"], "rlimits": limits}) for _ in range(count)]
    ends = [await bed.has_finished(name) for name in names]
    assert {(end.exit_code, end.error) for end in ends} == {(0, None)}
    assert (len(descriptors()), children()) == before
    assert os.listdir(bed.outputs) == []


async def test_without_descriptors_left_an_action_fails_for_now_and_nothing_leaks(bed: Bed) -> None:
    import resource

    before = children()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(descriptors()) + 20, hard))
    try:
        names = [bed.start("sleep 1000") for _ in range(30)]
        failed = await bed.has_finished(names[-1])
        for name in names:
            bed.runner.stop(name, 0)
        codes = [(await bed.has_finished(name)).error for name in names]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failed.error is not None
    assert (failed.error.code, failed.error.permanent) == ("resources", False)
    assert {error.code for error in codes if error} == {"stopped", "resources"}
    assert children() == before
