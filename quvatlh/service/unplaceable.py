"""Which waiting tasks no worker may have, and what they lack: a tag that nobody has is no fault of the cluster, and is told
apart from a queue that does not get on.

By shapes, from the counters, with the same rule as the auction and explain (`placing`): it costs as many judgements as a queue
has shapes, up to LANES_MAX, remembered until a worker changes. Without a worker that is up nothing is judged: then all wait.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from quvatlh.core import market, queries
from quvatlh.core.books import Shape
from quvatlh.core.views import QueueView, WorkerView
from quvatlh.service.placing import is_large_enough, matches, tags_of, unfit
from quvatlh.service.pool import Json

LANES_MAX: Final = 200
"""Shapes of a queue that are judged; what is beyond counts as what some worker may have."""
COMPARED_MAX: Final = 500
"""Shapes held against workers in one look at a queue: 20 ms. The next look goes on with those that are not judged yet."""
KNOWN_MAX: Final = 10_000
TOLD_MAX: Final = 10
"""Things that lack, of a queue."""

Lane = tuple[str, tuple[str, ...], int]
"""Queue, its patterns of workers, shape."""


class Lack(NamedTuple):
    what: Literal["queue", "adapter", "tag", "worker", "slots", "all"]
    """The first that no worker has; all: each alone is somewhere, and not together."""
    value: str | None


class Waits(NamedTuple):
    """Of a queue."""

    lacks: Counter[Lack]
    """Tasks in the ready order."""
    oldest: int | None
    """Of the others, when it was created."""
    has_lines: bool
    """There may be more behind them."""


class Unplaceable:
    def __init__(self) -> None:
        self._workers: object = None
        self._known: dict[Lane, Lack | None] = {}

    def among(self, db: sqlite3.Connection, queue: QueueView, workers: Sequence[WorkerView]) -> Waits:
        up = [view for view in workers if view.state == "up"]
        lanes = market.ready(db, queue.name, limit=LANES_MAX) if up and queue.counts.get("pending") else []
        known = self._of(up)
        lacks: Counter[Lack] = Counter()
        stuck: set[int] = set()
        left = COMPARED_MAX
        for lane in lanes:
            key = (queue.name, queue.settings.workers, lane.shape)
            if key not in known:
                if left <= 0:
                    continue
                left -= len(up)
                shape = queries.find_shape(db, lane.shape)
                known[key] = None if shape is None else lacking(shape, queue, up)
            lack = known[key]
            if lack is not None:
                lacks[lack] += lane.tasks
                stuck.add(lane.shape)
        oldest = queries.oldest_pending(db, queue.name, stuck) if stuck else queue.oldest_pending_at
        return Waits(lacks, oldest, queue.counts.get("pending", 0) > sum(lane.tasks for lane in lanes))

    def _of(self, up: Sequence[WorkerView]) -> dict[Lane, Lack | None]:
        """What is known of these workers as they are."""
        found = [(view.name, view.facts) for view in up]
        if found != self._workers or len(self._known) > KNOWN_MAX:
            self._workers, self._known = found, {}
        return self._known


def lacking(shape: Shape, queue: QueueView, up: Sequence[WorkerView]) -> Lack | None:
    """None: some worker may have it, when it has room."""
    names = frozenset(view.name for view in up)
    found = [unfit(view, shape, queue.name, queue.settings.workers, names) for view in up]
    fit = [view for view, no in zip(up, found, strict=True) if no is None]
    if any(is_large_enough(view, shape.slots) for view in fit):
        return None
    if fit:
        return Lack("slots", str(shape.slots))
    verdicts = {no.verdict for no in found if no is not None}
    if verdicts == {"queue"}:
        return Lack("queue", queue.name)
    if "tags" not in verdicts:
        return Lack("adapter", shape.adapter)
    if shape.pin is not None and shape.pin not in names:
        return Lack("worker", shape.pin)
    tags = [tag for view in up for tag in tags_of(view)]
    nowhere = (each for each in shape.tags if not each.startswith("!") and not any(matches(tag, each) for tag in tags))
    tag = next(nowhere, None)
    return Lack("all", None) if tag is None else Lack("tag", tag)


def record(waits: Waits) -> Json:
    """Of a queue's record."""
    told: Json | None = None
    if waits.lacks:
        lacks = [{"what": lack.what, "value": lack.value, "count": n} for lack, n in waits.lacks.most_common(TOLD_MAX)]
        told = {"count": waits.lacks.total(), "at_least": waits.has_lines, "lacks": lacks}
    return {"unplaceable": told, "oldest_placeable_at_ms": waits.oldest}
