"""Many tasks at once. Where a round has one queue left, and nothing but slots has a say in it, its next tasks go to whoever has
room, in their order: so they are read as they are given out, and by the lot, and the round's books are kept once for all.

It comes to what an award of each alone would come to. What is not plain ends a lot, and takes the ordinary way (lanes.py).
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from quvatlh.core import commands as c
from quvatlh.core import market, tally
from quvatlh.core.market import PlainTask
from quvatlh.core.model import QueueSettings
from quvatlh.core.rows import Flowing
from quvatlh.core.turns import Run
from quvatlh.service.bids import CHOICES, Bid, Choice, soonest
from quvatlh.service.flowlots import Walk
from quvatlh.service.holds import FlowLot, Holds, Lot
from quvatlh.service.lanes import Place, Plain
from quvatlh.service.pace import Pace
from quvatlh.service.state import State

WITHOUT_MAX: Final = 2000
"""Tasks that are under way or were refused, and are left out as the rest is read. With more, that costs more than it saves."""
_BY_KEY: Final = CHOICES["hash"]


class Given(NamedTuple):
    awards: Sequence[c.Award]
    lots: Sequence[Lot]
    after: Place
    """Where the last of them stood."""
    is_all: bool
    """There is nothing more in the lane."""
    again: bool = False
    """But in another round."""


class Lots:
    """Of the auction. `under_way` is the auction's: seq of a task -> worker and slots of its awards."""

    def __init__(
        self, state: State, pace: Pace, choose: Choice, under_way: MutableMapping[int, list[tuple[str, int]]]
    ) -> None:
        self._state = state
        self._pace = pace
        self._choose = choose
        self._under_way = under_way
        self._lots: list[Lot | FlowLot] = []

    def under_way(self) -> Sequence[Lot | FlowLot]:
        """What of them is proposed and not applied."""
        known = self._under_way.keys()
        lots = [lot for lot in self._lots if not known.isdisjoint(lot.tasks)]
        self._lots = [lot if lot.tasks.keys() <= known else lot.only(known) for lot in lots]
        return self._lots

    def give(
        self, plain: Plain, holds: Holds, most: int, unwanted: AbstractSet[int], run_ms: float | None
    ) -> Given | None:
        """Up to so many of its next tasks; None: one by one. `run_ms`: of a queue that may be fed ahead of slots."""
        limit = self._limit(plain, most, unwanted, run_ms)
        if limit <= 0:
            return None
        found = market.plain_tasks(self._state.db, plain.queue, plain.shape, limit=limit, without=unwanted)
        tasks = _plain(found, holds)
        winners = self._to_one(plain, tasks) if len(plain.bids) == 1 else self._to_some(plain, tasks, run_ms)
        if not winners:
            return None
        last = tasks[len(winners) - 1]
        awards = _awards(tasks, winners)
        lots = self._noted(plain, tasks, winners)
        return Given(awards, lots, (last.rank, last.seq), len(winners) == len(found) < limit)

    def give_flows(
        self, plain: Plain, settings: QueueSettings, holds: Holds, most: int, unwanted: AbstractSet[int],
        run_ms: float | None,
    ) -> Given | None:  # fmt: skip
        """The same of a queue that is fair by key. It may have nothing more in this round, whatever was given."""
        per_worker = settings.limit_per_worker
        if per_worker is not None:
            live = holds.counts(tally.LIVE_WORKER, plain.queue)
            rooms = [per_worker - live[bid.name] for bid in plain.bids]
            if len(rooms) > 1 and min(rooms) < most:
                return None
            most = min(most, max(rooms))
        limit = self._limit(plain, most, unwanted, run_ms)
        if limit <= 0:
            return None
        lots = [lot for lot in self._lots if isinstance(lot, FlowLot) and lot.queue == plain.queue]
        walk = Walk(self._state.memory, (plain.queue, plain.shape, settings), holds, unwanted, lots)
        tasks = walk.next(limit)
        if not tasks:
            return None
        winners = self._to_one(plain, tasks) if len(plain.bids) == 1 else self._to_some(plain, tasks, run_ms)
        awards = _awards(tasks, winners)
        if winners:
            run = walk.run() if len(winners) == len(tasks) else None
            self._noted_flows(plain, tasks, winners, run)
        return Given(awards, (), (0, 0), is_all=True, again=walk.is_odd and len(winners) == len(tasks))

    def _limit(self, plain: Plain, most: int, unwanted: AbstractSet[int], run_ms: float | None) -> int:
        """How many at once, at most; 0: one by one."""
        bids = plain.bids
        if len(unwanted) > WITHOUT_MAX or not all(type(bid) is Bid for bid in bids):
            return 0
        if len(bids) > 1 and self._choose is _BY_KEY:
            return 0
        return min(most, sum(_room(bid, plain.slots, run_ms) for bid in bids))

    def _to_one(self, plain: Plain, tasks: Sequence[PlainTask | Flowing]) -> list[Bid]:
        """As far as it may have them: its free slots, and what is claimed ahead, but for what must not wait for a slot."""
        (bid,) = plain.bids
        free = bid.room(plain.slots)
        count = next((n for n, task in enumerate(tasks) if task.once and n >= free), len(tasks))
        self._pace.gave([task.seq for task in tasks[:count]], plain.queue, bid.name, bid.slots, bid.taken, plain.slots)
        bid.take(plain.slots, count)
        return [bid] * count

    def _to_some(self, plain: Plain, tasks: Sequence[PlainTask | Flowing], run_ms: float | None) -> list[Bid]:
        winners: list[Bid] = []
        slots = plain.slots
        for task in tasks:
            able = [bid for bid in plain.bids if bid.has(slots)]
            may_wait = slots == 1 and run_ms is not None and not task.once
            bid = self._choose(able, "") if able else soonest(plain.bids, run_ms or 0.0) if may_wait else None
            if bid is None:
                break
            bid.take(slots)
            self._pace.awarded(task.seq, plain.queue, bid.share, bid.name, bid.slots)
            winners.append(bid)
        return winners

    def _noted(self, plain: Plain, tasks: Sequence[PlainTask], winners: Sequence[Bid]) -> list[Lot]:
        """One of each worker; they are under way."""
        whose: dict[str, dict[int, PlainTask]] = {}
        for task, bid in zip(tasks, winners, strict=False):
            whose.setdefault(bid.name, {})[task.seq] = task
        for worker, its in whose.items():
            self._under_way.update(dict.fromkeys(its, [(worker, plain.slots)]))  # noqa: RUF024 - nobody changes it
        lots = [Lot.of(plain.queue, worker, plain.slots, its) for worker, its in whose.items()]
        self._lots += lots
        return lots

    def _noted_flows(self, plain: Plain, tasks: Sequence[Flowing], winners: Sequence[Bid], run: Run | None) -> None:
        given = {task.seq: task for task in tasks[: len(winners)]}
        whose = dict(zip(given, [bid.name for bid in winners], strict=True))
        shares = {bid.name: [(bid.name, plain.slots)] for bid in plain.bids}  # nobody changes them
        self._under_way.update(zip(given, [shares[name] for name in whose.values()], strict=True))
        self._lots.append(FlowLot.of(plain.queue, plain.slots, given, whose, run))


def _awards(tasks: Sequence[PlainTask | Flowing], winners: Sequence[Bid]) -> list[c.Award]:
    return [c.Award(task.seq, bid.name, bid.session, bid.lease_ms) for task, bid in zip(tasks, winners, strict=False)]


def _room(bid: Bid, slots: int, run_ms: float | None) -> int:
    return bid.room(slots) + (0 if slots != 1 or run_ms is None else bid.room_ahead(run_ms))


def _plain(tasks: Sequence[PlainTask], holds: Holds) -> Sequence[PlainTask]:
    """Those before the first that is not: one whose name may be full is none."""
    free: set[tuple[str, str | None]] = set()
    for place, task in enumerate(tasks):
        named = (task.grp, task.name)
        if not task.plain:
            return tasks[:place]
        if task.name is not None and named not in free:
            if not holds.name_is_free(task.grp, task.name):
                return tasks[:place]
            free.add(named)
    return tasks
