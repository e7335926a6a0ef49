"""The children of one environment as processes: made on demand, kept, replaced, ended. What they do is the pool's matter."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Final, Protocol

from quvatlh.config.environments import Environment
from quvatlh.ports import RunError
from quvatlh.runner import spawn
from quvatlh.runner.pools.call import CallRun
from quvatlh.runner.pools.child import PIPE_BYTES, SAID_BYTES, Child
from quvatlh.runner.pools.company import Company
from quvatlh.runner.pools.nursery import Nursery

MARK: Final = "QUVATLH_CHILD"
"""Of all processes that come from a child, by its server and number."""
AGAIN_S: Final = 0.01
"""Between two rounds of killing."""
IDLE_S: Final = 300.0
"""A child without work ends after so long; one of them stays."""
MEMORY_EACH: Final = 64
"""Calls between two looks at a child's memory, if they are short."""
MEMORY_S: Final = 1.0


class Keepers(Protocol):
    """Who hears of the children."""

    def look_at(self, child: Child) -> None:
        """It may have said something."""
        ...

    def lost(self, child: Child, pipe: str) -> None:
        """It has closed its end of one."""
        ...

    def ended(self, child: Child, status: int | None) -> None:
        """Nothing of it is left. None: nobody knows how."""
        ...

    def unmade(self, own: CallRun | None, error: RunError) -> None:
        """A child that was asked for is not to be had."""
        ...

    def refuse(self, text: str) -> None:
        """The environment cannot be had now."""
        ...

    def spare(self, pid: int) -> None:
        """A process of ours that is nobody's orphan."""
        ...

    def unspare(self, pid: int) -> None: ...

    def end_marked(self, mark: str) -> bool:
        """Orphans of ours with this in their environment are killed; whether there are any still."""
        ...


class Brood:
    def __init__(self, environment: Environment, base: Mapping[str, str], bell: int, keepers: Keepers) -> None:
        self.environment = environment
        self.children: dict[int, Child] = {}
        self._base = base
        self._bell = bell
        self._keepers = keepers
        self._loop = asyncio.get_running_loop()
        self._nursery: Nursery | None = None
        """That new children come from."""
        self._nurseries: set[Nursery] = set()
        self._count = 0

    # --- who is there ---

    def idle(self) -> list[Child]:
        """Ready for anybody's call; the one that was idle last comes last, so that the others may grow old."""
        found = [
            child
            for child in self.children.values()
            if child.is_ready and not child.given and child.own is None and self.takes(child)
        ]
        found.sort(key=lambda child: child.idle_s)
        return found

    @property
    def has_ready(self) -> bool:
        """One for anybody, idle or at work."""
        return any(child.is_ready and child.own is None and self.takes(child) for child in self.children.values())

    def coming(self) -> int:
        """Children for anybody that are not ready yet."""
        return sum(not child.is_ready and child.own is None and self.takes(child) for child in self.children.values())

    def takes(self, child: Child) -> bool:
        """One more call. Neither a worn child nor one of an old server does, however long the line: it ends once it has
        done what it has."""
        most = self.environment.recycle_tasks
        is_worn = child.is_grown or child.is_doubtful or (most is not None and child.done + len(child.given) >= most)
        is_worn = is_worn or (child.is_ready and child.lost != "")
        return child.nursery is self._nursery and not is_worn and not child.is_leaving

    def own_of(self, run: CallRun) -> Child | None:
        return next((child for child in self.children.values() if child.own is run), None)

    # --- one more ---

    def make(self, own: CallRun | None) -> bool:
        """Whether there will be one. `own`: for this call alone, with its surroundings."""
        limit = self.environment.children
        if limit is not None and len(self.children) >= limit and not self._made_room():
            return False
        try:
            nursery = self._nursery or self._started()
            child = Child(self._count, self._loop.time(), nursery, is_python=not self.environment.command, own=own)
        except OSError as error:
            self._keepers.refuse(f"environment {self.environment.name} does not start: {_words(error)}")
            return False
        self._count += 1
        self.children[child.number] = child
        if nursery.is_ready:
            self._fork(child)
        return True

    def _made_room(self) -> bool:
        """An idle one goes where a call needs one of its own; there is room once it has gone."""
        for child in self.idle()[:1]:
            child.ask_to_end()
        return False

    def _started(self) -> Nursery:
        nursery = self._nursery = Nursery(self.environment, self._base, self)
        self._nurseries.add(nursery)
        self._keepers.spare(nursery.pid)
        return nursery

    def _fork(self, child: Child) -> None:
        try:
            around = None if child.own is None else surroundings(child.own)
        except spawn.NotStarted as refusal:
            self._drop(child)
            self._keepers.unmade(child.own, refusal.error)
            return
        child.nursery.fork(child.number, around, child.files(self._bell))
        child.handed_over()
        if not child.is_python:
            self._loop.add_reader(child.out_fd, self._keepers.look_at, child)
            self._loop.add_reader(child.in_fd, self._unheard, child)

    def _unheard(self, child: Child) -> None:
        """The one thing that there is to be read at this end of a pipe: nobody has the other any more."""
        self._loop.remove_reader(child.in_fd)
        self._keepers.lost(child, "standard input")

    # --- a nursery.Parent ---

    def nursery_ready(self, nursery: Nursery) -> None:
        for child in list(self.children.values()):
            if child.nursery is nursery and not child.is_born:
                self._fork(child)

    def nursery_ended(self, nursery: Nursery, text: str) -> None:
        self._nurseries.discard(nursery)
        self._keepers.unspare(nursery.pid)
        if nursery is self._nursery:
            self._nursery = None
        if text:
            self._keepers.refuse(f"environment {self.environment.name}: {text}")
        for child in [each for each in self.children.values() if each.nursery is nursery]:
            child.is_leaving = True
            child.when_gone(self._gone_with_its_server)

    def _gone_with_its_server(self, child: Child) -> None:
        """Its end came by the kernel; what it has left behind has become ours."""
        if self._keepers.end_marked(f"{MARK}={child.nursery.pid}.{child.number}"):
            self._loop.call_later(AGAIN_S, self._gone_with_its_server, child)
            return
        self._hear_out(child)
        self._drop(child)
        self._keepers.ended(child, None)

    def forked(self, number: int, pid: int, watch_fd: int) -> None:
        child = self.children.get(number)
        if child is None:
            os.close(watch_fd)
            return
        child.watched(pid, watch_fd)
        if child.is_ready:
            self.settled(child)
        if child.killed:
            child.kill()

    def unborn(self, number: int, text: str) -> None:
        child = self.children[number]
        self._drop(child)
        self._keepers.unmade(child.own, RunError("resources", f"no process could be made: {text}"))

    def died(self, number: int, status: int) -> None:
        child = self.children.get(number)
        if child is not None:
            self._hear_out(child)
            self._drop(child)
            self._keepers.ended(child, status)
            self._close_empty()

    def _hear_out(self, child: Child) -> None:
        """All that it has said before its end: no more than its pipe holds, whoever else still writes to it."""
        for _ in range(PIPE_BYTES // SAID_BYTES + 1):
            self._keepers.look_at(child)
            if not child.has_more:
                return

    # --- what is around a warm process ---

    def settled(self, child: Child) -> None:
        """It is ready: what is around it now is its own."""
        if not child.is_python and child.pid:
            mark = f"{MARK}={child.nursery.pid}.{child.number}"
            child.company = Company(child.pid, child.nursery.pid, mark, self._pids())

    def has_left_overs(self, child: Child) -> bool:
        return child.company is not None and child.company.has_grown(self._pids())

    def _pids(self) -> set[int]:
        return {each.pid for each in self.children.values()}

    # --- fewer ---

    def rested(self, child: Child) -> None:
        """It has nothing to do: does it go on?"""
        child.idle_s = self._loop.time()
        if child.is_leaving:
            return
        if child.own is not None or not self.takes(child):
            child.ask_to_end()

    def answered(self, child: Child) -> None:
        """It has done one call more."""
        child.done += 1
        most, now = self.environment.recycle_megabytes, self._loop.time()
        if most is None or (child.done % MEMORY_EACH and now - child.measured_s < MEMORY_S):
            return
        child.measured_s = now
        child.is_grown = child.megabytes() > most

    def look(self, now_s: float) -> float | None:
        """Children that do not become ready, do not end, or have had nothing to do for long; when to look again."""
        again: list[float] = []
        idle = self.idle()
        for child in idle[:-1]:
            if now_s - child.idle_s >= IDLE_S:
                child.ask_to_end()
            else:
                again.append(child.idle_s + IDLE_S)
        for child in list(self.children.values()):
            if child.kill_at_s is None:
                if child.is_ready:
                    continue
                child.kill_at_s = child.born_s + self.environment.start_s
            if now_s >= child.kill_at_s and not child.killed:
                if not child.is_ready:
                    child.refusal = child.refusal or f"was not ready within {self.environment.start_s} s"
                self.kill(child)
            elif not child.killed:
                again.append(child.kill_at_s)
        return min(again, default=None)

    def kill(self, child: Child) -> None:
        child.kill()
        if not child.nursery.is_ready:  # it is the server itself that hangs
            child.nursery.kill(child.refusal)

    def renew(self) -> None:
        """New children come from a new server, which loads everything anew; the old ones end as they finish."""
        self._nursery = None
        for child in self.idle():
            child.ask_to_end()
        self._close_empty()

    async def close(self) -> None:
        """With all children, whatever they do."""
        self._nursery = None
        for child in list(self.children.values()):
            child.kill()
        nurseries = list(self._nurseries)
        for nursery in nurseries:
            nursery.close()
        for nursery in nurseries:
            await nursery.ended
        while self.children:  # noqa: ASYNC110 - their ends come one by one, and nothing else waits for them
            await asyncio.sleep(AGAIN_S)

    def _close_empty(self) -> None:
        used = {child.nursery for child in self.children.values()}
        for nursery in self._nurseries - used - {self._nursery}:
            nursery.close()

    def deaf(self, child: Child) -> None:
        """It will say nothing more."""
        if not child.is_python and child.is_born:
            self._loop.remove_reader(child.out_fd)

    @property
    def needs_look(self) -> bool:
        return len(self.children) > 1 or any(
            not each.is_ready or each.is_leaving or each.lost for each in self.children.values()
        )

    def _drop(self, child: Child) -> None:
        del self.children[child.number]
        self.deaf(child)
        self._loop.remove_reader(child.in_fd)
        child.last_words = child.wrote()
        child.close()


def surroundings(run: CallRun) -> dict[str, object]:
    """What a child of its own takes on; NotStarted where it cannot."""
    work = run.action.work
    who = spawn.identity(work)
    return {
        "ids": None if who is None else (who.uid, who.gid, who.groups),
        "env": {**({} if who is None else {"HOME": who.home, "USER": who.name, "LOGNAME": who.name}), **dict(work.env)},
        "cwd": work.cwd,
        "rlimits": dict(work.rlimits),
        "stdin": None if work.stdin is None else run.inputs.stdin,
    }


def _words(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"
