"""What is full, as a round of the market sees it: the tables' counters, what is under way, and what the round has given out.

Apply checks all of it again; what is known here is not proposed in vain, and is not looked at one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from quvatlh.core import limits, tally
from quvatlh.core.books import QueueState
from quvatlh.core.disciplines import FAIR
from quvatlh.core.disciplines.htb import Tree
from quvatlh.core.lines import flows
from quvatlh.core.market import PlainTask
from quvatlh.core.memory import Memory
from quvatlh.core.model import QueueSettings
from quvatlh.core.rows import Flowing, Queued
from quvatlh.core.turns import QUEUES, Run, Tags, Turns, lent_by, of_class

_UNLIMITED: Final = frozenset({limits.NO_LIMIT})


class Lot(NamedTuple):
    """What one worker was given of one queue, of tasks in which nothing but slots has a say."""

    queue: str
    worker: str
    slots: int
    """Of each."""
    tasks: dict[int, PlainTask]
    """By seq."""
    names: Mapping[tuple[str, str], int]
    """Group and name -> how many of them have it."""

    @classmethod
    def of(cls, queue: str, worker: str, slots: int, tasks: dict[int, PlainTask]) -> Lot:
        names = Counter([(task.grp, task.name) for task in tasks.values() if task.name is not None])
        return cls(queue, worker, slots, tasks, names)

    def only(self, known: Container[int]) -> Lot:
        kept = {seq: task for seq, task in self.tasks.items() if seq in known}
        return Lot.of(self.queue, self.worker, self.slots, kept)


class FlowLot(NamedTuple):
    """What was given out together of one queue that is fair by key."""

    queue: str
    slots: int
    """Of each."""
    tasks: dict[int, Flowing]
    """By seq, in the order of their awards."""
    whose: Mapping[int, str]
    """Seq -> worker."""
    workers: Mapping[str, int]
    keys: Mapping[str, int]
    names: Mapping[tuple[str, str], int]
    """How many of them each worker, key, and group and name has."""
    run: Run | None
    """What they did to tags; None: only a part of what was looked at was given out."""

    @classmethod
    def of(
        cls, queue: str, slots: int, tasks: dict[int, Flowing], whose: Mapping[int, str], run: Run | None
    ) -> FlowLot:
        several = tasks.values()
        workers = Counter([whose[seq] for seq in tasks])
        keys = Counter([task.key for task in several if task.key is not None])
        names = Counter([(task.grp, task.name) for task in several if task.name is not None])
        return cls(queue, slots, tasks, whose, workers, keys, names, run)

    def only(self, known: Container[int]) -> FlowLot:
        kept = {seq: task for seq, task in self.tasks.items() if seq in known}
        return FlowLot.of(self.queue, self.slots, kept, self.whose, None)


def _in_rows(tasks: Iterable[Flowing]) -> list[tuple[str | None, int, int]]:
    """Key, cost, and how many of them follow each other."""
    rows: list[tuple[str | None, int, int]] = []
    key, cost, count = None, 0, 0
    for task in tasks:
        if task.key == key and task.cost == cost:
            count += 1
            continue
        if count:
            rows.append((key, cost, count))
        key, cost, count = task.key, task.cost, 1
    if count:
        rows.append((key, cost, count))
    return rows


class Live(dict[str, int]):
    """Live actions of a queue by key or worker, with what will be. What is asked for and not known is read."""

    def __init__(self, counters: tally.Tally, scope: str, queue: str) -> None:
        super().__init__()
        self._counters = counters
        self._of = (scope, queue)

    def __missing__(self, b: str) -> int:
        found = self[b] = self._counters.get(*self._of, b)
        return found

    def know(self, several: Collection[str]) -> None:
        """Read what will be asked for, at once."""
        self._counters.know(*self._of, several)


class Holds:
    """Made for a round."""

    def __init__(self, memory: Memory, now_ms: int) -> None:
        db = memory.db
        self.turns = Turns(db, memory.turns)
        self._counters = memory.tally
        self.tree: Tree | None = None
        """None where no queue with something ready names a class."""
        self._db = db
        self._now_ms = now_ms
        self._names = tally.NameTally(db)
        self._live: dict[tuple[str, str, str], int] = {}
        self._counts: dict[tuple[str, str], Live] = {}
        self._starts: Counter[str] = Counter()
        """By queue: what is under way, and what the round has given out. The bucket in the table knows of neither."""

    def charge(self, row: Queued, settings: QueueSettings) -> None:
        """A start counts for its queue and its class, as apply will count it."""
        self.charge_one(row.queue, row.cost, row.slots, settings)

    def charge_one(self, queue: str, cost: int, slots: int, settings: QueueSettings) -> None:
        name = settings.class_
        if name is None or self.tree is None:
            self.turns.serve(QUEUES, queue, cost, settings.weight)
            return
        lender = self.tree.lender(name, slots)
        self.tree.take(name, slots)
        self.turns.serve(of_class(name), queue, cost, settings.weight)
        if lender is not None:
            self.turns.serve(lent_by(lender.scope), name, cost, self.tree.weight(name))

    def took(self, row: Queued, settings: QueueSettings, worker: str) -> None:
        """It counts as live, where that is asked for, and for its flow."""
        live, queue, key = self._live, row.queue, row.key
        self._starts[queue] += 1
        if settings.limit is not None:
            live[tally.LIVE, queue, ""] = self.live(tally.LIVE, queue, "") + 1
        if settings.limit_per_worker is not None:
            self.counts(tally.LIVE_WORKER, queue)[worker] += 1
        if settings.limit_per_key is not None and key is not None:
            self.counts(tally.LIVE_KEY, queue)[key] += 1
        name = row.counted_name
        if name is not None:
            self._names.add(row.grp, name, row.lim, 1)
        if settings.discipline == FAIR:
            key = key or ""
            self.turns.of(flows(queue)).serve(key, row.cost, settings.key_weights.get(key, 1))

    def counts(self, scope: str, queue: str) -> Live:
        """By key or worker."""
        found = self._counts.get((scope, queue))
        if found is None:
            found = self._counts[scope, queue] = Live(self._counters, scope, queue)
        return found

    def took_lot(self, lot: Lot) -> None:
        """The same of many in which neither keys nor flows have a say."""
        live, queue, count = self._live, lot.queue, len(lot.tasks)
        self._starts[queue] += count
        live[tally.LIVE, queue, ""] = self.live(tally.LIVE, queue, "") + count
        self.counts(tally.LIVE_WORKER, queue)[lot.worker] += count
        for (group, name), named in lot.names.items():
            self._names.add(group, name, None, named)

    def took_flow_lot(self, lot: FlowLot, settings: QueueSettings) -> None:
        """The same of one of flows."""
        live, queue, count = self._live, lot.queue, len(lot.tasks)
        self._starts[queue] += count
        live[tally.LIVE, queue, ""] = self.live(tally.LIVE, queue, "") + count
        for worker, n in lot.workers.items():
            self.counts(tally.LIVE_WORKER, queue)[worker] += n
        if settings.limit_per_key is not None:
            keys = self.counts(tally.LIVE_KEY, queue)
            keys.know(lot.keys)
            for key, n in lot.keys.items():
                keys[key] += n
        for (group, name), n in lot.names.items():
            self._names.add(group, name, None, n)
        if settings.discipline == FAIR:
            self._run(self.turns.of(flows(queue)), settings.key_weights, lot)

    def _run(self, tags: Tags, weights: Mapping[str, int], lot: FlowLot) -> None:
        if lot.run is not None and tags.repeat(lot.run, weights):
            return
        several = lot.tasks.values()
        tags.know({task.key or "" for task in several})
        for key, cost, times in _in_rows(several):
            flow = key or ""
            tags.serve_in_row(flow, cost, weights.get(flow, 1), times)

    def live(self, scope: str, queue: str, b: str) -> int:
        """Live actions by one of the counters, with what will be."""
        found = self._live.get((scope, queue, b))
        if found is None:
            sql = "SELECT n FROM tally WHERE scope = ? AND a = ? AND b = ?"
            row = self._db.execute(sql, (scope, queue, b)).fetchone()
            found = self._live[scope, queue, b] = row[0] if row else 0
        return found

    def know(self, queue: str, settings: QueueSettings, rows: Sequence[Queued | Flowing]) -> None:
        """Read what will be asked of these at once."""
        if settings.discipline == FAIR:
            self.turns.know(flows(queue), {row.key or "" for row in rows})
        if settings.limit_per_key is not None:
            self.counts(tally.LIVE_KEY, queue).know({row.key for row in rows if row.key is not None})

    def know_queues(self) -> None:
        """The counters of all queues that have any, at once."""
        for queue, n in self._db.execute("SELECT a, n FROM tally WHERE scope = 'live'"):
            self._live.setdefault((tally.LIVE, queue, ""), n)

    def is_known(self, queue: str) -> int:
        """As `live` of the queue, after `know_queues`: one without a counter has nothing."""
        return self._live.get((tally.LIVE, queue, ""), 0)

    def rate_room(self, queue: str, settings: QueueSettings) -> tuple[int, int | None]:
        """How many its rate lets start now beside those, and when the next one could, if none."""
        row = self._db.execute("SELECT bucket_units, bucket_at FROM queue WHERE name = ?", (queue,)).fetchone()
        rate = settings.rate
        if row is None or rate is None:
            return limits.BATCH_MAX, None
        state = QueueState(queue, settings, row[0], row[1], None)
        free_at = state.free_at(self._now_ms)
        return state.starts(self._now_ms) - self._starts[queue], free_at

    def name_is_full(self, row: Queued) -> bool:
        name = row.counted_name
        if name is None or (row.lim is None and not self._names.any()):
            return False
        counted = self._names.live(row.grp, name)
        if row.lim is None and counted.keys() <= _UNLIMITED:  # nearly all that has a name
            return False
        smallest = min((limit for limit, n in counted.items() if n > 0), default=limits.NO_LIMIT)
        return sum(counted.values()) >= min(smallest, row.lim or limits.NO_LIMIT)

    def name_is_free(self, group: str, name: str) -> bool:
        """Nothing that is live under it has a limit."""
        return not self._names.any() or self._names.live(group, name).keys() <= _UNLIMITED

    def start_tag(self, row: Queued) -> int:
        return self.turns.start_tag(flows(row.queue), row.key or "")
