"""What an action reads: payload and stdin as files of its own while it is live."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass

from quvatlh.ports import ActionSpec
from quvatlh.runner.spawn import Identity


@dataclass(frozen=True, slots=True)
class Inputs:
    payload: str | None
    """Path of the payload's file."""
    stdin: str
    """Path of what a command is given to read; opened anew for each."""
    made: tuple[str, ...] = ()


NOTHING = Inputs(None, os.devnull)


def empty(directory: str) -> None:
    """Make the directory, without what an earlier life left. Searchable by all, its files readable by their owner alone."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory, 0o700, exist_ok=True)
    os.chmod(directory, 0o711)  # noqa: S103 - another user's action must reach its own payload by path


def write(directory: str, action: ActionSpec, who: Identity | None) -> Inputs:
    """Raises OSError, with nothing left behind."""
    if action.payload is None and action.work.stdin is None:
        return NOTHING
    made: list[str] = []
    payload, stdin = None, os.devnull
    try:
        if action.payload is not None:
            stdin = payload = f"{directory}/{action.id}.payload"
            made.append(payload)
            _write(payload, action.payload, who)
        if action.work.stdin is not None:
            stdin = f"{directory}/{action.id}.stdin"
            made.append(stdin)
            _write(stdin, action.work.stdin.encode(), who)
    except OSError:
        remove(Inputs(payload, stdin, tuple(made)))
        raise
    return Inputs(payload, stdin, tuple(made))


def remove(inputs: Inputs) -> None:
    """The action itself may have removed them, or put a directory in their place; what stays goes at the next start."""
    for path in inputs.made:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _write(path: str, data: bytes, who: Identity | None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
    with open(fd, "wb") as file:
        file.write(data)
        if who is not None:
            os.fchown(fd, who.uid, who.gid)
