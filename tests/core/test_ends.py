"""What becomes of a task when its action ends: retries, loss, poison, at-most-once, kill, relocation, services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import limits, queries
from quvatlh.core.backoff import rest_ms
from quvatlh.core.model import QueueSettings, Retry, WorkerFacts
from quvatlh.core.results import Done
from tests.core.table import Table

FLAT = Retry(attempts=3, backoff="constant", first_ms=100, jitter_permille=0)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with Table(tmp_path) as made:
        made.worker("w1")
        made.worker("w2")
        yield made
        made.check(limits_hold=False)


def again(table: Table, task_id: str = "t", worker: str = "w1") -> int:
    """The task is due and runs once more."""
    table.later(100)
    table.do(c.Promote())
    return table.award(task_id, worker)


# --- failures ---


def test_executions_that_ended_by_themselves_are_bounded_and_the_others_are_only_counted(table: Table) -> None:
    token = table.running("t", retry=FLAT)
    table.finish(token, 1)
    table.do(c.Lost((c.Loss(again(table), died=False),)))
    table.finish(table.award("t"), 1)
    token = again(table)
    table.do(c.GiveBack("s-w1", (token,)))
    assert table.finish(table.award("t"), 1, exit_code=3).refused == {}
    assert (table.state("t"), table.value("t", "attempts"), table.value("t", "ended")) == ("failed", 4, 3)
    assert (table.value("t", "error"), table.value("t", "error_text")) == ("exit", "exit status 3")


@pytest.mark.parametrize(
    "told",
    [
        {"permanent": True},
        {"exit_code": 64},
        {"exception": "ValueError"},
        {"exception": "builtins.ValueError"},
        {"status": 404},
    ],
)
def test_a_permanent_failure_is_not_retried(told: dict[str, Any], table: Table) -> None:
    retry = Retry(permanent_exit_codes=(64,), permanent_exceptions=("ValueError",), permanent_statuses=(404,))
    table.finish(table.running("t", retry=retry), 1, **told)
    assert table.state("t") == "failed"


@pytest.mark.parametrize("exception", ["shop.ValueError", "builtins.TypeError", "shop.TypeError"])
def test_an_exception_of_another_name_is_retried(exception: str, table: Table) -> None:
    retry = Retry(permanent_exceptions=("ValueError", "builtins.KeyError", "shop.KeyError"))
    table.finish(table.running("t", retry=retry), 1, exception=exception)
    assert table.state("t") == "retrying"


def test_the_queues_rule_holds_where_the_task_has_none_as_it_is_when_the_action_ends(table: Table) -> None:
    token = table.running("t", queue="q")
    table.do(c.PutQueue("q", QueueSettings(retry=Retry(attempts=1))))
    table.finish(token, 1)
    assert table.state("t") == "failed"


def test_the_action_may_say_when_to_come_again(table: Table) -> None:
    table.finish(table.running("t"), 1, retry_after_ms=77)
    assert table.value("t", "due_at") == table.now + 77


@pytest.mark.parametrize(("after_ms", "wait_ms"), [(0, 33_000), (32_999, 33_000), (33_001, 33_001)])
def test_who_was_asked_may_make_the_wait_longer_and_never_shorter(after_ms: int, wait_ms: int, table: Table) -> None:
    retry = Retry(backoff="list", delays_ms=(33_000,), jitter_permille=0)
    table.finish(table.running("t", retry=retry), 1, no_sooner_ms=after_ms)
    assert table.value("t", "due_at") == table.now + wait_ms


def test_the_actions_own_word_stands_whoever_it_asked(table: Table) -> None:
    table.finish(table.running("t"), 1, retry_after_ms=77, no_sooner_ms=5000)
    assert table.value("t", "due_at") == table.now + 77


def test_a_success_after_failures_forgets_the_error(table: Table) -> None:
    table.finish(table.running("t", retry=FLAT), 1)
    table.finish(again(table))
    assert (table.state("t"), table.value("t", "error"), table.value("t", "attempts")) == ("succeeded", None, 2)
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert [action.state for action in view.actions] == ["failed", "succeeded"]


def test_a_person_gives_a_failed_task_all_its_attempts_again(table: Table) -> None:
    table.finish(table.running("t", retry=Retry(attempts=1)), 1)
    assert table.do(c.RetryTasks(("t",))).done == 1
    assert (table.state("t"), table.value("t", "ended"), table.value("t", "finished_at")) == ("pending", 0, None)
    assert table.told == ["task.ready"]


# --- loss ---


def test_three_workers_that_died_with_it_make_it_poison_and_living_ones_do_not_count(table: Table) -> None:
    table.add("t")
    for died in (True, False, True):
        table.do(c.Lost((c.Loss(table.award("t"), died),)))
        assert table.state("t") == "pending"
    table.do(c.Lost((c.Loss(table.award("t")),)))
    assert (table.state("t"), table.value("t", "error"), table.value("t", "attempts")) == ("failed", "poison", 4)


def test_a_worker_that_was_only_cut_off_takes_its_deaths_back(table: Table) -> None:
    table.add("t")
    for n in range(4):
        token = table.award("t", session=table_session(table))
        table.do(c.Lost((c.Loss(token, died=True),)))
        assert (table.state("t"), table.value("t", "deaths")) == ("pending", 1)
        old = table_session(table)
        table.do(c.EndSession(old))
        table.do(c.OpenSession("w1", f"s{n}", b"x" * 32, "d-w1", WorkerFacts("n"), silent=True, outlived=old))
        assert table.value("t", "deaths") == 0
    assert table.value("t", "attempts") == 4


def table_session(table: Table) -> str:
    return str(table.db.execute("SELECT session FROM worker WHERE name = 'w1'").fetchone()[0])


def test_a_worker_that_is_heard_again_takes_its_deaths_back_and_its_next_executor_does_not(table: Table) -> None:
    table.add("t")
    table.do(c.Lost((c.Loss(table.award("t"), died=True),)))
    table.do(c.Presence("w1", "s-w1", up=True))
    assert table.value("t", "deaths") == 1, "it is taken for up, and was not heard"
    table.do(c.Presence("w1", "s-w1", up=True, heard=True))
    assert table.value("t", "deaths") == 0
    table.do(c.Lost((c.Loss(table.award("t"), died=True),)))
    table.do(c.EndSession("s-w1"))
    table.do(c.OpenSession("w1", "next", b"x" * 32, "d-w1", WorkerFacts("n"), silent=True))
    table.do(c.Presence("w1", "next", up=True, heard=True))
    assert table.value("t", "deaths") == 1
    assert table.db.execute("SELECT * FROM fact WHERE name LIKE 'died/%'").fetchall() == []


def test_evidence_counts_for_its_own_session_alone_and_not_for_what_is_poison_by_then(table: Table) -> None:
    for name in ("t", "u"):
        table.add(name)
    for _ in range(3):
        table.do(c.Lost((c.Loss(table.award("t"), died=True),)))
    table.do(c.Lost((c.Loss(table.award("u"), died=True),)))
    table.do(c.EndSession("s-w1"))
    table.do(c.OpenSession("w1", "next", b"x" * 32, "d-w1", WorkerFacts("n"), silent=True, outlived="other"))
    assert table.value("u", "deaths") == 1
    assert (table.state("t"), table.value("t", "error")) == ("failed", "poison")


def test_what_waited_behind_the_slots_has_ended_no_worker(table: Table) -> None:
    facts = WorkerFacts("n", slots=2)
    table.do(c.OpenSession("iso", "s1", b"x" * 32, "d", facts, isolated=True, silent=True))
    tokens = [table.award(table.add(f"t{n}"), "iso", "s1") for n in range(5)]
    table.start(tokens[3], "s1")
    table.do(c.OpenSession("iso", "s2", b"x" * 32, "d", facts, isolated=True, silent=True, ended=True))
    assert [table.value(f"t{n}", "deaths") for n in range(5)] == [1, 1, 0, 1, 0]


def test_a_lost_task_keeps_its_place(table: Table) -> None:
    table.add("t", priority=3)
    before = table.db.execute("SELECT seq, queue, shape, rank, ready FROM task").fetchall()
    table.do(c.Lost((c.Loss(table.award("t")),)))
    assert table.db.execute("SELECT seq, queue, shape, rank, ready FROM task").fetchall() == before


@pytest.mark.parametrize("begun", [True, False])
def test_at_most_once_is_failed_when_its_worker_is_lost_claimed_or_running(begun: bool, table: Table) -> None:
    token = table.award(table.add("t", delivery="at-most-once"))
    if begun:
        table.start(token)
    table.do(c.Lost((c.Loss(token),)))
    assert (table.state("t"), table.value("t", "error")) == ("failed", "lost")


def test_at_most_once_given_back_unstarted_may_be_awarded_again(table: Table) -> None:
    table.add("t", delivery="at-most-once")
    table.do(c.GiveBack("s-w1", (table.award("t"),)))
    token = table.award("t")
    table.start(token)
    assert table.do(c.GiveBack("s-w1", (token,))).refused == {0: "conflict"}
    assert table.do(c.Relocate((c.Move("t"),))).done == 0
    table.finish(token, 1)
    assert table.state("t") == "failed"


# --- stops ---


def test_kill_fails_the_job_at_once_and_its_action_lives_until_it_is_told(table: Table) -> None:
    token = table.running("t", name="n", limit=1)
    table.add("u", name="n", limit=1)
    assert table.do(c.Kill(("t",))).done == 1
    assert table.told == ["action.stopping", "task.failed"]
    assert (table.award("u"), table.refused) == (0, "limit")
    assert table.do(c.RetryTasks(("t",))).refused == {"t": "failed"}
    table.finish(token, 2)
    assert table.award("u") > 0
    assert table.do(c.RetryTasks(("t",))).done == 1


def test_a_deleted_task_is_listed_as_deleted_and_its_late_success_changes_nothing(table: Table) -> None:
    token = table.running("t")
    table.do(c.Delete(("t",)))
    assert table.told == ["action.stopping", "task.deleted"]
    assert table.finish(token).refused == {}
    assert table.state("t") == "deleted"
    assert table.db.execute("SELECT state FROM action").fetchall() == [("succeeded",)]


def test_finished_tasks_count_as_done_for_delete(table: Table) -> None:
    table.finish(table.running("t"))
    assert table.do(c.Delete(("t", "t"))) == Done(1, 1)
    assert table.state("t") == "succeeded"


def test_an_unknown_id_refuses_all_named_unless_it_came_from_a_filter(table: Table) -> None:
    table.add("t")
    rejection = table.do(c.Delete(("x", "t", "y")))
    assert (rejection.code, [error.path for error in rejection.errors]) == ("not_found", ["ids[0]", "ids[2]"])
    assert table.state("t") == "pending"
    assert table.do(c.Delete(("x", "t"), strict=False)) == Done(1, 1)


def test_a_relocated_job_goes_back_when_its_action_has_ended_and_avoids_where_it_was(table: Table) -> None:
    token = table.running("t")
    table.do(c.Relocate((c.Move("t"),)))
    assert (table.state("t"), table.told) == ("running", ["action.stopping", "task.updated"])
    table.finish(token, 2)
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert (view.row.state, view.shape.avoid, view.shape.pin) == ("pending", "w1", None)
    table.award("t", "w2")
    after = queries.get_task(table.db, "t")
    assert after is not None
    assert after.shape.avoid is None


def test_a_waiting_task_is_pinned_to_a_worker_that_exists(table: Table) -> None:
    table.add("t")
    assert table.do(c.Relocate((c.Move("t", "nobody"),))).code == "not_found"
    table.do(c.Relocate((c.Move("t", "w2"),)))
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert view.shape.pin == "w2"


def test_a_service_is_pinned_only_until_it_is_there(table: Table) -> None:
    table.add("s", kind="service")
    token = table.award("s")
    table.start(token)

    def pin() -> str | None:
        view = queries.get_task(table.db, "s")
        assert view is not None
        return view.shape.pin

    table.do(c.Relocate((c.Move("s", "w1"),)))
    assert (table.state("s"), pin()) == ("running", None)
    table.do(c.Relocate((c.Move("s", "w2"),)))
    assert pin() == "w2"
    table.finish(token, 2)
    table.award("s", "w2")
    assert pin() is None


def test_a_loose_move_binds_until_the_next_award_and_leaves_pins_alone(table: Table) -> None:
    token = table.running("t")
    table.do(c.Relocate((c.Move("t", "w2", loose=True),)))
    table.finish(token, 2)
    shape = queries.get_shape(table.db, table.value("t", "shape"))
    assert (shape.toward, shape.pin, shape.avoid) == ("w2", None, None)
    table.award("t", "w2")
    shape = queries.get_shape(table.db, table.value("t", "shape"))
    assert (shape.toward, shape.pin) == (None, None)
    table.add("pinned")
    table.do(c.Relocate((c.Move("pinned", "w1"),)))
    table.do(c.Relocate((c.Move("pinned", "w2", loose=True),)))
    shape = queries.get_shape(table.db, table.value("pinned", "shape"))
    assert (shape.toward, shape.pin) == ("w2", "w1")
    table.do(c.Relocate((c.Move("pinned", loose=True),)))
    assert queries.get_shape(table.db, table.value("pinned", "shape")).toward is None


def test_one_action_of_a_service_is_moved_and_letting_go_stops_none(table: Table) -> None:
    table.add("s", kind="service", limit=3)
    tokens = [table.award("s") for _ in range(3)]
    for token in tokens:
        table.start(token)
    table.do(c.Relocate((c.Move("s", "w2", "w1", loose=True, token=tokens[1]),)))
    stopping = table.db.execute("SELECT token FROM live WHERE state = 'stopping'").fetchall()
    assert stopping == [(tokens[1],)]
    table.do(c.Relocate((c.Move("s", loose=True),)))
    assert table.told == ["task.updated"]


def test_what_is_over_is_killed_already(table: Table) -> None:
    token = table.running("t")
    table.finish(token)
    assert table.do(c.Kill(("t",))).done == 1
    assert table.state("t") == "succeeded"


def test_a_job_stopped_by_drain_goes_back_as_relocated(table: Table) -> None:
    table.finish(table.running("t"), 2)
    assert (table.state("t"), table.told) == ("pending", ["task.relocated"])


# --- services ---


def test_a_service_runs_in_as_many_instances_as_it_may(table: Table) -> None:
    table.add("s", kind="service", limit=2)
    one = table.award("s")
    assert table.state("s") == "pending"
    table.start(one)
    assert table.state("s") == "running"
    two = table.award("s", "w2")
    assert (table.award("s"), table.refused) == (0, "state")
    assert (table.value("s", "live"), table.value("s", "running"), two > one) == (2, 1, True)


def test_an_instance_that_ends_rests_longer_each_time_and_starts_over_after_a_minute(table: Table) -> None:
    table.add("s", kind="service")
    rests = []
    for ran_ms in (0, 0, 0, 60_000, 0):
        token = table.award("s")
        table.start(token)
        table.later(ran_ms)
        table.finish(token, 0)
        rests.append(table.value("s", "due_at") - table.now)
        assert (table.award("s"), table.refused) == (0, "state")
        table.later(rests[-1])
        table.do(c.Promote())
    assert rests == [1000, 2000, 4000, 1000, 2000]
    assert [rest_ms(n) for n in (6, 7, 1000)] == [32_000, 60_000, 60_000]


def test_a_lost_or_relocated_instance_is_replaced_at_once_and_a_killed_one_after_its_rest(table: Table) -> None:
    token = table.running("s", kind="service")
    table.do(c.Lost((c.Loss(token),)))
    token = table.award("s")
    assert token > 0
    table.do(c.Relocate((c.Move("s"),)))
    table.finish(token, 2)
    token = table.award("s", "w2")
    assert token > 0
    assert table.do(c.Kill(("s",))).done == 1
    table.finish(token, 2, session="s-w2")
    assert (table.award("s"), table.state("s")) == (0, "pending")


def kept(table: Table, task_id: str) -> list[int]:
    rows = table.db.execute("SELECT token FROM action WHERE task = ? ORDER BY token", (table.seq(task_id),))
    return [token for (token,) in rows]


def test_of_a_service_the_last_hundred_ends_are_remembered_whenever_they_began(table: Table) -> None:
    steady = table.running("s", kind="service", limit=2)
    tokens = []
    for _ in range(limits.ACTIONS_KEPT_MAX + 3):
        tokens.append(table.award("s"))
        table.start(tokens[-1])
        table.finish(tokens[-1])
        table.later(limits.MINUTE_MS)
        table.do(c.Promote())
    assert kept(table, "s") == tokens[3:]
    table.finish(steady, 1, exit_code=3)
    assert kept(table, "s") == [steady, *tokens[4:]]
    view = queries.get_task(table.db, "s")
    assert view is not None
    assert [action.token for action in queries.list_actions(table.db, view.row)] == kept(table, "s")


def test_of_a_job_with_many_retries_the_same_and_one_that_ends_at_once_asks_for_nothing(table: Table) -> None:
    statements: list[str] = []
    table.db.set_trace_callback(statements.append)
    table.finish(table.running("short"), 1, permanent=True)
    assert not [each for each in statements if "DELETE FROM action" in each]
    table.db.set_trace_callback(None)
    retry = Retry(attempts=1000, backoff="constant", first_ms=100, jitter_permille=0)
    table.finish(table.running("long", retry=retry), 1)
    for _ in range(limits.ACTIONS_KEPT_MAX + 4):
        table.finish(again(table, "long"), 1)
    assert len(kept(table, "long")) == limits.ACTIONS_KEPT_MAX
    table.finish(again(table, "long"))
    view = queries.get_task(table.db, "long")
    assert view is not None
    actions = queries.list_actions(table.db, view.row)
    assert (len(actions), actions[-1].state) == (limits.ACTIONS_KEPT_MAX, "succeeded")


def test_lowering_a_services_limit_stops_its_youngest_surplus(table: Table) -> None:
    table.add("s", kind="service", limit=3)
    tokens = [table.award("s") for _ in range(3)]
    table.do(c.Update(("s",), c.TaskChanges(limit=1)))
    stopping = table.db.execute("SELECT token, stop FROM live WHERE state = 'stopping'").fetchall()
    assert stopping == [(tokens[1], "surplus"), (tokens[2], "surplus")]
    table.finish(tokens[1], 2)
    table.finish(tokens[2], 2)
    assert (table.value("s", "live"), table.value("s", "ready"), table.value("s", "resting")) == (1, 0, 0)


def test_a_deleted_service_ends_with_all_its_instances(table: Table) -> None:
    token = table.running("s", kind="service", limit=2)
    table.do(c.Delete(("s",)))
    assert (table.state("s"), table.award("s")) == ("deleted", 0)
    table.finish(token, 2)
    assert table.value("s", "live") == 0


# --- reports ---


def test_announcements_are_listed_while_their_action_lives(table: Table) -> None:
    token = table.award(table.add("t", group="web", name="front"))
    table.start(token, announcement={"port": 80})
    (found,) = queries.announcements(table.db, "web")
    assert (found.task, found.name, found.worker, found.data) == ("t", "front", "w1", {"port": 80})
    table.do(c.Announce("s-w1", token, {"port": 81}))
    assert queries.announcements(table.db)[0].data == {"port": 81}
    table.finish(token)
    assert queries.announcements(table.db) == []


def test_a_start_outside_of_its_time_is_kept_between_award_and_now(table: Table) -> None:
    for told, began in [(table.now - 10_000, table.now), (table.now + 10_000, table.now)]:
        token = table.award(table.add())
        table.do(c.Start("s-w1", (c.Started(token, told),)))
        assert table.db.execute("SELECT started_at FROM live WHERE token = ?", (token,)).fetchone() == (began,)


def test_progress_is_kept_with_the_action(table: Table) -> None:
    token = table.running("t")
    table.do(c.Progress("s-w1", (c.ProgressReport(token, 40, "almost"),)))
    table.finish(token)
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert view.actions[0].progress == {"percent": 40, "text": "almost"}


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("again", [0, 1, 2])
@pytest.mark.parametrize("detail", [{}, {"error_text": "it said so"}])
def test_the_same_end_may_be_told_again_and_another_comes_too_late(
    first: int, again: int, detail: dict[str, Any], table: Table
) -> None:
    token = table.running("t", retry=Retry(attempts=1))
    seq = table.seq("t")
    assert table.finish(token, first, **detail).refused == {}
    before = table.state("t")
    told = table.do(c.Finish("s-w1", (c.End(token, seq, again),)))
    assert told.refused == ({} if (again == 0) == (first == 0) else {0: "stale_token"})
    assert table.state("t") == before
