"""How busy queues are, by events alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from quvatlh.core.events import Event
from quvatlh.service import traffic
from quvatlh.service.traffic import IN, OUT, Times, Traffic
from tests.fakes.clock import FakeClock

START_MS = 1_700_000_000_000


class Log:
    """Events at the log's time; the clock goes with it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.time_ms = START_MS
        self.traffic = Traffic(self.clock, lambda: self.time_ms)
        self._index = 0

    def later(self, ms: int) -> None:
        self.clock.advance(ms / 1000)

    def tell(self, kind: str, queue: str = "q", n: int = 1, **more: Any) -> None:
        self.time_ms = START_MS + round((self.clock.boot() - 1000) * 1000)
        self._index += 1
        event = Event(0, kind, "t", seq=1, queue=queue, token=1, more=more or None)
        self.traffic.heard(self._index, [event] * n)


def test_rates_are_those_of_the_last_minute() -> None:
    log = Log()
    for _ in range(120):
        log.tell("task.added", n=3)
        log.later(1000)
    assert log.traffic.of("q").per_s[IN] == pytest.approx(3, rel=0.02)
    log.later(30_000)
    assert log.traffic.of("q").per_s[IN] == pytest.approx(1.5, rel=0.15)
    log.later(40_000)
    assert log.traffic.of("q").per_s[IN] == 0
    assert log.traffic.of("q").totals[IN] == 360


def test_after_a_start_rates_say_over_how_short_a_span_they_are() -> None:
    log = Log()
    log.tell("task.added")
    log.later(10_000)
    log.tell("task.added", n=19)
    rates = log.traffic.of("q")
    assert (rates.span_ms, rates.per_s[IN]) == (10_000, 2.0)


def test_a_state_received_whole_begins_with_nothing() -> None:
    log = Log()
    log.tell("task.added", n=100)
    log.traffic.reset(1)
    assert log.traffic.of("q").per_s == (0, 0, 0, 0)
    assert len(log.traffic) == 0


def test_what_a_node_catches_up_with_counts_where_it_belongs() -> None:
    log = Log()
    log.tell("task.added", n=1000)
    log.time_ms += 300_000
    log.clock.advance(300)
    log.tell("task.added")
    assert log.traffic.of("q").per_s[IN] < 0.1


def test_ends_of_every_kind_go_out_and_failures_are_told_apart() -> None:
    log = Log()
    for kind in ("task.succeeded", "task.failed", "task.deleted", "task.retrying", "task.started"):
        log.tell(kind)
    assert log.traffic.of("q").totals == (0, 3, 1, 1)


def test_queues_without_traffic_cost_nothing_and_many_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "QUEUES_MAX", 10)
    log = Log()
    for n in range(25):
        log.tell("task.added", f"q{n}")
        log.later(5000)
        log.tell("task.added", "busy")
    assert len(log.traffic) == 10
    assert log.traffic.of("busy").totals[IN] == 25
    assert log.traffic.of("never").totals == (0, 0, 0, 0)
    assert len(log.traffic) == 10


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_within_a_tenth(seed: int) -> None:
    chance = random.Random(seed)
    lengths = sorted(round(10 ** chance.uniform(0.5, 6)) for _ in range(5000))
    times = Times()
    for ms in lengths:
        times.saw([ms], START_MS)
    found = times.quantiles(START_MS)
    assert found is not None
    for word, share in traffic.QUANTILES.items():
        assert found[word] == pytest.approx(lengths[int(share * 5000) - 1], rel=0.11, abs=1)


def test_percentiles_forget_what_is_older_than_ten_minutes() -> None:
    log = Log()
    log.tell("task.claimed", waited_ms=1000)
    log.later(traffic.GENERATION_MS)
    log.tell("task.claimed", waited_ms=10)
    wait = log.traffic.of("q").wait
    assert wait is not None
    assert wait["p99"] == pytest.approx(1000, rel=0.1)
    log.later(traffic.GENERATION_MS)
    log.tell("task.claimed", waited_ms=10)
    wait = log.traffic.of("q").wait
    assert wait is not None
    assert wait["p99"] == pytest.approx(10, abs=1)
    log.later(3 * traffic.GENERATION_MS)
    assert log.traffic.of("q").wait is None


def test_only_what_began_has_run() -> None:
    log = Log()
    log.tell("task.failed")
    assert log.traffic.of("q").run is None
    log.later(800)
    log.tell("task.succeeded", started_at=START_MS)
    run = log.traffic.of("q").run
    assert run is not None
    assert run["p50"] == pytest.approx(800, rel=0.1)
    assert log.traffic.of("q").totals[OUT] == 2


def test_what_had_failed_and_is_deleted_went_out_before() -> None:
    log = Log()
    log.tell("task.failed")
    log.tell("task.deleted", was="failed", error="exit")
    assert log.traffic.of("q").totals == (0, 1, 1, 0)
