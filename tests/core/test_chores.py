"""What time does, and what is forgotten: promote, expire, keep, sweep, digests."""

from __future__ import annotations

from pathlib import Path

import pytest

from quvatlh.core import commands as c
from quvatlh.core import limits, market, queries, tables_digest
from quvatlh.core.model import Keep, QueueSettings, Unique
from quvatlh.core.results import Digested, Diverged, Ok, Worked
from quvatlh.core.schema import SCHEMA_VERSION
from quvatlh.core.views import ClockJump
from tests.core.table import Table


def finished(table: Table, *ids: str, **spec: object) -> None:
    for id_ in ids:
        table.finish(table.running(id_, **spec))


def listed(table: Table) -> list[str]:
    return [row[0] for row in table.db.execute("SELECT id FROM task ORDER BY seq")]


def test_what_is_due_becomes_pending_in_the_order_of_its_time(table: Table) -> None:
    for id_, ms in [("c", 300), ("a", 100), ("b", 200), ("z", 9000)]:
        table.add(id_, at_ms=table.now + ms)
    assert market.next_due_ms(table.db) == table.now + 100
    assert market.chores_due(table.db, table.now) == []
    table.later(300)
    assert market.chores_due(table.db, table.now) == [c.Promote()]
    outcome = table.entry(c.Item(c.Promote(2)))[0]
    assert (outcome.result, [event.id for event in outcome.events]) == (Worked(2, more=True), ["a", "b"])
    assert table.do(c.Promote(2)) == Worked(1, more=False)


def test_what_was_not_awarded_in_time_has_expired_whatever_held_it(table: Table) -> None:
    soon = table.now + 100
    table.add("pending", expires_ms=soon)
    table.add("scheduled", expires_ms=soon, at_ms=table.now + 1000)
    table.running("running", expires_ms=soon)
    table.later(100)
    assert market.chores_due(table.db, table.now) == [c.Expire()]
    assert table.do(c.Expire()).done == 2
    states = {id_: table.state(id_) for id_ in ("pending", "scheduled", "running")}
    assert states == {"pending": "failed", "scheduled": "failed", "running": "running"}


def test_finished_tasks_are_listed_until_they_are_older_than_the_queue_keeps_them(table: Table) -> None:
    table.do(c.PutQueue("default", QueueSettings(keep=Keep(1000, 100), keep_failed=Keep(5000, 100))))
    finished(table, "a")
    table.finish(table.running("f"), 1, permanent=True)
    table.later(500)
    finished(table, "b")
    table.later(500)
    assert market.chores_due(table.db, table.now) == [c.Forget("default")]
    assert table.do(c.Forget("default")) == Worked(1, more=False)
    assert listed(table) == ["f", "b"]
    table.later(4000)
    table.do(c.Forget("default"))
    assert listed(table) == []


def test_or_until_they_are_not_among_the_last(table: Table) -> None:
    table.do(c.PutQueue("default", QueueSettings(keep=Keep(10**9, 2))))
    finished(table, "a", "b", "c", "d", "e")
    assert market.chores_due(table.db, table.now) == [c.Forget("default")]
    assert table.do(c.Forget("default", 2)) == Worked(2, more=True)
    assert table.do(c.Forget("default", 2)) == Worked(1, more=False)
    assert listed(table) == ["d", "e"]
    assert market.chores_due(table.db, table.now) == []


def test_a_task_may_be_kept_for_its_own_time(table: Table) -> None:
    table.do(c.PutQueue("default", QueueSettings(keep=Keep(1000, 100))))
    finished(table, "short", keep_ms=10)
    finished(table, "long", keep_ms=10_000)
    finished(table, "usual")
    table.later(10)
    assert market.chores_due(table.db, table.now) == [c.Forget("default")]
    table.do(c.Forget("default"))
    assert listed(table) == ["long", "usual"]
    table.do(c.Update(("usual",), c.TaskChanges(keep_ms=20_000)))
    table.later(10_000)
    table.do(c.Forget("default"))
    assert listed(table) == ["usual"]
    table.later(10_000)
    table.do(c.Forget("default"))
    assert listed(table) == []


def test_a_task_whose_action_still_lives_is_not_forgotten(table: Table) -> None:
    table.do(c.PutQueue("default", QueueSettings(keep_failed=Keep(0, 0))))
    token = table.running("t")
    table.do(c.Kill(("t",)))
    table.do(c.Forget("default"))
    assert listed(table) == ["t"]
    table.finish(token, 2)
    table.do(c.Forget("default"))
    assert listed(table) == []


def test_what_means_nothing_any_more_is_swept_piece_by_piece(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(6):
        table.add(f"t{n}", chosen=True, unique=Unique(f"k{n}", for_ms=1000))
        table.do(c.Delete((f"t{n}",)), c.Request("t", "r", f"{n}"))
        table.add(f"u{n}", unique=Unique(f"k{n}", for_ms=1000))
    table.do(c.PurgeQueue("default", ("deleted",)))

    def rows() -> list[int]:
        tables = ("tombstone", "request", "unique_key")
        return [table.db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables]

    assert rows() == [6, 6, 6]
    table.do(c.Sweep(4))
    assert rows() == [6, 6, 6]
    table.later(1000)
    monkeypatch.setattr(limits, "KNOWN_MAX", 4)
    for _ in range(3):
        table.do(c.Sweep(4))
    assert rows() == [4, 4, 0]
    table.later(limits.KNOWN_MS)
    for _ in range(3):
        table.do(c.Sweep(4))
    assert rows() == [0, 0, 0]


def test_the_barrier_and_the_word_of_a_master(table: Table) -> None:
    assert table.do(c.Nothing()) == Ok()
    table.do(c.Elected("n1"))
    assert (table.told, queries.master(table.db)) == (["master.changed"], "n1")


@pytest.mark.parametrize(("by_ms", "way"), [(3_600_000, "ahead"), (-3_600_000, "back")])
def test_a_jump_of_the_clocks_is_told_and_the_last_one_is_kept(table: Table, by_ms: int, way: str) -> None:
    assert queries.clock_jump(table.db) is None
    table.do(c.ClockJumped("n1", 120_000))
    (outcome,) = table.entry(c.Item(c.ClockJumped("n2", by_ms, 5000)))
    (event,) = outcome.events
    assert (event.kind, event.id, event.state) == ("clock.jumped", "n2", way)
    assert event.more == {"by_ms": 3_600_000, "behind_ms": 5000}
    assert queries.clock_jump(table.db) == ClockJump(table.now, "n2", by_ms, 5000)


# --- digests ---


def checked(table: Table, last: Digested) -> object:
    return table.do(c.CheckDigest(last.index, last.digest, SCHEMA_VERSION))


def test_equal_tables_agree_and_a_node_that_differs_learns_it_at_the_next_check(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with Table(tmp_path / "one") as one, Table(tmp_path / "two") as two:
        for table in (one, two):
            table.worker()
            table.add("t")
        first = one.do(c.CheckDigest())
        assert two.do(c.CheckDigest()) == first
        two.db.execute("UPDATE task SET priority = 7")
        second = checked(one, first)
        assert isinstance(second, Digested)
        assert isinstance(checked(two, first), Digested)
        assert isinstance(checked(one, second), Digested)
        diverged = checked(two, second)
        assert isinstance(diverged, Diverged)
        assert (diverged.index, diverged.masters) == (second.index, second.digest)


def test_every_table_and_every_row_is_covered_in_turn(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DIGEST_WINDOW_ROWS", 20)
    for n in range(100):
        table.add(f"t{n}")
    turns = range(1, 7)
    before = [tables_digest.rolling_digest(table.db, turn) for turn in turns]
    whole = tables_digest.tables_digest(table.db)
    for seq in (1, 50, 100):
        table.db.execute("UPDATE task SET priority = 1 WHERE seq = ?", (seq,))
        after = [tables_digest.rolling_digest(table.db, turn) for turn in turns]
        assert before != after
        assert tables_digest.tables_digest(table.db) != whole
        table.db.execute("UPDATE task SET priority = 0 WHERE seq = ?", (seq,))
    assert [tables_digest.rolling_digest(table.db, turn) for turn in turns] == before
