"""What a child runs: found by its name, and what became of it in words. See child.py."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import os
import traceback
from typing import Any

from quvatlh import task

TEXT_CHARS_MAX = 1000
AFTER_S_MAX = 365 * 86_400.0
RESULT_BYTES_MAX = 16 * 1024 * 1024
RESULT_LEVELS_MAX = 256
"""As many as a node reads: what is nested deeper it shows as bytes."""
_IN_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Characters as they are: escaped, most of the world's would take two or three times as much."""
OURS = ("quvatlh.", "quvatlh_inside.")
"""Modules whose frames are nobody's concern."""


def resolved(target: str) -> Any:
    name, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        importlib.invalidate_caches()
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise task.Unfit(f"there is no module {error.name} in this environment") from None
        raise
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise task.Unfit(f"module {name} has no {path}") from None
    found = getattr(found, "__quvatlh_run__", found)
    if not callable(found):
        raise task.Unfit(f"{target} is no function: {type(found).__name__}")
    return found


def is_awaitable(value: Any) -> bool:
    """By its type, as `await` has it: a value may answer for any name, or raise for it."""
    return hasattr(type(value), "__await__")


def formed(value: Any) -> tuple[str, str]:
    """What a task returned: the field of the answer, and its text; none for None. Raises task.Unfit, whatever the value does
    to be written: it ends its own task alone."""
    if value is None:
        return "value", ""
    try:
        text = _IN_JSON(value)
        # Half a character, as in names of files that are no UTF-8, is nothing that others could read: this raises.
        size = len(text) if text.isascii() else len(text.encode())
    except Exception as error:  # noqa: BLE001 - a value may be of any make
        data = _packed(value, error)
        _check_size(len(data))
        return "packed", f'"{base64.b64encode(data).decode()}"'
    _check_size(size)
    if text.count("[") + text.count("{") > RESULT_LEVELS_MAX:
        _check_levels(value)
    return "value", text


def line(message: dict[str, Any]) -> bytes:
    """Half a character, which the executor would not read, is escaped in it, as in what is printed."""
    try:
        return _IN_JSON(message).encode() + b"\n"
    except UnicodeEncodeError:
        whole = {name: _whole(each) if isinstance(each, str) else each for name, each in message.items()}
        return _IN_JSON(whole).encode() + b"\n"


def _whole(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _packed(value: Any, error: Exception) -> bytes:
    try:
        return task.in_msgpack(value, _text(error))
    except task.Unfit:
        raise
    except Exception as other:  # noqa: BLE001 - as above
        raise task.Unfit(f"what it returned cannot be written: {type(other).__qualname__}: {_text(other)}") from None


def _check_size(size: int) -> None:
    if size > RESULT_BYTES_MAX:
        raise task.Unfit(f"what it returned has {size} bytes; at most {RESULT_BYTES_MAX}, the rest belongs into a file")


def _check_levels(value: Any) -> None:
    level = [value]
    for _ in range(RESULT_LEVELS_MAX + 1):
        level = [each for each in level if isinstance(each, (dict, list, tuple))]
        if not level:
            return
        level = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
    raise task.Unfit(f"what it returned is nested deeper than {RESULT_LEVELS_MAX} levels")


def described(error: BaseException, context: Any) -> dict[str, Any]:
    """With as much as it lets be said."""
    try:
        return _described(error, context)
    except BaseException:  # noqa: BLE001 - an exception may be of any make
        return {"text": "it raised what cannot be described"}


def _described(error: BaseException, context: Any) -> dict[str, Any]:
    kind = type(error)
    said: dict[str, Any] = {"class": f"{kind.__module__}.{kind.__qualname__}", "text": _text(error)}
    if context.stopping and isinstance(error, (task.Cancelled, asyncio.CancelledError)):
        return {"stopped": True, "text": "stopped"}
    if isinstance(error, task.Unfit):
        return {"unfit": True, "text": _text(error)}
    if isinstance(error, TypeError) and _is_of_the_call(error):
        return {"unfit": True, "text": f"its arguments do not fit: {_text(error)}"}
    if isinstance(error, task.Retry):
        said["after"] = None if error.after is None else float(min(max(0, error.after), AFTER_S_MAX))
        return said
    said["permanent"] = isinstance(error, task.PermanentFailure)
    said["trace"] = _trace(error)
    return said


def _trace(error: BaseException) -> str:
    below = _below_us(error.__traceback__)
    try:
        return "".join(traceback.format_exception(type(error), error, below))
    except BaseException:  # noqa: BLE001 - as above
        frames = "".join(traceback.format_tb(below))
        return f"Traceback (most recent call last):\n{frames}{type(error).__qualname__}: {_text(error)}\n"


def _below_us(trace: Any) -> Any:
    """Without the frames of whoever called the task."""
    below = trace
    while below is not None and str(below.tb_frame.f_globals.get("__name__", "")).startswith(OURS):
        below = below.tb_next
    return trace.tb_next if below is None and trace is not None else below


def _is_of_the_call(error: TypeError) -> bool:
    """Raised before the function's own first line."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _text(error: BaseException) -> str:
    try:
        return str(error)[:TEXT_CHARS_MAX]
    except BaseException:  # noqa: BLE001 - as above
        return "(it has no text)"


def has_living_children() -> bool:
    """As has_children, and leaves to others, asyncio's own watchers, who has ended and is to be asked for its status."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found = file.read().split()
        except OSError:  # the thread has ended, and its children are another's
            continue
        if any(map(_lives, found)):
            return True
    return False


def _lives(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in b"ZX"
    except (OSError, IndexError):
        return False


def has_children() -> bool:
    try:
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            if ended is None:
                return True
    except ChildProcessError:
        return False
