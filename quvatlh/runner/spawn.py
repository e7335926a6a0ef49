"""One command becomes a process: a session of its own, its environment, its three files; or words why it cannot.

subprocess.Popen, and not asyncio's: it starts by vfork, which stays as fast when the daemon is large, and reports a failed
exec with its errno. No preexec function, no user, no group: each would make it fork (see DESIGN.md for the numbers).
"""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from quvatlh.core.work import Work
from quvatlh.ports import RunError

LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")
REPORT_BYTES_MAX = 4_096

_PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ETXTBSY, errno.EIO})
"""The machine's trouble of the moment, not the command's."""
_WORDS = {
    errno.ENOENT: "not found",
    errno.ENOTDIR: "not found",
    errno.EACCES: "not permitted to execute",
    errno.EPERM: "not permitted",
    errno.ENOEXEC: "neither a binary of this machine nor a script with #! in its first line",
    errno.E2BIG: "arguments and environment are larger than the system takes",
}


class NotStarted(Exception):
    """No process is there; `error` says why."""

    def __init__(self, error: RunError) -> None:
        super().__init__(error.text)
        self.error = error


@dataclass(frozen=True, slots=True)
class Identity:
    """Another user to run as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str


@dataclass(frozen=True, slots=True)
class Started:
    process: subprocess.Popen[bytes]
    """Kept only because subprocess would reap a process whose object is gone."""
    report_fd: int | None
    """Read end of the launcher's report, if there is a launcher."""


def unrunnable(text: str) -> NotStarted:
    return NotStarted(RunError("unrunnable", text))


def identity(work: Work) -> Identity | None:
    """Whom to become; None for staying who we are. Asks the system's user database, which may be slow where it is remote."""
    if work.user is None:
        return None
    try:
        entry = pwd.getpwuid(int(work.user)) if work.user.isdecimal() else pwd.getpwnam(work.user)
    except (KeyError, OverflowError):
        raise unrunnable(f"user {work.user}: no such user on this machine") from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise unrunnable(f"user {work.user}: only a worker that runs as root can run as another user")
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Identity(entry.pw_uid, entry.pw_gid, groups, entry.pw_name, entry.pw_dir)


def start(
    argv: tuple[str, ...], work: Work, who: Identity | None, env: Mapping[str, str], files: tuple[int, int, int]
) -> Started:
    """Raises NotStarted."""
    if who is None and not work.rlimits:
        try:
            return Started(_popen(argv, env, files, work.cwd, ()), None)
        except (OSError, ValueError) as error:
            raise _not_started(argv, work, error) from None
    return _launch(argv, work, who, env, files)


def _launch(
    argv: tuple[str, ...], work: Work, who: Identity | None, env: Mapping[str, str], files: tuple[int, int, int]
) -> Started:
    ids = "" if who is None else " ".join(str(each) for each in (who.uid, who.gid, *who.groups))
    limits = " ".join(f"{name}={limit}" for name, limit in work.rlimits)
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    launcher = (sys.executable, "-I", "-S", LAUNCH, str(write_end), work.cwd or "", ids, limits, *argv)
    try:
        return Started(_popen(launcher, env, files, None, (write_end,)), read_end)
    except (OSError, ValueError) as error:
        os.close(read_end)
        raise _not_started(argv, work, error) from None
    finally:
        os.close(write_end)


def _popen(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    files: tuple[int, int, int],
    cwd: str | None,
    pass_fds: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = files
    return subprocess.Popen(  # noqa: S603 - carrying out commands is the purpose
        argv, env=env, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, pass_fds=pass_fds, start_new_session=True
    )


def reported(fd: int, argv: tuple[str, ...], work: Work) -> RunError | None:
    """What the launcher wrote before it gave up; None when the command took over."""
    try:
        data = os.read(fd, REPORT_BYTES_MAX)
    except BlockingIOError:
        return None
    if not data:
        return None
    place, number, text = data.decode("utf-8", "replace").split("\0", 2)
    if place == "command":
        return _exec_error(argv[0], work, int(number), text)
    value = {"cwd": work.cwd, "user": work.user}.get(place)
    return RunError("unrunnable", f"{place}{f' {value}' if value else ''}: {text}")


def _not_started(argv: tuple[str, ...], work: Work, error: Exception) -> NotStarted:
    if not isinstance(error, OSError):
        return unrunnable(f"{argv[0]}: {error}")
    if work.cwd is not None and error.filename == work.cwd and not _enterable(work.cwd):
        return unrunnable(f"cwd {work.cwd}: {error.strerror}")
    return NotStarted(_exec_error(argv[0], work, error.errno, error.strerror or str(error)))


def _enterable(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.X_OK)


def _exec_error(program: str, work: Work, number: int | None, text: str) -> RunError:
    if number in _PASSING:
        return RunError("resources", f"{program}: {text}")
    words = _WORDS.get(number, text) if number is not None else text
    if number == errno.ENOENT and "/" in program and os.path.exists(os.path.join(work.cwd or "", program)):
        words = "the interpreter named in its first line was not found"
    return RunError("unrunnable", f"{program}: {words}")
