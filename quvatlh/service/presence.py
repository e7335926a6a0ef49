"""Who is there, by the master's count: beats of sessions, the leases that they renew, and what follows from silence.

A beat counts from when it arrived, and only if this node holds the leadership lease after that. A new master takes every
session as heard at its election and the shortest election time: longer than any answer of the old one can be under way.
Silence makes a worker `lost` to the market; the end of an action's lease gives its task to another; a silent session that
owns nothing ends. All of it is proposed here and decided in apply. An action that was proposed lost stays so for this
master: a beat that comes before the proposal is decided renews what else the session holds, and is told to end that one.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.limits import LEASE_MS_DEFAULT, PULL_SESSION
from quvatlh.core.queries import charged_sessions, get_session, owned_by, shortest_leases, workers
from quvatlh.core.rows import LiveRow, json_list
from quvatlh.core.verbs import deaths
from quvatlh.core.views import WorkerView
from quvatlh.ports import Clock, Log, LogError, Peers, Role, Unavailable
from quvatlh.service import asks, pulltimes
from quvatlh.service.door import Door
from quvatlh.service.seat import secret_hash
from quvatlh.service.state import State

KIND: Final = "beat"
BEAT_S: Final = 0.5
SILENT_S: Final = 2.3
"""Without a beat for so long a worker gets no awards: four beats in a row are missing."""
LEASE_MORE_S: Final = 0.3
LEASE_DRIFT: Final = 0.002
"""The master waits longer than the lease by both: what a beat may be under way, and what clocks may differ in speed."""
ELECTION_S: Final = 0.3
"""The shortest election time of raft.settings."""
PROPOSE_S: Final = 2.0
LOOK_S: Final = 0.05
"""Thresholds are looked at no more often than this."""
PULL_SILENT_S: Final = 30.0
"""A pull worker says nothing while it works but to renew, and that as seldom as its lease allows."""


class Presence:
    """A Hearer, and a duty of the master (`run`)."""

    def __init__(self, log: Log, peers: Peers, door: Door, state: State, clock: Clock) -> None:
        self.on_room: Callable[[], None] = lambda: None
        """A worker takes again, or more than before, and no entry tells of it."""
        self.on_beat: Callable[[asks.Beat], None] = lambda _beat: None
        """One that was proved."""
        self._log = log
        self._door = door
        self._state = state
        self._clock = clock
        self._workers: dict[str, WorkerView] | None = None
        self._heard: dict[str, float] = {}
        """Session -> when its last beat arrived."""
        self._surplus: dict[str, int] = {}
        self._proofs: dict[str, bytes] = {}
        """Session -> hash of its secret."""
        self._condemned: dict[int, str] = {}
        """Token -> session, of actions that were proposed lost: no beat renews them."""
        self._renewed: dict[int, float] = {}
        """Token of a pull worker's action -> when its last renewal arrived: each lease is counted for itself there."""
        self._elected_at = 0.0
        self._next_at = 0.0
        """When thresholds are looked at again, if nothing is heard."""
        self._acting = False
        self._wake = asyncio.Event()
        peers.handle(KIND, self._asked)

    # --- what others want to know ---

    def workers(self) -> dict[str, WorkerView]:
        """All workers with their facts. `live` and `slots_taken` in it are of no meaning here: they age. Those of this node come
        first: of workers that are as good, the market takes the first, and these hear of an award by no other node."""
        if self._workers is None:
            views = sorted(
                workers(self._state.db), key=lambda view: view.facts.facts.get("node_id") != self._log.node_id
            )
            self._workers = {view.name: view for view in views}
        return self._workers

    def is_silent(self, worker: str) -> bool:
        view = self.workers().get(worker)
        return view is None or view.session is None or self._is_silent(view.session)

    def takers(self) -> list[WorkerView]:
        """Those that take awards now, but for pull workers: these ask for each (pulls.py)."""
        heard_s = self._clock.boot() - SILENT_S
        return [
            view
            for view in self.workers().values()
            if view.session is not None
            and view.state == "up"
            and view.facts.slots > 0
            and not is_pull(view.session)
            and self._last(view.session) >= heard_s
        ]

    def surplus_slots(self, session: str) -> int:
        return self._surplus.get(session, 0)

    def beat(self, beat: asks.Beat) -> asks.BeatAnswer:
        """Of this node's own worker, or one that came over a link. Unavailable from who is not master."""
        arrived = self._clock.boot()
        if not self._log.acts():
            raise Unavailable("this node is not master")
        view = self.workers().get(beat.worker)
        if view is None or view.session != beat.session or not self._is_proved(beat):
            return asks.BeatAnswer(known=False)
        self.on_beat(beat)
        has_room = self._is_silent(beat.session) or beat.surplus_slots < self.surplus_slots(beat.session)
        self._heard[beat.session] = arrived
        self._surplus[beat.session] = beat.surplus_slots
        if has_room:
            self.on_room()
        if view.state == "lost":
            self._wake.set()
        foreign = [token for token, session in self._condemned.items() if session == beat.session]
        strangers = [] if beat.held is None else self._strangers(beat.session, beat.held)
        return asks.BeatAnswer(known=True, foreign=(*foreign, *strangers), token=self._last_token())

    def pulled(self, worker: WorkerView) -> None:
        """A pull worker has asked for something. It renews nothing."""
        self._heard[worker.session or ""] = self._clock.boot()
        if worker.state == "lost":
            self._wake.set()

    def renew(self, action: LiveRow, arrived: float) -> bool:
        """The lease of a pull worker's action counts from then on; False: it is over. To be asked of who acts as master
        by a clock read after `arrived`."""
        if action.token in self._condemned:
            return False
        self._renewed[action.token] = max(arrived, self._renewed.get(action.token, 0.0))
        self._heard[action.session] = arrived
        return True

    def is_ended_with(self, wish: asks.Open) -> bool:
        """Whether the actions of the worker's old session surely ended with its executor: that one was a PID namespace,
        and the same data directory has another now."""
        view = self.workers().get(wish.worker)
        old = None if view is None or view.session is None else get_session(self._state.db, view.session)
        return old is not None and wish.fresh and old.isolated and old.directory == wish.directory

    def _is_proved(self, beat: asks.Beat) -> bool:
        proof = self._proofs.get(beat.session)
        if proof is None:
            found = get_session(self._state.db, beat.session)
            if found is None:
                return False
            proof = self._proofs[beat.session] = found.secret_hash
        return hmac.compare_digest(proof, secret_hash(beat.secret))

    def _strangers(self, session: str, held: Sequence[int]) -> list[int]:
        sql = "SELECT token FROM live WHERE session = ? AND token IN (SELECT value FROM json_each(?))"
        own = {row[0] for row in self._state.db.execute(sql, (session, json_list(held)))}
        return [token for token in held if token not in own and token not in self._condemned]

    def _last_token(self) -> int:
        row = self._state.db.execute("SELECT n FROM serial WHERE name = 'token'").fetchone()
        return 0 if row is None else int(row[0])

    async def _asked(self, _asker: str, body: bytes) -> bytes:
        return asks.BEAT_ANSWER.encode(self.beat(asks.BEAT.decode(body)))

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind.startswith(("worker.", "session.")):
                self._workers = None
                self._proofs.clear()
                self._wake.set()
                if event.kind == "session.opened" and self._acting:
                    self._heard[(event.more or {}).get("session", "")] = self._clock.boot()
        claimed = [event for event in events if event.kind == "task.claimed"]
        workers = {worker: self.workers().get(worker) for worker in {event.worker for event in claimed}}
        pulls = {name for name, view in workers.items() if view is not None and view.session and is_pull(view.session)}
        for event in claimed:
            lease_ms = (event.more or {}).get("lease_ms", 0)
            if event.worker in pulls:
                self._pulled(event.token, lease_ms)
            elif lease_ms < LEASE_MS_DEFAULT:
                self._wake.set()

    def _pulled(self, token: int, lease_ms: int) -> None:
        now = self._clock.boot()
        if self._acting:
            self._renewed[token] = now
        if now + lease_ms / 1000 < self._next_at:
            self._wake.set()

    def role_changed(self, role: Role) -> None:
        self._acting = role.acting
        self._renewed.clear()
        if role.acting:
            self._elected_at = self._clock.boot() + ELECTION_S
            self._heard.clear()
            self._surplus.clear()
        self._condemned.clear()  # proposals of an earlier term are decided by now, or void

    def reset(self, _index: int) -> None:
        self._workers = None
        self._proofs.clear()

    # --- the duty ---

    async def run(self) -> None:
        while True:
            self._wake.clear()
            try:
                next_s = await self._look()
            except LogError:
                next_s = LOOK_S
            self._next_at = float("inf") if next_s is None else self._clock.boot() + next_s
            await asyncio.sleep(LOOK_S)
            try:
                async with asyncio.timeout(next_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _look(self) -> float | None:
        """Propose what follows from the silence so far; seconds until there may be more, None: until something is heard."""
        leases = shortest_leases(self._state.db)
        live = owned_by(self._state.db, self._doubted(leases))
        self._renewed = {each.token: self._last_of(each) for each in live if is_pull(each.session)}
        self._forget_sessions(leases)
        for command in (*self._lost(live), *self._changes(live, leases)):
            await self._door.propose(command, PROPOSE_S)
        now = self._clock.boot()
        leases = shortest_leases(self._state.db)
        pulled = owned_by(self._state.db, [session for session in leases if is_pull(session)])
        ends = [self._last_of(each) + _lease_s(each.lease_ms) - now for each in pulled]
        ends += [self._last(session) + _lease_s(ms) - now for session, ms in leases.items() if not is_pull(session)]
        ends += [
            self._last(view.session) + _silent_s(view.session) - now
            for view in self.workers().values()
            if view.session is not None and view.state != "lost"
        ]
        return None if not ends else max(LOOK_S, min(ends))

    def _doubted(self, leases: Mapping[str, int]) -> list[str]:
        """Sessions of which some lease may be over. Of all others it is enough to know that they own something: they are
        heard twice a second, and may own ten thousand actions."""
        condemned = set(self._condemned.values())
        return [
            session
            for session, lease_ms in leases.items()
            if is_pull(session) or session in condemned or self.silence_s(session) > _lease_s(lease_ms)
        ]

    def _forget_sessions(self, leases: Mapping[str, int]) -> None:
        """A pull worker that claims now and then has a new one each time."""
        known = {view.session for view in self.workers().values()} | leases.keys()
        for session in self._heard.keys() - known:
            del self._heard[session]
            self._surplus.pop(session, None)

    def _lost(self, live: list[LiveRow]) -> list[c.AnyCommand]:
        """Proposed again until they are decided, also when a beat has come meanwhile."""
        over = [each for each in live if each.token in self._condemned or self._is_over(each)]
        self._condemned = {each.token: each.session for each in over}
        suspects = self._suspects(live, over)
        pulled = [each for each in over if is_pull(each.session)]
        late = pulltimes.overran(self._state.db, pulled, self._log.time_ms)
        ends = [c.Finish(each.session, (pulltimes.end(each, late[each.token]),)) for each in over if each.token in late]
        losses = tuple(c.Loss(each.token, died=each.token in suspects) for each in over if each.token not in late)
        return [*ends, *(c.Lost(losses[n : n + 1000]) for n in range(0, len(losses), 1000))]

    def _suspects(self, live: list[LiveRow], over: list[LiveRow]) -> set[int]:
        """What may have ended its worker, as far as that is silent: it is told otherwise when it is heard again. Of a pull
        worker nobody knows: one that let a lease go by is taken for dead, for its task may be why."""
        slots = {view.session: view.facts.slots for view in self.workers().values()}
        found = {each.token for each in over if is_pull(each.session)}
        for session in {each.session for each in over if not is_pull(each.session)}:
            if self._is_silent(session):
                actions = [each for each in live if each.session == session]
                found |= deaths.suspects(actions, slots.get(session, 0))
        return found

    def _changes(self, live: list[LiveRow], leases: Mapping[str, int]) -> list[c.AnyCommand]:
        """`live` is what the doubted ones own."""
        owning = leases.keys() - {each.session for each in live} | {
            each.session for each in live if not self._is_over(each)
        }
        charged = charged_sessions(self._state.db)
        found: list[c.AnyCommand] = []
        for view in self.workers().values():
            if view.session is None:
                continue
            silent = self._is_silent(view.session)
            if silent and view.session not in owning:
                found.append(c.EndSession(view.session))
            elif silent != (view.state == "lost") or (view.session in charged and self._is_heard(view.session)):
                heard = self._is_heard(view.session)
                found.append(c.Presence(view.name, view.session, up=not silent, heard=heard))
        return found

    def _is_heard(self, session: str) -> bool:
        """By this master itself, not by the grace of its election. A pull worker's session says nothing of its process."""
        at = self._heard.get(session)
        return at is not None and not is_pull(session) and self._clock.boot() - at <= SILENT_S

    def _is_over(self, action: LiveRow) -> bool:
        return self._clock.boot() - self._last_of(action) > _lease_s(action.lease_ms)

    def _is_silent(self, session: str) -> bool:
        return self.silence_s(session) > _silent_s(session)

    def silence_s(self, session: str) -> float:
        return self._clock.boot() - self._last(session)

    def _last_of(self, action: LiveRow) -> float:
        """When what renews this action was heard last. A pull worker's that is seen for the first time begins now, which
        is never too early."""
        if not is_pull(action.session):
            return self._last(action.session)
        return self._renewed.get(action.token) or max(self._clock.boot(), self._elected_at)

    def _last(self, session: str) -> float:
        return max(self._heard.get(session, 0.0), self._elected_at)


def _lease_s(lease_ms: int) -> float:
    """As the master counts it."""
    return lease_ms / 1000 * (1 + LEASE_DRIFT) + LEASE_MORE_S


def is_pull(session: str) -> bool:
    """Whether it is a session without an executor: of a pull worker."""
    return session.startswith(PULL_SESSION)


def _silent_s(session: str) -> float:
    return PULL_SILENT_S if is_pull(session) else SILENT_S
