from __future__ import annotations

import pytest

from quvatlh.core.events import Event
from quvatlh.service.pace import SAMPLES_MAX, TRUSTED_AFTER, Pace
from tests.fakes.clock import FakeClock


class Table:
    """Awards and ends of one worker with two slots, by a log that takes its time."""

    def __init__(self, log_s: float) -> None:
        self.clock = FakeClock()
        self.pace = Pace(self.clock)
        self._log_s = log_s
        self._last = 0

    def award(self, count: int) -> list[int]:
        seqs = [self._last + n for n in range(1, count + 1)]
        self._last += count
        for position, seq in enumerate(seqs, 1):
            self.pace.awarded(seq, "q", min(1.0, 2 / position), "w1", 2)
        self._told("task.claimed", seqs)
        return seqs

    def end(self, seqs: list[int], ran_s: float) -> None:
        self.clock.advance(ran_s)
        self._told("task.succeeded", seqs)

    def _told(self, kind: str, seqs: list[int]) -> None:
        self.clock.advance(self._log_s)
        self.pace.heard(1, [Event(n, kind, f"t{seq}", seq=seq, queue="q") for n, seq in enumerate(seqs)])


@pytest.mark.parametrize("log_s", [0.001, 0.2])
def test_what_the_log_takes_is_no_run_time(log_s: float) -> None:
    table = Table(log_s)
    for _ in range(TRUSTED_AFTER):
        table.end(table.award(1), 0.003)
    assert table.pace.run_ms("q") == pytest.approx(3)


def test_of_a_worker_that_had_run_out_of_work_half_counts() -> None:
    table = Table(0.02)
    table.end(table.award(4), 0.008)
    assert table.pace.run_ms("q") == pytest.approx(8 * (1 + 1 + 2 / 3 + 1 / 2) / 4 / 2, rel=0.3)


def test_a_worker_that_still_has_work_has_not_run_out() -> None:
    table = Table(0.02)
    seqs = table.award(5)
    table.end(seqs[:4], 0.008)
    assert table.pace.run_ms("q") == pytest.approx(8 * (1 + 1 + 2 / 3 + 1 / 2) / 4, rel=0.3)


def test_nor_has_one_of_whose_work_not_all_is_watched() -> None:
    table = Table(0.02)
    watched = table.award(SAMPLES_MAX + 1)[:SAMPLES_MAX]
    table.end(watched, 1.0)
    first = table.pace.run_ms("q")
    assert first is not None
    other = Table(0.02)
    other.end(other.award(SAMPLES_MAX), 1.0)
    assert other.pace.run_ms("q") == pytest.approx(first / 2)
