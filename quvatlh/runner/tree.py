"""Which processes belong to an action, read from /proc, and ending them.

The process that runs this is a subreaper: who loses its parent becomes its child. So whatever is left of an action whose
main process has ended is found as a child that nobody started, and told from others' by its session or by the action id
in its environment. Not covered: a process that leaves the session, loses its parent and has cleaned its environment; it is
a stray, ended when no action is live. And set-uid programs, which only root may signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator

_PR_SET_CHILD_SUBREAPER = 36
_READ_BYTES = 65_536
_DEATH_WAIT_S = 5.0
"""For each survivor after KILL; longer only in uninterruptible sleep."""
_STAT_STATE, _STAT_PGRP, _STAT_SESSION, _STAT_FLAGS, _STAT_BORN, _STAT_ENV_START, _STAT_ENV_END = 0, 2, 3, 6, 19, 47, 48
"""Fields of /proc/PID/stat after the name."""
_PF_EXITING = 0x4
_EXEC_WAIT_S = 0.5
"""For a process that is just becoming another program; longer only where it gets no processor."""


def be_subreaper(*, wanted: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Children:
    """The children of this process, in one read of one file kept open. They are those of its main thread: only there."""

    def __init__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("children are adopted by the main thread, so the runner must be on it")
        self._fd = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        self.spared = set(self.pids())
        """Not the runner's: what was there before it, and what others start and tell."""

    def pids(self) -> list[int]:
        data = block = os.pread(self._fd, _READ_BYTES, 0)
        while block and len(data) < os.sysconf("SC_PAGE_SIZE") * 1024:
            block = os.pread(self._fd, _READ_BYTES, len(data))
            data += block
        return [int(pid) for pid in data.split()]

    def close(self) -> None:
        os.close(self._fd)


def belongs(pid: int, leader: int, action_id: str) -> bool:
    """Whether an adopted process is of the action: in the session of its main process, or marked by its environment."""
    if _marked(pid) == action_id:
        return True
    # In this order: a process that is exiting says so before it loses its environment, and is waited for by whoever asks.
    fields = _stat(pid)
    return fields is not None and (int(fields[_STAT_SESSION]) == leader or bool(int(fields[_STAT_FLAGS]) & _PF_EXITING))


def has_in_environment(pid: int, entry: bytes) -> bool:
    """Whether a process was started with this; of one that is exiting nobody can tell, so it is taken for one."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        if entry in _environment(pid).split(b"\0"):
            return True
    fields = _stat(pid)
    return fields is not None and bool(int(fields[_STAT_FLAGS]) & _PF_EXITING)


def session_of(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[_STAT_SESSION])


def born(pid: int) -> bytes | None:
    """When, in the kernel's own measure; None where it has ended, or is on its way."""
    fields = _stat(pid)
    if fields is None or fields[_STAT_STATE] in b"ZX" or int(fields[_STAT_FLAGS]) & _PF_EXITING:
        return None
    return fields[_STAT_BORN]


def signal_tree(leader: int, orphans: Collection[int], number: int) -> None:
    """The leader's group at once, and one by one whoever of the tree has left it.

    The leader may be dead but must not have been reaped: its number, and so its group's, cannot be anybody else's.
    """
    outside = [pid for pid in _descendants([leader, *orphans]) if _group(pid) != leader]
    _signal_group(leader, number)
    for pid in outside:
        _signal_one(pid, number)


def signal_strays(pids: Collection[int]) -> None:
    for pid in _descendants(pids):
        _signal_one(pid, signal.SIGKILL)


def end_strays(pids: Callable[[], Collection[int]]) -> None:
    """Kill and reap until there are none, or one will not die. Blocking."""
    while found := [pid for pid in pids() if not reap(pid)]:
        signal_strays(found)
        if not all([_gone(pid) for pid in found]):  # noqa: C419 - each is waited for
            return


def reap(pid: int) -> bool:
    """Whether this child is gone: it had ended and is reaped, or was nobody's any more."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def has_ended(pid: int) -> bool:
    """As `reap`, and the child is left to be reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _gone(pid: int) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], _DEATH_WAIT_S)[0])
    finally:
        os.close(fd)


def _descendants(roots: Collection[int]) -> Iterator[int]:
    """The roots and all below them. Who forks meanwhile may be missed: whoever ends a tree looks again until it is empty."""
    waiting = list(roots)
    seen: set[int] = set()
    while waiting:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        yield pid
        waiting += children_of(pid)


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += [int(each) for each in _read(f"/proc/{pid}/task/{thread}/children").split()]
    return found


def _marked(pid: int) -> str | None:
    """The action id in the environment a process was started with; None if there is none or it may not be read."""
    try:
        environ = _environment(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    start = environ.find(b"\0QUVATLH_ACTION_ID=")
    if start < 0:
        if not environ.startswith(b"QUVATLH_ACTION_ID="):
            return None
    else:
        environ = environ[start + 1 :]
    return environ.split(b"\0", 1)[0].partition(b"=")[2].decode("utf-8", "replace")


def _environment(pid: int) -> bytes:
    """What a process was started with. In the middle of an exec, as its parent goes on already, it seems to have none, and
    only the end of its place in memory, 0, tells that from one that has none; of one that is exiting it is gone. What has a
    place and is not to be read there was put out of sight: nobody waits for that."""
    until_s = time.monotonic() + _EXEC_WAIT_S
    in_exec = True
    while not (found := _read(f"/proc/{pid}/environ")) and in_exec and time.monotonic() < until_s:
        fields = _stat(pid)
        if fields is None or fields[_STAT_STATE] in b"ZX" or int(fields[_STAT_FLAGS]) & _PF_EXITING:
            break
        in_exec = fields[_STAT_ENV_END] == b"0"
        if in_exec:
            time.sleep(0.001)
        elif fields[_STAT_ENV_START] == fields[_STAT_ENV_END]:
            break
    return found


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat after the name, which may hold anything, blanks and brackets too."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _group(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[_STAT_PGRP])


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _signal_one(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
