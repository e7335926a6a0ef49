"""How a program ends, for what may still have something to write. Knows nothing of what that is.

The main thread ends; `threading` calls its hooks; the threads that are no daemons go on, for hours if they like; then
`atexit`, the last in first; then no thread runs any more. So nothing may be closed at the first hook, and the second is the
last word. A child of multiprocessing has only the first: there nobody comes after the main thread.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Protocol


class Ends(Protocol):
    def exit(self, *, is_last: bool) -> None:
        """Writes what waits, and tells of what could not be. Last: nobody will ask again."""


ends: weakref.WeakSet[Ends] = weakref.WeakSet()
"""All who are asked."""
_is_over = False


def is_late() -> bool:
    """Whoever leaves something to be written later might find nobody who does: he should wait for it himself."""
    if _is_over:
        return True
    main = threading.main_thread()
    # Its `atexit` runs in the main thread too: what is done there may come after our own.
    return not main.is_alive() and (threading.current_thread() is main or _is_child())


def _is_child() -> bool:
    """Of multiprocessing, which leaves without `atexit`."""
    loaded = sys.modules.get("multiprocessing.process")
    return loaded is not None and loaded.parent_process() is not None


def _main_ended() -> None:
    _ask_all(is_last=_is_child())


def _all_ended() -> None:
    global _is_over  # noqa: PLW0603 - a program ends once
    _is_over = True
    _ask_all(is_last=True)


def _ask_all(*, is_last: bool) -> None:
    for each in list(ends):
        each.exit(is_last=is_last)


def _hook_in() -> None:
    """Early, where tasks are defined: a first call may come when it is too late for hooks."""
    atexit.register(_all_ended)
    register: Callable[[Callable[[], None]], None] | None = getattr(threading, "_register_atexit", None)
    if register is not None:  # private, and alone in being called where multiprocessing ends
        with contextlib.suppress(RuntimeError):  # the main thread has ended before we were imported
            register(_main_ended)


_hook_in()
