"""One command of an action, from its process to the end of its whole tree.

The main process stays unreaped until nothing is left of its tree, so that its number names nobody else meanwhile. What it
leaves behind is ended like a stopped action: the stop signal, and KILL after the grace. Knows no outputs and no order of
commands; says once that it is over, with how the main process ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection
from typing import Protocol

from quvatlh.ports import ActionSpec
from quvatlh.runner import tree
from quvatlh.runner.settings import SWEEP_S


class Family(Protocol):
    """The children of this process."""

    def orphans(self) -> Collection[int]:
        """Those that nobody here started."""
        ...

    def born(self, pid: int) -> None:
        """This one is a main process, until it is `buried`."""
        ...

    def buried(self, pid: int) -> None: ...

    def reap(self, pid: int) -> bool:
        """Whether this orphan has ended; no zombie is left of it, now or soon."""
        ...


class Process:
    def __init__(self, pid: int, action: ActionSpec, family: Family, over: Callable[[int], None]) -> None:
        """`over` gets the exit status, a signal's number below zero. OSError, with the process killed, when it cannot be watched."""
        self.pid = pid
        self._action = action
        self._family = family
        self._over = over
        self._loop = asyncio.get_running_loop()
        try:
            self._fd = os.pidfd_open(self.pid)
        except OSError:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise
        self._killing = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, int] = {}
        """pidfds of leftovers whose end is awaited, by pid."""
        self._loop.add_reader(self._fd, self._ended)
        family.born(self.pid)

    def stop(self, grace_s: float) -> None:
        """Signal the tree now, KILL it after the grace. Again: the earlier KILL counts."""
        if grace_s <= 0:
            self._kill()
        elif self._arm(grace_s):
            tree.signal_tree(self.pid, self._leftovers(), signal.Signals[f"SIG{self._action.stop_signal}"])

    def _arm(self, grace_s: float) -> bool:
        """Whether a signal is due now: not once KILL is under way."""
        if self._killing:
            return False
        at = self._loop.time() + grace_s
        first = self._timer is None
        if self._timer is not None:
            at = min(at, self._timer.when())
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._kill)
        return first

    def _kill(self) -> None:
        self._killing = True
        tree.signal_tree(self.pid, self._leftovers(), signal.SIGKILL)

    def _ended(self) -> None:
        self._loop.remove_reader(self._fd)
        self._look()

    def _look(self) -> None:
        """After each end of a process of the tree: over, or wait for who is left."""
        try:
            left = self._leftovers()
            for pid in left:
                if pid not in self._waiting:
                    self._wait_for(pid)
        except OSError:  # no descriptor to be had: whoever is left is not seen now, so not declared gone
            self._loop.call_later(SWEEP_S, self._look)
            return
        if not left:
            self._finish()
        elif self._killing:
            tree.signal_tree(self.pid, left, signal.SIGKILL)
        elif self._timer is None:
            self.stop(self._action.grace_s)

    def _wait_for(self, pid: int) -> None:
        fd = os.pidfd_open(pid)
        self._waiting[pid] = fd
        self._loop.add_reader(fd, self._leftover_ended, pid)

    def _leftover_ended(self, pid: int) -> None:
        fd = self._waiting.pop(pid)
        self._loop.remove_reader(fd)
        os.close(fd)
        self._family.reap(pid)
        self._look()

    def _leftovers(self) -> list[int]:
        action_id = self._action.id
        return [
            pid for pid in self._family.orphans() if not self._reaped(pid) and tree.belongs(pid, self.pid, action_id)
        ]

    def _reaped(self, pid: int) -> bool:
        """An orphan that has ended is nobody's but ours to reap, whoever's it was; one that is waited for is reaped then."""
        return pid not in self._waiting and self._family.reap(pid)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for pid, fd in self._waiting.items():  # ended, and no longer to be told whose they were
            self._loop.remove_reader(fd)
            os.close(fd)
            self._family.reap(pid)
        self._waiting.clear()
        os.close(self._fd)
        _, status = os.waitpid(self.pid, 0)
        self._family.buried(self.pid)
        self._over(os.waitstatus_to_exitcode(status))
