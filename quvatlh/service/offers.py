"""What workers' policies made of tasks, as the master heard it: bids that stand, and verdicts kept for explain.

In memory, of the last 10,000 tasks, and of this mastership alone: workers say it again to a new master, and again at least
each second, so what is forgotten here is heard once more. Nothing here asks anybody.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quvatlh.core.events import Event
from quvatlh.core.rows import TASK_SELECT, TaskRow, json_list, task_row
from quvatlh.ports import Clock, Log, Peers, Role, Unavailable
from quvatlh.service import asks
from quvatlh.service.presence import Presence
from quvatlh.service.shapes import Shapes
from quvatlh.service.state import State

KIND: Final = "offers"
TASKS_MAX: Final = 10_000
"""Whose verdicts are kept."""
CLOSES_S: Final = 0.05
"""An auction that not all have answered is closed so long after its task became ready."""
FRESH_MAX: Final = 100_000
"""Tasks that became ready within that time; of more the oldest are closed at once."""


_READY: Final = frozenset({"task.added", "task.ready", "task.relocated"})
_VOID: Final = frozenset({"task.claimed", "task.succeeded", "task.failed", "task.retrying", "task.deleted"})
"""What was said before is history: explain knows it, and nobody is bound by it."""
_MOVED: Final = frozenset({"task.updated", "task.ready", "task.relocated", "action.ended"})


class Place(NamedTuple):
    """In the order of a queue."""

    rank: int
    seq: int


@dataclass(slots=True)
class _Heard:
    """Of one task."""

    offers: dict[str, tuple[str, asks.Offer]] = field(default_factory=dict)
    """Worker -> its session, and what it said last."""
    weighed: dict[str, asks.Offer] = field(default_factory=dict)
    """By worker: what stood when it was given away last."""
    row: TaskRow | None = None
    """As it was when the first bid came; None while no bid stands."""


class Book:
    """A Hearer. `on_news`: a bid stands that did not before."""

    def __init__(self, log: Log, peers: Peers, state: State, presence: Presence, shapes: Shapes, clock: Clock) -> None:
        self.on_news: Callable[[], None] = lambda: None
        self._log = log
        self._state = state
        self._presence = presence
        self._shapes = shapes
        self._clock = clock
        self._tasks: OrderedDict[int, _Heard] = OrderedDict()
        self._lanes: dict[tuple[str, int], list[Place]] = {}
        """Tasks with bids that stand, in the order of their queue, by queue and shape."""
        self._fresh: dict[int, float] = {}
        """Task -> when it became ready; in that order, and only while its auction may be open."""
        self._fresh_order: deque[tuple[float, int]] = deque()
        self._elected_at = -CLOSES_S
        peers.handle(KIND, self._asked)

    # --- from workers ---

    def take(self, offers: asks.Offers) -> None:
        """Of this node's own worker, or one that came over a link. Unavailable from who is not master."""
        if not self._log.acts() or not self._state.is_open:
            raise Unavailable("this node is not master")
        view = self._presence.workers().get(offers.worker)
        if view is None or view.session != offers.session:
            return
        for offer in offers.offers:
            heard = self._tasks.setdefault(offer.task, _Heard())
            heard.offers[offers.worker] = (offers.session, offer)
            self._tasks.move_to_end(offer.task)
        self._stand([offer.task for offer in offers.offers if offer.word == "bid"])
        while len(self._tasks) > TASKS_MAX:
            seq, heard = self._tasks.popitem(last=False)
            self._leave_lane(seq, heard)
        self.on_news()

    async def _asked(self, _asker: str, body: bytes) -> bytes:
        self.take(asks.OFFERS.decode(body))
        return b""

    def _stand(self, seqs: Sequence[int]) -> None:
        """Bids on what is ready; on anything else they are only remembered."""
        new = [seq for seq in seqs if self._tasks[seq].row is None]
        if not new:
            return
        sql = f"{TASK_SELECT} WHERE ready = 1 AND seq IN (SELECT value FROM json_each(?))"  # noqa: S608 - text of our own
        for columns in self._state.db.execute(sql, (json_list(new),)):
            row = task_row(columns)
            self._tasks[row.seq].row = row
            bisect.insort(self._lanes.setdefault((row.queue, row.shape), []), Place(row.rank, row.seq))

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        acting = self._log.role.acting
        for event in events:
            if acting and event.kind in _READY and self._shapes.has_policy(event.shape):
                self._became_ready(event.seq)
            heard = self._tasks.get(event.seq) if event.seq else None
            if heard is None:
                continue
            if event.kind in _VOID:
                self._leave_lane(event.seq, heard)
                if event.kind == "task.claimed":
                    heard.weighed = (
                        dict(self._standing(heard)) or heard.weighed
                    )  # else one more instance, of the same auction
                heard.offers = {worker: ("", offer) for worker, (_, offer) in heard.offers.items()}
            elif event.kind in _MOVED:
                self._leave_lane(event.seq, heard)
                if any(session and offer.word == "bid" for session, offer in heard.offers.values()):
                    self._stand([event.seq])

    def _became_ready(self, seq: int) -> None:
        now = self._clock.boot()
        self._fresh[seq] = now
        self._fresh_order.append((now, seq))
        while self._fresh_order and (self._fresh_order[0][0] <= now - CLOSES_S or len(self._fresh_order) > FRESH_MAX):
            at, old = self._fresh_order.popleft()
            if self._fresh.get(old) == at:
                del self._fresh[old]

    def role_changed(self, role: Role) -> None:
        """A new master has heard nothing: each waiting task's auction is as if it began now."""
        if role.acting:
            self._elected_at = self._clock.boot()
        self.reset(0)

    def reset(self, _index: int) -> None:
        self._tasks.clear()
        self._lanes.clear()
        self._fresh.clear()
        self._fresh_order.clear()

    def _leave_lane(self, seq: int, heard: _Heard) -> None:
        row, heard.row = heard.row, None
        if row is None:
            return
        lane = self._lanes[row.queue, row.shape]
        place = bisect.bisect_left(lane, Place(row.rank, seq))
        if place < len(lane) and lane[place].seq == seq:
            del lane[place]
        if not lane:
            del self._lanes[row.queue, row.shape]

    # --- for the auction ---

    def lanes(self) -> Sequence[tuple[str, int]]:
        """(queue, shape) with tasks that somebody bids for."""
        return list(self._lanes)

    def tasks(self, queue: str, shape: int) -> Iterator[TaskRow]:
        """Those of a lane, in order. The lane may not change meanwhile."""
        for place in self._lanes.get((queue, shape), ()):
            row = self._tasks[place.seq].row
            if row is not None:
                yield row

    def scores(self, seq: int) -> Mapping[str, float]:
        """Worker -> score of a bid that stands. A session that is over bids no more."""
        heard = self._tasks.get(seq)
        if heard is None:
            return {}
        return {worker: offer.score for worker, offer in self._standing(heard) if offer.word == "bid"}

    def _standing(self, heard: _Heard) -> Iterator[tuple[str, asks.Offer]]:
        workers = self._presence.workers()
        for worker, (session, offer) in heard.offers.items():
            if worker in workers and workers[worker].session == session:
                yield worker, offer

    def open_s(self, seq: int, eligible: Sequence[tuple[str, str]]) -> float:
        """How long the auction still waits for those (worker, session) that have not answered; 0 or less: it is closed."""
        began = max(self._fresh.get(seq, 0.0), self._elected_at)
        left_s = began + CLOSES_S - self._clock.boot()
        if left_s <= 0:
            return 0.0
        offers = self._tasks[seq].offers if seq in self._tasks else {}
        return 0.0 if all(worker in offers and offers[worker][0] == session for worker, session in eligible) else left_s

    # --- for explain ---

    def verdicts(self, seq: int) -> Mapping[str, asks.Offer]:
        """What each worker said last, whether it stands or not."""
        heard = self._tasks.get(seq)
        return {} if heard is None else {worker: offer for worker, (_, offer) in heard.offers.items()}

    def weighed(self, seq: int) -> Mapping[str, asks.Offer]:
        """What had been said of it when it was given away; of what others said later, or of an earlier try, nothing."""
        return self._tasks[seq].weighed if seq in self._tasks else {}
