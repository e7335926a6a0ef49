"""What an app has done around each run of its tasks: for error trackers, tracing, connections.

`before`, then the function, then `on_failure` if anything was raised, then `after` whatever became of it, the last that was
registered first. A hook cannot change what becomes of the task: what it raises, SystemExit too, is written to the task's log,
and the task goes on with the arguments that it had. Where the process is ended (a crash, a lease, a grace that is over) nobody
is left to run hooks.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quvatlh.task import Cancelled, Context


@dataclass(slots=True, eq=False)
class Attempt:
    """One run of a task, as hooks see it."""

    target: str
    """`pkg.mod:function`"""
    context: Context
    """Of the task: id, attempt, worker and so on."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: object = None
    """What the function returned; None before."""
    error: BaseException | None = None
    """What was raised, Retry and the Cancelled of a stop too."""
    kept: dict[str, Any] = field(default_factory=dict)
    """For hooks: what `before` opens and `after` closes."""


Hook = Callable[[Attempt], Awaitable[None] | None]
Pack = Callable[[object], object]


class Hooks:
    def __init__(self) -> None:
        self.before: list[Hook] = []
        self.on_failure: list[Hook] = []
        self.after: list[Hook] = []

    def __bool__(self) -> bool:
        return bool(self.before or self.on_failure or self.after)

    def around(self, attempt: Attempt, function: Callable[..., Any], pack: Pack) -> Any:
        """What `pack` makes of what the function returns; for an async function, awaitable."""
        args, kwargs = tuple(attempt.args), dict(attempt.kwargs)
        if inspect.iscoroutinefunction(function):
            return self._whole(attempt, lambda: function(*args, **kwargs), pack)
        try:
            _each("before", self.before, attempt)
            value = function(*args, **kwargs)
            if hasattr(type(value), "__await__"):
                return self._rest(attempt, value, pack)
            packed = self._returned(attempt, value, pack)
        except BaseException as error:
            attempt.error = error
            _each("on_failure", self.on_failure, attempt)
            _each("after", reversed(self.after), attempt)
            raise
        _each("after", reversed(self.after), attempt)
        return packed

    async def _whole(self, attempt: Attempt, function: Callable[[], Awaitable[Any]], pack: Pack) -> Any:
        async def called() -> Any:
            await _each_awaited("before", self.before, attempt)
            return await function()

        return await self._rest(attempt, called(), pack)

    async def _rest(self, attempt: Attempt, value: Awaitable[Any], pack: Pack) -> Any:
        try:
            packed = self._returned(attempt, await value, pack)
        except BaseException as error:
            attempt.error = error
            await _each_awaited("on_failure", self.on_failure, attempt)
            await _each_awaited("after", reversed(self.after), attempt)
            raise
        await _each_awaited("after", reversed(self.after), attempt)
        return packed

    @staticmethod
    def _returned(attempt: Attempt, value: object, pack: Pack) -> object:
        attempt.result = value
        return pack(value)


def _each(when: str, hooks: Iterable[Hook], attempt: Attempt) -> None:
    for hook in hooks:
        try:
            found = hook(attempt)
            if inspect.isawaitable(found):
                _aside.run(found)
        except BaseException as error:
            if _is_wanted(error, attempt):
                raise
            _tell(when, hook, error)


async def _each_awaited(when: str, hooks: Iterable[Hook], attempt: Attempt) -> None:
    for hook in hooks:
        try:
            found = hook(attempt)
            if inspect.isawaitable(found):
                await found
        except GeneratorExit:  # nobody drives it any more
            raise
        except BaseException as error:
            if _is_wanted(error, attempt) or (isinstance(error, asyncio.CancelledError) and _is_cancelled()):
                raise
            _tell(when, hook, error)


def _is_wanted(error: BaseException, attempt: Attempt) -> bool:
    """It is not the hook's own: somebody ends the task, or the program by Ctrl-C, which is no exception in a worker's child."""
    if isinstance(error, KeyboardInterrupt):
        return signal.getsignal(signal.SIGINT) is not signal.SIG_DFL
    return isinstance(error, Cancelled | asyncio.CancelledError) and attempt.context.stopping


def _is_cancelled() -> bool:
    running = asyncio.current_task()
    return running is not None and running.cancelling() > 0


def _tell(when: str, hook: Hook, error: BaseException) -> None:
    name = getattr(hook, "__qualname__", repr(hook))
    try:
        trace = "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - an exception may be of any make
        trace = f"{type(error).__name__}\n"
    words = f"quvatlh: the hook {name} ({when}) failed; the task goes on\n{trace}"
    with contextlib.suppress(OSError, ValueError):
        print(words, end="", file=sys.stderr)  # noqa: T201 - the task's log


class _Aside:
    """A loop in a thread, for the async hooks of functions that are not: one for all, so that what one of them opens is
    of the same loop as what the next one closes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, hook: Awaitable[None]) -> None:
        async def awaited() -> BaseException | None:
            """What it raised, as a value: some of it would end the loop."""
            try:
                await hook
            except BaseException as error:  # noqa: BLE001 - raised where the hook was called
                return error
            return None

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_goes_on, args=(self._loop,), name="quvatlh hooks", daemon=True).start()
        error = asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()
        if error is not None:
            raise error

    def forget(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._lock = threading.Lock()
        self._loop = None


def _goes_on(loop: asyncio.AbstractEventLoop) -> None:
    """Also after what a hook has begun has stopped it, or has left it by SystemExit."""
    while not loop.is_closed():
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


_aside = _Aside()
os.register_at_fork(after_in_child=_aside.forget)
