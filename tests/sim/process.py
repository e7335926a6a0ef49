"""A process of the simulation: what may run, what waits, and what must never run again.

Each handle of the loop belongs to the process whose context it was made in. A killed process is not torn down: its
handles are dropped and its tasks kept, suspended, until the loop is closed, so that no `finally` of it has a say. What
a handle still does after it killed its own process is without effect only as far as disk, network and loop see to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

if TYPE_CHECKING:
    from tests.sim.loop import SimHandle, SimLoop

T = TypeVar("T")

PAUSED, BUSY, FUSED, DEAD = 1, 2, 4, 8
"""Reasons to look twice before a handle runs; bits of `Process.gate`."""

KEPT_TASKS_MIN = 64
"""Finished tasks are looked for once so many are kept; twice the living from then on."""


class Crashed(BaseException):
    """The process ended here. Not an Exception, so that no handler of the code under test takes it for its own."""


class Process:
    """One incarnation: made, run, and dead for good. A restart is another Process of the same name."""

    __slots__ = (
        "_busy_timer",
        "ahead_s",
        "context",
        "due",
        "end",
        "ends_with",
        "fuse",
        "gate",
        "kept",
        "kept_max",
        "loop",
        "main",
        "name",
        "on_crash",
        "on_dead",
        "released_s",
        "stash",
    )  # fmt: skip

    def __init__(self, name: str, loop: SimLoop) -> None:
        self.name = name
        self.loop = loop
        self.gate = 0
        self.fuse = 0
        self.ahead_s = 0.0
        """What the running handle has spent of its process's time; its clocks read this much later."""
        self.stash: deque[SimHandle] = deque()
        self.due: deque[SimHandle] = deque()
        """Timers that came due while it could not run: after the stash, as a selector loop would take them."""
        self.kept: list[asyncio.Task[Any]] = []
        self.kept_max = KEPT_TASKS_MIN
        self.main: asyncio.Task[Any] | None = None
        self.ends_with: tuple[type[BaseException], ...] = ()
        """Exceptions by which this process may end itself; any other one fails the simulation."""
        self.end: BaseException | None = None
        """The exception it did end with."""
        self.on_crash: Callable[[], None] = self.kill
        self.on_dead: list[Callable[[bool], None]] = []
        """Told once, at death, whether the power went (no socket says goodbye) or only the process."""
        self.released_s = float("-inf")
        """When it last went on after it was held up."""
        self._busy_timer: SimHandle | None = None
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    @override
    def __repr__(self) -> str:
        return f"<Process {self.name} {self.state}>"

    @property
    def state(self) -> str:
        return "dead" if self.gate & DEAD else "paused" if self.gate & PAUSED else "running"

    @property
    def alive(self) -> bool:
        return not self.gate & DEAD

    def start(self, main: Callable[[], Coroutine[Any, Any, object]]) -> asyncio.Task[Any]:
        """Run `main` as what the process is for: it is over, as by kill, when that returns or raises."""

        async def body() -> object:
            return await main()

        self.main = self.spawn(body(), name=f"{self.name}/main")
        self.main.add_done_callback(self._main_done, context=self.loop.world_context)
        return self.main

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        return self.loop.create_task(coro, name=name, context=self.context.copy())

    def call(self, callback: Callable[..., T], *args: object) -> T:
        """Call at once, as if from inside the process."""
        return self.context.copy().run(callback, *args)

    def kill(self, power: bool = False) -> None:
        """kill -9, or the machine's plug with `power`."""
        if self.gate & DEAD:
            return
        self.gate = DEAD
        self.stash.clear()
        self.due.clear()
        for tell in self.on_dead:
            tell(power)

    def exit(self, end: BaseException | None = None) -> None:
        """End of its own will; to all others the same as a kill."""
        self.end = end
        self.kill()

    def crash(self) -> None:
        """A planned crash is due: whoever planned it says in `on_crash` what it takes along; the process in any case."""
        self.on_crash()
        self.kill()

    def crash_after_steps(self, steps: int) -> None:
        """Crash before the `steps`-th next handle; 0 takes the plan back."""
        self.fuse = steps
        self.gate = self.gate | FUSED if steps else self.gate & ~FUSED

    def pause(self) -> None:
        """SIGSTOP. Disk and network go on without it."""
        if not self.gate & DEAD:
            self.gate |= PAUSED

    def resume(self) -> None:
        """SIGCONT."""
        self.gate &= ~PAUSED
        self._release()

    def spend(self, seconds: float) -> None:
        """The running handle takes this long: until then nothing else of this process runs, while the world goes on."""
        if self.gate & DEAD:
            return
        self.ahead_s += seconds
        self.gate |= BUSY
        if self._busy_timer is not None:
            self._busy_timer.cancel()
        self._busy_timer = self.loop.call_later(self.ahead_s, self._spent, context=self.loop.world_context)

    def admit(self, handle: SimHandle) -> bool:
        """Whether `handle` may run now. Asked only when `gate` is not 0."""
        gate = self.gate
        if gate & DEAD:
            return False
        if gate & (PAUSED | BUSY):
            self.stash.append(handle)
            return False
        self.fuse -= 1
        if self.fuse <= 0:
            self.crash()
            return False
        return True

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold on to `task`, so that a suspended one is never collected, nor an exception lost that nobody asked for."""
        kept = self.kept
        kept.append(task)
        if len(kept) > self.kept_max:
            self.kept = [t for t in kept if not t.done() or getattr(t, "_log_traceback", False)]
            self.kept_max = max(KEPT_TASKS_MIN, 2 * len(self.kept))

    def unasked(self) -> list[asyncio.Task[Any]]:
        """Finished tasks whose exception nobody has looked at."""
        if self.gate & DEAD:
            return []
        return [t for t in self.kept if t.done() and getattr(t, "_log_traceback", False)]

    def _release(self) -> None:
        if not self.gate & (PAUSED | BUSY | DEAD):
            self.released_s = self.loop.now_s
            self.loop.ready.extend(self.stash)
            self.loop.ready.extend(self.due)
            self.stash.clear()
            self.due.clear()

    def _spent(self) -> None:
        self._busy_timer = None
        self.ahead_s = 0.0
        self.gate &= ~BUSY
        self._release()

    def _main_done(self, main: asyncio.Task[Any]) -> None:
        if self.gate & DEAD:
            return
        end = None if main.cancelled() else main.exception()
        if end is not None and not isinstance(end, self.ends_with):
            self.loop.fail(self, f"main of {self.name} raised", end)
        self.exit(end)


PROCESS: ContextVar[Process] = ContextVar("PROCESS")
"""The process that the running code belongs to. Set everywhere on a SimLoop; the world itself is a process too."""
