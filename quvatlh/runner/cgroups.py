"""A memory cap for all processes of an action together: a control group of its own, where we were given any.

Given means that the group above our own is delegated (the service manager marks it so), has the memory controller and no
process of its own: under systemd by `Delegate=memory` and `DelegateSubgroup=`. Nothing is made anywhere else, since others
own what is not given. Without it the cap is the address space of each process.
"""

from __future__ import annotations

import contextlib
import os
from typing import Self

PREFIX = "quvatlh."
_MARKS = ("user.delegate", "trusted.delegate")


class Cgroups:
    def __init__(self, base: str) -> None:
        self._base = base

    @classmethod
    def find(cls, own: str | None = None) -> Self | None:
        """`own`: the directory of the group that we are in. What an executor before us left is removed."""
        own = own or _own()
        base = os.path.dirname(own) if own else ""
        try:
            if not base or not _is_delegated(base) or "memory" not in _read(f"{base}/cgroup.controllers").split():
                return None
            if _read(f"{base}/cgroup.procs").strip():
                return None
            if "memory" not in _read(f"{base}/cgroup.subtree_control").split():
                _write(f"{base}/cgroup.subtree_control", "+memory")
            found = cls(base)
            for name in os.listdir(base):
                if name.startswith(PREFIX):
                    found.remove(f"{base}/{name}")
        except OSError:
            return None
        return found

    def make(self, action_id: str, memory_bytes: int) -> str:
        """The directory of a new group; the starter puts the first process into it. OSError."""
        path = f"{self._base}/{PREFIX}{action_id}"
        os.mkdir(path, 0o755)
        try:
            _write(f"{path}/memory.max", str(memory_bytes))
            _write(f"{path}/memory.oom.group", "1")
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
                _write(f"{path}/memory.swap.max", "0")
        except OSError:
            self.remove(path)
            raise
        return path

    def was_full(self, path: str) -> bool:
        """Whether the kernel killed because of the cap."""
        with contextlib.suppress(OSError, ValueError):
            for line in _read(f"{path}/memory.events").splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count) > 0
        return False

    def remove(self, path: str) -> None:
        """Nobody is in it any more; if somebody is, it goes at the next start."""
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _own() -> str | None:
    """Where the group of this process is mounted, if it is a group of version 2."""
    groups = [line.split(":", 2) for line in _read("/proc/self/cgroup").splitlines()]
    path = next((path for number, _, path in groups if number == "0"), None)
    for line in _read("/proc/self/mountinfo").splitlines():
        mount, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 ") and path is not None and path != "/":
            root, point = mount.split()[3:5]
            return point + path.removeprefix(root.rstrip("/"))
    return None


def _is_delegated(path: str) -> bool:
    for mark in _MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(path, mark) == b"1":
                return True
    return False


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
