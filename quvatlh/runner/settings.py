"""The runner's numbers, each with its unit and its reason."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

CHUNK_BYTES = 65_536
"""One read of a pipe, which holds no more by default: a flood takes turns with everything else on the loop."""
TAIL_BYTES = 4_096
"""What of the outputs travels with the finish (DESIGN.md section 7)."""
DRAIN_BYTES_MAX = 16 * CHUNK_BYTES
"""Read at the end from a pipe that somebody outside of the tree still holds and may go on filling."""
WATCH_AFTER_S = 0.01
"""Pipes are watched only from here on: most short commands end before, and cost the loop two registrations less."""
START_SLICE_S = 0.005
"""Starting many at once lets the rest of the loop take a turn this often; one start takes about 0.4 ms."""
SWEEP_S = 1.0
"""While actions run, orphans that ended are reaped this often. Ending an action looks for them anyway."""
OUTPUT_BYTES_MIN = 4 * CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    outputs_dir: str
    """One directory an action that wrote anything, by its id. Nothing else may live here."""
    inputs_dir: str
    """Payload and stdin of live actions. Emptied at start. An action of another user must be able to reach it by path."""
    output_bytes_max: int = 16 * 1024 * 1024
    """A stream's files on disk: the first half stays, the rest is the newest quarter to half."""
    environment: Mapping[str, str] = field(default_factory=lambda: inherited(os.environ))
    """What every action gets, below its own `env`."""

    def __post_init__(self) -> None:
        if self.output_bytes_max < OUTPUT_BYTES_MIN:
            raise ValueError(
                f"output_bytes_max must be at least {OUTPUT_BYTES_MIN}: a quarter of it takes one whole read"
            )


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment without what is meant for the daemon alone."""
    return {name: value for name, value in environ.items() if not name.startswith("QUVATLH_")}
