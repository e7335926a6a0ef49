"""A job becomes a process: at once by vfork, or, with limits, another user or a parent-death signal, by the starter.

vfork (in posix_spawn or Popen) is the fastest way there is, and can do none of these three: each is set by the process
itself, after a fork. That is what the starter is for (see DESIGN.md for the numbers): requests out, processes or refusals
back, in the order they were asked for. A starter that was killed is replaced at the next start; what it had begun and not
told is said to have failed for now, and whoever calls sees to it that none of that is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quvatlh.core.work import Work
from quvatlh.runner.spawn import Identity
from quvatlh.runner.starter import REPORT_BYTES_MAX, REQUEST_BYTES_MAX, told

STARTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "starter.py")
AHEAD_MAX = 8
"""Requests that the starter has not answered: enough to keep it busy, few enough to be remembered when it dies."""

_ALL = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Python ignores some, and who started the daemon others; commands begin as the system begins processes."""

Done = Callable[[int, bytes], None]
"""The process, 0 if there is none; and why it never became its command, empty if it did."""


@dataclass(frozen=True, slots=True)
class Job:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    work: Work
    who: Identity | None
    group: str = ""
    """Directory of the control group to be in, in place of the limit of memory."""

    def encoded(self, *, with_parent: bool) -> bytes:
        who, work = self.who, self.work
        ids = () if who is None else (who.uid, who.gid, *who.groups)
        limits = (f"{name}={limit}" for name, limit in work.rlimits if not self.group or name != "memory")
        fields = [str(len(self.argv)), *self.argv, str(len(self.env))]
        fields += [f"{name}={value}" for name, value in self.env.items()]
        fields += [work.cwd or "", " ".join(map(str, ids)), " ".join(limits), "1" if with_parent else "", self.group]
        if any("\0" in field for field in fields):
            raise OSError(errno.EINVAL, "a zero character in what is to be run")
        return os.fsencode("\0".join(fields))


class Starter:
    def __init__(self, *, with_parent: bool, lost: Callable[[], None]) -> None:
        """`with_parent`: each process dies with this one. `lost` is told when the starter died, before its requests are."""
        self._with_parent = with_parent
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._asked: deque[Done] = deque()
        self.asked = 0
        self.answered = 0
        """Requests in all, and how many of them, from the first on, have had their answer."""
        self.on_room: Callable[[], None] = lambda: None

    @property
    def pid(self) -> int:
        """Of the process that starts the others; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def has_room(self) -> bool:
        return len(self._asked) < AHEAD_MAX

    def start(self, job: Job, files: tuple[int, int, int], done: Done) -> None:
        """`done` is called now or later. OSError when the starter cannot even be asked. The files stay the caller's."""
        if not (self._with_parent or job.who or job.work.rlimits):
            done(*_start_here(job, files))
            return
        data = job.encoded(with_parent=self._with_parent)
        try:
            self._send(data, files)
        except (BrokenPipeError, ConnectionResetError):
            self._died()
            self._send(data, files)
        self._asked.append(done)
        self.asked += 1

    def close(self) -> None:
        self._close_link()
        self._reap()

    def _open(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                arguments = (str(theirs.fileno()), str(os.getpid()))
                self._process = subprocess.Popen(  # noqa: S603 - our own file
                    (sys.executable, "-I", "-S", STARTER, *arguments),
                    env={},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        self._link = ours
        self._loop.add_reader(ours.fileno(), self._readable)

    def _send(self, data: bytes, files: tuple[int, int, int]) -> None:
        if self._link is None:
            self._open()
        assert self._link is not None
        if len(data) <= REQUEST_BYTES_MAX:
            socket.send_fds(self._link, [data], files)
        else:
            self._send_large(self._link, data, files)

    def _send_large(self, link: socket.socket, data: bytes, files: tuple[int, int, int]) -> None:
        fd = os.memfd_create("request", os.MFD_CLOEXEC)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            socket.send_fds(link, [b"."], (*files, fd))
        finally:
            os.close(fd)

    def _readable(self) -> None:
        assert self._link is not None
        try:
            data = self._link.recv(REPORT_BYTES_MAX + 4)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._died()
            return
        self._asked.popleft()(int.from_bytes(data[:4], "big"), data[4:])
        self.answered += 1
        self.on_room()

    def _died(self) -> None:
        self._close_link()
        self._reap()
        self._lost()
        report = told("start", OSError(errno.EAGAIN, "the starter has died"))
        asked, self._asked = self._asked, deque()
        self.answered = self.asked
        for done in asked:
            done(0, report)
        self.on_room()

    def _close_link(self) -> None:
        if self._link is not None:
            self._loop.remove_reader(self._link.fileno())
            self._link.close()
        self._link = None

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()


def _start_here(job: Job, files: tuple[int, int, int]) -> tuple[int, bytes]:
    """posix_spawn where it can say all there is to say: it knows no directory, and looks in our own PATH. Every descriptor of
    this process is closed by exec."""
    if job.work.cwd is None and job.env.get("PATH") == os.environ.get("PATH"):
        places = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(files)]
        try:
            argv, env = job.argv, job.env
            return os.posix_spawnp(argv[0], argv, env, file_actions=places, setsid=True, setsigdef=_ALL), b""
        except (OSError, ValueError) as error:
            return 0, told("command", error)
    return _start_there(job, files)


def _start_there(job: Job, files: tuple[int, int, int]) -> tuple[int, bytes]:
    stdin, stdout, stderr = files
    try:
        process = subprocess.Popen(  # noqa: S603 - carrying out commands is the purpose
            job.argv,
            env=job.env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=job.work.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return 0, told(_place(error, job.work.cwd), error)
    process.returncode = 0  # else subprocess reaps it one day, once this object is gone
    return process.pid, b""


def _place(error: Exception, cwd: str | None) -> str:
    """Popen names the directory for a failed command too."""
    if cwd is None or not isinstance(error, OSError) or error.filename != cwd:
        return "command"
    return "command" if os.path.isdir(cwd) and os.access(cwd, os.X_OK) else "cwd"
