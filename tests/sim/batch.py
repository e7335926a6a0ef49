"""One seed in a process of a pool. A module of its own, since a pool finds its work by name."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Final

from tests.sim.judge import Violation
from tests.sim.run import Outcome
from tests.sim.table.planted import planted
from tests.sim.worlds import WORLDS

STORY_CHARS: Final = 6000


@dataclass(frozen=True, slots=True)
class Broken:
    """A run that something ended."""

    story: str
    violation: str | None
    """The promise that was broken, by the word of the judge or of the log itself; None: it ended by something else."""


def one(world: str, seed: int, seconds: float, fault: str | None) -> tuple[int, Outcome | Broken]:
    run = WORLDS[world](seed, seconds)
    try:
        with planted(fault):
            return seed, run.play()
    except BaseException as error:  # noqa: BLE001  # whatever ends a run is its finding
        told = "".join(traceback.format_exception(error)[-3:])
        return seed, Broken(f"{told}\nlast of the trace:\n{run.story[-STORY_CHARS:]}", _violation(error))


def _violation(error: BaseException | None) -> str | None:
    """What a process of the world ends by is the cause of what the loop raises. The log's own alarm (a damaged disk) is as
    good as the judge's; whatever else ends a run has shown nothing."""
    while error is not None and not isinstance(error, Violation):
        if type(error).__module__.startswith("quvatlh.raft."):
            return f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__
    return None if error is None else str(error)
