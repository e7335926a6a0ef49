"""What the code of a task may use: the running task, and exceptions that say what is to become of it.

Needs nothing but the standard library, and is there in every environment: a warm process brings its own copy under this
name where quvatlh is not installed. A task is any function that can be named as `pkg.mod:function`; it is called with the
task's arguments, and what it returns, if that has a form in JSON, or else in msgpack, is the result. An async function shares its process
with others. An object that has a method `__quvatlh_run__` has that called in place of itself, with the same arguments:
the seam for libraries that wrap functions.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Optional

DEPTH_MAX = 60
"""Of lists and maps within each other, in a result that is msgpack."""
_PLAIN = (str, bytes, bool, int, float, type(None))
PROGRESS_S = 0.1
"""Progress that is told sooner after the last is kept for the next."""


class Retry(Exception):
    """Raised by a task: it did not work out this time. It is tried again after so many seconds, as long as attempts are left."""

    def __init__(self, text: str = "", *, after: float | None = None) -> None:
        super().__init__(text)
        if after is not None and not 0 <= after < math.inf:
            raise ValueError("after: must be seconds, 0 or more")
        self.after = after


class PermanentFailure(Exception):
    """Raised by a task: trying again is of no use."""


class Unfit(PermanentFailure):
    """What was asked for cannot be called at all: it does not exist, or not with these arguments, or what it returns cannot
    be sent. For libraries that wrap functions."""


class Packed:
    """Returned in place of a value, for libraries that wrap functions: the result in msgpack, as whoever asks for it will read
    it."""

    def __init__(self, data: bytes) -> None:
        self.data = data


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


def in_msgpack(value: Any, why: object) -> bytes:
    """For who runs tasks: a result that has no form in JSON, and `why`, in msgpack, which gives back the value that it was.
    Raises Unfit, also where msgspec, which writes it, is not installed."""
    if isinstance(value, Packed):
        if type(value.data) is not bytes:
            raise Unfit(f"what it returned is Packed, and holds no bytes: {type(value.data).__name__}")
        return value.data
    fault = _fault("it", value, 0)
    if fault is not None:
        raise Unfit(f"what it returned has no form in JSON ({why}), nor in msgpack: {fault}")
    try:
        msgpack = importlib.import_module("msgspec.msgpack")
    except ImportError:
        raise Unfit(
            f"what it returned has no form in JSON ({why}), and msgspec is not here to write it in msgpack"
        ) from None
    try:
        data: bytes = msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Unfit(f"what it returned has no form in JSON ({why}), nor in msgpack: {error}") from None
    return data


def _fault(place: str, value: Any, depth: int) -> Optional[str]:  # noqa: UP045 - Python 3.9
    """The first part that would come back as something else. Tuples do, as lists, as in JSON; that alone is passed over."""
    kind = type(value)
    if kind in _PLAIN:
        return None
    if isinstance(value, datetime):
        return None if value.utcoffset() is not None else f"{place} is a datetime without a zone"
    if depth >= DEPTH_MAX:
        return f"{place[:100]}… is nested deeper than {DEPTH_MAX}, or within itself"
    if kind in (list, tuple):
        return _first(_fault(f"{place}[{n}]", each, depth + 1) for n, each in enumerate(value))
    if kind is dict:
        return _first(_member(place, key, each, depth + 1) for key, each in value.items())
    return f"{place} is of type {kind.__name__}"


def _member(place: str, key: Any, value: Any, depth: int) -> Optional[str]:  # noqa: UP045 - as above
    if type(key) not in _PLAIN:
        return f"{place} has a key of type {type(key).__name__}"
    return _fault(f"{place}[{key!r:.40}]", value, depth)


def _first(found: Iterable[Optional[str]]) -> Optional[str]:  # noqa: UP045 - as above
    return next((each for each in found if each is not None), None)
