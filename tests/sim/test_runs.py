"""The simulation of whole clusters, a little of it: that a seed is a run, and that the judge has eyes and teeth.

Seeds by the hundred, and every planted fault, are run by `python -m tests.sim`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.found import FOUND
from tests.sim.table.planted import FAULTS, planted

ROOT = Path(__file__).parents[2]


def simulated(*arguments: str) -> None:
    """In a process of its own, which fixes the hash seed: what a seed plays depends on it."""
    command = [sys.executable, "-m", "tests.sim", *arguments, "--jobs", "1"]
    run = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.long
def test_nothing_is_lost_doubled_or_forgotten_whatever_befalls_the_cluster() -> None:
    simulated("--world", "log", "--seed", "1", "--seeds", "5", "--seconds", "10")


@pytest.mark.long
def test_no_task_is_lost_doubled_or_forgotten_whatever_befalls_the_nodes() -> None:
    simulated("--world", "table", "--seed", "1", "--seeds", "2", "--seconds", "5")


@pytest.mark.long
@pytest.mark.parametrize(("world", "seed", "seconds"), FOUND)
def test_what_a_seed_has_shown_stays_mended(world: str, seed: int, seconds: float) -> None:
    simulated("--world", world, "--seed", str(seed), "--seeds", "1", "--seconds", str(seconds))


@pytest.mark.long
@pytest.mark.parametrize(("world", "seconds"), [("log", "10"), ("table", "4")])
def test_the_same_seed_is_the_same_run_to_the_byte_in_every_process(world: str, seconds: str, tmp_path: Path) -> None:
    traces = []
    for number in range(2):
        path = tmp_path / f"trace{number}"
        simulated("--world", world, "--seed", "3", "--seconds", seconds, "--trace", str(path))
        traces.append(path.read_bytes())
    assert len(traces[0]) > 1000
    assert traces[0] == traces[1]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_planted_fault_takes_away_is_there(fault: str) -> None:
    with planted(fault):
        pass


@pytest.mark.long
@pytest.mark.parametrize("fault", ["cut-shown-at-once", "vote-not-persisted"])
def test_a_planted_fault_is_found(fault: str) -> None:
    simulated("--fault", fault, "--seeds", "29", "--seconds", "20")


def test_every_defect_that_the_engine_came_with_can_be_planted() -> None:
    assert set(FAULTS) >= {
        "no-sync-before-answers",
        "vote-not-persisted",
        "cut-shown-at-once",
        "cut-ignored",
        "commit-index-not-lowered",
        "answers-without-term-or-connection",
        "lease-by-receipt-time",
        "campaign-without-pre-vote",
        "founding-by-a-part-of-the-peers",
        "applied-before-the-own-sync",
        "vote-request-let-through-to-a-master-with-the-lease",
        "entry-of-an-old-master-applied",
        "snapshot-renamed-before-sync",
        "log-cleared-at-start",
        "two-membership-changes-at-once",
        "empty-disk-that-votes",
        "proposal-counted-before-its-own-sync",
    }
