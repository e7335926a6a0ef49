"""The master's market: ready tasks meet bids, and one entry awards all that can start now.

A round runs when something became ready, a slot became free, a bid came, a worker came or changed; nothing runs in between.
Without a policy what bids is what the table says (bids.py). With one, workers have said what they want (offers.py): the
auction of a task is open until all that could take it now have answered, or for 50 ms; the best bid wins, and where none
stands the next one to come. Apply checks all limits again; what it refuses is passed over until something ends or changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final

from quvatlh.core import commands as c
from quvatlh.core import market
from quvatlh.core.disciplines import FAIR
from quvatlh.core.events import Event
from quvatlh.core.limits import LEASE_MS_DEFAULT
from quvatlh.core.results import Answer, Awarded
from quvatlh.core.rows import Queued
from quvatlh.ports import Clock, Log, LogError, Role, Unknown
from quvatlh.service.atonce import AtOnce
from quvatlh.service.bids import CHOICES, Bid, Bids, best, soonest
from quvatlh.service.door import Door
from quvatlh.service.field import Field
from quvatlh.service.lanes import Entrants, Lane
from quvatlh.service.lots import Given, Lots
from quvatlh.service.offers import Book
from quvatlh.service.pace import Pace
from quvatlh.service.placing import Strategy
from quvatlh.service.presence import Presence
from quvatlh.service.pulls import ClaimBid, Pulls
from quvatlh.service.root import Root
from quvatlh.service.shapes import Shapes
from quvatlh.service.state import State

AWARDS_MAX: Final = 800
"""In one entry: applied and told in some 10 ms, and the first reach their workers while the next are decided. The more there are,
the less the keys of a fair queue cost each of them: a key has its tag, its counter and its first written once an entry."""
PROPOSALS_MAX: Final = 2
"""Award entries under way at once; more would only queue before the log."""
PROPOSE_S: Final = 2.0
ALARM_S_MIN: Final = 0.001
"""What is left of a time may be less than a tick of the loop's clock, again and again."""
AGAIN_S: Final = 0.05
SILENT_AGAIN_S: Final = 0.1
"""A beat of a worker that has missed a few wakes nobody: so often it is looked at again."""
LONG_MS: Final = 50.0
"""A queue whose tasks run longer is never fed ahead."""

_NEWS: Final = frozenset({"task.added", "task.ready", "worker.up", "session.opened", "worker.changed"})
_FREES: Final = frozenset(
    {
        "task.succeeded", "task.failed", "task.retrying", "task.relocated", "task.deleted", "task.updated", "task.ready",
        "action.ended", "queue.changed", "class.changed", "worker.changed", "session.opened", "worker.up", "worker.lost", "worker.draining",
    }
)  # fmt: skip


class Auction:
    """A Hearer, and a duty of the master (`run`)."""

    def __init__(
        self,
        log: Log,
        door: Door,
        state: State,
        presence: Presence,
        clock: Clock,
        book: Book,
        pace: Pace,
        shapes: Shapes,
        *,
        pulls: Pulls,
        strategy: Strategy = "spread",
        ahead: bool = True,
    ) -> None:
        """`ahead`: short tasks are claimed before there is a slot for them."""
        self._log = log
        self._door = door
        self._state = state
        self._presence = presence
        self._clock = clock
        self._book = book
        self._pace = pace
        self._shapes = shapes
        self._pulls = pulls
        self._choose = CHOICES[strategy]
        self._ahead = ahead
        self._wake = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._under_way: dict[int, list[tuple[str, int]]] = {}
        """Seq of a task -> worker and slots of its awards, from the proposal until it is applied here."""
        self._rows: dict[int, Queued] = {}
        """Of what is under way."""
        self._field = Field(state, presence, book, shapes)
        self._passed: set[int] = set()
        """Tasks that apply refused, until something ends or changes."""
        self._lots = Lots(state, pace, self._choose, self._under_way)
        self._proposals: set[asyncio.Task[None]] = set()
        self._later_s: float | None = None
        self.at_once = AtOnce(state, presence, pace, clock, self._under_way, self._choose, self._field.settings)
        self.at_once.on_done = book.on_news = pulls.on_news = presence.on_room = self._wake.set

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        for event in events:
            kind = event.kind
            if kind == "task.claimed":
                self._under_way.pop(event.seq, None)
                if self.at_once.shares:
                    self.at_once.claimed(event.seq, event.id, event.queue)
                if event.state in {"running", "pending"}:  # a service may have more instances to start
                    self._wake.set()
            elif kind in _FREES:
                if kind == "queue.changed":
                    self._field.forget(event.id)
                self._passed.clear()
                self._wake.set()
            elif kind in _NEWS:
                self._wake.set()

    def role_changed(self, role: Role) -> None:
        if not role.acting:
            self._under_way.clear()
        self._passed.clear()
        self._wake.set()

    def reset(self, _index: int) -> None:
        self._field.forget()
        self._shapes.reset()
        self._passed.clear()
        self._wake.set()

    # --- the duty ---

    async def run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                self._round()
                await asyncio.sleep(0)
        finally:
            self._set_alarm(None)
            for task in self._proposals:
                task.cancel()

    def _round(self) -> None:
        """Award what can start now."""
        if len(self._proposals) >= PROPOSALS_MAX or not self._log.acts() or not self._state.is_open:
            return
        self._pace.tidy()
        by_table = Bids(
            self._state.db, self._presence, self._pace, self._now_ms(), ahead=self._ahead, shapes=self._shapes
        )
        bids = by_table.of(self._under_way)
        claims = self._claims()
        if not bids and not claims:
            return
        self._later_s = None
        awards = tuple(self._matches(self._root(bids))) if bids and by_table.have_room(bids) else ()
        if awards:
            self._begin(self._propose(awards))
        if len(awards) >= AWARDS_MAX:
            self._wake.set()
        if claims:
            self._serve(claims)
        self._set_alarm(self._later_s)

    def _claims(self) -> list[ClaimBid]:
        """Of pull workers, if there is anything for them."""
        if not self._pulls.stand_any():
            return []
        waits = (self._shapes.get(number) for _, number in market.ready_shapes(self._state.db))
        return self._pulls.bids() if any(shape is not None and shape.adapter == "pull" for shape in waits) else []

    def _serve(self, claims: list[ClaimBid]) -> None:
        """Fair ones share all queues; a greedy one takes what is left, one queue after the other. The awards of each are
        an item of their own, in its name."""
        fair = [bid for bid in claims if bid.claim is not None and not bid.claim.ask.greedy]
        if fair:
            deque(self._matches(self._root(fair)), maxlen=0)
        greedy = [bid for bid in claims if bid.claim is not None and bid.claim.ask.greedy]
        queues = {queue for queue, _ in market.ready_shapes(self._state.db)} if greedy else set()
        for bid in greedy:
            for queue in bid.in_order(queues):
                if bid.is_full:
                    break
                deque(self._matches(self._root([bid], queue)), maxlen=0)
        served = [bid for bid in claims if bid.awards]
        if served:
            self._pulls.proposed(served)
            self._begin(self._hand_out(served))
        if self._pulls.is_more():
            self._look_in(AGAIN_S)

    def _begin(self, proposal: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(proposal)
        self._proposals.add(task)
        task.add_done_callback(self._proposed)

    def _matches(self, root: Root) -> Iterator[c.Award]:
        """The next task of whichever queue is next."""
        left = AWARDS_MAX
        while left > 0 and (lane := root.next()) is not None:
            given = self._lot(lane, left) if lane.is_new and root.is_alone(lane) else None
            if given is not None:
                lane.after = given.after
                left -= len(given.awards)
                root.gave(lane, given.lots)
                yield from given.awards
                if given.is_all:
                    root.drop(lane)
                if given.again:
                    self._wake.set()
                continue
            found = lane.next()
            if found is None:
                root.drop(lane)
                continue
            task, entrants = found
            winners = self._winners(lane, task, entrants)
            if not winners:
                continue
            for bid in winners:
                bid.take(task.slots)
            lane.turned(task, [bid.name for bid in winners])
            root.took(lane, task, len(winners))
            left -= len(winners)
            self._under_way[task.seq] = [(bid.name, task.slots) for bid in winners]
            self._rows[task.seq] = task
            for bid in winners:
                self._pace.awarded(task.seq, task.queue, bid.share, bid.name, bid.slots)
                award = c.Award(task.seq, bid.name, bid.session, bid.lease_ms)
                bid.won(award)
                yield award
        free_at_ms = root.free_at_ms()
        if free_at_ms is not None:
            self._look_in(max(0.001, (free_at_ms - self._now_ms()) / 1000))

    def _lot(self, lane: Lane, most: int) -> Given | None:
        """What it gives at once; None: its tasks are looked at one by one."""
        plain = lane.plain()
        lease_ms = lane.queue.settings.lease_ms or LEASE_MS_DEFAULT
        if plain is None or not all(bid.hears_in(lease_ms) for bid in plain.bids):
            return None
        unwanted, most, run_ms = self._under_way.keys() | self._passed, min(most, lane.room), self._fed_ms(plain.queue)
        settings = lane.queue.settings
        if settings.discipline != FAIR:
            return self._lots.give(plain, lane.holds, most, unwanted, run_ms)
        return self._lots.give_flows(plain, settings, lane.holds, most, unwanted, run_ms)

    def _winners(self, lane: Lane, task: Queued, entrants: Entrants) -> list[Bid]:
        """Who gets it; nobody: the lane has been told to go on without it."""
        all_bids, entrants = entrants.bids, self._in_touch(lane, task, entrants)
        able = [bid for bid in entrants.bids if bid.has(task.slots)]
        if entrants.policy and able:
            return self._auctioned(lane, task, able)
        if able:
            return [self._choose(able, task.key or task.id)]
        soonest = self._ahead_of(task, entrants)
        if soonest is None and len(entrants.bids) < len(all_bids):  # the next may have a longer lease
            lane.pass_over()
        elif soonest is None:
            lane.skip()
        if soonest is None:
            return []
        return [soonest]

    def _in_touch(self, lane: Lane, task: Queued, entrants: Entrants) -> Entrants:
        """Who has been silent for longer than the task's lease would lose it at once; he may be heard again any moment."""
        lease_ms = task.lease_ms or lane.queue.settings.lease_ms or LEASE_MS_DEFAULT
        for bid in entrants.bids:
            if not bid.hears_in(lease_ms):
                self._look_in(SILENT_AGAIN_S)
                return entrants._replace(bids=[each for each in entrants.bids if each.hears_in(lease_ms)])
        return entrants

    def _auctioned(self, lane: Lane, task: Queued, able: list[Bid]) -> list[Bid]:
        """A service gets as many as it wants; each bid is for one."""
        scores = self._book.scores(task.seq)
        open_s = self._book.open_s(task.seq, [(bid.name, bid.session) for bid in able])
        if open_s > 0:
            self._look_in(open_s)
        wanted = max(1, (task.lim or 1) - task.live - task.resting) if task.service else 1
        winners = best(able, scores, task)[: min(wanted, lane.room)] if open_s <= 0 else []
        if not winners:
            lane.pass_over()
        return winners

    def _ahead_of(self, task: Queued, entrants: Entrants) -> Bid | None:
        """The worker where it begins soonest, if that is soon enough to claim it before a slot is free."""
        if entrants.policy or task.service or task.once or task.slots != 1:
            return None
        run_ms = self._fed_ms(task.queue)
        if run_ms is None:
            return None
        return soonest(entrants.bids, run_ms)

    def _fed_ms(self, queue: str) -> float | None:
        """How long the runs of a queue are that may be fed ahead of slots."""
        run_ms = self._pace.run_ms(queue) if self._ahead else None
        return None if run_ms is None or run_ms > LONG_MS else run_ms

    def _root(self, bids: Sequence[Bid], only: str | None = None) -> Root:
        self._rows = {seq: row for seq, row in self._rows.items() if seq in self._under_way}
        under_way = [(row, [worker for worker, _ in self._under_way[seq]]) for seq, row in self._rows.items()]
        unwanted = self._under_way.keys() | self._passed
        lots = self._lots.under_way()
        return self._field.root(
            bids, under_way, unwanted, self._now_ms(), self._look_in, only, self._fed_ms, lots, self._under_way
        )

    async def _propose(self, awards: tuple[c.Award, ...]) -> None:
        try:
            written = await self._door.propose(c.Awards(awards), PROPOSE_S)
        except LogError:
            asyncio.get_running_loop().call_later(AGAIN_S, self._wake.set)
            return
        finally:
            for award in awards:
                self._under_way.pop(award.task, None)
        self._refused(awards, written.answer)

    def _refused(self, awards: Sequence[c.Award], answer: Answer) -> None:
        if isinstance(answer, Awarded) and answer.refused:
            self._passed.update(awards[n].task for n in answer.refused if n < len(awards))
            if any(why in {"rate", "class", "session", "worker"} for why in answer.refused.values()):
                asyncio.get_running_loop().call_later(AGAIN_S, self._look_again)

    async def _hand_out(self, served: list[ClaimBid]) -> None:
        """In one turn of the loop, and so in one entry."""
        await asyncio.gather(*(self._hand(bid) for bid in served))

    async def _hand(self, bid: ClaimBid) -> None:
        assert bid.claim is not None
        try:
            written = await self._door.propose(c.Awards(tuple(bid.awards)), PROPOSE_S, bid.claim.ask.request)
        except LogError as error:
            asyncio.get_running_loop().call_later(AGAIN_S, self._wake.set)
            self._pulls.decided(bid, 0, error)
            return
        finally:
            for award in bid.awards:
                self._under_way.pop(award.task, None)
        self._refused(bid.awards, written.answer)
        if isinstance(written.answer, Awarded):
            self._pulls.decided(bid, written.index, written.answer)
        else:
            self._pulls.decided(bid, 0, Unknown("its awards were answered with something else"))

    def _look_again(self) -> None:
        self._passed.clear()
        self._wake.set()

    def _proposed(self, task: asyncio.Task[None]) -> None:
        self._proposals.discard(task)
        self._wake.set()

    def _look_in(self, seconds: float) -> None:
        """Though nothing happens: a rate, or an auction that closes."""
        self._later_s = seconds if self._later_s is None else min(self._later_s, seconds)

    def _set_alarm(self, seconds: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        soon_s = None if seconds is None else max(seconds, ALARM_S_MIN)
        self._alarm = None if soon_s is None else asyncio.get_running_loop().call_later(soon_s, self._wake.set)

    def _now_ms(self) -> int:
        return max(self._clock.wall_ms(), self._state.time_ms)
