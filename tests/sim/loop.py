"""An asyncio loop on virtual time: it never waits, and does the same thing each time.

Ready handles run first in, first out; when there are none, time jumps to the next timer, and timers of one instant run
in the order they were set. A handle takes no time unless it says so (`Process.spend`). Tasks and futures hash by their
serial number, because sets of them (TaskGroup, asyncio.wait) would otherwise be walked in the order of addresses.
No sockets, threads, executors or signals are here: who asks for one gets a SimError.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import traceback
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar, TypeVarTuple, cast

from typing_extensions import override

from tests.sim.process import BUSY, DEAD, PAUSED, PROCESS, Process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_PER_INSTANT_MAX = 200_000
"""Handles without time going on. More is a live-lock; a burst of one instant stays far below."""
INSTANT_S = 1e-6
"""Timers that are set for less than this again and again get nowhere either."""
STEPS_NAMED = 1_000
"""Of a live-lock, so many handles are counted by name for the message."""
CANCELLED_TIMERS_MIN = 256
"""The heap is swept when more than this, and more than half of it, is cancelled."""


class SimError(Exception):
    """The simulation failed, or was asked for what it does not have."""


class SimHandle(asyncio.TimerHandle):
    """One callback, ready or timed. Plain slots: the base's constructor and cancel cost more than the callback."""

    __slots__ = ("process",)

    process: Process
    _loop: SimLoop
    _cancelled: bool

    def __init__(
        self, process: Process, context: Context, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop
    ) -> None:
        self.process = process
        self._context = context
        self._callback: Any = callback
        self._args: Any = args
        self._loop = loop
        self._cancelled = False
        self._scheduled = False
        self._when = 0.0
        self._repr = None
        self._source_traceback = None

    @override
    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            if self._scheduled:
                self._loop.cancelled_timers += 1

    def describe(self) -> str:
        """Whose it is and what it calls; for a task, what that runs."""
        callback = self._callback
        task = getattr(callback, "__self__", None)
        if isinstance(task, asyncio.Task):
            coro = task.get_coro()
            return f"{self.process.name}: {task.get_name()} ({getattr(coro, '__qualname__', coro)})"
        return f"{self.process.name}: {getattr(callback, '__qualname__', repr(callback))}"


class SimTask(asyncio.Task[T]):
    __slots__ = ("serial",)

    def __init__(
        self, coro: Coroutine[Any, Any, T], loop: SimLoop, name: str, context: Context | None, serial: int
    ) -> None:
        self.serial = serial  # before the base enters the task in a set
        super().__init__(coro, loop=loop, name=name, context=context)

    @override
    def __hash__(self) -> int:
        return self.serial

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class SimFuture(asyncio.Future[T]):
    __slots__ = ("serial",)

    serial: int

    @override
    def __hash__(self) -> int:
        return self.serial

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(asyncio.BaseEventLoop):
    """`run_for` and `run_until_complete` run it; `world_context` is where handles of nobody's process are made."""

    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.steps = 0
        """Handles run since the beginning."""
        self.after_step: Callable[[], None] | None = None
        """Called after each handle that ran; what it raises fails the simulation."""
        self.ready: deque[SimHandle] = deque()
        self.timers: list[tuple[float, int, SimHandle]] = []
        self.cancelled_timers = 0
        self.failure: SimError | None = None
        self.processes: list[Process] = []
        self._serial = 0
        self._horizon = STEPS_PER_INSTANT_MAX
        """Steps beyond which this instant is a live-lock, and when it began."""
        self._since_s = 0.0
        self._until_s: float | None = None
        self.world = self.process("world")
        self.world_context = self.world.context

    # Processes and failures.

    def process(self, name: str) -> Process:
        """A new process, running, with nothing in it yet."""
        made = Process(name, self)
        self.processes.append(made)
        return made

    def fail(self, process: Process, what: str, error: BaseException | None) -> None:
        """Fail the simulation at the end of this step. The first failure stands."""
        if self.failure is None:
            story = "".join(traceback.format_exception(error)) if error is not None else ""
            self.failure = SimError(f"at {self.now_s:.6f} s, step {self.steps}, {process.name}: {what}\n{story}")
            self.failure.__cause__ = error
        self._stopping = True

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tasks are judged in `check`, where it is known whose they are; futures nobody waits for are no failure."""
        if "future" in context or "task" in context or self.is_closed():
            return
        process = PROCESS.get(self.world)
        if process.alive:
            self.fail(process, str(context.get("message")), context.get("exception"))

    def check(self) -> None:
        """Raise the failure, if there was any: now, or in a task that nobody has asked for its exception."""
        for process in self.processes:
            for task in process.unasked():
                error = task.exception()
                if isinstance(error, process.ends_with):
                    process.exit(error)
                else:
                    self.fail(process, f"task {task.get_name()} raised", error)
        if self.failure is not None:
            raise self.failure

    # Running.

    def run_for(self, seconds: float) -> None:
        """Run until `seconds` of virtual time have gone by; all that is due then has run."""
        self._until_s = self.now_s + seconds
        try:
            self.world_context.copy().run(self.run_forever)
        finally:
            self._until_s = None
        self.check()

    @override
    def run_until_complete(self, future: Generator[Any, None, T] | Coroutine[Any, Any, T] | Any) -> T:
        """As in asyncio, in the world's own process."""
        if asyncio.iscoroutine(future):
            future = self.create_task(future, context=self.world_context.copy())
        try:
            result: T = self.world_context.copy().run(super().run_until_complete, future)
        except BaseException:
            if self.failure is not None:
                raise self.failure from self.failure.__cause__
            raise
        self.check()
        return result

    def _run_once(self) -> None:
        ready = self.ready
        popleft = ready.popleft
        self._horizon, self._since_s = self.steps + STEPS_PER_INSTANT_MAX, self.now_s
        while not self._stopping:
            if not ready:
                if not self._advance():
                    return
                continue
            handle = popleft()
            if handle._cancelled:
                continue
            process = handle.process
            if process.gate and not process.admit(handle):
                continue
            self.steps = steps = self.steps + 1
            try:
                handle._context.run(handle._callback, *handle._args)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - it fails the run
                self._raised(handle, error)
            after = self.after_step
            if after is not None:
                after()
            if steps > self._horizon:
                self._name_live_lock()

    def _advance(self) -> bool:
        """Move time to the next timer and make what is due ready; False when the run is over."""
        timers = self.timers
        if self.cancelled_timers > CANCELLED_TIMERS_MIN and self.cancelled_timers * 2 > len(timers):
            self.timers = timers = [t for t in timers if not t[2]._cancelled]
            heapq.heapify(timers)
            self.cancelled_timers = 0
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self.cancelled_timers -= 1
        until_s = self._until_s
        if not timers or (until_s is not None and timers[0][0] > until_s):
            self._stopping = True
            if until_s is None:
                self.fail(self.world, "nothing is left that could ever run", None)
            else:
                self.now_s = max(self.now_s, until_s)
            return False
        self.now_s = now_s = max(self.now_s, timers[0][0])
        if now_s - self._since_s > INSTANT_S:
            self._horizon, self._since_s = self.steps + STEPS_PER_INSTANT_MAX, now_s
        while timers and timers[0][0] <= now_s:
            handle = heapq.heappop(timers)[2]
            handle._scheduled = False
            if handle._cancelled:
                self.cancelled_timers -= 1
            elif handle.process.gate & (PAUSED | BUSY):
                handle.process.due.append(handle)
            else:
                self.ready.append(handle)
        return True

    def _raised(self, handle: SimHandle, error: BaseException) -> None:
        process = handle.process
        if process.gate & DEAD:
            return
        if isinstance(error, process.ends_with):
            process.exit(error)
        else:
            self.fail(process, f"{handle.describe()} raised", error)

    def _name_live_lock(self) -> NoReturn:
        names = Counter(handle.describe() for handle in self.ready if not handle._cancelled)
        for _ in range(STEPS_NAMED):
            if not self.ready:
                break
            handle = self.ready.popleft()
            if not handle._cancelled and not handle.process.gate:
                names[handle.describe()] += 1
                with contextlib.suppress(Exception):
                    handle._run()
        worst = "; ".join(f"{name} x{count}" for name, count in names.most_common(8))
        raise SimError(f"at {self.now_s:.6f} s: {STEPS_PER_INSTANT_MAX} steps and time stands still: {worst}")

    # What asyncio asks of a loop.

    @override
    def time(self) -> float:
        return self.now_s

    @override
    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> SimHandle:
        if context is None:
            context = copy_context()
        handle = SimHandle(context.get(PROCESS) or self.world, context, callback, args, self)
        self.ready.append(handle)
        return handle

    _call_soon = call_soon

    @override
    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        return self.call_soon(callback, *args, context=context)

    @override
    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    @override
    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        if context is None:
            context = copy_context()
        handle = SimHandle(context.get(PROCESS) or self.world, context, callback, args, self)
        handle._when = when
        handle._scheduled = True
        self._serial = serial = self._serial + 1
        heapq.heappush(self.timers, (when, serial, handle))
        return handle

    @override
    def create_future(self) -> asyncio.Future[Any]:
        future: SimFuture[Any] = SimFuture(loop=self)
        self._serial = future.serial = self._serial + 1
        return future

    @override
    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        self._serial = serial = self._serial + 1
        process = (PROCESS.get(None) if context is None else context.get(PROCESS)) or self.world
        task = SimTask(cast("Coroutine[Any, Any, T]", coro), self, str(name or f"task-{serial}"), context, serial)
        process.keep(task)
        return task

    @override
    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> NoReturn:  # type: ignore[override]
        raise SimError("no threads in the simulation: use a Lane")

    @override
    def close(self) -> None:
        """The world ends. What is still suspended is closed here, quietly, where nothing it does can matter."""
        if self.is_closed():
            return
        for process in self.processes:
            process.gate = DEAD
        super().close()
        for process in self.processes:
            for task in process.kept:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if getattr(task, "_log_traceback", False):
                    task.exception()
                coro: Any = task.get_coro()
                with contextlib.suppress(BaseException):
                    coro.close()
            process.kept.clear()
        self.ready.clear()
        self.timers.clear()
