"""The life of one action: its commands one after the other, its timeout, its stop, and how it ended.

waiting → commands, each a Process → finished. A failed command ends the sequence. Said exactly once: finished, after the
last process of the tree is gone and the outputs are complete.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, replace
from typing import Protocol

from quvatlh.ports import ActionFinished, ActionSpec, ActionStarted, Clock, RunError, StreamName
from quvatlh.runner import inputs, spawn, tail
from quvatlh.runner.capture import Bell, Capture
from quvatlh.runner.cgroups import Cgroups
from quvatlh.runner.process import Family, Process
from quvatlh.runner.settings import RunnerSettings
from quvatlh.runner.starting import Job, Starter


class World(Family, Protocol):
    """What a run needs of its runner."""

    @property
    def settings(self) -> RunnerSettings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def starter(self) -> Starter: ...
    @property
    def cgroups(self) -> Cgroups | None: ...
    def goes_on(self, run: Run) -> None:
        """Its next command is due: `step` is called soon."""
        ...

    def started(self, event: ActionStarted) -> None: ...
    def finished(self, event: ActionFinished) -> None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int | None = None
    signal: str | None = None
    error: RunError | None = None


class Run:
    def __init__(self, action: ActionSpec, world: World) -> None:
        self.action = action
        self.process: Process | None = None
        self.bell = Bell()
        """Rings when more was written, and when the action has finished."""
        self._capture: Capture | None = None
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._directory = f"{world.settings.outputs_dir}/{action.id}"
        self._next = 0
        self._started_at_ms: int | None = None
        self._wish: RunError | None = None
        """Why it is being ended, once it is; the first reason counts."""
        self._timeout: asyncio.TimerHandle | None = None
        self._who: spawn.Identity | None = None
        self._inputs = inputs.NOTHING
        self._env: dict[str, str] = {}
        self._refused: RunError | None = None
        """Why the process that is there never became its command."""
        self._group = ""
        self._stop_s: float | None = None
        """The grace of a stop that came while a command was being started."""

    def step(self) -> None:
        """Start the next command; an action stopped before has never begun."""
        if self._wish is not None:
            self._finish(Ended(error=self._wish))
            return
        try:
            if self._capture is None:
                self._prepare()
            self._start()
        except spawn.NotStarted as refusal:
            self._finish(Ended(error=refusal.error))
        except OSError as error:
            self._finish(Ended(error=self._placed(RunError("resources", f"not started: {error.strerror}"))))

    def stop(self, grace_s: float | None, wish: RunError) -> None:
        self._wish = self._wish or wish
        grace_s = self.action.grace_s if grace_s is None else grace_s
        if self.process is not None:
            self.process.stop(grace_s)
        elif self._stop_s is None or grace_s < self._stop_s:
            self._stop_s = grace_s

    def written(self) -> tuple[int, int]:
        """Bytes of both streams so far."""
        capture = self._capture
        return (0, 0) if capture is None else (capture.stdout.tail.total, capture.stderr.tail.total)

    def read(self, stream: StreamName, offset: int) -> tuple[int, bytes]:
        """What the run has in place of a file, from the offset on."""
        return offset, self._capture.pipe(stream).held[offset:] if self._capture is not None else b""

    def _prepare(self) -> None:
        world, action = self._world, self.action
        self._who = spawn.identity(action.work)
        self._inputs = inputs.write(world.settings.inputs_dir, action, self._who)
        self._env = _environment(world.settings, action, self._who, self._inputs.payload)
        memory = dict(action.work.rlimits).get("memory")
        if memory is not None and world.cgroups is not None:
            self._group = world.cgroups.make(action.id, memory)
        self._capture = Capture(self._directory, world.settings.output_bytes_max, self.bell)

    def _start(self) -> None:
        capture, work = self._capture, self.action.work
        assert capture is not None
        argv = work.commands[self._next]
        stdin = os.open(self._inputs.stdin, os.O_RDONLY | os.O_CLOEXEC)
        try:
            files = (stdin, capture.stdout.write_fd, capture.stderr.write_fd)
            self._next += 1
            self._world.starter.start(Job(argv, self._env, work, self._who, self._group), files, self._answered)
        finally:
            os.close(stdin)

    def _answered(self, pid: int, report: bytes) -> None:
        """By the starter: there is a process, or words why not, or both."""
        action = self.action
        argv = action.work.commands[self._next - 1]
        self._refused = spawn.failed(report, argv, action.work) if report else None
        if self._next == len(action.work.commands) and self._capture is not None:
            self._capture.last_command()
        if not pid:
            self._finish(Ended(error=self._placed(self._refused or RunError("resources", f"{argv[0]}: not started"))))
            return
        try:
            self.process = Process(pid, action, self._world, self._over)
        except OSError as error:
            self._finish(Ended(error=self._placed(RunError("resources", f"{argv[0]}: {error.strerror}"))))
            return
        if self._refused is None and self._started_at_ms is None:
            self._has_started(pid)
        if self._stop_s is not None and self.process is not None:
            self.process.stop(self._stop_s)

    def _has_started(self, pid: int) -> None:
        self._started_at_ms = self._world.clock.wall_ms()
        timeout_s = self.action.timeout_s
        if timeout_s is not None:
            wish = RunError("timeout", f"ran longer than {timeout_s:g} s")
            self._timeout = self._loop.call_later(timeout_s, self.stop, None, wish)
        self._world.started(ActionStarted(self.action.id, pid, self._started_at_ms))

    def _over(self, code: int) -> None:
        """A command and all of its tree have ended."""
        self.process = None
        if self._refused is not None:
            self._finish(Ended(error=self._placed(self._refused)))
            return
        ended = _ended(code)
        if self._wish is not None:
            self._finish(Ended(ended.exit_code, ended.signal, self._wish))
        elif ended.error is not None:
            self._finish(Ended(ended.exit_code, ended.signal, self._placed(ended.error)))
        elif self._next < len(self.action.work.commands):
            self._world.goes_on(self)
        else:
            self._finish(ended)

    def _leave_group(self, ended: Ended) -> Ended:
        cgroups = self._world.cgroups
        if not self._group or cgroups is None:
            return ended
        if cgroups.was_full(self._group):
            ended = _over_memory(ended, dict(self.action.work.rlimits).get("memory"))
        cgroups.remove(self._group)
        return ended

    def _placed(self, error: RunError) -> RunError:
        """With the number of the command, where there are several."""
        count = len(self.action.work.commands)
        return error if count == 1 else RunError(error.code, f"command {self._next} of {count}: {error.text}")

    def _finish(self, ended: Ended) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        inputs.remove(self._inputs)
        ended = self._leave_group(ended)
        stdout = stderr = tail.Tail()
        if self._capture is not None:
            self._capture.close()
            stdout, stderr = self._capture.stdout.tail, self._capture.stderr.tail
        stdout_tail, stderr_tail = tail.share(stdout.text(), stderr.text())
        self._world.finished(
            ActionFinished(
                action_id=self.action.id,
                exit_code=ended.exit_code,
                signal=ended.signal,
                error=ended.error,
                stdout_tail=stdout_tail,
                stderr_tail=stderr_tail,
                stdout_bytes=stdout.total,
                stderr_bytes=stderr.total,
                started_at_ms=self._started_at_ms,
                finished_at_ms=self._world.clock.wall_ms(),
                output_error=self._capture.error if self._capture is not None else "",
            )
        )
        self.bell.ring()


def _over_memory(ended: Ended, memory: int | None) -> Ended:
    if ended.error is None or ended.error.code not in {"exit", "signal"}:
        return ended
    text = f"{ended.error.text}; its processes together wanted more memory than {memory} bytes"
    return replace(ended, error=RunError(ended.error.code, text))


def _ended(code: int) -> Ended:
    if code == 0:
        return Ended(0)
    if code > 0:
        return Ended(code, error=RunError("exit", f"exit status {code}"))
    name = _signal_name(-code)
    return Ended(signal=name, error=RunError("signal", f"ended by signal {name}"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return f"RT{number}"


def _environment(
    settings: RunnerSettings, action: ActionSpec, who: spawn.Identity | None, payload: str | None
) -> dict[str, str]:
    env = dict(settings.environment)
    if who is not None:
        env |= {"HOME": who.home, "USER": who.name, "LOGNAME": who.name}
    env |= action.work.env
    env |= {
        "QUVATLH_TASK_ID": action.task_id,
        "QUVATLH_ACTION_ID": action.id,
        "QUVATLH_ATTEMPT": str(action.attempt),
        "QUVATLH_FENCE": str(action.fence),
        "QUVATLH_WORKER": action.worker,
    }
    if payload is not None:
        env["QUVATLH_PAYLOAD"] = payload
    return env
