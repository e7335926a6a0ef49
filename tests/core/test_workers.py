"""Sessions: who may own actions, and how one executor follows another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import limits, market, queries
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


@pytest.mark.parametrize(("isolated", "directory"), [(False, "d"), (True, "other")])
def test_others_are_not_whatever_was_believed(table: Table, isolated: bool, directory: str) -> None:
    opened(table, "s1", directory, isolated=isolated)
    token = table.award(table.add("t"), "w", "s1")
    opened(table, "s2", silent=True, ended=True)
    assert [live.token for live in queries.owned_by(table.db, queries.shortest_leases(table.db))] == [token]


def test_the_actions_of_an_executor_that_surely_ended_are_lost_at_once(table: Table) -> None:
    opened(table, "s1", isolated=True)
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


def drains(table: Table) -> str:
    return queries.workers(table.db)[0].state


def test_a_persons_drain_outlives_sessions_and_the_daemons_own_does_not(table: Table) -> None:
    opened(table, "s1")
    table.do(c.PatchWorker("w", c.WorkerChanges(leaving=True)))
    assert (table.told, drains(table)) == (["worker.changed", "worker.draining"], "draining")
    table.do(c.PatchWorker("w", c.WorkerChanges(draining=True)))
    assert table.told == ["worker.changed"]
    opened(table, "s2", silent=True)
    assert (table.told, drains(table)) == (["session.opened", "worker.draining"], "draining")
    table.do(c.PatchWorker("w", c.WorkerChanges(draining=False)))
    assert (table.told, drains(table)) == (["worker.changed", "worker.up"], "up")
    table.do(c.PatchWorker("w", c.WorkerChanges(leaving=True)))
    opened(table, "s3", silent=True)
    assert (table.told, drains(table)) == (["session.opened", "worker.up"], "up")


def test_a_daemon_that_finds_its_executor_alive_does_not_leave_any_more(table: Table) -> None:
    opened(table, "s1")
    table.do(c.PatchWorker("w", c.WorkerChanges(leaving=True)))
    assert opened(table, "s1") == Opened(0)
    assert (table.told, drains(table)) == (["worker.up"], "up")
    table.do(c.PatchWorker("w", c.WorkerChanges(draining=True)))
    opened(table, "s1")
    assert (table.told, drains(table)) == ([], "draining")


def test_services_leave_a_worker_that_drains_at_once_and_jobs_do_not(table: Table) -> None:
    opened(table, "s1")
    table.award(table.add("job"), "w", "s1")
    token = table.award(table.add("service", kind="service"), "w", "s1")
    table.start(token, "s1")
    table.do(c.PatchWorker("w", c.WorkerChanges(draining=True)))
    assert table.told == ["worker.changed", "worker.draining", "action.stopping"]
    assert table.finish(token, 2, "s1").refused == {}
    assert (table.told, table.state("service"), table.value("service", "due_at")) == (
        ["task.relocated"],
        "pending",
        None,
    )
    assert table.state("job") == "claimed"


def test_a_worker_that_was_lost_for_a_day_leaves_the_table(table: Table) -> None:
    opened(table, "s1")
    token = table.award(table.add("t"), "w", "s1")
    table.do(c.Presence("w", "s1", up=False))
    table.later(limits.LOST_MS)
    assert table.do(c.ForgetWorkers()).done == 0, "it owns something"
    table.do(c.Lost((c.Loss(token),)))
    table.do(c.EndSession("s1"))
    assert market.chores_due(table.db, table.now)[-1:] == [c.ForgetWorkers()]
    assert table.do(c.ForgetWorkers()).done == 1
    assert table.told == ["worker.forgotten"]
    assert (queries.workers(table.db), queries.get_session(table.db, "s1")) == ([], None)
    assert market.chores_due(table.db, table.now) == []


def test_one_that_came_back_in_time_stays(table: Table) -> None:
    opened(table, "s1")
    table.do(c.EndSession("s1"))
    table.later(limits.LOST_MS - 1)
    assert table.do(c.ForgetWorkers()).done == 0
    opened(table, "s2")
    table.do(c.Presence("w", "s2", up=False))
    table.do(c.Presence("w", "s2", up=True))
    table.do(c.EndSession("s2"))
    table.later(1)
    assert table.do(c.ForgetWorkers()).done == 0
    assert len(queries.workers(table.db)) == 1


PULL = WorkerFacts("p", "pull", adapters=("pull",))


def pulls(table: Table, session: str, worker: str = "p", facts: WorkerFacts = PULL) -> str:
    return code(table.do(c.OpenSession(worker, session, b"h" * 32, "pull", facts, silent=True)))


def test_a_session_without_an_executor_is_known_by_its_id(table: Table) -> None:
    assert pulls(table, "s1") == "invalid"
    assert pulls(table, "pull.1", facts=FACTS) == "invalid"
    assert pulls(table, "pull.1") == "ok"


def test_a_worker_that_had_an_executor_keeps_its_name_and_one_that_had_none_gives_it_away(table: Table) -> None:
    opened(table, "s1")
    assert pulls(table, "pull.1", "w") == "conflict"
    table.do(c.EndSession("s1"))
    assert pulls(table, "pull.1", "w") == "conflict"
    assert pulls(table, "pull.2", "p") == "ok"
    table.do(c.EndSession("pull.2"))
    assert code(table.do(c.OpenSession("p", "s2", b"h" * 32, "d", WorkerFacts("p")))) == "ok"


def test_an_award_may_name_its_lease_and_comes_to_nothing_without_being_remembered(table: Table) -> None:
    assert pulls(table, "pull.1") == "ok"
    table.add("t", lease_ms=9000)
    task = table.seq("t")
    request = c.Request("ann", "POST /v1/work/claim", "k")
    table.do(c.PatchWorker("p", c.WorkerChanges(draining=True)))
    asked = c.Awards((c.Award(task, "p", "pull.1", 30_000),))
    assert table.do(asked, request).refused == {0: "worker"}
    table.do(c.PatchWorker("p", c.WorkerChanges(draining=False)))
    (token,) = table.do(asked, request).tokens
    assert token > 0
    assert table.do(asked, request).tokens == (token,)
    (live,) = queries.owned_by(table.db, queries.shortest_leases(table.db))
    assert (live.token, live.lease_ms) == (token, 30_000)
