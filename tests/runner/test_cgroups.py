"""Memory caps by control groups, on a directory that only looks like one: what is written where, and when it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quvatlh.ports import RunError
from quvatlh.runner.cgroups import Cgroups
from tests.runner.bed import Bed

FILES = ("cgroup.procs", "memory.max", "memory.oom.group", "memory.events")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A delegated group; we are in `daemon` below it."""
    base = tmp_path / "unit"
    (base / "daemon").mkdir(parents=True)
    (base / "cgroup.controllers").write_text("cpu memory pids\n")
    (base / "cgroup.procs").write_text("")
    (base / "cgroup.subtree_control").write_text("")
    try:
        os.setxattr(base, "user.delegate", b"1")
    except OSError:
        pytest.skip("no extended attributes here")
    return base


class Looking(Cgroups):
    """Makes the files that a kernel makes, and keeps what was in them."""

    events = "oom_kill 0\n"

    def make(self, action_id: str, memory_bytes: int) -> str:
        real = os.mkdir

        def mkdir(path: str, mode: int) -> None:
            real(path, mode)
            for name in FILES:
                Path(path, name).write_text(self.events if name == "memory.events" else "")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "mkdir", mkdir)
            return super().make(action_id, memory_bytes)

    def remove(self, path: str) -> None:
        self.kept = {name: Path(path, name).read_text() for name in FILES}
        for name in FILES:
            Path(path, name).unlink()
        super().remove(path)


def test_a_delegated_group_is_found_and_given_the_controller(base: Path) -> None:
    (base / "quvatlh.old").mkdir()
    assert Cgroups.find(str(base / "daemon")) is not None
    assert (base / "cgroup.subtree_control").read_text() == "+memory"
    assert not (base / "quvatlh.old").exists()


def test_what_is_not_delegated_is_left_alone(base: Path) -> None:
    os.removexattr(base, "user.delegate")
    assert Cgroups.find(str(base / "daemon")) is None
    assert (base / "cgroup.subtree_control").read_text() == ""


def test_a_group_with_processes_or_without_the_controller_will_not_do(base: Path) -> None:
    (base / "cgroup.procs").write_text("17\n")
    assert Cgroups.find(str(base / "daemon")) is None
    (base / "cgroup.procs").write_text("")
    (base / "cgroup.controllers").write_text("cpu\n")
    assert Cgroups.find(str(base / "daemon")) is None


async def test_a_capped_action_is_in_a_group_of_its_own_while_it_runs(bed: Bed, base: Path) -> None:
    groups = bed.runner.cgroups = Looking(str(base))
    end = await bed.run({"shell": "ulimit -v; ulimit -n", "rlimits": {"memory": "512M", "nofile": 99}})
    assert (end.error, end.stdout_tail) == (None, "unlimited\n99\n")
    assert groups.kept == {
        "cgroup.procs": "0",
        "memory.max": str(512 << 20),
        "memory.oom.group": "1",
        "memory.events": "oom_kill 0\n",
    }
    assert sorted(os.listdir(base)) == ["cgroup.controllers", "cgroup.procs", "cgroup.subtree_control", "daemon"]


async def test_who_is_killed_over_the_cap_is_told_so(bed: Bed, base: Path) -> None:
    groups = bed.runner.cgroups = Looking(str(base))
    groups.events = "low 0\noom 1\noom_kill 2\n"
    end = await bed.run({"shell": "kill -9 $$", "rlimits": {"memory": "1M"}})
    assert end.error == RunError(
        "signal", "ended by signal KILL; its processes together wanted more memory than 1048576 bytes"
    )


async def test_without_a_cap_no_group_is_made(bed: Bed, base: Path) -> None:
    bed.runner.cgroups = Looking(str(base))
    assert (await bed.run({"command": ["true"], "rlimits": {"nofile": 99}})).error is None
