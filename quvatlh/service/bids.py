"""What workers bid by standing there: free slots, and how far ahead they may be fed; and who of several gets a task.

Slots are the worker's own, less what is claimed and running by the table, less awards under way, less what still ends
there. Beyond its slots a worker gets only claims that will begin within about 50 ms: with n claims in the hands of k slots
and runs of m, the next one begins after (n - k + 1) * m / k. While it has half of that, it gets none: so claims come by the
dozen, and an entry is not made for each.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core.rows import Queued
from quvatlh.core.views import WorkerView
from quvatlh.service.pace import Pace
from quvatlh.service.placing import Strategy, weight
from quvatlh.service.presence import Presence
from quvatlh.service.shapes import Shapes

LIGHT_MAX: Final = 256
"""Tasks without slots that a worker gets in one round."""
AHEAD_MS: Final = 50.0
AHEAD_MAX: Final = 2048
"""Claims beyond its slots that a worker may have, however short its tasks are: 50 ms of 40,000 a second. With fewer, and lots of
hundreds (auction.AWARDS_MAX), it would run out of work while the next one is on its way."""
FED: Final = 0.5
"""Of either: who has so much ahead is well served for now. What is left lasts for many round trips of the log."""
SHAPES_MAX: Final = 64
"""Of more, to look at the actions costs less."""
STUCK_MS: Final = 250
"""A slot whose action is older than that is none that will soon be free."""


@dataclass(slots=True)
class Bid:
    """A worker that takes tasks now."""

    worker: WorkerView
    session: str
    slots: int
    taken: int
    stuck: int = 0
    """Of those taken, by actions that are no short ones."""
    run_ms: float | None = None
    """Of what it has in hands; None: nobody knows."""
    fed: bool = False
    """It has enough beyond its slots until some of that has begun."""
    light: int = LIGHT_MAX
    silence_s: float = 0.0
    """Since its last beat. An action with a shorter lease could not begin there any more."""
    lease_ms: int | None = None
    """What it asks for; None: as the task, its queue, or everybody has it."""

    @property
    def name(self) -> str:
        return self.worker.name

    @property
    def free(self) -> int:
        return max(0, self.slots - self.taken)

    @property
    def share(self) -> float:
        """Slots for each action in its hands."""
        return self.slots / max(1, self.taken)

    def take(self, slots: int, times: int = 1) -> None:
        self.taken += slots * times
        self.light -= times * (slots == 0)

    def won(self, award: c.Award) -> None:
        """Told of each award."""

    def wants(self, queue: str) -> bool:  # noqa: ARG002 - of a claim that names queues
        return True

    def has(self, slots: int) -> bool:
        return self.slots - self.taken >= slots if slots else self.light > 0

    def room(self, slots: int) -> int:
        """How many of so many slots it has room for."""
        return self.free // slots if slots else max(0, self.light)

    def room_ahead(self, run_ms: float) -> int:
        """How many more of such runs would begin soon, once its slots are taken."""
        served = self.slots - self.stuck
        if served <= 0 or self.run_ms is None or self.fed:
            return 0
        longest_ms = max(run_ms, self.run_ms)
        most = AHEAD_MAX if longest_ms <= 0 else min(AHEAD_MAX, int(AHEAD_MS * served / longest_ms))
        return max(0, most - max(0, self.taken - self.slots))

    def hears_in(self, lease_ms: int) -> bool:
        return self.silence_s * 1000 < lease_ms

    def longest_ms(self) -> float:
        """Of the runs of which one more claim would begin soon; negative: none would."""
        served = self.slots - self.stuck
        ahead = self.taken - self.slots + 1
        if served <= 0 or self.run_ms is None or self.fed or ahead > AHEAD_MAX:
            return -1.0
        if ahead <= 0:
            return math.inf
        longest = AHEAD_MS * served / ahead
        return longest if self.run_ms <= longest else -1.0

    def begins_ms(self, run_ms: float) -> float | None:
        """When one more claim of such a run would begin; None: not soon."""
        served = self.slots - self.stuck
        ahead = self.taken - self.slots + 1
        if served <= 0 or self.run_ms is None or self.fed or ahead > AHEAD_MAX:
            return None
        begins = ahead * max(run_ms, self.run_ms) / served
        return begins if begins <= AHEAD_MS else None

    def is_fed(self) -> bool:
        served = self.slots - self.stuck
        ahead = self.taken - self.slots
        if served <= 0 or self.run_ms is None or ahead <= 0:
            return False
        return ahead >= FED * AHEAD_MAX or ahead * self.run_ms / served >= FED * AHEAD_MS


class Room:
    """What there is room for with any of the bids of a round. Most of its queues find that there is none, so it is reckoned
    once for each award, and not for each queue."""

    def __init__(self, bids: Sequence[Bid], run_ms: Callable[[str], float | None]) -> None:
        """`run_ms`: of a queue that may be fed ahead of slots."""
        self._bids = bids
        self._run_ms = run_ms
        self._has: dict[int, bool] = {}
        self._longest_ms: float | None = None

    def changed(self) -> None:
        """One of them was given something."""
        self._has.clear()
        self._longest_ms = None

    def is_any(self, slots: int) -> bool:
        """For something of so many slots, of whatever queue: now, or ahead of a slot."""
        return self._is_free(slots) or (slots <= 1 and self._ahead_ms() >= 0)

    def is_for(self, queue: str, slots: int) -> bool:
        if self._is_free(slots):
            return True
        if slots != 1 or self._ahead_ms() < 0:
            return False
        run_ms = self._run_ms(queue)
        return run_ms is not None and run_ms <= self._ahead_ms()

    def _is_free(self, slots: int) -> bool:
        found = self._has.get(slots)
        if found is None:
            found = self._has[slots] = any(bid.has(slots) for bid in self._bids)
        return found

    def _ahead_ms(self) -> float:
        if self._longest_ms is None:
            self._longest_ms = max((bid.longest_ms() for bid in self._bids), default=-1.0)
        return self._longest_ms


class Bids:
    """Made for a round."""

    def __init__(
        self,
        db: sqlite3.Connection,
        presence: Presence,
        pace: Pace,
        now_ms: int,
        *,
        ahead: bool,
        shapes: Shapes | None = None,
    ) -> None:
        """`shapes`: where all of them have one slot, counters tell what the actions take, and they are not looked at."""
        self._shapes = shapes
        self._single = False
        self._db = db
        self._presence = presence
        self._pace = pace
        self._now_ms = now_ms
        self._ahead = ahead

    def of(self, under_way: Mapping[int, Sequence[tuple[str, int]]]) -> list[Bid]:
        """Of all workers that take awards; `under_way`: worker and slots of what is proposed and not applied."""
        live = self._db.execute("SELECT a, b, n FROM tally WHERE scope = 'live_worker'").fetchall()
        taken = self._taken(live)
        for awards in under_way.values():
            for worker, slots in awards:
                taken[worker] = taken.get(worker, 0) + slots
        stuck = self._stuck() if self._ahead else {}
        run_ms = self._run_ms(live) if self._ahead else {}
        bids = []
        for view in self._presence.takers():
            session = view.session or ""
            name = view.name
            held = taken.get(name, 0) + self._presence.surplus_slots(session)
            bid = Bid(view, session, view.facts.slots, held, stuck.get(name, 0), run_ms.get(name, 0.0))
            bid.silence_s = self._presence.silence_s(session)
            bid.fed = self._ahead and bid.is_fed()
            bids.append(bid)
        return bids

    def _stuck(self) -> dict[str, int]:
        """Tokens grow with time: the old ones come first, and only they are looked at."""
        found: dict[str, int] = {}
        sql = "SELECT worker, slots, awarded_at FROM live ORDER BY token"
        for worker, slots, awarded_at in self._db.execute(sql):
            if awarded_at > self._now_ms - STUCK_MS:
                break
            found[worker] = found.get(worker, 0) + slots
        return found

    def have_room(self, bids: Sequence[Bid]) -> bool:
        """False where nothing that is ready could be placed, whatever it is: tables need not be asked for more."""
        return not self._single or any(bid.has(1) or bid.longest_ms() >= 0 for bid in bids)

    def _taken(self, live: Sequence[tuple[str, str, int]]) -> dict[str, int]:
        """Slots by worker. `live`: queue, worker, actions."""
        self._single = self._are_of_one_slot()
        if live and not self._single:
            return dict(self._db.execute("SELECT worker, sum(slots) FROM live GROUP BY worker").fetchall())
        found: dict[str, int] = {}
        for _, worker, count in live:
            found[worker] = found.get(worker, 0) + count
        return found

    def _are_of_one_slot(self) -> bool:
        """All tasks there are."""
        if self._shapes is None:
            return False
        sql = "SELECT b FROM tally WHERE scope = 'shape' LIMIT ?"
        numbers = [row[0] for row in self._db.execute(sql, (SHAPES_MAX + 1,))]
        shapes = map(self._shapes.get, numbers)
        return len(numbers) <= SHAPES_MAX and all(shape is not None and shape.slots == 1 for shape in shapes)

    def _run_ms(self, live: Sequence[tuple[str, str, int]]) -> dict[str, float | None]:
        """The longest of the queues that it has actions of; one unknown is enough to know nothing."""
        found: dict[str, float | None] = {}
        for queue, worker, _ in live:
            run_ms, known = self._pace.run_ms(queue), found.get(worker, 0.0)
            found[worker] = None if run_ms is None or known is None else max(run_ms, known)
        return found


Choice = Callable[[Sequence[Bid], str], Bid]
"""Of the able ones, by the task's key, or its id where it has none."""


def _spread(bids: Sequence[Bid], _key: str) -> Bid:
    return max(bids, key=lambda bid: bid.free)


def _pack(bids: Sequence[Bid], _key: str) -> Bid:
    """The fullest that has room: others stay free for what is large."""
    return min(bids, key=lambda bid: bid.free)


def _hash(bids: Sequence[Bid], key: str) -> Bid:
    """One key, one worker, while that has room; then the next one in the order of the key."""
    return max(bids, key=lambda bid: weight(bid.name, key))


CHOICES: Final[Mapping[Strategy, Choice]] = {"spread": _spread, "pack": _pack, "hash": _hash}


def soonest(bids: Sequence[Bid], run_ms: float) -> Bid | None:
    """Where one more claim of such a run would begin first; None: nowhere soon."""
    soon = [(begins, bid.name, bid) for bid in bids if (begins := bid.begins_ms(run_ms)) is not None]
    return min(soon)[2] if soon else None


def best(bids: Sequence[Bid], scores: Mapping[str, float], task: Queued) -> list[Bid]:
    """Of an auction: by score, then by free slots, then by rendezvous hash."""
    bidders = [bid for bid in bids if bid.name in scores]
    return sorted(bidders, key=lambda bid: (scores[bid.name], bid.free, weight(bid.name, task.id)), reverse=True)
