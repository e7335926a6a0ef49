"""The executor's end of the process that an environment's children come from (`inside/server.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from quvatlh import task
from quvatlh.config.environments import Environment

INSIDE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inside")
SERVER = os.path.join(INSIDE, "server.py")
MESSAGE_BYTES_MAX = 64 * 1024


class Parent(Protocol):
    """Who hears of it."""

    def nursery_ready(self, nursery: Nursery) -> None: ...

    def nursery_ended(self, nursery: Nursery, text: str) -> None:
        """It is no more, and so are all of its children. Why, unless it was to end."""
        ...

    def forked(self, child: int, pid: int, watch_fd: int) -> None: ...

    def unborn(self, child: int, text: str) -> None: ...

    def died(self, child: int, status: int) -> None:
        """And nothing that it has left behind is there any more. A signal's number is below zero."""
        ...


class Nursery:
    def __init__(self, environment: Environment, base: Mapping[str, str], parent: Parent) -> None:
        """OSError where it cannot be started at all."""
        self.is_ready = False
        self._parent = parent
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._reason = ""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = self._started(environment, base, theirs.fileno())
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        self._link = ours
        self._loop.add_reader(ours.fileno(), self._readable)
        settings = {
            "command": environment.command,
            "cwd": environment.cwd or os.getcwd(),
            "preload": environment.preload,
            "task_module": task.__file__,
        }
        self._say(settings, ())

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, number: int, around: Mapping[str, Any] | None, files: tuple[int, ...]) -> None:
        self._say({"type": "fork", "child": number, "around": around}, files)

    def close(self) -> None:
        """It ends, with all of its children."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)

    def kill(self, reason: str = "") -> None:
        self._reason = self._reason or reason
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)

    @staticmethod
    def _started(environment: Environment, base: Mapping[str, str], fd: int) -> subprocess.Popen[bytes]:
        bare = (sys.executable, "-I", "-S")
        argv = (*(bare if environment.command else (environment.interpreter,)), SERVER, str(fd), str(os.getpid()))
        return subprocess.Popen(  # noqa: S603 - the interpreter that the configuration names
            argv,
            env={**base, **dict(environment.env)},
            cwd=environment.cwd or None,
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(fd,),
            start_new_session=True,
        )

    def _say(self, message: Mapping[str, Any], files: tuple[int, ...]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its end is told by its socket's
            socket.send_fds(self._link, [json.dumps(message).encode()], files)

    def _readable(self) -> None:
        while True:
            try:
                data, files, _flags, _address = socket.recv_fds(
                    self._link, MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, files = b"", []
            if not data:
                self._lost()
                return
            self._heard(json.loads(data), files)

    def _heard(self, message: dict[str, Any], files: list[int]) -> None:
        kind = message["type"]
        if kind == "died":
            self._parent.died(message["child"], message["status"])
        elif kind == "forked":
            self._parent.forked(message["child"], message["pid"], files[0])
        elif kind == "unborn":
            self._parent.unborn(message["child"], message["text"])
        elif kind == "ready":
            self.is_ready = True
            self._parent.nursery_ready(self)
        elif kind == "failed":
            self._reason = message["text"]

    def _lost(self) -> None:
        self._loop.remove_reader(self._link.fileno())
        self._link.close()
        self.kill()
        status = self._process.wait()
        text = self._reason or f"its server has ended, with status {status}"
        self._parent.nursery_ended(self, "" if self._closing else text)
        if not self.ended.done():
            self.ended.set_result(None)
