"""Which queue is next: classes first, as the tree lends (core/disciplines/htb.py), then queues without a class by weight.

The tags are those of the tables, moved on by what is under way and by what the round gives out, as apply will move them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

from quvatlh.core.disciplines.htb import Lender, Tree
from quvatlh.core.rows import Queued
from quvatlh.core.turns import QUEUES, Turns, lent_by, of_class
from quvatlh.service.holds import Holds, Lot
from quvatlh.service.lanes import Lane


class Root:
    """Of a round. `classes`: the queues with something ready, with their class; `make` opens the lane of one, if it has room;
    `changed` is told of each award; `is_room`: whether anybody could still take anything at all."""

    def __init__(
        self,
        holds: Holds,
        classes: Mapping[str, str | None],
        make: Callable[[str], Lane | None],
        changed: Callable[[], None],
        is_room: Callable[[], bool],
    ) -> None:
        self._holds = holds
        self._make = make
        self._changed = changed
        self._is_room = is_room
        self._lanes: dict[str, Lane] = {}
        self._classed: dict[str, list[Lane]] = {}
        self._held_up = False
        """Something could start, but for its class."""
        free: Iterable[str] = classes
        if holds.tree is not None:
            free = [queue for queue, name in classes.items() if name is None]
            for queue, name in classes.items():
                lane = None if name is None else make(queue)
                if lane is not None:
                    self._classed.setdefault(name or "", []).append(lane)
        now, ahead = holds.turns.ahead(QUEUES)
        self._heap = [(ahead.get(queue, now), queue) for queue in free]
        heapq.heapify(self._heap)

    def next(self) -> Lane | None:
        """The lane whose turn it is; it stays so until it was charged or dropped."""
        if not self._is_room():
            return None
        lane = self._next_classed() if self._classed else None
        while lane is None and self._heap:
            queue = self._heap[0][1]
            lane = self._lanes.get(queue) or self._make(queue)
            if lane is None:
                heapq.heappop(self._heap)
            else:
                self._lanes[queue] = lane
        return lane

    def is_alone(self, lane: Lane) -> bool:
        """Nobody else has a turn."""
        return len(self._heap) == 1 and not self._classed and self._is_first(lane)

    def _is_first(self, lane: Lane) -> bool:
        return bool(self._heap) and self._heap[0][1] == lane.queue.name and lane.queue.name in self._lanes

    def gave(self, lane: Lane, lots: Iterable[Lot]) -> None:
        """Of a lane that is alone, whose tags therefore do not matter."""
        self._changed()
        for lot in lots:
            lane.room -= len(lot.tasks)
            lane.holds.took_lot(lot)

    def took(self, lane: Lane, task: Queued, times: int) -> None:
        """The workers have it in their hands."""
        self._changed()
        for _ in range(times):
            lane.holds.charge(task, lane.queue.settings)
        if self._is_first(lane):
            heapq.heapreplace(self._heap, (self._turns.start_tag(QUEUES, lane.queue.name), lane.queue.name))

    def drop(self, lane: Lane) -> None:
        """It has nothing more in this round."""
        if self._is_first(lane):
            heapq.heappop(self._heap)
            return
        name = lane.queue.settings.class_ or ""
        self._classed[name].remove(lane)
        if not self._classed[name]:
            del self._classed[name]

    def _next_classed(self) -> Lane | None:
        """The lowest level, the highest priority, the least tags: of the class with its lender, of the queue in it."""
        best: tuple[tuple[int, int, int, str], Lane] | None = None
        for name in list(self._classed):
            found = self._of_class(name)
            if found is not None:
                lender, lane = found
                tag = self._turns.start_tag(lent_by(lender.scope), name)
                place = (lender.level, -self._tree.classes[name].priority, tag, name)
                if best is None or place < best[0]:
                    best = (place, lane)
        return None if best is None else best[1]

    def _of_class(self, name: str) -> tuple[Lender, Lane] | None:
        """The queue whose turn it is, of those whose head the tree lends for; those with nothing left are dropped."""
        found: list[tuple[int, str, Lender, Lane]] = []
        for lane in list(self._classed[name]):
            head = lane.next()
            lender = None if head is None else self._tree.lender(name, head[0].slots)
            while head is not None and lender is None and head[0].slots > 1 and self._tree.lender(name) is not None:
                lane.skip()  # it wants more than there is, and those behind it may want less
                head = lane.next()
                lender = None if head is None else self._tree.lender(name, head[0].slots)
            if head is None:
                self.drop(lane)
                continue
            self._held_up = self._held_up or lender is None
            if lender is not None:
                tag = self._turns.start_tag(of_class(name), lane.queue.name)
                found.append((tag, lane.queue.name, lender, lane))
        return min(found)[2:] if found else None

    def free_at_ms(self) -> int | None:
        """When a class of starts that is held up may start something."""
        if not self._held_up:
            return None
        waits = [self._tree.free_at(name) for name in self._classed if self._tree.classes[name].of == "starts"]
        return min(waits, default=None)

    @property
    def _turns(self) -> Turns:
        return self._holds.turns

    @property
    def _tree(self) -> Tree:
        assert self._holds.tree is not None
        return self._holds.tree
