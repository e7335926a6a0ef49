"""What a round of the market can give out: a lane for every queue with something ready, room for it, and somebody to take it.

Queues that are paused, full or out of rate cost their counter; those that may start something are looked into when it is
their turn, and not before. So with a thousand queues a round reads of the tasks only of those that it gives something.
"""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from quvatlh.core import market
from quvatlh.core.books import Shape
from quvatlh.core.classes import read_tree
from quvatlh.core.disciplines import FAIR
from quvatlh.core.model import QueueSettings
from quvatlh.core.rows import Queued
from quvatlh.core.views import QueueView
from quvatlh.service.bids import Bid, Room
from quvatlh.service.holds import FlowLot, Holds, Lot
from quvatlh.service.lanes import (
    Entrants,
    HeadLane,
    Lane,
    Place,
    Plain,
    Stream,
    alone,
    behind,
    by_key,
    is_fair,
    is_plain,
    ready,
)
from quvatlh.service.offers import Book
from quvatlh.service.placing import may
from quvatlh.service.presence import Presence
from quvatlh.service.root import Root
from quvatlh.service.shapes import Shapes
from quvatlh.service.state import State

ROOM_MAX: Final = 1000
_SETTINGS: Final = msgspec.json.Decoder(QueueSettings)


Proposed = tuple[Queued, Sequence[str]]
"""A task, and the workers of its awards."""


class Field:
    """Of the auction: it outlives rounds, and knows the settings of queues until they change."""

    def __init__(self, state: State, presence: Presence, book: Book, shapes: Shapes) -> None:
        self._state = state
        self._presence = presence
        self._book = book
        self._shapes = shapes
        self._settings: dict[str, QueueSettings] = {}

    def forget(self, queue: str | None = None) -> None:
        """Its settings have changed; None: another state is in force."""
        if queue is None:
            self._settings.clear()
        else:
            self._settings.pop(queue, None)

    def root(
        self,
        bids: Sequence[Bid],
        under_way: Sequence[Proposed],
        unwanted: AbstractSet[int],
        now_ms: int,
        look_in: Callable[[float], None],
        only: str | None = None,
        run_ms: Callable[[str], float | None] = lambda _: None,
        lots: Sequence[Lot | FlowLot] = (),
        order: Iterable[int] = (),
    ) -> Root:
        """`under_way`: tasks that are proposed, with their workers; `unwanted`: those and the ones that were refused;
        `only`: of this queue; `run_ms`: of a queue that may be fed ahead of slots; `lots`: what of that is
        under way as well; `order`: both, by seq, as they were proposed."""
        db = self._state.db
        holds = Holds(self._state.memory, now_ms)
        holds.know_queues()
        shapes: dict[str, list[int]] = {}
        for queue, number in market.ready_shapes(db):
            if only is None or queue == only:
                shapes.setdefault(queue, []).append(number)
        settings = self._known(shapes)
        if any(each.class_ is not None for each in settings.values()):
            holds.tree = read_tree(db, now_ms)
        proposed = _as_proposed(under_way, lots, order)
        self._count(holds, proposed, matters=len(shapes) > 1 or holds.tree is not None)
        room_of = Room(bids, run_ms)
        round_ = _Round(self, holds, bids, unwanted, room_of)
        slots = {number: self._slots(number) for numbers in shapes.values() for number in numbers}
        least = min(slots.values(), default=0)

        def make(queue: str) -> Lane | None:
            numbers = shapes[queue]
            if not room_of.is_for(queue, slots[numbers[0]] if len(numbers) == 1 else min(slots[n] for n in numbers)):
                return None
            room = self._room(queue, settings[queue], holds, now_ms, look_in)
            fit = round_.shapes(queue, settings[queue], shapes[queue]) if room > 0 else {}
            if not fit:
                return None
            return round_.lane(QueueView(queue, settings[queue], {}, 0, None, None, reranking=False), room, fit)

        classes = {queue: each.class_ for queue, each in settings.items()}
        return Root(holds, classes, make, room_of.changed, lambda: room_of.is_any(least))

    def _count(self, holds: Holds, under_way: Sequence[Lot | FlowLot | Proposed], *, matters: bool) -> None:
        """Whose turn it is does not matter where there is one queue."""
        for each in under_way:
            if isinstance(each, Lot | FlowLot):
                known = self.settings(each.queue)
                if isinstance(each, Lot):
                    holds.took_lot(each)
                else:
                    holds.took_flow_lot(each, known)
                for task in each.tasks.values() if matters else ():
                    holds.charge_one(each.queue, task.cost, each.slots, known)
                continue
            row, workers = each
            known = self.settings(row.queue)
            for worker in workers:
                holds.took(row, known, worker)
                if matters:
                    holds.charge(row, known)

    def _slots(self, number: int) -> int:
        """Of a shape; the least that there are, of one that is not known."""
        shape = self._shapes.get(number)
        return 0 if shape is None else shape.slots

    def _known(self, queues: Iterable[str]) -> dict[str, QueueSettings]:
        known = self._settings
        return {queue: known[queue] if queue in known else self.settings(queue) for queue in queues}

    def _room(
        self, queue: str, settings: QueueSettings, holds: Holds, now_ms: int, look_in: Callable[[float], None]
    ) -> int:
        """How many may start in it now, as far as its counters tell."""
        if settings.paused:
            return 0
        room = ROOM_MAX if settings.limit is None else settings.limit - holds.is_known(queue)
        if room <= 0 or settings.rate is None:
            return room
        by_rate, free_at = holds.rate_room(queue, settings)
        if free_at is not None and free_at > now_ms:
            look_in((free_at - now_ms) / 1000)
            return 0
        return min(room, by_rate)

    def settings(self, queue: str) -> QueueSettings:
        known = self._settings.get(queue)
        if known is None:
            row = self._state.db.execute("SELECT settings FROM queue WHERE name = ?", (queue,)).fetchone()
            if row is None:
                return QueueSettings()
            known = self._settings[queue] = _SETTINGS.decode(row[0])
        return known

    # --- for one round ---

    @property
    def db(self) -> sqlite3.Connection:
        return self._state.db

    def shape(self, number: int) -> Shape | None:
        return self._shapes.get(number)

    @property
    def book(self) -> Book:
        return self._book

    def takers(self) -> frozenset[str]:
        return frozenset(view.name for view in self._presence.takers())


def _as_proposed(
    rows: Sequence[Proposed], lots: Sequence[Lot | FlowLot], order: Iterable[int]
) -> Sequence[Lot | FlowLot | Proposed]:
    """Whose turn is next follows from the order: each start moves virtual time. `rows` have theirs, and so have `lots`."""
    if not rows or not lots:
        return rows or lots
    places = {seq: place for place, seq in enumerate(order)}
    together = [(places[next(iter(lot.tasks))], lot) for lot in lots]
    alone = [(places[each[0].seq], each) for each in rows]
    return [each for _, each in sorted([*together, *alone], key=_place)]


_place: Final = operator.itemgetter(0)


class _Round:
    def __init__(
        self, field: Field, holds: Holds, bids: Sequence[Bid], unwanted: AbstractSet[int], room_of: Room
    ) -> None:
        self._room_of = room_of
        self._field = field
        self._holds = holds
        self._bids = bids
        self._unwanted = unwanted
        self._up = field.takers()
        self.offered = frozenset(field.book.lanes())

    def shapes(self, queue: str, settings: QueueSettings, numbers: Sequence[int]) -> dict[int, Shape]:
        """Of what is ready; with a policy only if anybody bids, or if the head may be among them."""
        found: dict[int, Shape] = {}
        for number in numbers:
            shape = self._field.shape(number)
            if shape is None:
                continue
            if shape.policy is None or settings.limit == 1 or (queue, number) in self.offered:
                found[number] = shape
        return found

    def lane(self, view: QueueView, room: int, shapes: Mapping[int, Shape]) -> Lane:
        least = min(shape.slots for shape in shapes.values())

        def could() -> bool:
            return self._room_of.is_for(view.name, least)

        if view.settings.limit == 1:
            return HeadLane(view, room, self._holds, could, lambda _: self._head(view, shapes))

        def load(after: Place | None) -> dict[int, Entrants]:
            found = ((number, self._entrants(view, number, shape, after=after)) for number, shape in shapes.items())
            return {number: entrants for number, entrants in found if entrants is not None}

        lane = Lane(view, room, self._holds, could, load)
        if len(shapes) == 1 and (is_plain(view.settings) or is_fair(view.settings)):
            lane.plain = lambda: self._plain(view, *next(iter(shapes.items())))
        return lane

    def _plain(self, view: QueueView, number: int, shape: Shape) -> Plain | None:
        able = self._able(view, shape)
        return None if not able or shape.policy is not None else Plain(view.name, number, shape.slots, able)

    def _able(self, view: QueueView, shape: Shape) -> list[Bid]:
        return [bid for bid in self._bids if bid.wants(view.name) and may(bid.worker, shape, view, self._up)]

    def _head(self, view: QueueView, shapes: Mapping[int, Shape]) -> dict[int, Entrants]:
        """Its shape alone, and nothing behind it; nothing where it cannot be placed."""
        db = self._field.db
        firsts = [row for number in shapes for row in market.ready_tasks(db, view.name, number, limit=1)]
        fair = view.settings.discipline == FAIR

        def place(row: Queued) -> tuple[int, int]:
            return max(row.rank, self._holds.start_tag(row)) if fair else row.rank, row.seq

        head = min(firsts, key=place, default=None)
        if head is None:
            return {}
        entrants = self._entrants(view, head.shape, shapes[head.shape], head)
        return {} if entrants is None else {head.shape: entrants}

    def _entrants(
        self, view: QueueView, number: int, shape: Shape, head: Queued | None = None, after: Place | None = None
    ) -> Entrants | None:
        able = self._able(view, shape)
        policy = shape.policy is not None
        if not able or (policy and (view.name, number) not in self.offered):
            return None
        db, line = self._field.db, behind
        rows = self._field.book.tasks(view.name, number) if policy else ready(db, view, number, self._holds, after)
        if policy and view.settings.discipline == FAIR:
            rows = by_key(rows, self._holds)
        if head is not None:
            rows = iter([head] if not policy or any(row.seq == head.seq for row in rows) else [])
        following = (lambda row: line(db, row)) if head is None and not policy else alone
        stream = Stream(rows, following, view, self._holds, self._is_wanted)
        return Entrants(stream, able, policy)

    def _is_wanted(self, row: Queued) -> bool:
        return row.seq not in self._unwanted
