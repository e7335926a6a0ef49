"""Seats on this node: what the feed and the table say to the workers that sit here, and the way of their words to the log.

One hearer serves the node's own worker and all that are connected to the node; each hears of itself alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.model import WorkerFacts
from quvatlh.core.queries import get_session, workers
from quvatlh.core.results import Opened
from quvatlh.ports import Clock, Log, Peers, Role, Unavailable
from quvatlh.service import asks, claims
from quvatlh.service.door import Door
from quvatlh.service.looking import Looking
from quvatlh.service.presence import BEAT_S, KIND, Presence
from quvatlh.service.seat import Claim, Look, Occupant, Report, Standing
from quvatlh.service.state import State

OFFERS: Final = "offers"
LISTED_ROWS: Final = 2000
"""Read between two turns of the loop: about a millisecond."""
OPEN_S: Final = 5.0
OFFER_S: Final = 1.0
_OVER: Final = frozenset({"task.relocated", "task.failed", "task.deleted", "action.ended", "task.succeeded"})
"""Of a token that still runs at its worker: it was lost by the master's count, and is another's now."""
_READY: Final = frozenset({"task.added", "task.ready", "task.relocated", "task.updated"})
_SESSIONS: Final = frozenset({"session.opened", "session.ended"})
_STANDING: Final = frozenset({"worker.changed", "worker.up", "worker.draining"})
_WAITS: Final = frozenset({"pending", "running"})
"""A service that runs may have more instances to start."""


class Seats:
    """A Hearer."""

    def __init__(self, log: Log, peers: Peers, door: Door, presence: Presence, state: State, clock: Clock) -> None:
        self.take_offers: Callable[[asks.Offers], None] = lambda _offers: None
        """The master's own, of what is offered on this node."""
        self._log = log
        self._peers = peers
        self._door = door
        self._presence = presence
        self._state = state
        self._clock = clock
        self._taken: dict[str, NodeSeat] = {}

    def take(self, worker: str) -> NodeSeat:
        """A seat for it; one that it had here before hears nothing any more."""
        seat = self.make(worker)
        self.put(seat)
        return seat

    def make(self, worker: str) -> NodeSeat:
        """A seat that hears nothing yet."""
        return NodeSeat(
            self._log, self._peers, self._door, self._presence, self._state, self._clock, worker, self._offered
        )

    def put(self, seat: NodeSeat) -> None:
        self._taken[seat.worker] = seat

    def _offered(self, offers: asks.Offers) -> None:
        self.take_offers(offers)

    def leave(self, seat: NodeSeat) -> None:
        if self._taken.get(seat.worker) is seat:
            del self._taken[seat.worker]

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        if not self._taken or not self._state.is_open:
            return
        mine: dict[str, list[Event]] = {}
        ready: list[Event] = []
        for event in events:
            if event.worker in self._taken:
                mine.setdefault(event.worker, []).append(event)
            elif event.kind.startswith(("worker.", "session.")) and event.id in self._taken:
                mine.setdefault(event.id, []).append(event)
            if event.kind in _READY and event.state in _WAITS:
                ready.append(event)
        for worker, its in mine.items():
            self._taken[worker].heard(its)
        for seat in self._taken.values():
            seat.market_moved(events, ready)

    def role_changed(self, _role: Role) -> None:
        for seat in list(self._taken.values()):
            seat.moved()

    def reset(self, _index: int) -> None:
        for seat in list(self._taken.values()):
            seat.reset()


class NodeSeat:
    """seat.Seat, by the parts of a node."""

    def __init__(
        self,
        log: Log,
        peers: Peers,
        door: Door,
        presence: Presence,
        state: State,
        clock: Clock,
        worker: str,
        take_offers: Callable[[asks.Offers], None],
    ) -> None:
        self.worker = worker
        self._take_offers = take_offers
        self._log = log
        self._peers = peers
        self._door = door
        self._presence = presence
        self._state = state
        self._clock = clock
        self._occupant: Occupant
        self._session: str | None = None
        self._told: set[int] = set()
        """Tokens that the worker was told of, and has not ended by its own word."""
        self._bids: set[int] = set()
        """Tasks that it has bid for, as long as they wait."""
        self._looking = Looking(worker)

    def sit(self, occupant: Occupant) -> None:
        self._occupant = occupant

    def follow(self, session: str) -> None:
        self._session = session
        self._tell_all()

    # --- from the worker ---

    async def open(self, wish: asks.Open) -> int:
        written = await self._door.write(wish, OPEN_S, self._door.request_id())
        assert isinstance(written.answer, Opened)
        return written.answer.token

    async def beat(self, beat: asks.Beat) -> asks.BeatAnswer:
        master = self._log.role.master
        if master == self._log.node_id:
            return self._presence.beat(beat)
        if master is None:
            raise Unavailable("no master is known")
        body = await self._peers.request(master, KIND, asks.BEAT.encode(beat), deadline=BEAT_S)
        answer: asks.BeatAnswer = asks.BEAT_ANSWER.decode(body)
        return answer

    async def report(self, report: Report, deadline_s: float) -> None:
        if isinstance(report, c.Finish):
            self._told.difference_update(end.token for end in report.ends)
        elif isinstance(report, c.GiveBack):
            self._told.difference_update(report.tokens)
        await self._door.write(asks.Do(report), deadline_s)

    async def offer(self, offers: asks.Offers) -> None:
        self._bids.update(each.task for each in offers.offers if each.word == "bid")
        self._bids.difference_update(each.task for each in offers.offers if each.word != "bid")
        master = self._log.role.master
        if master is None:
            raise Unavailable("no master is known")
        if master == self._log.node_id:
            self._take_offers(offers)
        else:
            await self._peers.request(master, OFFERS, asks.OFFERS.encode(offers), deadline=OFFER_S)

    async def look(self) -> Look:
        if not self._state.is_open:
            raise Unavailable("this node's state is being replaced")
        now_ms = max(self._clock.wall_ms(), self._state.time_ms)
        return self._looking.look(self._state.db, now_ms)

    async def listed(self, tokens: Sequence[int]) -> Sequence[int]:
        """What this node has not heard of yet counts as listed. No index leads from a token to its action, so the table of
        ended actions is walked, in slices."""
        state, asked = self._state, set(tokens)
        row = state.db.execute("SELECT n FROM serial WHERE name = 'token'").fetchone()
        found = {token for token in asked if row is None or token > row[0]}
        found.update(row[0] for row in state.db.execute("SELECT token FROM live") if row[0] in asked)
        sql = "SELECT task, token, worker FROM action WHERE (task, token) > (?, ?) ORDER BY task, token LIMIT ?"
        place = (0, 0)
        while True:
            rows = state.db.execute(sql, (*place, LISTED_ROWS)).fetchall()
            found.update(token for _, token, worker in rows if worker == self.worker and token in asked)
            if len(rows) < LISTED_ROWS:
                return sorted(found)
            place = rows[-1][:2]
            await asyncio.sleep(0)

    # --- from the node ---

    def heard(self, events: Sequence[Event]) -> None:
        """Events of this worker."""
        session = self._session
        if session is None:
            return
        for event in events:
            if event.kind in _SESSIONS and event.id == self.worker:
                self._check_session(session)
            elif event.kind in _STANDING and event.id == self.worker:
                self._tell_standing()
        self._tell_claims(session, [event.token for event in events if event.kind == "task.claimed"])
        stops = [event.token for event in events if event.kind == "action.stopping"]
        if stops:
            self._occupant.stop_actions(stops)
        gone = [event.token for event in events if event.kind in _OVER and event.token in self._told]
        if gone:
            self._told.difference_update(gone)
            self._occupant.not_ours(gone)

    def market_moved(self, events: Sequence[Event], ready: Sequence[Event]) -> None:
        """Anybody's events: what waits now, and what does not any more."""
        if self._bids:
            decided = [event.seq for event in events if event.seq in self._bids and event.kind not in _READY]
            if decided:
                self._bids.difference_update(decided)
                self._occupant.decided(decided)
        if ready:
            found = [self._looking.appeared(self._state.db, event.seq, event.shape) for event in ready]
            if any(found):
                self._occupant.news()

    def moved(self) -> None:
        if self._session is not None:
            self._occupant.moved()

    def reset(self) -> None:
        """Another state: what was missed of it is told anew."""
        self._looking.reset()
        self._tell_all()
        self.moved()

    def _tell_all(self) -> None:
        session = self._session
        if session is None or not self._state.is_open:
            return
        self._check_session(session)
        self._tell_standing()
        self._say_claims(claims.of_session(self._state.db, session))

    def _tell_claims(self, session: str, tokens: Sequence[int]) -> None:
        if tokens:
            self._say_claims(claims.of_tokens(self._state.rows, session, tokens))

    def _say_claims(self, found: Sequence[Claim]) -> None:
        if found:
            self._told.update(claim.token for claim in found)
            self._occupant.claimed(found)

    def _tell_standing(self) -> None:
        sql = "SELECT draining FROM worker WHERE name = ?"
        row = self._state.db.execute(sql, (self.worker,)).fetchone()
        if row is not None:
            self._occupant.stands(Standing(self._facts(), bool(row[0])))

    def _facts(self) -> WorkerFacts:
        found = workers(self._state.db, self.worker)
        return found[0].facts if found else WorkerFacts(self.worker, slots=0)

    def _check_session(self, session: str) -> None:
        """By the table as it is now: a node that lags may be told of sessions from before this one."""
        row = get_session(self._state.db, session)
        if row is not None and row.ended:
            self._session = None
            self._occupant.over(session)
