"""How nothing of an executor survives it: a PID namespace of its own, or a guard.

Run before anything large is imported. `enter` returns in the executor itself, away from the terminal and the process group
of who started it; the processes between end or guard. The first process of a PID namespace takes all others with it when it
ends, however it ends. Without a namespace a guard is the executor's parent and a subreaper: whatever the executor leaves
behind becomes the guard's, and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import Literal, NoReturn

Mode = Literal["pidns", "userns", "plain"]

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWPID = 0x2000_0000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 0x2, 0x4, 0x8, 0x4000, 0x8_0000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_AGAIN_S = 0.01
"""Between two rounds of killing, where the first has left something."""


class NotIsolated(Exception):
    """The system does not let us; the message says what."""


def enter(mode: Mode) -> None:
    """Raises NotIsolated, in the executor or in the process that was to become it."""
    if mode == "plain":
        _into_child()
        _set(_PR_SET_CHILD_SUBREAPER, 1)
        guard = os.getpid()
        executor = os.fork()
        if executor:
            _guard(executor)
        _set(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != guard:
            os._exit(1)
        os.setsid()
        return
    _unshare(mode)
    _into_child()
    # Mounts of the host still come in; ours do not go out.
    _mount(b"none", b"/", None, _MS_REC | _MS_SLAVE)
    _mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _into_child() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()


def _unshare(mode: Mode) -> None:
    uid, gid = os.geteuid(), os.getegid()
    flags = _CLONE_NEWPID | _CLONE_NEWNS | (_CLONE_NEWUSER if mode == "userns" else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        raise NotIsolated(f"no PID namespace: {os.strerror(ctypes.get_errno())}")
    if mode == "userns":
        try:
            for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        except OSError as error:
            raise NotIsolated(f"no user namespace: {error.strerror}") from None


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), None) != 0:
        raise NotIsolated(f"no {target.decode()} of its own: {os.strerror(ctypes.get_errno())}")


def _set(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise NotIsolated(f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def _guard(executor: int) -> NoReturn:
    """Wait for its end, and end what it leaves behind. Only a kill of both at once leaves something."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.closerange(3, null + 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: os.kill(executor, signal.SIGTERM))
    while os.waitpid(-1, 0)[0] != executor:
        pass
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(_AGAIN_S)
    os._exit(0)


def _children() -> list[int]:
    """Of a killed one its children come next, so one generation at a time will do."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]
