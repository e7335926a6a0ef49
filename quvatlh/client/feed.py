"""What is enqueued in the same moment goes out together: a bounded queue between any threads and one loop.

One event is under way at a time; what comes meanwhile is the next. So a lone task waits for nobody, many share a write,
and what one thread enqueues keeps its order. Nothing here knows HTTP.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from quvatlh.client.errors import Fault, Problem, Rejected, Unavailable, Unknown
from quvatlh.client.ways import Way, Written

EVENT_TASKS_MAX: Final = 1000
"""Above it an event costs a task no less."""
EVENT_BYTES_MAX: Final = 3 * 1024 * 1024
"""Below the 4 MiB of an event, with what is around its tasks."""
WAITING_TASKS_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""So much may wait for its write; who has more to say waits himself."""
CALL_BYTES_MAX: Final = 128 * 1024
"""Of a call's work, by a node that has this version's limits. It is the node that refuses: here one only knows what to advise."""
WAY_OUT: Final = "give it a reference to where the data is, a path or a key, and let the task read it"
_PLACE: Final = re.compile(r"^tasks\[(\d+)\]\.?")


class Item:
    """A task on its way."""

    __slots__ = ("begun", "body", "done", "unwatched")

    def __init__(self, body: bytes, *, unwatched: bool = False) -> None:
        self.body = body
        self.done = Way()
        self.begun: Begun | None = None
        """Where its author's thread has begun to write it; then it is an event of its own."""
        self.unwatched = unwatched
        """Nobody waits for it: what becomes of it is kept for `flush`."""


Send = Callable[[Sequence[bytes]], Awaitable[Sequence[Written]]]
Begun = Callable[[], Awaitable[Sequence[Written]]]
"""How it is gone on with."""


class Feed:
    def __init__(
        self, send: Send, wake: Callable[[], None], begin: Callable[[bytes], Begun | None] = lambda _body: None
    ) -> None:
        """`wake` has `run` called, soon and in its loop; it is asked only while nothing runs. `begin` may write a lone task
        before that, in its author's thread, without waiting: None is no."""
        self._send = send
        self._wake = wake
        self._begin = begin
        self._lock = threading.Lock()
        self._waiting: deque[Item] = deque()
        self._bytes = 0
        self._queue: deque[Future[None]] = deque()
        """Of those who have found no room."""
        self._barriers: deque[tuple[int, Future[None]]] = deque()
        self._offered = self._settled = 0
        self._running = False
        self._ended: Exception | None = None
        """Why nothing is written any more."""
        self._lost: Problem | Exception | None = None
        self._lost_count = 0

    def offer(self, item: Item, *, ahead: int | None = None) -> Future[None] | None:
        """None: it is on its way. Else: there was no room; to be offered again when that is done. Once it was abandoned, what it
        was abandoned with is raised. `ahead`: one of many, and only where fewer wait before it; else WAITING_TASKS_MAX."""
        most = WAITING_TASKS_MAX if ahead is None else ahead
        with self._lock:
            if self._ended is not None:
                raise self._ended.with_traceback(None)
            is_full = len(self._waiting) >= most or self._bytes + len(item.body) > WAITING_BYTES_MAX
            if self._waiting and is_full:  # else nobody would ever make room for one that is larger than all of it
                turn: Future[None] = Future()
                self._queue.append(turn)
                return turn
            starts = not self._running
            if starts and ahead is None and not self._waiting:
                item.begun = self._begin(item.body)
                if item.begun is not None:
                    item.done.begin()
            self._running = True
            self._waiting.append(item)
            self._bytes += len(item.body)
            self._offered += 1
        if starts:
            try:
                self._wake()
            except RuntimeError as error:  # its loop is gone: whoever waits, or comes later, would wait for ever
                self.abandon(Unavailable("stopping", f"nobody is left to write it: {error}"))
        return None

    def all_settled(self) -> Future[None]:
        """Done when all that was offered until now has been written or refused."""
        reached: Future[None] = Future()
        with self._lock:
            if self._settled < self._offered:
                self._barriers.append((self._offered, reached))
                return reached
        reached.set_result(None)
        return reached

    @property
    def unsettled(self) -> int:
        """So many of those that were offered have no answer."""
        with self._lock:
            return self._offered - self._settled

    def abandon(self, error: Exception) -> None:
        """Whatever still waits fails, and whatever is offered later is refused."""
        with self._lock:
            self._ended = error
            items, self._waiting = self._waiting, deque()
            turns, self._queue = self._queue, deque()
            self._settled += len(items)
        for item in items:
            if item.begun is not None:
                self._fail(item, Unknown("unknown", f"{error}; it may have been written before, or not"))
            elif item.done.begin():
                self._fail(item, error)
        for turn in turns:
            if turn.set_running_or_notify_cancel():
                turn.set_exception(error)
        self._settle(0)

    def take_lost(self) -> tuple[Exception | None, int]:
        """The first failure that nobody waited for, and how many there were, since this was asked last."""
        with self._lock:
            found = self._lost, self._lost_count
            self._lost, self._lost_count = None, 0
        return found

    async def run(self) -> None:
        """Until nothing waits. One at a time: `wake` sees to it."""
        while True:
            items, count = self._take()
            if count == 0:
                return
            try:
                await self._write(items)
            except BaseException:  # who ends us: `_write` keeps all else to itself
                for item in items:
                    self._fail(item, Unknown("unknown", "ended while it was being written: it may have been, or not"))
                raise
            finally:
                self._settle(count)

    def _take(self) -> tuple[list[Item], int]:
        """The next event, without what was cancelled meanwhile; and how many left the queue."""
        items: list[Item] = []
        size = count = 0
        with self._lock:
            while self._waiting and len(items) < EVENT_TASKS_MAX:
                item = self._waiting[0]
                if items and (size + len(item.body) > EVENT_BYTES_MAX or items[0].begun is not None):
                    break
                self._waiting.popleft()
                count += 1
                self._bytes -= len(item.body)
                if item.begun is not None or item.done.begin():
                    items.append(item)
                    size += len(item.body) + 1
            self._running = count > 0
            # Who goes idle lets everybody in, that nobody waits for a turn that was given to one who left.
            room = WAITING_TASKS_MAX - len(self._waiting) if count else len(self._queue)
            turns = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
        for turn in turns:
            if turn.set_running_or_notify_cancel():
                turn.set_result(None)
        return items, count

    async def _write(self, items: Sequence[Item]) -> None:
        """All or nothing is what an event is; what one of its tasks has wrong is its own matter."""
        if not items:
            return
        try:
            written = await (items[0].begun or partial(self._send, [item.body for item in items]))()
            pairs = list(zip(items, written, strict=True))
        except Rejected as problem:
            if len(items) > 1:
                await self._without_guilty(items, problem)
            else:
                self._fail(items[0], _own(problem, 0, items[0]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers are told
            for item in items:
                self._fail(item, error)
        else:
            for item, one in pairs:
                item.done.settle(one)

    async def _without_guilty(self, items: Sequence[Item], problem: Rejected) -> None:
        """Those named fail, the others go again; where nobody is named, half by half."""
        guilty = {int(found[1]) for fault in problem.errors if (found := _PLACE.match(fault.path))}
        guilty = {number for number in guilty if number < len(items)}
        for number in guilty:
            self._fail(items[number], _own(problem, number, items[number]))
        rest = [item for number, item in enumerate(items) if number not in guilty]
        half = 0 if guilty else len(items) // 2
        await self._write(rest[:half])
        await self._write(rest[half:])

    def _fail(self, item: Item, error: Exception) -> None:
        if item.done.is_settled:
            return
        item.done.fail(error)
        if item.unwatched:
            with self._lock:
                self._lost = self._lost or error
                self._lost_count += 1

    def _settle(self, count: int) -> None:
        with self._lock:
            self._settled += count
            reached: list[Future[None]] = []
            while self._barriers and self._barriers[0][0] <= self._settled:
                reached.append(self._barriers.popleft()[1])
        for barrier in reached:
            if barrier.set_running_or_notify_cancel():
                barrier.set_result(None)


def _own(problem: Rejected, number: int, item: Item) -> Rejected:
    """What of it is this task's, without its place in an event that its author never saw; and what he can do about a call that
    is too large, since the node only knows what could be done with its body."""
    faults = [
        Fault(_PLACE.sub("", fault.path), fault.message)
        for fault in problem.errors
        if (found := _PLACE.match(fault.path)) is None or int(found[1]) == number
    ]
    words = "; ".join(f"{fault.path}: {fault.message}" if fault.path else fault.message for fault in faults)
    size = len(item.body)
    if size > CALL_BYTES_MAX and problem.code == "too_large":
        words = f"the call of the task has {size} bytes; its work may have {CALL_BYTES_MAX}: {WAY_OUT}"
    elif size > CALL_BYTES_MAX and any(fault.path.startswith("work") for fault in faults):
        words = f"{words}: {WAY_OUT}"
    own = Rejected(problem.code, words or problem.detail, faults, url=problem.url)
    for note in getattr(problem, "__notes__", ()):
        own.add_note(note)
    return own
