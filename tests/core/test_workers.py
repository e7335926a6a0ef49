"""Sessions: who may own actions, and how one executor follows another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.model import WorkerFacts
from quvatlh.core.results import Ok, Opened
from tests.core.table import Table

FACTS = WorkerFacts("n1", tags=("zone=eu",), slots=4)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with Table(tmp_path) as made:
        yield made
        made.check()


def opened(table: Table, session: str, directory: str = "d", **more: Any) -> Any:
    return table.do(c.OpenSession("w", session, b"h" * 32, directory, FACTS, **more))


def code(answer: Any) -> str:
    return str(getattr(answer, "code", "ok"))


def test_a_session_begins_above_all_tokens_before_it_and_opening_it_twice_is_one(table: Table) -> None:
    assert opened(table, "s1") == Opened(0)
    assert table.told == ["session.opened", "worker.up"]
    table.award(table.add(), "w", "s1")
    assert opened(table, "s1") == Opened(0)
    assert table.told == []
    session = queries.get_session(table.db, "s1")
    assert session is not None
    assert (session.worker, session.secret_hash, session.ended) == ("w", b"h" * 32, False)


def test_a_session_that_was_heard_a_moment_ago_is_not_replaced(table: Table) -> None:
    opened(table, "s1")
    assert code(opened(table, "s2")) == "conflict"
    assert code(opened(table, "s2", silent=True)) == "ok"


def test_only_the_same_directory_may_follow_while_leases_run(table: Table) -> None:
    opened(table, "s1")
    token = table.award(table.add("t"), "w", "s1")
    assert code(opened(table, "s2", "copy", silent=True)) == "conflict"
    assert opened(table, "s2", silent=True) == Opened(token)
    assert table.state("t") == "claimed"
    assert table.finish(token, session="s1").refused == {}
    assert code(opened(table, "s3", "copy", silent=True)) == "ok"


def test_the_actions_of_an_executor_that_surely_ended_are_lost_at_once(table: Table) -> None:
    opened(table, "s1")
    token = table.award(table.add("t"), "w", "s1")
    opened(table, "s2", silent=True, ended=True)
    assert (table.state("t"), table.value("t", "deaths")) == ("pending", 1)
    assert table.finish(token, session="s1").refused == {0: "stale_token"}


def test_a_session_id_is_never_used_twice(table: Table) -> None:
    opened(table, "s1")
    opened(table, "s2", silent=True)
    assert code(opened(table, "s1", silent=True)) == "conflict"


def test_a_session_ends_only_without_actions(table: Table) -> None:
    opened(table, "s1")
    token = table.award(table.add("t"), "w", "s1")
    assert code(table.do(c.EndSession("s1"))) == "conflict"
    table.finish(token, session="s1")
    assert table.do(c.EndSession("s1")) == Ok()
    assert table.told == ["session.ended", "worker.lost"]
    assert table.do(c.EndSession("s1")) == Ok()
    assert code(table.do(c.EndSession("s9"))) == "not_found"
    assert code(opened(table, "s2", "elsewhere")) == "ok"


def test_a_worker_is_shown_as_it_is(table: Table) -> None:
    opened(table, "s1")
    table.award(table.add("t", slots=3), "w", "s1")
    changes = c.WorkerChanges(tags=("gpu",), slots=8, draining=True)
    table.do(c.PatchWorker("w", changes))
    assert table.told == ["worker.changed", "worker.draining"]
    (worker,) = queries.workers(table.db)
    assert (worker.state, worker.live, worker.slots_taken) == ("draining", 1, 3)
    assert (worker.facts.tags, worker.facts.slots, worker.facts.node) == (("gpu",), 8, "n1")
    table.do(c.Presence("w", "s1", up=False))
    assert (table.told, queries.workers(table.db)[0].state) == (["worker.lost"], "lost")
    assert code(table.do(c.Presence("w", "s0", up=True))) == "stale_token"
    assert code(table.do(c.PatchWorker("nobody", changes))) == "not_found"
