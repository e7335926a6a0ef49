"""What a command knows of the place it runs in: environment, clock, terminals. Made once a process; tests give their own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quvatlh.system.clock import RealClock
from quvatlh.system.host import is_root


@dataclass(frozen=True, slots=True)
class Surroundings:
    environ: Mapping[str, str]
    is_root: bool
    wall_ms: Callable[[], int]
    columns: int | None
    """Of the terminal that standard output is; None: no terminal, so nothing is cut short."""
    watched: bool
    """Standard error is a terminal: somebody reads hints."""
    bars: bool
    """And sees progress move."""
    asks: bool
    """Somebody is there who can answer a question."""


def here() -> Surroundings:
    """Of this process."""
    return Surroundings(
        environ=os.environ,
        is_root=is_root(),
        wall_ms=RealClock().wall_ms,
        columns=shutil.get_terminal_size().columns if sys.stdout.isatty() else None,
        watched=sys.stderr.isatty(),
        bars=sys.stderr.isatty(),
        asks=sys.stdin.isatty() and sys.stderr.isatty(),
    )
