"""Tasks that are given away by the very entry that adds them: where nothing waits, the market would decide the same after it.

So an idle cluster starts a task after one round trip of the log, not two. It is done only where the outcome of a round is
known beforehand: no task is ready and no other ADD is under way, all tasks of this one find a free slot, and nothing but
slots, tags and queues has a say. Apply judges the awards as it judges all. Whatever does not fit takes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core.books import Shape
from quvatlh.core.limits import LEASE_MS_DEFAULT
from quvatlh.core.model import QueueSettings, TaskSpec
from quvatlh.core.tally import READY
from quvatlh.core.views import QueueView
from quvatlh.ports import Clock
from quvatlh.service.bids import Bid, Bids, Choice
from quvatlh.service.pace import Pace
from quvatlh.service.placing import may
from quvatlh.service.presence import Presence
from quvatlh.service.state import State

TASKS_MAX: Final = 16
"""Of an ADD with more, the time of a round trip does not matter."""

UnderWay = dict[int, list[tuple[str, int]]]


class AtOnce:
    """Of the master's door and its auction."""

    def __init__(
        self,
        state: State,
        presence: Presence,
        pace: Pace,
        clock: Clock,
        under_way: UnderWay,
        choose: Choice,
        settings: Callable[[str], QueueSettings],
    ) -> None:
        """`under_way` is the auction's: what is given away here takes slots there, under numbers that no task has.
        `settings`: of a queue, those by default of one that is not there."""
        self.on_done: Callable[[], None] = lambda: None
        """Slots that were thought to be taken may be free."""
        self._state = state
        self._presence = presence
        self._pace = pace
        self._clock = clock
        self._under_way = under_way
        self._choose = choose
        self._settings = settings
        self._adding = 0
        self._serial = 0
        self.shares: dict[str, float] = {}
        """Of tasks that are being given away: slots for each action in their worker's hands."""

    @contextmanager
    def beside(self, tasks: Sequence[c.NewTask]) -> Iterator[tuple[c.Award, ...]]:
        """What goes with this ADD, which is under way until the context ends."""
        awards = self._awards(tasks)
        self._adding += 1
        self._serial -= 1
        mark = self._serial
        if awards:
            self._under_way[mark] = [(each.worker, tasks[each.task].spec.slots) for each in awards]
        try:
            yield awards
        finally:
            self._adding -= 1
            for each in awards:
                self.shares.pop(tasks[each.task].id, None)
            if self._under_way.pop(mark, None):
                self.on_done()

    def claimed(self, seq: int, name: str, queue: str) -> None:
        """One was given away: its number is known now, and its time runs."""
        share = self.shares.pop(name, None)
        if share is not None:
            self._pace.awarded(seq, queue, share)

    def _awards(self, tasks: Sequence[c.NewTask]) -> tuple[c.Award, ...]:
        if self._adding or len(tasks) > TASKS_MAX or not self._state.is_open:
            return ()
        now_ms = max(self._clock.wall_ms(), self._state.time_ms)
        if not all(_is_plain(task, now_ms) for task in tasks) or self._state.memory.tally.has_any(READY):
            return ()
        bids = Bids(self._state.db, self._presence, self._pace, now_ms, ahead=False).of(self._under_way)
        known: dict[str, QueueView | None] = {}
        awards: list[c.Award] = []
        shares: dict[str, float] = {}
        for position, task in enumerate(tasks):
            winner = self._winner(task, bids, known)
            if winner is None:
                return ()
            winner.take(task.spec.slots)
            awards.append(c.Award(position, winner.name, winner.session))
            shares[task.id] = winner.share
        self.shares |= shares
        return tuple(awards)

    def _winner(self, task: c.NewTask, bids: Sequence[Bid], known: dict[str, QueueView | None]) -> Bid | None:
        spec = task.spec
        if spec.queue not in known:
            known[spec.queue] = self._queue(spec.queue)
        queue = known[spec.queue]
        if queue is None:
            return None
        lease_ms = spec.lease_ms or queue.settings.lease_ms or LEASE_MS_DEFAULT
        shape = Shape(spec.tags, spec.work.adapter, spec.slots)
        able = [bid for bid in bids if bid.has(spec.slots) and bid.hears_in(lease_ms) and may(bid.worker, shape, queue)]
        return self._choose(able, spec.key or task.id) if able else None

    def _queue(self, name: str) -> QueueView | None:
        """None of one that has a say of its own in who is next, or when."""
        settings = self._settings(name)
        rules = (settings.limit, settings.limit_per_key, settings.limit_per_worker, settings.rate, settings.class_)
        if settings.paused or settings.discipline not in {"priority", "fifo"} or rules.count(None) < len(rules):
            return None
        return QueueView(name, settings, {}, 0, None, None, reranking=False)


def _is_plain(task: c.NewTask, now_ms: int) -> bool:
    """Of a job whose only wish is a slot."""
    spec: TaskSpec = task.spec
    later = task.at_ms is not None and task.at_ms > now_ms
    return spec.kind == "job" and spec.policy is None and spec.queue_limit is None and not later
