"""The master's market, as far as it goes without policies: ready tasks meet standing bids, one award entry for all that can
start now.

A round runs when something became ready, a slot became free, a worker came or changed; nothing runs in between. What
bids is what the table says (slots less what is claimed and running) less what is under way to it. Apply checks all limits
again; what it refuses is passed over until something ends or changes.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core import market
from quvatlh.core.books import Shape
from quvatlh.core.events import Event
from quvatlh.core.queries import get_shape, queues
from quvatlh.core.results import Awarded
from quvatlh.core.rows import TaskRow
from quvatlh.core.views import QueueView, WorkerView
from quvatlh.ports import Clock, Log, LogError, Role
from quvatlh.service.door import Door
from quvatlh.service.presence import Presence
from quvatlh.service.state import State

AWARDS_MAX: Final = 1000
"""In one entry: a slice of apply stays near 10 ms."""
PROPOSALS_MAX: Final = 2
"""Award entries under way at once; more would only queue before the log."""
LOOKED_AT_MAX: Final = 2000
"""Ready tasks of one queue and shape that a round looks at, passed-over ones included."""
LIGHT_MAX: Final = 256
"""Tasks without slots that a worker gets in one round."""
PROPOSE_S: Final = 2.0
AGAIN_S: Final = 0.05
ADAPTER: Final = "command"

_NEWS: Final = frozenset({"task.added", "task.ready", "worker.up", "session.opened", "worker.changed"})
_FREES: Final = frozenset(
    {
        "task.succeeded", "task.failed", "task.retrying", "task.relocated", "task.deleted", "task.updated", "task.ready",
        "action.ended", "queue.changed", "worker.changed", "session.opened", "worker.up",
    }
)  # fmt: skip


@dataclass(slots=True)
class Bid:
    """A worker that takes tasks now."""

    worker: WorkerView
    session: str
    free: int
    light: int = LIGHT_MAX

    def take(self, slots: int) -> None:
        self.free -= slots
        self.light -= slots == 0

    def has(self, slots: int) -> bool:
        return self.free >= slots if slots else self.light > 0


class Auction:
    """A Hearer, and a duty of the master (`run`)."""

    def __init__(self, log: Log, door: Door, state: State, presence: Presence, clock: Clock) -> None:
        self._log = log
        self._door = door
        self._state = state
        self._presence = presence
        self._clock = clock
        self._wake = asyncio.Event()
        self._under_way: dict[int, tuple[str, int]] = {}
        """Seq of a task -> worker and slots, from the proposal until it is applied here."""
        self._passed: set[int] = set()
        """Tasks that apply refused, until something ends or changes."""
        self._shapes: dict[int, Shape] = {}
        self._proposals: set[asyncio.Task[None]] = set()

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        for event in events:
            kind = event.kind
            if kind == "task.claimed":
                self._under_way.pop(event.seq, None)
                if event.state in {"running", "pending"}:  # a service may have more instances to start
                    self._wake.set()
            elif kind in _FREES:
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
        self._shapes.clear()
        self._passed.clear()
        self._wake.set()

    # --- the duty ---

    async def run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                again_s = self._round()
                if again_s is not None:
                    asyncio.get_running_loop().call_later(again_s, self._wake.set)
                await asyncio.sleep(0)
        finally:
            for task in self._proposals:
                task.cancel()

    def _round(self) -> float | None:
        """Award what can start now; when to look again though nothing happens (a rate), if so."""
        if len(self._proposals) >= PROPOSALS_MAX or not self._log.acts() or not self._state.is_open:
            return None
        bids = self._bids()
        if not any(bid.free > 0 or bid.light for bid in bids):
            return None
        self._later: float | None = None
        awards = list(self._matches(bids))
        if awards:
            task = asyncio.get_running_loop().create_task(self._propose(tuple(awards)))
            self._proposals.add(task)
            task.add_done_callback(self._proposed)
        return AGAIN_S if len(awards) >= AWARDS_MAX else self._later

    def _bids(self) -> list[Bid]:
        taken: dict[str, int] = dict(
            self._state.db.execute("SELECT worker, sum(slots) FROM live GROUP BY worker").fetchall()
        )
        for worker, slots in self._under_way.values():
            taken[worker] = taken.get(worker, 0) + slots
        bids = []
        for view in self._presence.workers().values():
            if view.session is None or view.state != "up" or self._presence.is_silent(view.name):
                continue
            free = view.facts.slots - taken.get(view.name, 0) - self._presence.surplus_slots(view.session)
            if view.facts.slots > 0:
                bids.append(Bid(view, view.session, max(0, free)))
        return bids

    def _matches(self, bids: list[Bid]) -> Iterator[c.Award]:
        """The next task of whichever queue has had least by its weight in this round, to the freest of who may have it."""
        lanes = self._lanes(bids)
        left = AWARDS_MAX
        while lanes and left:
            lane = min(lanes, key=lambda each: each.turn)
            task = lane.next()
            if task is None:
                lanes.remove(lane)
                continue
            shape = self._shape(task.shape)
            fit = [bid for bid in bids if bid.has(task.slots) and _may(bid.worker, shape, lane.queue)]
            if not fit:
                lane.skip(task.shape)
                continue
            bid = max(fit, key=lambda each: each.free)
            bid.take(task.slots)
            lane.turned()
            left -= 1
            self._under_way[task.seq] = (bid.worker.name, task.slots)
            yield c.Award(task.seq, bid.worker.name, bid.session)

    def _lanes(self, bids: list[Bid]) -> list[_Lane]:
        db, now_ms = self._state.db, max(self._clock.wall_ms(), self._state.time_ms)
        by_queue: dict[str, list[int]] = {}
        for queue, shape, _ in market.ready(db):
            by_queue.setdefault(queue, []).append(shape)
        lanes = []
        for name, shapes in by_queue.items():
            view = queues(db, now_ms, name)[0]
            room = self._room(view, now_ms)
            fitting = [n for n in shapes if any(_may(bid.worker, self._shape(n), view) for bid in bids)]
            if room > 0 and fitting:
                lanes.append(_Lane(view, room, {n: self._ready(name, n) for n in fitting}))
        return lanes

    def _room(self, queue: QueueView, now_ms: int) -> int:
        """How many may start in it now, as far as its counters tell."""
        settings = queue.settings
        if settings.paused:
            return 0
        if queue.rate_free_at is not None and queue.rate_free_at > now_ms:
            wait_s = (queue.rate_free_at - now_ms) / 1000
            self._later = wait_s if self._later is None else min(self._later, wait_s)
            return 0
        if settings.limit is None:
            return AWARDS_MAX
        return settings.limit - queue.live

    def _ready(self, queue: str, shape: int) -> Iterator[TaskRow]:
        after: tuple[int, int] | None = None
        looked_at, size = 0, 16
        while looked_at < LOOKED_AT_MAX:
            rows = market.ready_tasks(self._state.db, queue, shape, limit=size, after=after)
            for row in rows:
                if row.seq not in self._under_way and row.seq not in self._passed:
                    yield row
            if len(rows) < size:
                return
            after = (rows[-1].rank, rows[-1].seq)
            looked_at, size = looked_at + len(rows), min(2 * size, 256)

    def _shape(self, number: int) -> Shape:
        shape = self._shapes.get(number)
        if shape is None:
            if len(self._shapes) > LOOKED_AT_MAX:
                self._shapes.clear()
            shape = self._shapes[number] = get_shape(self._state.db, number)
        return shape

    async def _propose(self, awards: tuple[c.Award, ...]) -> None:
        try:
            written = await self._door.propose(c.Awards(awards), PROPOSE_S)
        except LogError:
            asyncio.get_running_loop().call_later(AGAIN_S, self._wake.set)
            return
        finally:
            for award in awards:
                self._under_way.pop(award.task, None)
        if isinstance(written.answer, Awarded) and written.answer.refused:
            self._passed.update(awards[n].task for n in written.answer.refused)
            if any(why in {"rate", "session", "worker"} for why in written.answer.refused.values()):
                asyncio.get_running_loop().call_later(AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._passed.clear()
        self._wake.set()

    def _proposed(self, task: asyncio.Task[None]) -> None:
        self._proposals.discard(task)
        self._wake.set()


class _Lane:
    """One queue's part in a round."""

    def __init__(self, queue: QueueView, room: int, ready: dict[int, Iterator[TaskRow]]) -> None:
        self.queue = queue
        self.turn = 0.0
        self._room = room
        self._ready = ready
        self._heads: dict[int, TaskRow | None] = {shape: next(rows, None) for shape, rows in ready.items()}

    def next(self) -> TaskRow | None:
        """First by rank, then by arrival, over all its shapes. It is taken by `turned`, or passed over by `skip`."""
        if self._room <= 0:
            return None
        heads = [(row.rank, row.seq, shape) for shape, row in self._heads.items() if row is not None]
        if not heads:
            return None
        self._at = min(heads)[2]
        return self._heads[self._at]

    def turned(self) -> None:
        self._room -= 1
        self.turn += 1 / self.queue.settings.weight
        self._heads[self._at] = next(self._ready[self._at], None)

    def skip(self, shape: int) -> None:
        """Nobody can take one of this shape now."""
        self._heads.pop(shape, None)


_matching: Callable[[str, str], bool] = fnmatch.fnmatchcase


def _may(worker: WorkerView, shape: Shape, queue: QueueView) -> bool:
    """Whether a worker may have tasks of a shape and queue, slots aside."""
    facts = worker.facts
    if shape.policy is not None or shape.adapter not in facts.adapters:
        return False
    if (shape.pin is not None and shape.pin != worker.name) or shape.avoid == worker.name:
        return False
    if not any(_matching(queue.name, pattern) for pattern in facts.queues):
        return False
    if not any(_matching(worker.name, pattern) for pattern in queue.settings.workers):
        return False
    return _tagged((*facts.tags, f"worker={worker.name}", f"node={facts.node}"), shape.tags)


def _tagged(tags: Sequence[str], patterns: Sequence[str]) -> bool:
    """Each pattern matches at least one tag; one with `!` matches none."""
    return all(
        not any(_matching(tag, pattern[1:]) for tag in tags)
        if pattern.startswith("!")
        else any(_matching(tag, pattern) for tag in tags)
        for pattern in patterns
    )
