"""The end of another process and of what ends with it, awaited by pidfd: no number is taken for another's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import struct
from collections.abc import Iterable
from typing import Self


class Death:
    """Of an executor, and of its guard where it has one: when both are gone, nothing of it is left."""

    def __init__(self, pids: Iterable[int]) -> None:
        """Raises ProcessLookupError."""
        self._fds: list[int] = []
        try:
            for pid in pids:
                self._fds.append(os.pidfd_open(pid))
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_peer(cls, peer: socket.socket) -> Self:
        """Who listens there: as it is to answer on this connection, it is that process and no later one."""
        pid, _uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        guard = _guard_of(pid)
        return cls((pid,) if guard is None else (pid, guard))

    async def wait(self, at_most_s: float) -> bool:
        """Whether it has come."""
        try:
            async with asyncio.timeout(at_most_s):
                for fd in list(self._fds):
                    await _readable(fd)
        except TimeoutError:
            return False
        return True

    def hasten(self) -> None:
        """KILL, of the executor alone: what ends it ends the rest."""
        if self._fds:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fds[0], signal.SIGKILL)

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


async def _readable(fd: int) -> None:
    own = os.dup(fd)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        if not select.select([own], [], [], 0)[0]:
            loop.add_reader(own, ended.set)
            await ended.wait()
    finally:
        loop.remove_reader(own)
        os.close(own)


def _guard_of(pid: int) -> int | None:
    """Its parent, when that is the same program and not us: the first process of a namespace has none of its own."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
        same = _program(pid) == _program(parent)
    except (OSError, ValueError):
        return None
    return parent if same and parent != os.getpid() else None


def _program(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()
