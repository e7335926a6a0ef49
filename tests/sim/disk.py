"""The disk of a simulated machine: it forgets at a power failure what was not synced, and fails when it is told to.

`SimDisk` is the hardware and outlives processes; `attach` gives each incarnation a view that keeps raft.disk.Disk and
is worth nothing once that process is dead. Calls are atomic and take no time by themselves: a lane's jobs take time,
and a sync outside a lane holds up its whole process.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.sim.lane import Pace, SimLane
from tests.sim.nodes import DirNode, FileNode, Node, power_fail
from tests.sim.process import Crashed, Process

MUTATIONS = ("create", "write", "sync", "truncate", "rename", "remove", "mkdir", "sync_dir")
"""The kinds that are counted, crash and fail; `read` only fails."""


@dataclass(slots=True)
class Fault:
    kind: str
    times: int
    within: str


class SimDisk:
    def __init__(self, rng: random.Random, pace: Pace | None = None) -> None:
        self.rng = rng
        self.pace = pace or Pace()
        self.root = DirNode()
        self.capacity_bytes: int | None = None
        """A write beyond it is ENOSPC, after a part of it was written."""
        self.ops = 0
        """Mutations asked for since the beginning."""
        self.on_op: Callable[[str, str], None] | None = None
        """Told (kind, path) before each mutation; may raise Crashed."""
        self._crash_at = 0
        self._faults: list[Fault] = []

    def attach(self, process: Process) -> DiskView:
        return DiskView(self, process)

    # What befalls it.

    def crash_at_op(self, ops: int) -> None:
        """The process that asks for the `ops`-th next mutation crashes before it (in the midst of it, for a write);
        0 takes the plan back."""
        self._crash_at = self.ops + ops if ops else 0

    def power_fail(self, rng: random.Random | None = None) -> None:
        power_fail(self.root, rng or self.rng)

    def process_kill(self) -> None:
        """What was written stays, synced or not: the page cache belongs to the kernel."""

    def fail(self, kind: str, times: int = 1, within: str = "") -> None:
        """The next `times` calls of this kind, on paths that contain `within`, are EIO."""
        self._faults.append(Fault(kind, times, within))

    def mend(self) -> None:
        """No faults, and room again."""
        self._faults.clear()
        self.capacity_bytes = None

    def fill(self) -> None:
        self.capacity_bytes = self.used_bytes()

    def flip_bit(self, path: str, offset: int | None = None) -> int:
        """Turn one bit of what the file durably holds; the offset it was at."""
        node = self.file(path)
        if not node.synced:
            raise ValueError(f"{path} holds nothing durable")
        at = self.rng.randrange(node.synced) if offset is None else offset
        node.data[at] ^= 1 << self.rng.randrange(8)
        return at

    def used_bytes(self) -> int:
        return _used_bytes(self.root)

    # What the views stand on.

    def begin(self, process: Process, kind: str, path: str) -> bool:
        """Each call passes here first; whether it is the one to crash in."""
        if not process.alive:
            raise Crashed(f"{process.name} is dead")
        if kind != "read":
            self.ops += 1
            if self.on_op is not None:
                try:
                    self.on_op(kind, path)
                except Crashed:
                    process.crash()
                    raise
            if self._crash_at and self.ops >= self._crash_at:
                self._crash_at = 0
                return True
        for fault in self._faults:
            if fault.kind == kind and fault.within in path:
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return False

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for part in _parts(path):
            if not isinstance(node, DirNode):
                return None
            found = node.entries.get(part)
            if found is None:
                return None
            node = found
        return node

    def file(self, path: str) -> FileNode:
        node = self.find(path)
        if node is None:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        if isinstance(node, DirNode):
            raise _error(IsADirectoryError, errno.EISDIR, path)
        return node

    def directory(self, path: str) -> DirNode:
        node = self.find(path)
        if node is None:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        if not isinstance(node, DirNode):
            raise _error(NotADirectoryError, errno.ENOTDIR, path)
        return node

    def place(self, path: str) -> tuple[DirNode, str]:
        """The directory that holds the name, and the name."""
        parts = _parts(path)
        if not parts:
            raise _error(OSError, errno.EBUSY, path)
        return self.directory("/" + "/".join(parts[:-1])), parts[-1]


class SimFile:
    """Open for appending, by one incarnation."""

    def __init__(self, view: DiskView, path: str, node: FileNode) -> None:
        self._view = view
        self._path = path
        self._node: FileNode | None = node

    def _open(self) -> FileNode:
        if self._node is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._node

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view, disk, data = self._view, self._view.disk, bytes(data)
        node = self._open()
        if disk.begin(view.process, "write", self._path):
            node.data += data[: disk.rng.randrange(len(data) + 1)]
            view.crash()
        if disk.capacity_bytes is not None and len(data) > (room := disk.capacity_bytes - disk.used_bytes()):
            node.data += data[: max(0, room)]
            raise _error(OSError, errno.ENOSPC, self._path)
        node.data += data

    def sync(self) -> None:
        if self._node is None:
            raise ValueError("file descriptor cannot be a negative integer (-1)")
        self._view.sync_file(self._node, self._path)

    def close(self) -> None:
        self._node = None


class DiskView:
    """Keeps raft.disk.Disk for one incarnation."""

    def __init__(self, disk: SimDisk, process: Process) -> None:
        self.disk = disk
        self.process = process
        self.in_lane = False

    def lane(self) -> SimLane:
        """A thread of the same process."""
        return SimLane(self, self.process, self.disk.pace, self.disk.rng)

    def crash(self) -> None:
        self.process.crash()
        raise Crashed(f"{self.process.name}: planned crash at disk operation {self.disk.ops}")

    def _begin(self, kind: str, path: str) -> None:
        if self.disk.begin(self.process, kind, path):
            self.crash()

    def _waited(self) -> None:
        if not self.in_lane and self.disk.pace.inline:
            self.process.spend(self.disk.pace.done(self.disk.rng))

    def sync_file(self, node: FileNode, path: str) -> None:
        try:
            self._begin("sync", path)
        except OSError:
            node.sync_failed()
            raise
        node.sync()
        self._waited()

    def create(self, path: str) -> SimFile:
        self._begin("create", path)
        directory, name = self.disk.place(path)
        if name in directory.entries:
            raise _error(FileExistsError, errno.EEXIST, path)
        node = FileNode()
        directory.change({name: node})
        return SimFile(self, path, node)

    def append(self, path: str) -> SimFile:
        self.disk.begin(self.process, "read", path)
        return SimFile(self, path, self.disk.file(path))

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        self.disk.begin(self.process, "read", path)
        data = self.disk.file(path).data
        return bytes(data[offset:] if size < 0 else data[offset : offset + size])

    def size(self, path: str) -> int:
        self.disk.begin(self.process, "read", path)
        return len(self.disk.file(path).data)

    def truncate(self, path: str, size: int) -> None:
        self._begin("truncate", path)
        node = self.disk.file(path)
        node.truncate(size)
        self.sync_file(node, path)

    def rename(self, old: str, new: str) -> None:
        self._begin("rename", old)
        source, old_name = self.disk.place(old)
        target, new_name = self.disk.place(new)
        node = source.entries.get(old_name)
        if node is None:
            raise _error(FileNotFoundError, errno.ENOENT, old)
        if isinstance(node, DirNode) and (posixpath.normpath(new) + "/").startswith(posixpath.normpath(old) + "/"):
            raise _error(OSError, errno.EINVAL, new)
        _check_replace(node, target.entries.get(new_name), new)
        if source is target:
            if old_name != new_name:
                source.change({old_name: None, new_name: node})
            return
        added = target.change({new_name: node})
        removed = source.change({old_name: None})
        removed.twin = (target, added)
        if isinstance(node, DirNode):
            added.twin = (source, removed)

    def remove(self, path: str) -> None:
        self.disk.begin(self.process, "read", path)
        node = self.disk.find(path)
        if node is None:
            return
        if isinstance(node, DirNode):
            for name in sorted(node.entries):
                self.remove(posixpath.join(path, name))
        self._begin("remove", path)
        directory, name = self.disk.place(path)
        directory.change({name: None})

    def mkdir(self, path: str) -> None:
        self.disk.begin(self.process, "read", path)
        at = "/"
        for part in _parts(path):
            directory = self.disk.directory(at)
            at = posixpath.join(at, part)
            node = directory.entries.get(part)
            if node is None:
                self._begin("mkdir", at)
                directory.change({part: DirNode()})
            elif not isinstance(node, DirNode):
                raise _error(FileExistsError, errno.EEXIST, at)

    def listdir(self, path: str) -> list[str]:
        self.disk.begin(self.process, "read", path)
        return sorted(self.disk.directory(path).entries) if self.disk.find(path) is not None else []

    def exists(self, path: str) -> bool:
        self.disk.begin(self.process, "read", path)
        return self.disk.find(path) is not None

    def sync_dir(self, path: str) -> None:
        self._begin("sync_dir", path)
        self.disk.directory(path).sync()
        self._waited()

    def free_bytes(self, path: str) -> int:
        self.disk.begin(self.process, "read", path)
        if self.disk.capacity_bytes is None:
            return 1 << 40
        return max(0, self.disk.capacity_bytes - self.disk.used_bytes())


def _parts(path: str) -> list[str]:
    return [part for part in posixpath.normpath("/" + path).split("/") if part]


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)


def _check_replace(node: Node, over: Node | None, path: str) -> None:
    if over is None or over is node:
        return
    if isinstance(over, DirNode):
        if not isinstance(node, DirNode):
            raise _error(IsADirectoryError, errno.EISDIR, path)
        if over.entries:
            raise _error(OSError, errno.ENOTEMPTY, path)
    elif isinstance(node, DirNode):
        raise _error(NotADirectoryError, errno.ENOTDIR, path)


def _used_bytes(directory: DirNode) -> int:
    return sum(
        len(node.data) if isinstance(node, FileNode) else _used_bytes(node) for node in directory.entries.values()
    )
