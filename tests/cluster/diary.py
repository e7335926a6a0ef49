"""What actions say of themselves: a line when they begin, one each beat, one at the end, each with the time that it was.

All actions of a test append to one file. A run is what the lines of one task and fencing token tell: alive at least from
its first line to its last. Two runs of one job that were alive at once had two owners. The times are those of the one
clock of this machine, whatever node or namespace an action was in.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BEAT_S = 0.2
FRESH_S = 3 * BEAT_S
"""An action whose last line is younger is taken for alive. The machine may be busy."""

# No process is forked for a beat: `read` waits for what nobody ever writes.
_SCRIPT = r"""
exec 8<>"$1" 9>>"$2"
say() { printf '%s %s %s %s %s %s\n' "${EPOCHREALTIME/[.,]/}" "$1" "$QUVATLH_TASK_ID" "$QUVATLH_ATTEMPT" \
    "$QUVATLH_FENCE" "$QUVATLH_WORKER" >&9; }
trap 'say stop; exit 1' TERM
say start
n=0
while [ "$n" -lt "$3" ]; do read -t "$4" -u 8; say beat; n=$((n + 1)); done
say end
"""


def now_us() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class Run:
    """Microseconds of the wall clock."""

    task: str
    attempt: int
    fence: int
    worker: str
    first_us: int
    last_us: int
    ended: bool = False

    @property
    def alive(self) -> bool:
        return not self.ended and now_us() - self.last_us < FRESH_S * 1e6


@dataclass
class Diary:
    directory: Path
    runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    _read: int = 0

    def __post_init__(self) -> None:
        if shutil.which("bash") is None:
            pytest.skip("no bash here")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lines.touch()
        os.mkfifo(self._silence)

    @property
    def _lines(self) -> Path:
        return self.directory / "lines"

    @property
    def _silence(self) -> Path:
        return self.directory / "silence"

    def work(self, seconds: float = 1e6) -> dict[str, Any]:
        """A command that lives so long, if nobody ends it, and then succeeds."""
        beats = max(1, round(seconds / BEAT_S))
        return {"command": ["bash", "-c", _SCRIPT, "-", str(self._silence), str(self._lines), str(beats), str(BEAT_S)]}

    def look(self) -> dict[tuple[str, int], Run]:
        """All runs so far."""
        with self._lines.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode().splitlines():
            at, what, task, attempt, fence, worker = line.split()
            run = self.runs.setdefault(
                (task, int(fence)), Run(task, int(attempt), int(fence), worker, int(at), int(at))
            )
            run.last_us = max(run.last_us, int(at))
            run.ended |= what in {"end", "stop"}
        return self.runs

    def of(self, tasks: Iterable[str]) -> dict[str, list[Run]]:
        """Runs of these tasks, by the order in which they began."""
        found: dict[str, list[Run]] = {task: [] for task in tasks}
        for run in sorted(self.look().values(), key=lambda run: run.first_us):
            if run.task in found:
                found[run.task].append(run)
        return found

    def alive(self, tasks: Iterable[str]) -> list[Run]:
        return [run for runs in self.of(tasks).values() for run in runs if run.alive]

    def overlaps(self, tasks: Iterable[str]) -> list[str]:
        """Pairs of runs of one job that were alive at once."""
        found = []
        for runs in self.of(tasks).values():
            last = runs[:1]
            for run in runs[1:]:
                if run.first_us <= last[0].last_us:
                    found.append(f"{last[0]} and {run}")
                if run.last_us > last[0].last_us:
                    last = [run]
        return found


def crowd(runs: Sequence[Run]) -> list[tuple[int, int]]:
    """When the number of those alive became what: instant and number. Touching ends count as both."""
    changes: dict[int, int] = defaultdict(int)
    for run in runs:
        changes[run.first_us] += 1
        changes[run.last_us + 1] -= 1
    told, alive = [], 0
    for at in sorted(changes):
        alive += changes[at]
        told.append((at, alive))
    return told
