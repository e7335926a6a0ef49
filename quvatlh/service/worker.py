"""The worker: carries out what is claimed for it, by an executor that outlives it, and reports what became of it.

There is no dispatch message. Claims go on to the executor in the order of their tokens, since it starts none that is not above
the highest it has seen; those beyond the free slots wait there, and one that has not begun in time is given back, as is each
that an earlier daemon was told of and its executor was not. An end stays in the executor until it is applied, however long there is no
master and however many daemons come and go. Leases end actions in the executor; here one only keeps what is over from starting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from quvatlh.core import commands as c
from quvatlh.core.queries import action_id
from quvatlh.core.work import WorkError, runnable
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted, Clock, Executor, HeldAction, Life
from quvatlh.service.announcer import Announcer
from quvatlh.service.courier import Errand
from quvatlh.service.reports import Reports
from quvatlh.service.seat import Claim, Standing, serial_of
from quvatlh.service.session import Session

BEGIN_S: Final = 0.25
"""A claim without a slot that has waited so long is given back. Counted by the executor, and here while it may not begin."""
LOOK_S_MIN: Final = 0.001
"""What is left of that may be less than a tick of the loop's clock, again and again."""
STOP_S: Final = 10.0
"""How long the last reports of a stopping node may take, and what is stopped beyond its grace."""
CLOSE_S: Final = 2.0


@dataclass(slots=True, eq=False)
class Held:
    """An action of this worker, from its claim until its end is reported."""

    token: int
    task: int
    slots: int
    grace_s: float = STOP_S
    claim: Claim | None = None
    """None of one that an earlier daemon began, until the seat tells of it."""
    since: float = 0.0
    """When it was claimed, as long as it waits."""
    given: bool = False
    """The executor has it: it runs there, or waits for a slot."""
    started: ActionStarted | None = None
    stopping: bool = False
    """By a wish of the cluster or of this node: its end is nobody's fault."""
    name: str = ""
    """Of the action."""
    ours: bool = True
    """False once the cluster says that it is not."""


class Worker:
    """A session.Holder, a ports.ExecutorListener, and the part of a seat.Occupant that is about actions."""

    def __init__(
        self, reports: Reports, executor: Executor, clock: Clock, slots: int, note: Callable[..., None]
    ) -> None:
        self.session: Session
        """Set once, by who puts the parts together."""
        self.announcer: Announcer
        self.send: Callable[[Errand], None] | None = None
        """Who carries out requests; None: nobody here."""
        self.on_changed: Callable[[], None] = lambda: None
        """What runs or waits here is not what it was."""
        self._reports = reports
        self._executor = executor
        self._clock = clock
        self._note = note
        self._slots = slots
        self._draining = False
        self._held: dict[str, Held] = {}
        self._taken = 0
        """Slots of all that is held."""
        self._queue: deque[Held] = deque()
        """Claims whose lease was over as far as is known here: the next answered beat may bring more of it."""
        self._early: list[Claim] = []
        """Claims that came before the session was confirmed."""
        self._disowned: set[int] = set()
        """Tokens that the master's answer took away before this node heard of the claim."""
        self._top = 0
        """The highest token that was ever taken up in this session."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        reports.on_settled = self._settled

    # --- what others want to know ---

    @property
    def actions(self) -> Sequence[Held]:
        """That are this worker's, waiting ones too."""
        return [each for each in self._held.values() if each.ours]

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def takes(self) -> bool:
        """Whether it takes new work."""
        return self.session.is_confirmed and not self._draining and self._slots > 0

    @property
    def slots_taken(self) -> int:
        return self._taken

    # --- a session.Holder ---

    def opened(self, life: Life) -> None:
        self._reports.clear()
        self._queue.clear()
        self._early.clear()
        self._held.clear()
        self._taken = 0
        self._disowned.clear()
        self._top = 0
        done = [self._found(action) for action in life.held]
        if any(done):
            self._reports.look_again()
        self._check_idle()
        self.on_changed()

    def _found(self, action: HeldAction) -> bool:
        """An action of the daemon before this one; whether it has ended meanwhile."""
        held = Held(action.fence, action.seq, action.slots, given=True, stopping=action.stopping)
        held.started = action.started
        self._keep(action.id, held)
        self._top = max(self._top, action.fence)
        if action.finished is not None:
            self.finished(action.finished)
            return True
        if action.started is not None:
            self._reports.started(held.token, action.started.started_at_ms)
        return False

    def confirmed(self) -> None:
        self._top = max(self._top, self.session.floor)
        if self.session.is_taken_over:  # the daemon before this one may have been about to stop
            self._reports.of_self(c.PatchWorker(self.session.worker, c.WorkerChanges(leaving=False)))
        early, self._early = self._early, []
        self._take(early)
        self._reports.look_again()

    def doubted(self, token: int) -> None:
        self._top = max(self._top, token)
        for held in [each for each in self._queue if each.token <= token]:
            self._drop(held)
            self._reports.give_back(held.token)

    def renewed(self) -> None:
        if self._queue:
            self._pump()

    def over(self) -> None:
        if self.session.last is None:
            self._reports.clear()
        self._early.clear()
        self._queue.clear()
        self._held.clear()
        self._taken = 0
        self.announcer.stop()
        self._check_idle()
        self.on_changed()

    def held(self) -> tuple[int, ...]:
        return tuple(each.token for each in self._held.values() if each.ours)

    def foreign(self, tokens: tuple[int, ...]) -> None:
        self.not_ours(tokens)

    def surplus_slots(self) -> int:
        """Of actions that still end here though they are nobody's any more."""
        return sum(each.slots for each in self._held.values() if not each.ours)

    # --- from the seat ---

    def claimed(self, claims: Sequence[Claim]) -> None:
        if not self.session.is_confirmed:
            self._early += claims
        else:
            self._take(claims)

    def stop(self, tokens: Sequence[int]) -> None:
        self._early = [structs.replace(each, stopping=True) if each.token in tokens else each for each in self._early]
        for token in tokens:
            self._stop(action_id(token))

    def not_ours(self, tokens: Sequence[int]) -> None:
        """KILL without grace: it is another's, or will be in a moment. The end is reported nonetheless: who said so may be
        gone before it is decided, and nobody else would end it."""
        for token in tokens:
            held = self._held.get(action_id(token))
            if held is not None and held.given:
                held.ours = False
                self._executor.stop(action_id(token), 0)
            elif held is not None:
                self._drop(held)
                self._reports.give_back(token)
            elif not self._reports.knows(token):
                self._disowned.add(token)
                self._reports.give_back(token)
        self._pump()

    def stands(self, standing: Standing) -> None:
        """Slots and draining are changed from anywhere while it runs."""
        slots, self._slots = self._slots, standing.facts.slots
        was, self._draining = self._draining, standing.draining
        if standing.draining or slots != self._slots:
            self._executor.recall()
        if standing.draining and not was:
            self._note("the worker drains: it takes nothing new", actions=len(self._held))
        self._pump()
        self._check_idle()
        self.on_changed()

    # --- a claim becomes an action ---

    def _take(self, claims: Sequence[Claim]) -> None:
        now = self._clock.boot()
        for claim in claims:
            name = action_id(claim.token)
            known = self._held.get(name)
            if known is not None:
                self._learn(known, claim)
            elif claim.token in self._disowned or self._reports.knows(claim.token):
                pass
            elif claim.token <= self._top:
                self._unknown(claim)
            else:
                self._top = claim.token
                held = Held(claim.token, claim.seq, claim.slots, claim.grace_ms / 1000, claim, now)
                self._keep(name, held)
                self._queue.append(held)
                if claim.stopping:
                    self._stop(name)
        self._disowned = {token for token in self._disowned if token > self._top}
        self._pump()
        self._executor.flush()  # before all else that this entry sets going
        self._check_idle()
        self.on_changed()

    def _unknown(self, claim: Claim) -> None:
        """The executor does not know it, nor will: it has not begun, or is not there any more."""
        if not claim.begun:
            self._reports.give_back(claim.token)
        elif claim.once:
            detail = c.EndDetail(error_code="lost", error_text="the executor does not know it any more")
            self._reports.ended(c.End(claim.token, claim.seq, 1, 0, detail))
        else:
            self._reports.ended(c.End(claim.token, claim.seq, 2))

    def _learn(self, held: Held, claim: Claim) -> None:
        """An action that runs already: what the executor could not tell of it."""
        if held.claim is None:
            held.claim, held.grace_s = claim, claim.grace_ms / 1000
            if held.started is not None and not claim.begun:
                self.announcer.begin(claim, held.started.started_at_ms)
        if claim.stopping and not held.stopping:
            self._stop(action_id(held.token))

    def _pump(self) -> None:
        """Give the executor what may begin, the lowest token first; give back what has waited too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now, left_of_none_s = self._clock.boot(), self.session.left_s(0)
        while self._queue:
            held = self._queue[0]
            may = not self._draining and held.claim is not None and self._may_begin(held.claim, left_of_none_s)
            left_s = held.since + BEGIN_S - now
            if not may and left_s > 0 and not self._draining:
                self._timer = asyncio.get_running_loop().call_later(max(left_s, LOOK_S_MIN), self._pump)
                return
            self._queue.popleft()
            if may and held.claim is not None:
                self._give(held, held.claim, max(0.0, left_s))
            else:
                self._drop(held)
                self._reports.give_back(held.token)

    def _may_begin(self, claim: Claim, left_of_none_s: float) -> bool:
        """Its lease runs, as far as is known here; a request needs a slot now, since the executor has no part in it.
        `left_of_none_s`: of a lease of no length."""
        if left_of_none_s + claim.lease_ms / 1000 <= 0:
            return False
        if claim.work.adapter != "http" or not claim.slots:
            return True
        return claim.slots + sum(each.slots for each in self._held.values() if each.given) <= self._slots

    def _give(self, held: Held, claim: Claim, wait_s: float) -> None:
        try:
            if claim.work.adapter == "http" and self.send is not None:
                self.send(_errand(held.name, claim))
            else:
                self._executor.start(self._spec(held.name, claim, wait_s))
        except (WorkError, ValueError) as error:
            self._drop(held)
            detail = c.EndDetail(error_code="unrunnable", error_text=str(error)[:1000], permanent=True)
            self._reports.ended(c.End(held.token, held.task, 1, 0, detail))
        except RuntimeError:  # there is no executor, so it has certainly not begun
            self._drop(held)
            self._reports.give_back(held.token)
        else:
            held.given = True

    def _spec(self, name: str, claim: Claim, wait_s: float) -> ActionSpec:
        return ActionSpec(
            name,
            claim.task_id,
            claim.attempt,
            claim.token,
            self.session.worker,
            runnable(claim.work),
            claim.payload,
            None if claim.timeout_ms is None else claim.timeout_ms / 1000,
            claim.stop_signal,
            claim.grace_ms / 1000,
            claim.seq,
            claim.slots,
            claim.lease_ms / 1000,
            self._slots,
            wait_s,
            claim.once,
        )

    # --- a ports.ExecutorListener ---

    def started(self, event: ActionStarted) -> None:
        held = self._held.get(event.action_id)
        if held is not None and held.ours:
            held.started = event
            self._reports.started(held.token, event.started_at_ms)
            if held.claim is not None:
                self.announcer.begin(held.claim, event.started_at_ms)

    def progressed(self, event: ActionProgress) -> None:
        held = self._held.get(event.action_id)
        if held is not None and held.ours:
            self._reports.said(held.token, event.text, event.percent)

    def finished(self, event: ActionFinished) -> None:
        held = self._held.get(event.action_id)
        if held is None:
            token = serial_of(event.action_id)
            if not self._reports.knows(token):
                self._executor.forget([event.action_id])
            return
        self._drop(held)
        code = None if event.error is None else event.error.code
        if code == "stale" and held.stopping:
            self._reports.ended(c.End(held.token, held.task, 2))
        elif code == "stale":
            self._reports.give_back(held.token)
        elif (code == "lease" or (code == "stopped" and not held.ours)) and held.claim is not None and held.claim.once:
            detail = c.EndDetail(error_code="lost", error_text="its worker was out of touch for longer than its lease")
            self._reports.ended(c.End(held.token, held.task, 1, event.started_at_ms or 0, detail))
        else:
            self._reports.finished(held.token, held.task, event, stopped=held.stopping)
        if self._queue or self._timer is not None:
            self._pump()
        self.on_changed()

    def gone(self, why: str) -> None:
        self.session.gone(why)

    def _settled(self, tokens: Sequence[int]) -> None:
        self._executor.forget([action_id(token) for token in tokens])

    def _keep(self, name: str, held: Held) -> None:
        held.name = name
        self._held[name] = held
        self._taken += held.slots

    def _drop(self, held: Held) -> None:
        if self._held.pop(held.name, None) is not None:
            self._taken -= held.slots
        if not held.given and held in self._queue:
            self._queue.remove(held)
        self.announcer.ended(held.token)
        self._check_idle()

    def _check_idle(self) -> None:
        if self._held:
            self._idle.clear()
        elif not self._idle.is_set():
            self._idle.set()
            if self._draining:
                self._note("the worker is empty")

    # --- an action ends ---

    def _stop(self, name: str) -> None:
        held = self._held.get(name)
        if held is None or held.stopping:
            return
        held.stopping = True
        if held.given:
            self._executor.stop(name)
        else:
            self._drop(held)
            self._reports.ended(c.End(held.token, held.task, 2))

    # --- the node ends ---

    async def drain(self, drain_s: float) -> None:
        """Actions may go on for so long; then they are stopped with their grace, and run elsewhere."""
        await _wait(self._idle, drain_s)
        grace_s = max((held.grace_s for held in self._held.values()), default=0.0)
        for name in list(self._held):
            self._stop(name)
        if self._held:
            await _wait(self._idle, grace_s + STOP_S)
        for name in list(self._held):
            self._executor.stop(name, 0)
        if self._held:
            await _wait(self._idle, STOP_S)
        await self._reports.flush(STOP_S)

    async def close(self) -> None:
        """After a drain: the session ends with its executor."""
        await self._executor.close(0)
        await self._reports.flush(CLOSE_S)
        await self.session.close(CLOSE_S)
        self._rest()

    async def let_go(self) -> None:
        """The actions go on, for as long as their leases: another daemon may find them."""
        await self._executor.leave()
        self._rest()

    def _rest(self) -> None:
        self.announcer.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _errand(name: str, claim: Claim) -> Errand:
    timeout_s = None if claim.timeout_ms is None else claim.timeout_ms / 1000
    request = claim.work.http or {}
    return Errand(name, claim.task_id, request, claim.payload, claim.payload_json, timeout_s, claim.lease_ms / 1000)


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await event.wait()
    except TimeoutError:
        pass
