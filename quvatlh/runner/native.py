"""ports.Runner for native commands: processes of this process, on its loop.

It is a subreaper and takes every child that it does not know for an orphan of its actions: whoever else starts processes
here says so (`spare`), before anything ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
from collections import deque
from collections.abc import AsyncIterator, Collection

from quvatlh.ports import ActionFinished, ActionSpec, ActionStarted, Clock, OutputChunk, RunError, RunnerListener
from quvatlh.runner import inputs, outputs, tree
from quvatlh.runner.capture import STREAMS
from quvatlh.runner.cgroups import Cgroups
from quvatlh.runner.run import Run
from quvatlh.runner.settings import START_SLICE_S, SWEEP_S, RunnerSettings
from quvatlh.runner.starting import Starter

STOPPED = RunError("stopped", "stopped on request")
ACTION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class NativeRunner:
    """Made on the main thread, inside the loop."""

    def __init__(self, settings: RunnerSettings, clock: Clock, *, with_parent: bool = False) -> None:
        """`with_parent`: whoever is started dies with this process; those that they start need not."""
        self.settings = settings
        self.cgroups: Cgroups | None = None
        """For memory caps; without them a cap is of each process."""
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        os.makedirs(settings.outputs_dir, 0o700, exist_ok=True)
        inputs.empty(settings.inputs_dir)
        self._children = tree.Children()
        tree.be_subreaper(wanted=True)
        _ignore_nothing()
        _leave_nothing_open()
        self.starter = Starter(with_parent=with_parent, lost=self._starter_lost)
        self.starter.on_room = self._start_some
        self._listeners: list[RunnerListener] = []
        self._runs: dict[str, Run] = {}
        self._mains: set[int] = set()
        """Main processes of commands, unreaped."""
        self._unsure: dict[int, int] = {}
        """Children that may be main processes of which the starter has not told yet: until it has answered so many."""
        self._waiting: deque[Run] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self._closed = False

    def listen(self, listener: RunnerListener) -> None:
        self._listeners.append(listener)

    def spare(self, pid: int) -> None:
        """A child of this process that is somebody else's."""
        self._children.spared.add(pid)

    def unspare(self, pid: int) -> None:
        """It has been reaped: the number may be anybody's."""
        self._children.spared.discard(pid)
        if self._sweeper is None and not self._closed:  # what it leaves behind is ours now
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def end_marked(self, mark: str) -> bool:
        """Orphans that have this in their environment are nobody's any more; whether there are any still."""
        left = [pid for pid in self.orphans() if not self.reap(pid) and tree.has_in_environment(pid, mark.encode())]
        tree.signal_strays(left)
        return bool(left)

    def live(self) -> Collection[str]:
        return self._runs.keys()

    def start(self, action: ActionSpec) -> None:
        if not ACTION_ID.fullmatch(action.id):
            raise ValueError(f"not an action id: {action.id!r}")
        if action.id in self._runs:
            raise ValueError(f"action {action.id} is live already")
        if f"SIG{action.stop_signal}" not in signal.Signals.__members__:
            raise ValueError(f"not a signal: {action.stop_signal!r}")
        if self._closed:
            raise RuntimeError("the runner is closed")
        run = Run(action, self)
        self._runs[action.id] = run
        self.goes_on(run)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def stop(self, action_id: str, grace_s: float | None = None, wish: RunError = STOPPED) -> None:
        """`wish`: what it finishes with."""
        if (run := self._runs.get(action_id)) is not None:
            run.stop(grace_s, wish)

    def run_of(self, action_id: str) -> Run | None:
        """The live one."""
        return self._runs.get(action_id)

    async def follow(
        self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> AsyncIterator[OutputChunk]:
        if not ACTION_ID.fullmatch(action_id):
            raise ValueError(f"not an action id: {action_id!r}")
        run = self._runs.get(action_id)
        offsets = {"stdout": stdout_offset, "stderr": stderr_offset}
        directory = f"{self.settings.outputs_dir}/{action_id}"
        while True:
            live = run is not None and self._runs.get(action_id) is run
            found = False
            for stream in STREAMS:
                offset, data = outputs.read(directory, stream, offsets[stream])
                if not data and run is not None:
                    offset, data = run.read(stream, offsets[stream])
                if data:
                    offsets[stream] = offset + len(data)
                    found = True
                    yield OutputChunk(stream, offset, data)
            if found:
                continue
            if not live:
                return
            assert run is not None
            await run.bell.wait()

    async def close(self, grace_s: float) -> None:
        if self._closed:
            return
        self._closed = True
        for action_id in list(self._runs):
            self.stop(action_id, grace_s)
        if self._runs:
            self._idle = self._loop.create_future()
            await self._idle
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.to_thread(tree.end_strays, self.orphans)
        self.starter.close()
        tree.be_subreaper(wanted=False)
        self._children.close()

    def orphans(self) -> list[int]:
        """Children that nobody here started."""
        known = self._mains | self._children.spared | {self.starter.pid}
        return [pid for pid in self._children.pids() if pid not in known]

    def reap(self, pid: int) -> bool:
        """A main process that ended before the starter told of it must not be taken for an orphan."""
        if self.starter.answered < self._unsure.setdefault(pid, self.starter.asked):
            return tree.has_ended(pid)
        gone = tree.reap(pid)
        if gone:
            del self._unsure[pid]
        return gone

    def born(self, pid: int) -> None:
        self._mains.add(pid)
        self._unsure.pop(pid, None)

    def buried(self, pid: int) -> None:
        self._mains.discard(pid)

    def started(self, event: ActionStarted) -> None:
        for listener in self._listeners:
            listener.started(event)

    def finished(self, event: ActionFinished) -> None:
        del self._runs[event.action_id]
        for listener in self._listeners:
            listener.finished(event)
        if not self._runs and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def goes_on(self, run: Run) -> None:
        self._waiting.append(run)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._start_some)

    def _start_some(self) -> None:
        """As many as a slice allows and the starter takes; an action that ends meanwhile is heard in between."""
        until = self._loop.time() + START_SLICE_S
        while self._waiting and self.starter.has_room:
            self._waiting.popleft().step()
            if self._waiting and self._loop.time() >= until:
                self._loop.call_soon(self._start_some)
                return

    def _starter_lost(self) -> None:
        """It may have begun what it could not tell any more."""
        for pid in self.orphans():
            if not any(run.process and tree.belongs(pid, run.process.pid, name) for name, run in self._runs.items()):
                tree.signal_strays([pid])

    def _sweep(self) -> None:
        """Reap orphans that ended; with no action live, end those that escaped theirs."""
        strays = [pid for pid in self.orphans() if not self.reap(pid)]
        if not self._runs:
            tree.signal_strays(strays)
        again = bool(self._runs) or bool(strays)
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep) if again else None


def _leave_nothing_open() -> None:
    """What was open when this process began, by whoever started it, is no business of actions; Python's own never is."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the listing's own
                fcntl.fcntl(int(name), fcntl.F_SETFD, fcntl.FD_CLOEXEC)


def _ignore_nothing() -> None:
    """A shell lets what it starts in the background ignore SIGINT and SIGQUIT, nohup SIGHUP, and that is handed down to every
    action, which could then not be stopped by them. With a handler here, actions begin as the system begins processes."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
