"""What becomes of one task that is being enqueued, known to the thread that writes it and to whoever asks.

As a Future, where anybody else waits for it. Who enqueues one waits without; of many that are enqueued together only the last
is waited for, and a Future of each would cost more than all else that is done for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, NamedTuple

from quvatlh.client.errors import Unknown

_LOCK: Final = threading.RLock()
"""Of all ways: held for a few lines, never while anybody is told."""
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
"""A child has no thread that could let go of it."""
_process = os.getpid()


def _forked() -> None:
    global _process  # noqa: PLW0603 - asked of the system it would be dearer
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)


class Written(NamedTuple):
    id: str
    existing: bool
    """An older task stands for it, by its id or its unique key."""


class Way:
    __slots__ = ("_begun", "_error", "_future", "_process", "_wake", "_written")

    def __init__(self, written: Written | None = None) -> None:
        self._written = written
        self._error: Exception | None = None
        self._begun = False
        self._process = _process
        self._future: Future[Written] | None = None
        self._wake: Callable[[], object] | None = None
        """Who enqueues it and waits; no longer than that, since handles last."""

    # --- for who writes it ---

    def begin(self) -> bool:
        """From now on it cannot be cancelled. False: it was."""
        with _LOCK:
            self._begun = True
            future = self._future
        return future is None or future.set_running_or_notify_cancel()

    def settle(self, written: Written) -> None:
        with _LOCK:
            self._written, future = written, self._future
            wake, self._wake = self._wake, None
        if future is not None:
            future.set_result(written)
        if wake is not None:
            wake()

    def fail(self, error: Exception) -> None:
        with _LOCK:
            self._error, future = error, self._future
            wake, self._wake = self._wake, None
        if future is not None:
            future.set_exception(error)
        if wake is not None:
            wake()

    # --- for who asks ---

    def waited(self) -> Written:
        """By the one thread or coroutine that enqueues it. Not as a Future: so long as that is being made, the thread that writes
        has no turn."""
        woken = threading.Lock()
        woken.acquire()
        if self._is_to_wake(woken.release):
            woken.acquire()
        return self.result()

    async def awaited(self) -> Written:
        """Where the coroutine is cancelled, it is taken back."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_set, woken)

        if self._is_to_wake(wake):
            try:
                await woken
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()

    def _is_to_wake(self, wake: Callable[[], object]) -> bool:
        """False: it is settled."""
        with _LOCK:
            self._wake = None if self.is_settled else wake
            return self._wake is not None

    @property
    def future(self) -> Future[Written]:
        with _LOCK:
            if self._process != _process and not self.is_settled:  # who writes it is the parent
                self._error, self._future = Unknown("unknown", "the process was forked before the answer came"), None
            if self._future is None:
                self._future = self._made()
            return self._future

    def _made(self) -> Future[Written]:
        made: Future[Written] = Future()
        if self._begun:
            made.set_running_or_notify_cancel()
        if self._error is not None:
            made.set_exception(self._error)
        elif self._written is not None:
            made.set_result(self._written)
        return made

    @property
    def is_settled(self) -> bool:
        """Written or refused."""
        return self._written is not None or self._error is not None

    def done(self) -> bool:
        return self.is_settled or self.future.done()

    def cancel(self) -> bool:
        return self.future.cancel()

    def result(self) -> Written:
        return self._written or self.future.result()

    def exception(self) -> BaseException | None:
        return None if self._written is not None else self.future.exception()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
