"""A thread with a loop of its own, in which the calls of an app are made: so any thread and any loop may use it.

One Client for all of them. The thread dies with the program, and not before: threads that outlive the main one go on
enqueuing. What waits for its write at the end is written first (`ending` says when).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

import msgspec

from quvatlh.client import ending
from quvatlh.client.calls import Added, Client
from quvatlh.client.errors import Broken, Rejected, Unavailable, Unknown
from quvatlh.client.feed import Begun as BegunAdd
from quvatlh.client.feed import Feed, Item
from quvatlh.client.http import Options
from quvatlh.client.straight import Straight
from quvatlh.client.ways import Written

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
EXIT_S = 15.0
"""So long a program that ends waits for its last writes: more than a call's deadline."""


class _Loop(asyncio.SelectorEventLoop):
    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Looking up the name of a node takes a thread, and once the main thread has ended there is none to be had. Then this
        one does it: those who wait for it meanwhile are the calls of one app."""
        try:
            return super().run_in_executor(executor, func, *args)
        except RuntimeError:
            found: asyncio.Future[T] = self.create_future()
            try:
                found.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                found.set_exception(error)
            return found


class Motor:
    def __init__(self, options: Options, unauthorized: str = "") -> None:
        """Raises what keeps it from being made, such as a CA file that is not there; Unavailable where the program is so near
        its end that no thread can begin. `unauthorized`: what is added where a node says that."""
        self._unauthorized = unauthorized
        self._process = os.getpid()
        self._loop = _Loop()
        self._lock = threading.Lock()
        self._is_closed = False
        """No call begins any more; what had begun before has been cancelled, or will be."""
        self._ends = asyncio.Event()
        self._client = Client(options)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._straight = Straight(options)
        self.feed = Feed(self._send, self._feed, self._begun)
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="quvatlh", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._loop.close()
            raise Unavailable("stopping", f"the program ends: {error}") from None
        opened.result()
        ending.ends.add(self)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def call(self, make: Callable[[Client], Coroutine[Any, Any, T]]) -> Future[T]:
        """Raises Unavailable once it is closed."""
        if self._process != os.getpid():  # and the lock may be held by a thread that is not here
            raise Unavailable("stopping", "the process was forked, and this was opened before that")
        with self._lock:
            if self._is_closed:
                raise _closed()
            return asyncio.run_coroutine_threadsafe(self._explained(make(self._client)), self._loop)

    def put(self, item: Item, *, ahead: int | None = None) -> None:
        """By a thread: until it is on its way. Raises as `call`."""
        while (turn := self.feed.offer(item, ahead=ahead)) is not None:
            turn.result()

    async def aput(self, item: Item, *, ahead: int | None = None) -> None:
        while (turn := self.feed.offer(item, ahead=ahead)) is not None:
            await asyncio.wrap_future(turn)

    def close(self, timeout_s: float = EXIT_S) -> None:
        """What is on its way is written, so long as that takes no longer; then the thread ends."""
        if self._thread.is_alive():
            concurrent.futures.wait([self.feed.all_settled()], timeout_s)
            with contextlib.suppress(RuntimeError):  # another thread closes it too, and was first
                self._loop.call_soon_threadsafe(self._ends.set)
            self._thread.join(EXIT_S)

    def _run(self, opened: Future[None]) -> None:
        try:
            self._loop.run_until_complete(self._life(opened))
        finally:
            self._loop.close()

    async def _life(self, opened: Future[None]) -> None:
        try:
            await self._client.__aenter__()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that wanted it
            opened.set_exception(error)
            return
        opened.set_result(None)
        try:
            await self._ends.wait()
        finally:
            with self._lock:
                self._is_closed = True
            self.feed.abandon(_closed())
            await asyncio.sleep(0)  # what was asked for until now has begun, and can be cancelled
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._straight.close()
            await self._client.__aexit__(None, None, None)

    async def _send(self, bodies: Sequence[bytes]) -> Sequence[Written]:
        added = self._client.add(cast("Any", [msgspec.Raw(body) for body in bodies]))
        return await self._written(added, len(bodies))

    def _begun(self, body: bytes) -> BegunAdd | None:
        """By any thread, and without waiting."""
        begun = self._straight.begin(body, self._client.url)
        return None if begun is None else lambda: self._written(self._client.add_begun(begun), 1)

    async def _written(self, adding: Coroutine[Any, Any, Added], count: int) -> Sequence[Written]:
        added = await self._explained(adding)
        if len(added.ids) != count:
            raise Broken("", f"{len(added.ids)} ids came for {count} tasks")
        if count == 1:  # the next one may be alone, too
            self._straight.follow(self._client.url)
        return [Written(task_id, number in added.existing) for number, task_id in enumerate(added.ids)]

    async def _explained(self, asked: Coroutine[Any, Any, T]) -> T:
        try:
            return await asked
        except Rejected as problem:
            if problem.code == "unauthorized" and self._unauthorized:
                problem.add_note(self._unauthorized)
            raise
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
            words = "the app was closed before the answer came: it may have been done, or not"
            raise Unknown("unknown", words) from None

    def _feed(self) -> None:
        self._straight.give_way()
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        running = self._loop.create_task(self.feed.run())
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def exit(self, *, is_last: bool) -> None:
        """Open it stays, where it can: a handler of `atexit` that is called after ours may enqueue, too."""
        if self._process != os.getpid():  # a fork's, whose thread stayed behind
            return
        _, late = concurrent.futures.wait([self.feed.all_settled()], EXIT_S)
        if late and is_last:
            self.close(0.0)
            self.feed.abandon(_closed())  # by a thread that hangs in the looking up of a name it has not been
        self.tell_lost()
        if is_last and (count := self.feed.unsettled):
            _tell(count, Unknown("unknown", "the program ended before the answer came"))

    def tell_lost(self) -> None:
        """On standard error, where nobody is left who could ask."""
        error, count = self.feed.take_lost()
        if error is not None:
            _tell(count, error)


def _tell(count: int, error: Exception) -> None:
    what = "may not have been enqueued" if isinstance(error, Unknown) else "were not enqueued"
    print(f"quvatlh: {count} task(s) {what}: {error}", file=sys.stderr)  # noqa: T201 - the last word


def _closed() -> Unavailable:
    return Unavailable("stopping", "the app was closed before it was written")
