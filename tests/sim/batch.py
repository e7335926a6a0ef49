"""One seed in a process of a pool. A module of its own, since a pool finds its work by name."""

from __future__ import annotations

import traceback

from tests.sim.table.planted import planted
from tests.sim.worlds import WORLDS


def one(world: str, seed: int, seconds: float, fault: str | None) -> tuple[int, object]:
    """The outcome, or the story of what ended it."""
    run = WORLDS[world](seed, seconds)
    try:
        with planted(fault):
            return seed, run.play()
    except BaseException as error:  # noqa: BLE001  # whatever ends a run is its finding
        return seed, "".join(traceback.format_exception(error)[-3:]) + "\nlast of the trace:\n" + run.story[-6000:]
