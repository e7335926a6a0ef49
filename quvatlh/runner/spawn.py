"""What a command becomes a process as, and the words for why it cannot. Who starts it is `starting`."""

from __future__ import annotations

import errno
import os
import pwd
from dataclasses import dataclass

from quvatlh.core.work import Work
from quvatlh.ports import RunError

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


def failed(report: bytes, argv: tuple[str, ...], work: Work) -> RunError:
    """What the starter says of a command that did not take over, in words."""
    place, number, text = report.decode("utf-8", "replace").split("\0", 2)
    if place == "command":
        return _exec_error(argv[0], work, int(number), text)
    if place == "start" or int(number) in _PASSING:
        return RunError("resources", f"{argv[0]}: {text}")
    value = {"cwd": work.cwd, "user": work.user}.get(place)
    return RunError("unrunnable", f"{place}{f' {value}' if value else ''}: {text}")


def _exec_error(program: str, work: Work, number: int | None, text: str) -> RunError:
    if number in _PASSING:
        return RunError("resources", f"{program}: {text}")
    words = _WORDS.get(number, text) if number is not None else text
    if number == errno.ENOENT and "/" in program and os.path.exists(os.path.join(work.cwd or "", program)):
        words = "the interpreter named in its first line was not found"
    return RunError("unrunnable", f"{program}: {words}")
