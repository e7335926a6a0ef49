"""The process that an environment's children come from: it prepares once what all of them share, and forks them.

Run by its path, by the environment's own interpreter, where quvatlh need not be installed: standard library only, Python
3.9 or newer. It asks nothing of the executor but a socket: `fork` comes with five files, and is answered with the child's
process. It is a subreaper, so whatever a child leaves behind becomes its own, and is ended with the child before its end is
told. It runs no code of a task itself. It ends when its socket does, and its children end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
MESSAGE_BYTES_MAX = 1024 * 1024
TEXT_CHARS_MAX = 4000
FAILURE_CHARS_MAX = 400
"""An error has 500 characters in all (wire.py)."""
FILES = ("in", "out", "stdout", "stderr", "bell", "stdout_read", "stderr_read")
AGAIN_MS = 20
"""Between two rounds of ending what a child has left behind."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)
MSG_CMSG_CLOEXEC = 0x40000000
MARK = "QUVATLH_CHILD"
EXITING = 0x4
"""A flag of /proc/PID/stat."""
EXEC_WAIT_S = 0.5
"""For a process that is just becoming another program; longer only where it gets no processor."""

Make = Callable[[dict[str, int], dict[str, Any]], None]


def main() -> None:
    sys.path[:] = [each for each in sys.path if each != HERE]
    link = socket.socket(fileno=int(sys.argv[1]))
    parent = int(sys.argv[2])
    link.set_inheritable(False)
    die_with(parent)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a terminal's wish is its executor's matter
    settings = json.loads(link.recv(MESSAGE_BYTES_MAX))
    make = prepare(settings, link)
    if make is not None:
        Server(link, make).run()
    os._exit(0)


def die_with(parent: int) -> None:
    """Forgotten by the kernel where the user changes: then it is said again."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def prepare(settings: dict[str, Any], link: socket.socket) -> Make | None:
    """What a new child does with its files; None, said to the executor, where the environment cannot be prepared."""
    if settings["command"]:
        say(link, {"type": "ready"})
        return lambda files, _message: execute(settings["command"], files)
    try:
        inside = _loaded(settings["task_module"])
        inside.prepare(settings["cwd"], settings["preload"])
    except BaseException as error:  # noqa: BLE001 - what a module does while it is imported is anything
        say(link, {"type": "failed", "text": failure(error, settings)})
        return None
    say(link, {"type": "ready"})
    make: Make = inside.run_child
    return make


def failure(error: BaseException, settings: dict[str, Any]) -> str:
    """As much as a task's record holds: in a line where it is, and the end of the traceback."""
    from importlib import import_module  # noqa: PLC0415 - not for other programs

    survey = import_module("quvatlh_inside.survey")
    words, trace = survey.described(error, settings["preload"], settings["cwd"])
    words = words[:FAILURE_CHARS_MAX]
    room = FAILURE_CHARS_MAX - len(words)
    if len(trace) > room:
        trace = trace[len(trace) - room :].partition("\n")[2]
    return f"{words}\n{trace}".strip()


def _loaded(task_module: str) -> Any:
    """The code of a child, beside this file, as a package of a name of its own; its `quvatlh.task`, wherever that is."""
    import types  # noqa: PLC0415 - not for other programs
    from importlib import import_module  # noqa: PLC0415 - as above

    package = types.ModuleType("quvatlh_inside")
    package.__path__ = [HERE]
    sys.modules["quvatlh_inside"] = package
    import_module("quvatlh_inside.provide").provide_task(task_module)
    return import_module("quvatlh_inside.child")


class Server:
    def __init__(self, link: socket.socket, make: Make) -> None:
        self.link = link
        self.make = make
        self.children: dict[int, int] = {}
        """By process: number of the child."""
        self.dying: set[int] = set()
        """Processes that ended, and whatever they leave behind is being ended."""
        self.wake, woken = os.pipe()
        self.woken = woken
        for fd in (self.wake, woken):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while True:
            for fd, _event in poll.poll(AGAIN_MS if self.dying else None):
                if fd == self.wake:
                    os.read(self.wake, 4096)
                elif not self.heard():
                    return
            self.look()

    def heard(self) -> bool:
        data, files, _flags, _address = socket.recv_fds(self.link, MESSAGE_BYTES_MAX, len(FILES) + 1, MSG_CMSG_CLOEXEC)
        if not data:
            return False
        message = json.loads(data)
        try:
            self.fork(message, files)
        except OSError as error:
            say(self.link, {"type": "unborn", "child": message["child"], "text": error.strerror or str(error)})
        finally:
            for fd in files:
                os.close(fd)
        return True

    def fork(self, message: dict[str, Any], files: list[int]) -> None:
        server = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                self.begin(server, message, dict(zip(FILES, files)))  # noqa: B905 - Python 3.9
            except BaseException as error:  # noqa: BLE001 - whatever it is, the executor hears of it
                said = {"type": "refused", "text": str(error)[:TEXT_CHARS_MAX]}
                os.write(files[1], json.dumps(said).encode() + b"\n")
            finally:
                os._exit(1)  # two of us must not go on
        self.children[pid] = message["child"]
        watch = os.pidfd_open(pid)
        try:
            told = json.dumps({"type": "forked", "child": message["child"], "pid": pid}).encode()
            socket.send_fds(self.link, [told], [watch])
        finally:
            os.close(watch)

    def begin(self, server: int, message: dict[str, Any], files: dict[str, int]) -> None:
        """In the child."""
        signal.set_wakeup_fd(-1)
        for fd in (self.link.detach(), self.wake, self.woken):
            os.close(fd)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.environ[MARK] = f"{server}.{message['child']}"
        around = message.get("around") or {}
        take_on(around)
        die_with(server)
        null = os.open(around.get("stdin") or os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(files["stdout"], 1)
        os.dup2(files["stderr"], 2)
        for name in ("stdout", "stderr"):
            os.close(files[name])
        self.make(files, message)

    def look(self) -> None:
        """Children that ended; then those of them of whom nothing is left."""
        for pid in list(self.children):
            if pid not in self.dying and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                self.dying.add(pid)
        for pid in list(self.dying):
            if not self.left_by(pid):
                self.dying.discard(pid)
                _, status = os.waitpid(pid, 0)
                say(self.link, {"type": "died", "child": self.children.pop(pid), "status": exit_status(status)})

    def left_by(self, leader: int) -> bool:
        """Whether anything of a child is still there; it is on its way to its end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        mark = f"{MARK}={os.getpid()}.{self.children[leader]}"
        found = False
        seen = set(self.children)
        # Who ends between two looks has left its own children to us meanwhile.
        while new := set(own_children()) - seen:
            seen |= new
            for pid in new:
                if belongs(pid, leader, mark.encode()):
                    found = True
                    kill(pid)
                    reap(pid)
        return found


def execute(command: list[str], files: dict[str, int]) -> None:
    """A child that is another program: its protocol on standard input and output."""
    os.dup2(files["in"], 0)
    os.dup2(files["out"], 1)
    os.closerange(3, 256)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the program that the configuration names
    except OSError as error:
        os.write(1, json.dumps({"type": "refused", "text": f"{command[0]}: {error.strerror}"}).encode() + b"\n")
    os._exit(127)


def take_on(around: dict[str, Any]) -> None:
    """Limits, user, directory and environment of an action that has a child of its own."""
    import resource  # noqa: PLC0415 - not for everybody

    if around.get("ids"):
        _uid, gid, groups = around["ids"]
        os.setgroups(groups)
        os.setgid(gid)
    for name, value in around.get("rlimits", {}).items():
        number = getattr(resource, "RLIMIT_AS" if name == "memory" else "RLIMIT_" + name.upper())
        resource.setrlimit(number, (value, value))
    if around.get("ids"):
        os.setuid(around["ids"][0])
    if around.get("cwd"):
        os.chdir(around["cwd"])
    os.environ.update(around.get("env", {}))


def own_children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def belongs(pid: int, leader: int, mark: bytes) -> bool:
    """As the session of a child, or marked by its environment; of one that ends, nobody can tell: it is waited for."""
    try:
        marked = mark in environment(pid).split(b"\0")
        # In this order: who is exiting says so before it loses its environment.
        fields = stat(pid)
        if fields[0] in b"ZX":
            return not reap(pid)  # as long as others of its threads end, they have its children
        return marked or int(fields[3]) == leader or bool(int(fields[6]) & EXITING)
    except (OSError, IndexError):
        return False


def environment(pid: int) -> bytes:
    """Empty for a moment while a process becomes another program, though its parent goes on already: then the end of its
    place in memory is 0. Empty for good when it exits, and when it has put that place out of sight."""
    until_s = time.monotonic() + EXEC_WAIT_S
    in_exec = True
    while True:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = file.read()
        except (PermissionError, ProcessLookupError):  # newer kernels say so of one that exits
            return b""
        fields = stat(pid)
        if found or fields[0] in b"ZX" or int(fields[6]) & EXITING or not in_exec or time.monotonic() >= until_s:
            return found
        in_exec = fields[48] == b"0"
        if in_exec:
            time.sleep(0.001)
        elif fields[47] == fields[48]:
            return found


def stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name, which may hold anything."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def reap(pid: int) -> bool:
    """Whether it is gone, whole."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def exit_status(status: int) -> int:
    """As os.waitstatus_to_exitcode: a signal's number below zero."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def say(link: socket.socket, message: dict[str, Any]) -> None:
    try:
        link.send(json.dumps(message).encode())
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.ECONNRESET}:
            raise
        os._exit(0)


if __name__ == "__main__":
    main()
