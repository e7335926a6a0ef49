"""What keeps an award from being one, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import market
from quvatlh.core.commands import QueueChanges, TaskChanges
from quvatlh.core.model import QueueSettings, Rate, Unique
from tests.core.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with Table(tmp_path) as made:
        made.worker("w1")
        made.worker("w2")
        yield made
        made.check(limits_hold=False)


def awarded(table: Table, *ids: str, worker: str = "w1") -> list[str]:
    """The tasks that were awarded, or why not."""
    return [id_ if table.award(id_, worker) else table.refused or "" for id_ in ids]


def held(table: Table, task_id: str) -> Any:
    facts = market.explain_facts(table.db, task_id, table.now)
    assert facts is not None
    return facts.held_by, facts.holders


def test_a_queues_limit_holds_until_an_action_has_ended_whatever_became_of_its_task(table: Table) -> None:
    table.do(c.PutQueue("q", QueueSettings(limit=2)))
    for id_ in "abc":
        table.add(id_, queue="q")
    token = table.award("a")
    assert awarded(table, "b", "c") == ["b", "queue_limit"]
    assert held(table, "c") == (("queue_limit",), ("a", "b"))
    table.do(c.Delete(("a",)))
    assert awarded(table, "c") == ["queue_limit"]
    table.finish(token, 2)
    assert awarded(table, "c") == ["c"]


def test_one_batch_does_not_pass_a_limit_either(table: Table) -> None:
    table.do(c.PutQueue("q", QueueSettings(limit=2)))
    for id_ in "abc":
        table.add(id_, queue="q")
    awards = tuple(c.Award(table.seq(id_), "w1", "s-w1") for id_ in "aabc")
    result = table.do(c.Awards(awards))
    assert result.refused == {1: "state", 3: "queue_limit"}


def test_limits_by_key_and_by_worker(table: Table) -> None:
    table.do(c.PutQueue("q", QueueSettings(limit_per_key=1, limit_per_worker=2)))
    for id_, key in [("a", "x"), ("b", "x"), ("c", "y"), ("d", None), ("e", None)]:
        table.add(id_, queue="q", key=key)
    assert awarded(table, "a", "b", "c", "d") == ["a", "key_limit", "c", "worker_limit"]
    assert awarded(table, "d", "e", worker="w2") == ["d", "e"]
    assert held(table, "b") == (("key_limit",), ("a",))


def test_the_limit_of_a_key_holds_whatever_the_key_is_made_of_and_whoever_is_in_the_batch(table: Table) -> None:
    table.do(c.PutQueue("q", QueueSettings(discipline="sfq", limit_per_key=1)))
    keys = ["e\0f", "e\0f", "k1", "k2", "k3"]
    for id_, key in zip("abcde", keys, strict=True):
        table.add(id_, queue="q", key=key)
    assert awarded(table, "a") == ["a"]
    result = table.do(c.Awards(tuple(c.Award(table.seq(id_), "w1", "s-w1") for id_ in "bcde")))
    assert result.refused == {0: "key_limit"}


def test_a_rate_gives_its_burst_at_once_and_then_its_share_of_time(table: Table) -> None:
    table.do(c.PutQueue("q", QueueSettings(rate=Rate(2, 1000), burst=3)))
    for id_ in "abcdefgh":
        table.add(id_, queue="q")
    assert awarded(table, "a", "b", "c", "d") == ["a", "b", "c", "rate"]
    facts = market.explain_facts(table.db, "d", table.now)
    assert facts is not None
    assert (facts.held_by, facts.until) == (("rate",), table.now + 500)
    table.later(499)
    assert awarded(table, "d") == ["rate"]
    table.later(1)
    assert awarded(table, "d", "e") == ["d", "rate"]
    table.later(3_600_000)
    assert awarded(table, "e", "f", "g", "h") == ["e", "f", "g", "rate"]


def test_a_changed_rate_lets_start_what_the_old_one_had_left_and_no_more_than_its_burst(table: Table) -> None:
    for id_ in "abcdefghijkl":
        table.add(id_, queue="q")

    def patched(**changes: object) -> None:
        table.do(c.PatchQueue("q", c.QueueChanges(**changes)))  # type: ignore[arg-type]

    table.do(c.PutQueue("q", QueueSettings(rate=Rate(10, 60_000), burst=5)))
    assert awarded(table, "a", "b", "c") == ["a", "b", "c"]
    patched(rate=Rate(1, 3_600_000))
    assert awarded(table, "d", "e", "f") == ["d", "e", "rate"]
    patched(rate=Rate(2, 3_600_000), burst=9)
    assert awarded(table, "f") == ["rate"]
    table.later(7_200_000)
    patched(burst=1)
    assert awarded(table, "f", "g") == ["f", "rate"]
    patched(rate=None)
    assert awarded(table, "g") == ["g"]
    patched(rate=Rate(1, 3_600_000), burst=2)
    assert awarded(table, "h", "i", "j") == ["h", "i", "rate"]


def test_what_is_given_back_returns_place_rate_and_attempt(table: Table) -> None:
    table.do(c.PutQueue("q", QueueSettings(rate=Rate(1, 10_000), burst=1)))
    table.add("a", queue="q")
    table.add("b", queue="q")
    before = table.db.execute("SELECT seq, rank, ready, state, attempts FROM task WHERE id = 'a'").fetchall()
    token = table.award("a")
    assert awarded(table, "b") == ["rate"]
    table.do(c.GiveBack("s-w1", (token,)))
    assert table.db.execute("SELECT seq, rank, ready, state, attempts FROM task WHERE id = 'a'").fetchall() == before
    assert table.db.execute("SELECT count(*) FROM action").fetchone() == (0,)
    assert awarded(table, "b") == ["b"]


def test_a_paused_queue_awards_nothing(table: Table) -> None:
    table.add("a")
    table.do(c.PatchQueue("default", QueueChanges(paused=True)))
    assert awarded(table, "a") == ["paused"]
    table.do(c.PatchQueue("default", QueueChanges(paused=False)))
    assert awarded(table, "a") == ["a"]


def test_the_smallest_limit_among_the_candidate_and_the_live_ones_counts(table: Table) -> None:
    for id_, limit in [("three", 3), ("none", None), ("two", 2), ("more", None), ("other", 1)]:
        table.add(id_, name="n", limit=limit, group="g" if id_ != "other" else "h")
    assert awarded(table, "three", "none", "two", "more", "other") == ["three", "none", "limit", "more", "other"]
    assert held(table, "two") == (("limit",), ("three", "none", "more"))


@pytest.mark.parametrize("first", ["named", "unnamed"])
def test_a_name_that_is_anothers_id_is_the_same_name(first: str, table: Table) -> None:
    table.add("x")
    table.add("y", name="x", limit=1)
    order = ["x", "y"] if first == "unnamed" else ["y", "x"]
    assert awarded(table, *order) == [order[0], "limit"]


def test_both_in_one_batch_are_one_name_too(table: Table) -> None:
    table.add("x")
    table.add("y", name="x", limit=1)
    awards = tuple(c.Award(table.seq(id_), "w1", "s-w1") for id_ in "xy")
    assert table.do(c.Awards(awards)).refused == {1: "limit"}


def test_a_limit_lowered_below_what_runs_stops_nothing_and_starts_nothing(table: Table) -> None:
    for id_ in "abc":
        table.add(id_, name="n", limit=3)
    assert awarded(table, "a", "b") == ["a", "b"]
    table.do(c.Update(("a",), TaskChanges(limit=1)))
    assert awarded(table, "c") == ["limit"]
    assert table.state("b") == "claimed"
    table.do(c.Update(("a",), TaskChanges(limit=None)))
    assert awarded(table, "c") == ["c"]


def test_a_limit_put_on_a_running_task_without_a_name_counts_at_once(table: Table) -> None:
    table.add("x")
    table.add("y", name="x")
    table.award("x")
    table.do(c.Update(("x",), TaskChanges(limit=1)))
    assert awarded(table, "y") == ["limit"]


def test_only_the_workers_own_open_session_gets_work_and_not_while_it_drains_or_is_lost(table: Table) -> None:
    table.add("a")
    assert table.award("a", "w1", "s-w2") == 0
    assert table.refused == "session"
    table.do(c.PatchWorker("w1", c.WorkerChanges(draining=True)))
    assert awarded(table, "a") == ["worker"]
    table.do(c.PatchWorker("w1", c.WorkerChanges(draining=False)))
    table.do(c.Presence("w1", "s-w1", up=False))
    assert awarded(table, "a") == ["worker"]
    assert table.award("a", "nobody") == 0
    table.do(c.Presence("w1", "s-w1", up=True))
    assert awarded(table, "a") == ["a"]


def test_what_has_expired_is_not_awarded_even_before_the_chore_comes(table: Table) -> None:
    table.add("a", expires_ms=table.now + 1000)
    table.later(1000)
    assert awarded(table, "a") == ["expired"]
    assert table.do(c.Expire()).done == 1
    assert (table.state("a"), table.value("a", "error")) == ("failed", "expired")


def test_a_key_that_is_active_elsewhere_holds_the_award(table: Table) -> None:
    table.add("a", unique=Unique("k", "active"))
    table.add("b", unique=Unique("k", "active"))
    token = table.award("a")
    assert awarded(table, "b") == ["unique"]
    assert held(table, "b") == (("unique",), ("a",))
    table.finish(token)
    assert awarded(table, "b") == ["b"]


def test_tokens_only_grow_and_no_stale_one_is_taken(table: Table) -> None:
    first = table.running("a")
    table.do(c.Lost((c.Loss(first),)))
    second = table.award("a", "w2")
    assert second > first
    assert table.finish(first).refused == {0: "stale_token"}
    assert table.start(first).refused == {0: "stale_token"}
    assert table.finish(second, session="s-w1").refused == {0: "stale_token"}
    assert table.finish(second, session="s-w2").refused == {}
    assert table.do(c.Finish("s-w2", (c.End(second, table.seq("a")),))).refused == {}
    assert table.do(c.Finish("s-w1", (c.End(first, table.seq("a")),))).refused == {0: "stale_token"}


def test_the_ready_order_is_by_priority_then_arrival_and_by_arrival_alone_under_fifo(table: Table) -> None:
    def order() -> list[str]:
        shapes = market.ready(table.db)
        assert len(shapes) == 1
        return [task.id for task in market.ready_tasks(table.db, "default", shapes[0].shape, limit=10)]

    for id_, priority in [("a", 0), ("b", 5), ("c", 0), ("d", -5), ("e", 5)]:
        table.add(id_, priority=priority)
    assert order() == ["b", "e", "a", "c", "d"]
    table.do(c.Lost((c.Loss(table.award("b")),)))
    assert order() == ["b", "e", "a", "c", "d"]
    table.do(c.PatchQueue("default", QueueChanges(discipline="fifo")))
    while table.do(c.Rerank("default", 2)).more:
        pass
    assert order() == ["a", "b", "c", "d", "e"]
    table.do(c.SetRanks("default", (c.Rank(table.seq("e"), -7),)))
    assert order() == ["e", "a", "b", "c", "d"]
    facts = market.explain_facts(table.db, "c", table.now)
    assert facts is not None
    assert facts.position == 3
