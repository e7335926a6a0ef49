"""The children of one environment, and the calls that wait for them.

A call takes a slot and a child: an idle one, or one that is made. Async ones share a child. Calls without a slot may stand
behind short ones in a child that has one, so that many short ones cost one message; their turn comes one after the other.
A child that dies fails the call whose turn it was; what stood behind it goes back to the front.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

from quvatlh.config.environments import Environment
from quvatlh.core.limits import ERROR_CHARS_MAX
from quvatlh.ports import ActionProgress, RunError, StreamName
from quvatlh.runner.pools import ending, lines
from quvatlh.runner.pools.brood import Brood
from quvatlh.runner.pools.call import CallRun
from quvatlh.runner.pools.child import PIPE_BYTES, Child
from quvatlh.runner.pools.house import House
from quvatlh.runner.pools.pace import Paces
from quvatlh.runner.pools.refusal import Refusal
from quvatlh.runner.tail import Tail

BATCH_MAX: Final = 64
"""Calls in the hands of one child that takes its turn with them."""
BATCH_MS: Final = 10.0
"""How long a batch may take, by what its like took lately."""
SHARED_MAX: Final = 256
"""Async calls in one child."""
REFUSE_S: Final = 1.0
"""An environment that does not start is not asked again before."""
TOLD_S: Final = 0.005
"""The start of a call that ends sooner is told by its end."""
STALE_S: Final = 0.25
"""A call that no slot became free for is given back."""

RECALL_S: Final = 0.1
"""For a child to give back what has not begun, where there is no other grace."""


LOST_S: Final = 1.0
"""For a process that has closed its side of a pipe to end by itself."""

STALE: Final = RunError("stale", "no slot became free for it")


class Pool:
    def __init__(self, environment: Environment, house: House) -> None:
        self.environment = environment
        self.waiting: deque[CallRun] = deque()
        """Without a slot."""
        self.ready: deque[CallRun] = deque()
        """With a slot, and without a child."""
        self.paces = Paces()
        self.brood = Brood(environment, house.base, house.bell, self)
        self._house = house
        self._loop = asyncio.get_running_loop()
        self._refusal = Refusal()

    # --- calls ---

    def enter(self, run: CallRun) -> None:
        self.waiting.append(run)
        self._house.soon(self)

    def withdraw(self, run: CallRun) -> None:
        """It has no child yet, and will have none."""
        for queue in (self.waiting, self.ready):
            if run in queue:
                queue.remove(run)

    def hand_out(self) -> None:
        house, gate = self._house, self._house.gate
        while self.waiting and gate.take(self.waiting[0].action.slots):
            run = self.waiting.popleft()
            run.has_slot = True
            self.ready.append(run)
        if self.ready:
            self._place()
        while self.waiting and house.eldest(self):
            child = self._room_behind(self.waiting[0])
            if child is None:
                break
            self._give(child, self.waiting.popleft())
        for child in self.brood.children.values():
            child.flush()

    def _place(self) -> None:
        """Those with a slot, to children that are there or will be."""
        is_refused = self._loop.time() < self._refusal.until_s
        if is_refused and not self.brood.has_ready:
            while self.ready:
                run = self.ready.popleft()
                self._end(run, self._refusal.told_to(run))
            return
        left: deque[CallRun] = deque()
        idle = self.brood.idle()
        for run in self.ready:
            shared = self._is_shared(run)
            child = self._company() if shared else None
            if run.is_apart:
                child = self.brood.own_of(run)
                if child is None and not is_refused:
                    self.brood.make(run)
            elif child is None and idle:
                child = idle.pop()
                child.is_shared = shared
            if child is None or not child.is_ready:
                left.append(run)
            else:
                self._give(child, run)
        self.ready = left
        wanted = 0 if is_refused else sum(not run.is_apart for run in left) - self.brood.coming()
        for _ in range(wanted):
            if not self.brood.make(None):
                break

    def _is_shared(self, run: CallRun) -> bool:
        known = self.paces.of(run.target)
        return (
            known is not None and known.shared and not run.action.once and not self.paces.is_suspect(run.action.task_id)
        )

    def _company(self) -> Child | None:
        for child in self.brood.children.values():
            if child.is_shared and child.given and len(child.given) < SHARED_MAX and self.brood.takes(child):
                return child
        return None

    def _room_behind(self, run: CallRun) -> Child | None:
        """A child whose turn it may wait for, because that comes soon."""
        known = self.paces.of(run.target)
        if known is None or known.shared or run.is_apart or self.environment.command:
            return None
        room = min(BATCH_MAX, int(BATCH_MS / max(known.ms, 0.01)))
        best: Child | None = None
        for child in self.brood.children.values():
            count = len(child.given)
            if 0 < count < room and not child.is_shared and child.own is None and self.brood.takes(child):
                head = child.head
                fits = head is not None and head.action.slots == run.action.slots and self._is_short(head)
                if fits and (best is None or count < len(best.given)):
                    best = child
        return best

    def _is_short(self, run: CallRun) -> bool:
        """And has not been at it for long."""
        known = self.paces.of(run.target)
        if known is None or known.ms > BATCH_MS or known.shared:
            return False
        return run.began_s is None or self._loop.time() - run.began_s < BATCH_MS / 1000

    def _give(self, child: Child, run: CallRun) -> None:
        child.given[run.action.id] = run
        run.child = child
        if child.early.total:
            run.wrote("stderr", child.early.text().encode())
            child.early = Tail()
        child.post(lines.run(run.action, run.inputs.payload))
        if child.is_shared or len(child.given) == 1:
            self._turn(run)

    def _turn(self, run: CallRun) -> None:
        run.began_s = self._loop.time()
        if run.wish is not None and run.child is not None:  # asked to end while it still stood behind another
            self._ask_to_stop(run.child, run)

    # --- a brood.Keepers ---

    def look_at(self, child: Child) -> None:
        if not child.is_ready and not child.is_python:
            child.hear_early(child.wrote())
        for said in child.said():
            self._heard(child, said)
        if child.has_more and child.is_python:  # a warm process's pipe says so by itself
            self._house.ring()
            return
        head = child.head
        if head is not None and (child.is_shared or self._goes_on(head)):
            self._read(child)
        if child.is_silent:
            self.brood.deaf(child)
            self.lost(child, "standard output")

    def _read(self, child: Child) -> None:
        """What it wrote beside the protocol is of whose turn it was at this moment, as told by what it says after it.

        A child reads what is left of a call's own before it answers and says when that was. A warm process says nothing of
        the kind, and has one call at a time: what is read before its answer is heard is of that call."""
        at_ns = time.monotonic_ns()
        wrote = child.wrote()
        if not wrote:
            return
        if child.head is not None and not child.is_python:
            self._wrote_beside(child.head, wrote)
            return
        for said in child.said(PIPE_BYTES):
            if wrote and child.head is not None and said.drained > at_ns:
                self._wrote_beside(child.head, wrote)
                wrote = []
            self._heard(child, said)
        if child.head is not None:
            self._wrote_beside(child.head, wrote)

    @staticmethod
    def _wrote_beside(run: CallRun, wrote: list[tuple[StreamName, bytes]]) -> None:
        for stream, data in wrote:
            run.wrote(stream, data)

    def lost(self, child: Child, pipe: str) -> None:
        child.lose(pipe)
        self._house.soon(self)

    def ended(self, child: Child, status: int | None) -> None:
        given = list(child.given.values())
        child.given.clear()
        if given:
            self._wrote_beside(given[0], child.last_words)
        if not child.is_ready:
            self._never_ready(child, status)
        self._settle(child, given, status)
        self._house.soon(self)

    def _never_ready(self, child: Child, status: int | None) -> None:
        text = ending.before_ready(child, status)
        if child.own is not None:
            if child.own in self.ready:
                self.ready.remove(child.own)
                self._end(child.own, RunError("unrunnable", text))
        elif child.refusal or (status is not None and not child.killed):
            child.hear_early(child.last_words)
            self.refuse(f"environment {self.environment.name}: {text}", child.early.text())

    def unmade(self, own: CallRun | None, error: RunError) -> None:
        run = own or (self.ready[0] if self.ready else None)
        if run is not None:
            self.withdraw(run)
            self._end(run, error)
        self._house.soon(self)

    def refuse(self, text: str, words: str = "") -> None:
        """Where no child is ready, whoever has a slot hears why; who comes within the next second, too. Else they wait for
        one that is, and for that second nobody makes another."""
        self._refusal.begin(text, words, self._loop.time(), REFUSE_S)
        self._house.soon(self)

    def renew(self) -> None:
        """Everything anew; what could not be had before may be had now."""
        self._refusal.until_s = 0.0
        self.brood.renew()

    def spare(self, pid: int) -> None:
        self._house.spare(pid)

    def unspare(self, pid: int) -> None:
        self._house.unspare(pid)

    def end_marked(self, mark: str) -> bool:
        return self._house.end_marked(mark)

    # --- what a child says ---

    def _heard(self, child: Child, said: lines.Said) -> None:
        kind = said.type
        if child.is_garbled:
            return
        if kind in {"result", "error"} and said.id in child.given:
            self._answered(child, said)
        elif kind == "output" and said.id in child.given:
            self._wrote(child, said)
        elif kind == "progress" and said.id in child.given:
            self._progressed(child.given[said.id], said)
        elif kind == "recalled" and said.id in child.given:
            run = child.given.pop(said.id)
            self._end(run, run.wish or STALE)
        elif kind == "ready":
            self._is_ready(child, said)
        elif kind == "refused" and not child.is_ready:
            child.refusal = said.text or ""
        elif kind in {"result", "error"} and said.id in child.answered:
            self._repeats(child)
        elif kind in {"garbage", "result", "error"}:
            self._babbles(child, ending.babble(said))

    def _is_ready(self, child: Child, said: lines.Said) -> None:
        if child.is_ready:
            self._babbles(child, "said a second time that it is ready")
            return
        if said.version != lines.VERSION:
            child.refusal = f"speaks version {said.version} of the protocol; this is version {lines.VERSION}"
            self.brood.kill(child)
            return
        child.is_ready = True
        self.brood.settled(child)
        child.kill_at_s = child.kill_at_s if child.is_leaving else None
        if child.own is not None and child.own not in self.ready:  # it was stopped meanwhile
            child.ask_to_end()
        elif child.own is None:
            self.brood.rested(child)
        self._house.soon(self)

    def _progressed(self, run: CallRun, said: lines.Said) -> None:
        percent = None if said.percent is None else round(max(0, min(100, said.percent)))
        run.progress = ActionProgress(said.id, percent, (said.text or "")[:ERROR_CHARS_MAX])
        self._tell_progress(run, self._loop.time())

    def _tell_progress(self, run: CallRun, now_s: float) -> None:
        if run.progress is not None and run.may_tell(now_s):
            self._house.progressed(run.progress)
            run.progress = None

    def _wrote(self, child: Child, said: lines.Said) -> None:
        if said.stream not in {"stdout", "stderr"}:
            return
        try:
            child.given[said.id].wrote("stderr" if said.stream == "stderr" else "stdout", lines.written(said))
        except lines.Garbage as error:
            self._babbles(child, str(error))

    def _repeats(self, child: Child) -> None:
        """An answer too many, of a call that has its end. Whose turn it is now has no part in that."""
        child.is_doubtful = True
        if not child.given:
            self.brood.rested(child)

    def _babbles(self, child: Child, text: str) -> None:
        """Nobody knows what it will say next. The fault is with whose turn it is; where several share it, with nobody."""
        if not child.killed:
            child.is_garbled = True
            child.refusal = "" if child.is_ready else text
            if child.head is not None and not child.has_left and not (child.is_shared and len(child.given) > 1):
                child.head.outcome = RunError("protocol", text), None
            child.kill()

    def _answered(self, child: Child, said: lines.Said) -> None:
        run = child.given[said.id]
        run.began_ms = round(said.began) or run.began_ms
        if not child.is_python:  # it was written before the answer was, and nobody else reads it
            self._wrote_beside(run, child.wrote())
        error, result = ending.outcome(said, run)
        child.answered.append(said.id)
        self.brood.answered(child)
        if said.ms is not None:
            self.paces.ran(run.target, said.ms, shared=said.shared)
            child.is_shared = said.shared if len(child.given) == 1 else child.is_shared
        if said.leaving:
            child.leaves()
            run.outcome = error, result
            return
        if not child.is_python and self.brood.has_left_overs(child):
            child.has_left = True
            run.outcome = error, result
            child.kill()
            return
        del child.given[said.id]
        heir = None if child.is_shared else child.head
        if heir is not None and not heir.has_slot:
            heir.has_slot, run.has_slot = run.has_slot, False
        if heir is not None:
            self._turn(heir)
        self._end(run, error, result)
        if not child.given:
            self.brood.rested(child)
        self._house.soon(self)

    # --- how a call ends ---

    def stop(self, run: CallRun, grace_s: float, wish: RunError) -> None:
        run.wish = run.wish or wish
        child = run.child
        if child is None:
            self.withdraw(run)
            self._end(run, run.wish)
            return
        if not child.is_shared and child.head is not run:  # it has not begun, and need not
            grace_s = max(grace_s, RECALL_S)
            self._recall(child, run)
        at_s = self._loop.time() + grace_s
        run.kill_at_s = at_s if run.kill_at_s is None else min(run.kill_at_s, at_s)
        if grace_s <= 0 and (child.is_shared or child.head is run):
            child.kill()
            return
        if run.began_s is not None:
            self._ask_to_stop(child, run)

    @staticmethod
    def _ask_to_stop(child: Child, run: CallRun) -> None:
        child.post(lines.stop(run.action.id))
        child.flush()
        child.nudge()

    def _recall(self, child: Child, run: CallRun) -> None:
        """Behind a call that takes its time: out of the child's hands again, if it has not begun meanwhile."""
        run.recalled_s = self._loop.time()
        child.post(lines.recall(run.action.id))
        child.flush()
        child.nudge()

    def _settle(self, child: Child, given: list[CallRun], status: int | None) -> None:
        """What a child that is no more had in its hands."""
        begun = ending.begun(child, given, status)
        together = len(begun) > 1
        for run in begun:
            if run.outcome is not None:
                ours = child.has_left and child.killed  # its end says nothing of the call's
                self._end(run, *run.outcome, status=None if ours else status)
            elif run.wish is not None:
                self._end(run, run.wish, status=status)
            elif child.killed or together:
                if together:
                    self.paces.suspect(run.action.task_id)
                self._end(run, ending.beside(status, killed=child.killed))
            else:
                self._end(run, ending.crash(status), status=status)
        for run in reversed([each for each in given if each not in begun]):
            run.child, run.began_s = None, None
            if run.wish is not None:
                self._end(run, run.wish)
            elif run.has_slot:
                self.ready.appendleft(run)
            else:
                self.waiting.appendleft(run)

    def _end(
        self, run: CallRun, error: RunError | None, result: bytes | None = None, status: int | None = None
    ) -> None:
        if run.progress is not None:
            self._house.progressed(run.progress)
        if run.has_slot:
            run.has_slot = False
            self._house.gate.release(run.action.slots)
        self._house.finished(run, error, result, status)

    # --- time ---

    def _goes_on(self, run: CallRun) -> bool:
        """For longer than a short one."""
        return run.child is not None and (
            len(run.child.given) == 1 or (run.began_s is not None and self._loop.time() - run.began_s > TOLD_S)
        )

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting or self.ready or any(child.given for child in self.brood.children.values()))

    @property
    def has_batches(self) -> bool:
        """Some stand behind others, so nobody rings for each."""
        return any(len(child.given) > 1 and not child.is_shared for child in self.brood.children.values())

    def tick(self, now_s: float) -> None:
        if self.ready and 0.0 < self._refusal.until_s <= now_s:
            self._refusal.until_s = 0.0
            self._house.soon(self)
        for child in list(self.brood.children.values()):
            if child.given or not (child.is_ready or child.is_python):
                self.look_at(child)
            for run in list(child.given.values()):
                self._look_after(child, run, now_s)
            if child.lost and now_s - child.lost_s > LOST_S and not child.is_leaving:
                self._give_up(child)
        while self.waiting and now_s - self.waiting[0].at_s > STALE_S:
            self._end(self.waiting.popleft(), STALE)

    def _give_up(self, child: Child) -> None:
        """It will hear or say nothing more, and does not end by itself."""
        run = child.head
        if not child.is_ready:
            child.refusal = child.refusal or f"its process {child.lost}, before it was ready"
        elif run is not None and run.wish is None and (len(child.given) == 1 or not child.is_shared):
            run.outcome = ending.lost(child), None
        self.brood.kill(child)

    def _look_after(self, child: Child, run: CallRun, now_s: float) -> None:
        if run.began_s is None:
            self._look_after_waiting(child, run, now_s)
            return
        for_s = now_s - run.began_s
        if for_s > TOLD_S:
            if not run.is_told:
                self._house.started(run)
            run.spill()
        self._tell_progress(run, now_s)
        timeout_s = run.action.timeout_s
        if run.wish is None and timeout_s is not None and for_s > timeout_s:
            self.stop(run, run.action.grace_s, RunError("timeout", f"ran longer than {timeout_s:g} s"))
        self._kill_in_time(child, run, now_s)

    def _look_after_waiting(self, child: Child, run: CallRun, now_s: float) -> None:
        if now_s - run.at_s > STALE_S and now_s - run.recalled_s > STALE_S:
            self._recall(child, run)
        self._kill_in_time(child, run, now_s)

    @staticmethod
    def _kill_in_time(child: Child, run: CallRun, now_s: float) -> None:
        if run.kill_at_s is not None and now_s >= run.kill_at_s and not child.killed:
            child.kill()
