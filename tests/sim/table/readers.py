"""Reads of a simulated node: on a lane, so that they take time as threads do, through the one connection there is."""

from __future__ import annotations

from collections.abc import Callable

from quvatlh.service.readers import Read, T
from quvatlh.service.state import State
from tests.sim.lane import SimLane


class LaneReaders:
    """Keeps service.readers.Reading. A query runs between two steps of the world, so it sees one instant."""

    def __init__(self, state: State, lane: Callable[[], SimLane]) -> None:
        self._state = state
        self._lane = lane()

    async def read(self, query: Read[T]) -> T:
        _ = self._state.path
        return await self._lane.run(lambda: query(self._state.db))

    def close(self) -> None:
        self._lane.close()
