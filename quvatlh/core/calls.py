"""Work that is a call into a program which is there already: a Python function, or whatever a warm process offers.

Here is what such a call says. Not here: whether the function exists, which only its environment can tell.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from quvatlh.core import model

DEFAULT_ENVIRONMENT: Final = "default"
"""Of Python functions that name none: the daemon's interpreter, working directory and PYTHONPATH."""

CallAdapter = Literal["python", "warm"]


class Call(Struct, frozen=True, array_like=True, gc=False):
    adapter: CallAdapter
    environment: str
    target: str
    """`pkg.mod:function`, or the word by which a warm process knows what to do."""
    args: bytes = b"[]"
    """JSON, a list."""
    kwargs: bytes = b"{}"
    """JSON, an object."""


def call_of(work: model.Work) -> Call:
    """The call that a task's work is; ValueError, in words for people, where it is none that can be made."""
    if work.python is not None:
        return _made("python", work.environment or DEFAULT_ENVIRONMENT, work.python, work.args, work.kwargs)
    warm = work.warm or {}
    environment, target = warm.get("environment"), warm.get("call")
    if not isinstance(environment, str) or not isinstance(target, str):
        raise ValueError("warm: must have environment and call, both text")  # noqa: TRY004 - words for people
    return _made("warm", environment, target, warm.get("args", ()), warm.get("kwargs", {}))


def _made(adapter: CallAdapter, environment: str, target: str, args: object, kwargs: object) -> Call:
    if not args and not kwargs:  # nearly all that is small
        return Call(adapter, environment, target)
    try:
        return Call(adapter, environment, target, msgspec.json.encode(args), msgspec.json.encode(kwargs))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"its arguments have no form in JSON: {error}") from None
