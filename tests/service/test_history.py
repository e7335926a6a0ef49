from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from quvatlh.core.events import Event
from quvatlh.service.history import SLOTS, STEP_MS, WAITS_MAX, History
from tests.fakes.clock import FakeClock

START_MS = 1_700_000_000_000


class FakeState:
    """Log time, and the counters that a chart shows."""

    def __init__(self) -> None:
        self.time_ms = START_MS
        self.is_open = True
        self.db = sqlite3.connect(":memory:")
        self.db.execute("CREATE TABLE tally (scope, a, b, n)")

    def count(self, scope: str, b: str, n: int) -> None:
        self.db.execute("DELETE FROM tally WHERE scope = ? AND b = ?", (scope, b))
        self.db.execute("INSERT INTO tally VALUES (?, 'q', ?, ?)", (scope, b, n))


@pytest.fixture
def made() -> tuple[History, FakeState]:
    state = FakeState()
    given: Any = state
    return History(given, FakeClock()), state


def event(kind: str, **more: Any) -> Event:
    return Event(0, kind, "a", more=more or None)


def test_what_happens_is_counted_where_its_time_belongs(made: tuple[History, FakeState]) -> None:
    history, state = made
    history.heard(1, [event("task.added"), event("task.added"), event("worker.up")])
    state.time_ms += 3 * STEP_MS
    history.heard(2, [event("task.succeeded"), event("task.failed")])
    told = history.record()
    assert told["from_ms"] == START_MS // STEP_MS * STEP_MS
    assert told["counts"]["added"] == [2, 0, 0, 0]
    assert told["counts"]["succeeded"] == told["counts"]["failed"] == [0, 0, 0, 1]


def test_depths_hold_until_they_are_looked_at_again(made: tuple[History, FakeState]) -> None:
    history, state = made
    state.count("state", "pending", 7)
    state.count("live_worker", "w", 2)
    history.heard(1, [])
    state.time_ms += 3 * STEP_MS
    history.heard(2, [])
    state.count("state", "pending", 0)
    told = history.record()
    assert told["tasks"]["pending"] == [7, 7, 7, 0]
    assert told["live"] == {"w": [2, 2, 2, 2]}


def test_waits_are_told_by_their_middle_and_their_slow_end(made: tuple[History, FakeState]) -> None:
    history, state = made
    history.heard(1, [event("task.claimed", waited_ms=n) for n in range(WAITS_MAX + 100)])
    history.heard(2, [event("task.claimed", attempt=2)])
    state.time_ms += STEP_MS
    history.heard(3, [])
    waits = history.record()["waits"]
    assert waits["wait_p50_ms"] == [(WAITS_MAX - 1) // 2, None]
    assert waits["wait_p95_ms"] == [(WAITS_MAX - 1) * 95 // 100, None]


def test_it_is_an_hour_and_no_more(made: tuple[History, FakeState]) -> None:
    history, state = made
    for _ in range(SLOTS + 50):
        history.heard(1, [event("task.added")])
        state.time_ms += STEP_MS
    told = history.record()
    assert len(told["counts"]["added"]) == SLOTS + 1
    assert sum(told["counts"]["added"]) <= SLOTS + 1
    state.time_ms += 10 * 3_600_000
    history.heard(2, [])
    told = history.record()
    assert sum(told["counts"]["added"]) == 0
    assert len(told["counts"]["added"]) == SLOTS + 1


def test_a_node_that_has_heard_nothing_has_no_history(made: tuple[History, FakeState]) -> None:
    history, state = made
    state.time_ms = 0
    history.heard(1, [event("task.added")])
    state.is_open = False
    assert history.record()["counts"]["added"] == []
    state.is_open, state.time_ms = True, START_MS
    history.heard(2, [event("task.added")])
    history.reset(9)
    history.heard(10, [])
    assert history.record()["counts"]["added"] == [0]
