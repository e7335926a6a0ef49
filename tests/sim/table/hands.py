"""Actions as they really run, and the runner that starts them for an executor.

`Ground` is the world itself: it knows what runs where, by the actions' own clock, whatever any node believes, and judges
it. `SimRunner` is what one executor has of it. Actions are no part of the executor's process: a frozen executor does not
freeze them; its death is theirs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from quvatlh.core.model import Work
from quvatlh.ports import ActionFinished, ActionSpec, ActionStarted, OutputChunk, RunError, RunnerListener
from tests.sim.clock import SimClock
from tests.sim.judge import Violation
from tests.sim.process import BUSY, PAUSED, Process
from tests.sim.table.facts import TaskFacts

SPAWN_S: Final = (0.0005, 0.02)
KILL_S: Final = (0.0002, 0.003)
HELD_UP_S: Final = 0.3
"""An executor that was frozen ends what it should have ended meanwhile within this."""
HURRY_S: Final = 0.2
PROGRAM: Final = "act"
STOPPED: Final = RunError("stopped", "stopped on request")
TIMEOUT: Final = RunError("timeout", "its time was over")
EXIT: Final = RunError("exit", "exit status 1")


@dataclass(frozen=True, slots=True)
class Script:
    """What an action does; it stands in the task's work."""

    op: int
    """Number of the request that added the task."""
    run_ms: int
    fails: int = 0
    """So many attempts end with status 1."""
    term_ms: int = 5
    """How long it takes to end once it is asked to; negative: it does not listen."""

    def command(self) -> list[str]:
        return [PROGRAM, *(str(n) for n in (self.op, self.run_ms, self.fails, self.term_ms))]

    def pulled(self) -> str:
        """For pull workers, in the environment."""
        return " ".join(self.command())

    @classmethod
    def of(cls, work: Work) -> Script:
        return cls.of_command(work.command or work.env[PROGRAM].split())

    @classmethod
    def of_command(cls, command: Sequence[str]) -> Script:
        return cls(*(int(word) for word in command[1:]))


@dataclass(slots=True, eq=False)
class Running:
    """One action, from its first instruction to its last."""

    spec: ActionSpec
    process: Process
    """The executor, who must end it in time."""
    began_s: float
    ended_s: float | None = None

    def excused(self, now_s: float) -> bool:
        """Nobody was there to end it: a frozen executor is what no lease covers."""
        process = self.process
        return bool(process.gate & (PAUSED | BUSY)) or now_s - process.released_s < HELD_UP_S


@dataclass
class Ground:
    """All actions of a run."""

    facts: Callable[[str], TaskFacts]
    now_s: Callable[[], float]
    running: dict[str, list[Running]] = field(default_factory=dict)
    """By task; those of before an end are not in it."""
    named: dict[tuple[str, str], list[Running]] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    """Task -> how often it began."""
    ends: dict[int, bool] = field(default_factory=dict)
    """Token -> whether its action ended well."""
    given_up: dict[int, float] = field(default_factory=dict)
    """Tokens that the cluster has taken for lost, and when."""
    promised: dict[int, float] = field(default_factory=dict)
    """Token of a pull worker -> until when it is not, by a renewal that was answered."""
    in_a_hurry: bool = False
    """What begins now is short: what waits at the end of a run is to end soon."""
    excuses: int = 0

    def begin(self, spec: ActionSpec, process: Process) -> Running:
        task = self.facts(spec.task_id)
        if spec.fence in self.given_up:
            raise Violation(f"{spec.task_id} begins on {process.name} under token {spec.fence}, which was lost")
        action = Running(spec, process, self.now_s())
        others = self.running.setdefault(spec.task_id, [])
        if task.job:
            self._alone(action, others)
        if task.once and self.begun.get(spec.task_id, 0) > task.retries:
            raise Violation(f"{spec.task_id} is at-most-once and begins again, under token {spec.fence}")
        self.begun[spec.task_id] = self.begun.get(spec.task_id, 0) + 1
        others.append(action)
        namesakes = self.named.setdefault((task.group, task.name), [])
        namesakes.append(action)
        self._within_limit(task, namesakes)
        return action

    def end(self, action: Running, *, well: bool) -> None:
        if action.ended_s is not None:
            return
        action.ended_s = self.now_s()
        self.ends[action.spec.fence] = well
        task = self.facts(action.spec.task_id)
        self.running[action.spec.task_id].remove(action)
        self.named[task.group, task.name].remove(action)

    def give_up(self, task_id: str, token: int) -> None:
        """From here on it may be another's: whoever had it must have ended it before, whether another begins it or not."""
        self.given_up[token] = self.now_s()
        self._keeps(token)
        for action in self.running.get(task_id, ()):
            if action.spec.fence != token:
                continue
            if not action.excused(self.now_s()):
                since = f"since {action.began_s:.3f} s"
                raise Violation(f"{task_id} is lost, and runs on {action.process.name} under token {token} {since}")
            self.excuses += 1

    def promise(self, token: int, until_s: float) -> None:
        self.promised[token] = max(until_s, self.promised.get(token, 0.0))
        self._keeps(token)

    def _keeps(self, token: int) -> None:
        """Whichever of the two was heard of first."""
        lost_s, until_s = self.given_up.get(token), self.promised.get(token)
        if lost_s is not None and until_s is not None and lost_s < until_s:
            raise Violation(f"token {token} was lost at {lost_s:.3f} s, and had been renewed until {until_s:.3f} s")

    def any(self) -> bool:
        return any(self.running.values())

    def _alone(self, action: Running, others: list[Running]) -> None:
        for other in others:
            if not other.excused(action.began_s):
                raise Violation(
                    f"{action.spec.task_id} runs twice: on {other.process.name} under token {other.spec.fence} since "
                    f"{other.began_s:.3f} s, and now on {action.process.name} under token {action.spec.fence}"
                )
            self.excuses += 1

    def _within_limit(self, task: TaskFacts, namesakes: list[Running]) -> None:
        limits = [self.facts(each.spec.task_id).limit for each in namesakes]
        limit = min((n for n in limits if n is not None), default=None)
        if limit is None or len(namesakes) <= limit or task.relimited:
            return
        if sum(not each.excused(self.now_s()) for each in namesakes) > limit:
            places = [f"{each.process.name} token {each.spec.fence}" for each in namesakes]
            raise Violation(f"{len(namesakes)} actions of {task.group}/{task.name} run at once, {limit} may: {places}")
        self.excuses += 1


@dataclass(slots=True, eq=False)
class _Job:
    """An action as the runner knows it."""

    spec: ActionSpec
    script: Script
    timer: asyncio.TimerHandle
    running: Running | None = None
    started_ms: int | None = None
    ends_at_s: float = float("inf")


class SimRunner:
    """Keeps ports.Runner, for one executor."""

    def __init__(self, ground: Ground, process: Process, clock: SimClock, rng: random.Random) -> None:
        self._ground = ground
        self._process = process
        self._loop = process.loop
        self._clock = clock
        self._rng = rng
        self._jobs: dict[str, _Job] = {}
        self._listener: RunnerListener | None = None
        self._idle: asyncio.Event | None = None
        process.on_dead.append(lambda _power: self._die())

    def listen(self, listener: RunnerListener) -> None:
        self._listener = listener

    def start(self, action: ActionSpec) -> None:
        if action.id in self._jobs:
            raise ValueError(f"{action.id} is live")
        script = Script.of_command(action.work.commands[0])
        delay_s = self._rng.uniform(*SPAWN_S)
        self._jobs[action.id] = _Job(action, script, self._later(delay_s, lambda: self._begin(action.id)))

    def stop(self, action_id: str, grace_s: float | None = None, why: RunError = STOPPED) -> None:
        job = self._jobs.get(action_id)
        if job is None:
            return
        if job.running is None:
            job.timer.cancel()
            self._end(job, why)
            return
        grace_s = job.spec.grace_s if grace_s is None else grace_s
        listens = job.script.term_ms >= 0 and grace_s > 0
        wait_s = min(job.script.term_ms / 1000, grace_s) if listens else grace_s + self._rng.uniform(*KILL_S)
        self._end_in(job, wait_s, why)

    @property
    def taken(self) -> int:
        return sum(job.spec.slots for job in self._jobs.values())

    @property
    def has_line(self) -> bool:
        """No calls here."""
        return False

    def live(self) -> Collection[str]:
        return list(self._jobs)

    async def follow(
        self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> AsyncIterator[OutputChunk]:
        """They write nothing."""
        none: tuple[OutputChunk, ...] = ()
        for chunk in none:
            yield chunk

    async def close(self, grace_s: float) -> None:
        for name in list(self._jobs):
            self.stop(name, grace_s)
        if self._jobs:
            self._idle = asyncio.Event()
            await self._idle.wait()

    # --- in the world -------------------------------------------------------------------------------------------------

    def _later(self, delay_s: float, job: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, job, context=self._loop.world_context)

    def _begin(self, name: str) -> None:
        job = self._jobs[name]
        spec = job.spec
        job.running = self._ground.begin(spec, self._process)
        job.started_ms = self._clock.wall_ms()
        started = ActionStarted(name, 1, job.started_ms)
        self._tell(lambda listener: listener.started(started))
        run_s = job.script.run_ms / 1000
        if self._ground.in_a_hurry:
            run_s = min(run_s, HURRY_S)
        if spec.timeout_s is not None and spec.timeout_s < run_s:
            self._end_in(job, spec.timeout_s, TIMEOUT)
        else:
            self._end_in(job, run_s, EXIT if spec.attempt <= job.script.fails else None)

    def _end_in(self, job: _Job, delay_s: float, fault: RunError | None) -> None:
        """Nothing makes it last longer."""
        at_s = self._loop.now_s + delay_s
        if at_s < job.ends_at_s:
            job.timer.cancel()
            job.ends_at_s = at_s
            job.timer = self._later(delay_s, lambda: self._end(job, fault))

    def _end(self, job: _Job, fault: RunError | None) -> None:
        del self._jobs[job.spec.id]
        if job.running is not None:
            self._ground.end(job.running, well=fault is None)
        exit_code = 0 if fault is None else 1 if fault is EXIT else None
        signal = None if fault in {None, EXIT} else "KILL"
        event = ActionFinished(
            job.spec.id, exit_code, signal, fault, "", "", 0, 0, job.started_ms, self._clock.wall_ms()
        )
        self._tell(lambda listener: listener.finished(event))

    def _tell(self, what: Callable[[RunnerListener], None]) -> None:
        """The executor hears it when it runs."""
        self._loop.call_soon(self._heard, what, context=self._process.context)

    def _heard(self, what: Callable[[RunnerListener], None]) -> None:
        if self._listener is not None:
            what(self._listener)
        if self._idle is not None and not self._jobs:
            self._idle.set()

    def _die(self) -> None:
        """The executor is the parent, and its death is theirs."""
        for job in self._jobs.values():
            job.timer.cancel()
            if job.running is not None:
                self._ground.end(job.running, well=False)
        self._jobs.clear()
