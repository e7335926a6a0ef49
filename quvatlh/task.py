"""What the code of a task may use: the running task, and exceptions that say what is to become of it.

Needs nothing but the standard library, and is there in every environment: a warm process brings its own copy under this
name where quvatlh is not installed. A task is any function that can be named as `pkg.mod:function`; it is called with the
task's arguments, and what it returns, if that has a form in JSON, is the result. An async function shares its process
with others. An object that has a method `__quvatlh_run__` has that called in place of itself, with the same arguments:
the seam for libraries that wrap functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

PROGRESS_S = 0.1
"""Progress that is told sooner after the last is kept for the next."""


class Retry(Exception):
    """Raised by a task: it did not work out this time. It is tried again after so many seconds, as long as attempts are left."""

    def __init__(self, text: str = "", *, after: float | None = None) -> None:
        super().__init__(text)
        if after is not None and not after >= 0:
            raise ValueError("after: must be seconds, 0 or more")
        self.after = after


class PermanentFailure(Exception):
    """Raised by a task: trying again is of no use."""


class Unfit(PermanentFailure):
    """What was asked for cannot be called at all: it does not exist, or not with these arguments, or what it returns cannot
    be sent. For libraries that wrap functions."""


class Cancelled(BaseException):
    """Raised inside a task that is to end: killed, deleted, moved, drained, or over its time. It may tidy up within its grace."""


class Context:
    """The running task. `current()` gives it."""

    def __init__(self, fields: dict[str, Any], say: Callable[[dict[str, Any]], None], look: Callable[[], None]) -> None:
        """Made by the process that runs the task: what it was told, how it answers, and how it looks for news."""
        self.task: str = fields.get("task", "")
        """Id of the task."""
        self.action: str = fields["id"]
        self.attempt: int = fields.get("attempt", 1)
        """From 1."""
        self.token: int = fields.get("token", 0)
        """Only grows: a store that refuses smaller ones is safe from whoever believes to own the task and does not any more."""
        self.worker: str = fields.get("worker", "")
        self._payload: str | None = fields.get("payload")
        self._say = say
        self._look = look
        self.stopping = False
        """Set by who runs it; `cancelled` looks first."""
        self.is_seen = False
        """The task knows that it is to end."""
        self._told_at = 0.0

    @property
    def payload(self) -> bytes | None:
        """As it was given to the task; a payload that is JSON, as its text."""
        if self._payload is None:
            return None
        with open(self._payload, "rb") as file:
            return file.read()

    @property
    def cancelled(self) -> bool:
        """Somebody wants it to end. Cheap enough for a loop."""
        if not self.stopping:
            self._look()
        self.is_seen = self.stopping
        return self.stopping

    def heartbeat(self) -> None:
        """A place where the task may end: raises Cancelled if it is to."""
        if self.cancelled:
            raise Cancelled

    def progress(self, percent: float | None = None, text: str = "") -> None:
        """Shown to whoever looks; of many within a tenth of a second, one."""
        now = time.monotonic()
        if now - self._told_at < PROGRESS_S and percent != 100:
            return
        self._told_at = now
        said: dict[str, Any] = {"type": "progress", "id": self.action, "text": str(text)[:1000]}
        if percent is not None:
            said["percent"] = max(0, min(100, int(percent)))
        self._say(said)

    def log(self, *words: object) -> None:
        """A line of the task's log, on its standard error."""
        self._say(output(self.action, "stderr", " ".join(map(str, words)) + "\n"))


def output(action: str, stream: str, text: str) -> dict[str, Any]:
    return {"type": "output", "id": action, "stream": stream, "text": text}


running: ContextVar[Context | None] = ContextVar("quvatlh.task", default=None)
"""For who runs tasks; tasks ask `current`."""


def current() -> Context:
    """The task that this code runs for. RuntimeError where there is none."""
    context = running.get()
    if context is None:
        raise RuntimeError("no task runs here")
    return context
