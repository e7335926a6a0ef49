"""The life of this worker's executor as the cluster sees it: found or started, announced, kept alive by beats.

A session is its executor's: a daemon that finds the executor alive goes on with the session and beats at once. Only a beat
that the master has answered renews, from when it was *sent*, which is earlier than the master's count begins; it is sent only
if the executor has answered since the last one; what the answer does not count as the session's ends before the rest is
renewed. A session that is over takes its executor with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Protocol

from quvatlh.core import commands as c
from quvatlh.core.limits import LEASE_MS_MIN
from quvatlh.core.model import WorkerFacts
from quvatlh.ports import Clock, Executor, Life, LogError
from quvatlh.service import asks
from quvatlh.service.door import Refusal
from quvatlh.service.hostloads import Hour
from quvatlh.service.presence import BEAT_S
from quvatlh.service.seat import Seat, secret_hash

ASK_S: Final = 1.0
"""An executor that has not answered for so long is asked again; nothing is renewed meanwhile."""
AGAIN_S: Final = 0.2
"""A session that was heard a moment ago gives way once it is silent; asked again this often."""
PATIENCE_S: Final = 5.0
"""More than an old session of the same directory takes to give way. What is refused for longer has a reason of its own."""
PATIENT_AGAIN_S: Final = 2.0
"""Then it is asked this often: each time is an entry of the log."""
START_AGAIN_S: Final = 1.0
"""After an executor that could not be started."""
DOUBT_S: Final = LEASE_MS_MIN / 1000
"""After a shorter silence no master has proposed anything lost."""


class Holder(Protocol):
    """Who knows the actions of the session (worker.py)."""

    def opened(self, life: Life) -> None:
        """There is a session, with what its executor holds."""
        ...

    def confirmed(self) -> None:
        """The master counts it as the worker's own: claims may start. Told once a session."""
        ...

    def doubted(self, token: int) -> None:
        """What was claimed up to this token and has not begun may be lost already, and told of later: it never begins."""
        ...

    def renewed(self) -> None:
        """Every lease counts from a later beat now."""
        ...

    def over(self) -> None:
        """Nothing that was held is this worker's any more. Its executor ends next."""
        ...

    def held(self) -> tuple[int, ...]:
        """Tokens of all that runs."""
        ...

    def foreign(self, tokens: tuple[int, ...]) -> None:
        """They end at once."""
        ...

    def surplus_slots(self) -> int: ...


class Session:
    def __init__(
        self,
        seat: Seat,
        executor: Executor,
        clock: Clock,
        holder: Holder,
        *,
        worker: str,
        directory: str,
        facts: WorkerFacts,
        note: Callable[..., None],
        load: Callable[[], asks.Load | None] = lambda: None,
    ) -> None:
        self.worker = worker
        self.facts = facts
        self.id: str | None = None
        """None while there is none."""
        self.last: str | None = None
        """The one before: its ends may still be told, until the next one is open."""
        self.floor = 0
        """Tokens up to this one are never begun: of earlier sessions, or seen by the daemon before this one."""
        self._seat = seat
        self._executor = executor
        self._clock = clock
        self._holder = holder
        self._directory = directory
        self._note = note
        self._load = load
        self._hour = Hour()
        self._life: Life | None = None
        self._fresh = False
        """The executor was started by this daemon, so there was nothing before."""
        self._is_confirmed = False
        self._names_held = True
        self._renewed_at = 0.0
        self._since = 0.0
        """No master counts the session's leases from an earlier time: its last answered beat, or before it was opened."""
        self._beat_now = asyncio.Event()
        self._doomed = False
        """The executor outlived its session."""
        self._outlived: str | None = None
        """That session, until there is a new one: the master may have taken its silence for death."""
        self._refused_at: float | None = None
        """Since when there is no new one though it is asked for."""
        self.refusal = ""
        """Why."""
        self._is_told = False
        self._closing = False

    @property
    def is_open(self) -> bool:
        return self.id is not None

    @property
    def is_taken_over(self) -> bool:
        """Its executor was started by an earlier daemon."""
        return not self._fresh

    @property
    def is_confirmed(self) -> bool:
        return self.id is not None and self._is_confirmed

    def left_s(self, lease_ms: int) -> float:
        """Of a lease of that length, counted from the last answered beat."""
        return self._renewed_at + lease_ms / 1000 - self._clock.boot()

    def moved(self) -> None:
        """Whoever is asked next has not heard this one yet."""
        self._names_held = True
        self._beat_now.set()

    async def run(self) -> None:
        while not self._closing:
            if self._life is None or self._doomed:
                await self._bring_up()
            elif self.id is None:
                await self._open(self._life)
            else:
                await self.beat()
                await self._pause(BEAT_S)

    async def leave(self, deadline_s: float) -> None:
        """Ask for no more awards; the session goes on until it is closed."""
        if self.id is not None:
            with contextlib.suppress(LogError, Refusal):
                await self._seat.report(c.PatchWorker(self.worker, c.WorkerChanges(leaving=True)), deadline_s)

    async def close(self, deadline_s: float) -> None:
        """Over in order: nothing may be held any more."""
        self._closing = True
        session, self.id = self.id, None
        if session is not None:
            with contextlib.suppress(LogError, Refusal):  # then it ends by its silence
                await self._seat.report(c.EndSession(session), deadline_s)

    def over(self, session: str) -> None:
        """By the word of the cluster."""
        if self.id == session:
            self._doomed = True
            self._outlived = session
            self._end(last=None)

    def gone(self, why: str) -> None:
        """There is no executor any more."""
        if self._life is not None and not self._closing:
            self._note("the executor is gone", why=why)
            self._end(last=self.id)
            self._life = None

    def _end(self, last: str | None) -> None:
        self.id, self.last = None, last
        self._is_confirmed = False
        self._holder.over()
        self._beat_now.set()

    # --- an executor, a session ---

    async def _bring_up(self) -> None:
        try:
            if self._doomed:
                await self._executor.close(0)
                self._doomed, self._life = False, None
            life = await self._executor.open()
            if life.worker != self.worker:
                self._note("the executor was another worker's", worker=life.worker)
                await self._executor.close(0)
                life = await self._executor.open()
        except OSError as error:
            self._doomed, self._life = False, None
            self._note("no executor can be started", why=str(error))
            await self._pause(START_AGAIN_S)
            return
        self._life, self._fresh, self._since = life, life.fresh, self._clock.boot()
        self._names_held, self._is_confirmed = True, False
        if not life.fresh:
            self._note("found the executor alive", session=life.session, actions=len(life.held))
            self._begin(life, life.fence)

    async def _open(self, life: Life) -> None:
        secret = secret_hash(life.secret)
        wish = asks.Open(
            self.worker,
            life.session,
            secret,
            self._directory,
            self.facts,
            life.isolated,
            fresh=True,
            outlived=self._outlived,
        )
        try:
            floor = await self._seat.open(wish)
        except Refusal as refusal:
            if "was used before" in str(refusal):  # answered as unknown, opened, and over since
                self._doomed = True
            await self._refused(str(refusal))
            return
        except LogError:
            await self._pause(AGAIN_S)
            return
        self._outlived, self._refused_at, self.refusal, self._is_told = None, None, "", False
        if self._life is life and not self._closing:
            self._begin(life, floor)

    async def _refused(self, why: str) -> None:
        """By the old session of this worker, until it is silent; or for good, by another daemon of the same name."""
        now = self._clock.boot()
        if self._refused_at is None:
            self._refused_at = now
        is_long = now - self._refused_at > PATIENCE_S
        if is_long and not self._is_told:
            self._is_told = True
            self._note("the worker gets no session: is there another daemon of its name?", worker=self.worker, why=why)
        self.refusal = why
        await self._pause(PATIENT_AGAIN_S if is_long else AGAIN_S)

    def _begin(self, life: Life, floor: int) -> None:
        self.id, self.last, self.floor = life.session, None, floor
        self._holder.opened(life)
        self._seat.follow(life.session)

    # --- its beats ---

    async def beat(self) -> None:
        """One, if the executor lives and answers."""
        life = self._life
        try:
            async with asyncio.timeout(ASK_S):
                await self._executor.ask()
        except (OSError, TimeoutError):
            return
        session, names = self.id, self._names_held
        if life is None or session != life.session:
            return
        held = self._holder.held() if names else None
        load = self._load()
        sent = self._clock.boot()
        if load is not None:
            self._hour.add(sent, load)
        hour = self._hour.told(sent) if names else b""
        beat = asks.Beat(self.worker, session, life.secret, self._holder.surplus_slots(), held, load, hour)
        self._names_held = False
        try:
            answer = await self._seat.beat(beat)
        except (LogError, asks.Unreadable):
            self._names_held = self._names_held or names
            return
        if session != self.id:
            return
        if not answer.known:
            self.over(session)
            return
        self._answered(answer, sent)

    def _answered(self, answer: asks.BeatAnswer, sent: float) -> None:
        if answer.foreign:
            self._holder.foreign(answer.foreign)
        if self._clock.boot() - self._since > DOUBT_S or not (self._fresh or self._is_confirmed):
            self.floor = max(self.floor, answer.token)
            self._holder.doubted(self.floor)
        self._renewed_at = self._since = max(self._renewed_at, sent)
        self._executor.renew(sent)
        if not self._is_confirmed:
            self._is_confirmed = True
            self._holder.confirmed()
        self._holder.renewed()

    async def _pause(self, at_most_s: float) -> None:
        """A beat that found no master is sent again once there is one."""
        try:
            async with asyncio.timeout(at_most_s):
                await self._beat_now.wait()
        except TimeoutError:
            pass
        self._beat_now.clear()
