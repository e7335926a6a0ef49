"""Starts foretold: from counters, what runs, and how long it ran; and how wrong that was."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core.events import Event
from quvatlh.core.filters import TaskFilter
from quvatlh.core.model import QueueSettings, Rate
from quvatlh.core.rows import TASK_COLUMNS, TaskRow, task_row
from quvatlh.core.views import QueueView
from quvatlh.service.forecast import Forecast, Standing
from quvatlh.service.outflow import QUEUES_MAX, Outflow
from quvatlh.service.pool import TaskQuery
from tests.fakes.clock import FakeClock
from tests.service.stand import asked, one

NOW = 1_700_000_000_000


def row(**given: Any) -> TaskRow:
    known: dict[str, Any] = {
        "seq": 1,
        "state": "pending",
        "queue": "q",
        "created_at": NOW,
        "live": 0,
        "due_at": None,
    } | given
    return task_row([known.get(name) for name in TASK_COLUMNS])


def standing(free: int = 0, live: int = 1, pending: int = 1, oldest: int | None = None, **settings: Any) -> Standing:
    rate_free_at = settings.pop("rate_free_at", None)
    view = QueueView("q", QueueSettings(**settings), {"pending": pending}, live, oldest, rate_free_at, reranking=False)
    return Standing(view, free)


def taught(run_s: float = 2.0) -> tuple[Forecast, FakeClock]:
    """It has seen runs of this length."""
    clock = FakeClock()
    forecast = Forecast(clock)
    for n in range(100, 110):
        forecast.heard(n, [Event(0, "task.claimed", "t", "claimed", n, "q")])
        clock.advance(run_s)
        forecast.heard(n, [Event(0, "task.succeeded", "t", "succeeded", n, "q")])
    return forecast, clock


def wait_s(forecast: Forecast, place: int | None, at: Standing, task: TaskRow | None = None) -> float | None:
    told = forecast.eta(task or row(), at, place, NOW)
    return None if told is None else (told["at_ms"] - NOW) / 1000


@pytest.mark.parametrize(
    ("place", "at", "expected"),
    [
        (0, standing(free=1), 0),  # a slot is free for it
        (3, standing(free=4), 0),
        (0, standing(live=1), 2),  # when what runs has ended
        (9, standing(live=1), 20),
        (9, standing(live=5), 4),  # five end in the time of one
        (9, standing(live=2, free=100, limit=2), 10),  # its limit is full, whatever is free
        (9, standing(live=5, free=2), 3.2),  # two begin at once
        (0, standing(free=1, rate=Rate(1, 60_000), rate_free_at=NOW + 7000), 7),
        (3, standing(free=9, rate=Rate(1, 60_000), rate_free_at=NOW + 7000), 187),
        (0, standing(free=1, rate=Rate(1, 60_000), rate_free_at=NOW), 0),
        (0, standing(free=1, paused=True), None),
    ],
)
def test_a_wait_follows_from_who_is_before_and_what_runs(place: int, at: Standing, expected: float | None) -> None:
    forecast, _ = taught()
    assert wait_s(forecast, place, at) == expected


def test_without_a_place_age_tells_how_many_are_before(tmp_path: Path) -> None:
    forecast, _ = taught()
    old = NOW - 10_000
    at = standing(pending=101, oldest=old)
    assert wait_s(forecast, None, at, row(created_at=NOW)) == 202
    assert wait_s(forecast, None, at, row(created_at=NOW - 5000)) == 102
    assert wait_s(forecast, None, at, row(created_at=old)) == 102  # one of many that came at once, for all one knows


def test_who_waits_for_a_time_starts_then(tmp_path: Path) -> None:
    forecast, _ = taught()
    for state in ("scheduled", "retrying"):
        told = forecast.eta(row(state=state, due_at=NOW + 9000), standing(live=1), None, NOW)
        assert told == {"at_ms": NOW + 9000, "low_ms": NOW + 9000, "high_ms": NOW + 10_000}


@pytest.mark.parametrize("state", ["claimed", "running", "succeeded", "failed", "deleted"])
def test_what_does_not_wait_has_none(state: str) -> None:
    forecast, _ = taught()
    assert forecast.eta(row(state=state, live=int(state in {"claimed", "running"})), standing(), 0, NOW) is None


def test_as_long_as_too_little_ran_nobody_can_know() -> None:
    forecast = Forecast(FakeClock())
    assert wait_s(forecast, 1, standing()) is None
    assert wait_s(forecast, 0, standing(free=1)) == 0


def test_the_range_is_made_of_what_came_of_earlier_words_and_the_errors_are_shown() -> None:
    forecast, clock = taught()
    chance = random.Random(7)
    for seq in range(1000, 1200):
        forecast.eta(row(seq=seq), standing(live=1), 4, NOW)  # 10 s
        clock.advance(chance.uniform(8, 15))
        forecast.heard(seq, [Event(0, "task.claimed", "t", "claimed", seq, "q")])
    told = forecast.eta(row(seq=1), standing(live=1), 4, NOW)
    assert told is not None
    assert 8000 <= told["low_ms"] - NOW < 9000
    assert 14_000 < told["high_ms"] - NOW <= 16_000
    errors, count = forecast.metrics()
    assert count.samples == [({}, 200)]
    median = {labels["quantile"]: seconds for labels, seconds in errors.samples}["0.5"]
    assert 1 < median < 4


def test_what_is_watched_is_bounded_and_what_never_ends_makes_room() -> None:
    forecast, clock = taught()
    for seq in range(2000, 4000):
        forecast.eta(row(seq=seq), standing(live=1), 9, NOW)
        forecast.heard(seq, [Event(0, "task.claimed", "t", "claimed", seq + 10_000, "q")])
    assert (len(forecast._runs), len(forecast._told)) == (256, 256)
    clock.advance(100)
    forecast.heard(1, [Event(0, "task.claimed", "t", "claimed", 9, "q")])
    assert 9 in forecast._runs
    forecast.reset(1)
    assert not forecast._runs


def flowing(seconds: float, clock: FakeClock | None = None, forecast: Forecast | None = None) -> Forecast:
    """Short tasks, which are claimed and end fifty at a time, 2,500 a second."""
    clock = clock or FakeClock()
    forecast = forecast or Forecast(clock)
    for turn in range(round(seconds / 0.02)):
        seqs = range(turn * 50, turn * 50 + 50)
        forecast.heard(turn, [Event(0, "task.claimed", "t", "claimed", seq, "q") for seq in seqs])
        clock.advance(0.02)
        forecast.heard(turn, [Event(0, "task.succeeded", "t", "succeeded", seq, "q") for seq in seqs])
    return forecast


@pytest.mark.parametrize("live", [1, 2, 50, 150])
def test_of_short_tasks_it_does_not_matter_how_many_are_live_at_the_moment(live: int) -> None:
    assert wait_s(flowing(3.0), 4999, standing(live=live)) == pytest.approx(2.0, rel=0.05)


def test_an_outflow_counts_as_long_as_it_goes_on() -> None:
    clock = FakeClock()
    forecast = flowing(3.0, clock)
    clock.advance(1.5)
    assert wait_s(forecast, 4999, standing(live=50)) == pytest.approx(5000 * 0.02 / 50, rel=0.05)
    assert wait_s(flowing(0.5, clock, forecast), 4999, standing(live=1)) == pytest.approx(100, rel=0.05)
    assert wait_s(flowing(2.0, clock, forecast), 4999, standing(live=1)) == pytest.approx(2.0, rel=0.05)


def test_the_outflow_of_few_queues_is_kept() -> None:
    outflow = Outflow()
    for n in range(QUEUES_MAX + 5):
        outflow.ended(f"q{n}", 1, 0.0)
        outflow.ended(f"q{n}", 8, 1.0)
    assert (outflow.of("q0", 1.5), outflow.of(f"q{QUEUES_MAX}", 1.5), len(outflow._known)) == (None, 8.0, QUEUES_MAX)


async def test_tasks_show_it_alone_and_in_lists_that_ask_for_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        for n in range(5):
            task = await stand.add()
            await stand.until(stand.running)
            stand.clock.advance(1.0)
            await stand.node.session.beat()
            stand.end(f"a{n + 1}")
            await stand.until_state(task, "succeeded")
        running = await stand.add()
        await stand.until_state(running, "running")
        waiting = [await stand.add() for _ in range(3)]
        later = await stand.add(delay_ms=60_000)
        now = stand.clock.wall_ms()
        assert (await stand.pool.task(asked(), waiting[2]))["eta"]["at_ms"] == now + 3000
        assert (await stand.pool.task(asked(), later))["eta"]["at_ms"] == now + 60_000
        assert (await stand.pool.task(asked(), running))["eta"] is None
        listed = (await stand.pool.tasks(asked(), TaskQuery(TaskFilter(state=("pending",)), eta=True))).items
        assert [item["eta"]["at_ms"] for item in listed] == [now + 2000] * 3  # they came at once
        assert [item["eta"] for item in (await stand.pool.tasks(asked(), TaskQuery(TaskFilter()))).items] == [None] * 10
        told = {metric.name: metric.samples for metric in stand.pool.metrics() if metric.name.startswith("eta_")}
        assert told == {"eta_error_seconds": [], "eta_foretold_total": [({}, 0)]}
        stand.clock.advance(1.0)
        await stand.node.session.beat()
        stand.end("a6")
        await stand.until_state(waiting[0], "running")
        told = {metric.name: metric.samples for metric in stand.pool.metrics() if metric.name.startswith("eta_")}
        assert told["eta_foretold_total"] == [({}, 1)]
