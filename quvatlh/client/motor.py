"""A thread with a loop of its own, in which the calls of an app are made: so any thread and any loop may use it.

One Client for all of them. The thread dies with the program; what waits for its write then is written first.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # first: its hook at exit then runs after ours
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import msgspec

from quvatlh.client.calls import Client
from quvatlh.client.errors import Broken, Rejected, Unavailable
from quvatlh.client.feed import Feed, Item
from quvatlh.client.http import Options
from quvatlh.client.ways import Written

T = TypeVar("T")
EXIT_S = 15.0
"""So long a program that ends waits for its last writes: more than a call's deadline."""


class Motor:
    def __init__(self, options: Options, unauthorized: str = "") -> None:
        """Raises what keeps it from being made, such as a CA file that is not there. `unauthorized`: what is added where a
        node says that."""
        self._unauthorized = unauthorized
        self._loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        self._client = Client(options)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.feed = Feed(self._send, self._feed)
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="quvatlh", daemon=True)
        self._thread.start()
        opened.result()
        self._process = os.getpid()
        _motors.add(self)

    def call(self, make: Callable[[Client], Coroutine[Any, Any, T]]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(self._explained(make(self._client)), self._loop)

    def put(self, item: Item) -> None:
        """By a thread: until it is on its way."""
        while (turn := self.feed.offer(item)) is not None:
            turn.result()

    async def aput(self, item: Item) -> None:
        while (turn := self.feed.offer(item)) is not None:
            await asyncio.wrap_future(turn)

    def close(self, timeout_s: float = EXIT_S) -> None:
        """What is on its way is written, then the thread ends."""
        if self._thread.is_alive():
            concurrent.futures.wait([self.feed.all_settled()], timeout_s)
            self._loop.call_soon_threadsafe(self._ends.set)
            self._thread.join(timeout_s)

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
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self.feed.abandon(Unavailable("stopping", "the app was closed before it was written"))
            await self._client.__aexit__(None, None, None)

    async def _send(self, bodies: Sequence[bytes]) -> Sequence[Written]:
        added = await self._explained(self._client.add(cast("Any", [msgspec.Raw(body) for body in bodies])))
        if len(added.ids) != len(bodies):
            raise Broken("", f"{len(added.ids)} ids came for {len(bodies)} tasks")
        return [Written(task_id, number in added.existing) for number, task_id in enumerate(added.ids)]

    async def _explained(self, asked: Coroutine[Any, Any, T]) -> T:
        try:
            return await asked
        except Rejected as problem:
            if problem.code == "unauthorized" and self._unauthorized:
                problem.add_note(self._unauthorized)
            raise

    def _feed(self) -> None:
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        running = self._loop.create_task(self.feed.run())
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def exit(self) -> None:
        if self._process != os.getpid():  # a fork's, whose thread stayed behind
            return
        self.close()
        error, count = self.feed.take_lost()
        if error is not None:
            print(f"quvatlh: {count} task(s) were not enqueued: {error}", file=sys.stderr)  # noqa: T201 - the last word


_motors: weakref.WeakSet[Motor] = weakref.WeakSet()


def _exit() -> None:
    for motor in list(_motors):
        motor.exit()


def _at_exit() -> None:
    """Before the interpreter stops lending threads: looking up the name of a node takes one."""
    register: Callable[[Callable[[], None]], None] = getattr(  # noqa: B009 - private, and alone early enough
        threading, "_register_atexit"
    )
    register(_exit)


_at_exit()
