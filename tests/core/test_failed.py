"""What has failed and is not settled yet: deleted, changed and moved by a person; what is history stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.limits import DAY_MS, HOUR_MS
from quvatlh.core.model import Keep, Notify, QueueSettings, Retry, Unique
from quvatlh.core.results import Deleted, Done
from quvatlh.core.tables_digest import tables_digest
from tests.core.table import Table

ONCE = Retry(attempts=1)


def failed(table: Table, task_id: str = "t", **spec: Any) -> int:
    token = table.running(task_id, retry=ONCE, **spec)
    table.finish(token, 1, exit_code=7)
    return token


def counts(table: Table, queue: str) -> dict[str, int]:
    found = [view.counts for view in queries.queues(table.db, table.now, queue)]
    return {state: n for state, n in found[0].items() if n} if found else {}


def delete(*ids: str) -> c.Delete:
    return c.Delete(ids, failed=True)


def change(task_id: str, **changes: Any) -> c.Update:
    return c.Update((task_id,), c.TaskChanges(**changes), failed=True)


# --- deleted ---


def test_what_has_failed_is_deleted_and_still_says_why_it_had_failed(table: Table) -> None:
    failed(table)
    table.later(HOUR_MS)
    (outcome,) = table.entry(c.Item(delete("t")))
    assert outcome.result == Done(1, 1)
    (event,) = outcome.events
    assert (event.kind, event.state, event.more) == (
        "task.deleted",
        "deleted",
        {"error": "exit", "text": "exit status 7", "was": "failed"},
    )
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert (view.row.state, view.row.error, view.row.finished_at) == ("deleted", "exit", table.now)
    assert [action.state for action in view.actions] == ["failed"]
    assert counts(table, "default") == {"deleted": 1}
    table.check()


def test_the_same_again_is_answered_the_same_and_changes_nothing(table: Table) -> None:
    failed(table)
    table.do(delete("t"))
    before = tables_digest(table.db)
    table.later(HOUR_MS)
    assert table.do(delete("t", "t")) == Deleted(1, 1, {}, 1)
    assert table.told == []
    assert tables_digest(table.db) == before
    assert table.do(c.RetryTasks(("t",))).refused == {"t": "deleted"}


def test_an_entry_of_before_leaves_what_has_failed_as_it_was(table: Table) -> None:
    failed(table)
    before = tables_digest(table.db)
    assert table.do(c.Delete(("t",))) == Done(1, 1)
    assert table.do(c.Update(("t",), c.TaskChanges(queue="night"))) == Done(1, 0, {"t": "failed"})
    assert (table.told, tables_digest(table.db)) == ([], before)


def test_what_succeeded_is_history(table: Table) -> None:
    table.finish(table.running("t"))
    failed(table, "u")
    assert table.do(delete("t", "u")) == Deleted(2, 2, {}, 1)
    assert table.do(change("t", queue="night")) == Done(1, 0, {"t": "succeeded"})
    assert table.do(change("t", keep_ms=5)) == Done(1, 1)
    assert (table.state("t"), table.value("t", "queue")) == ("succeeded", "default")


def test_it_is_listed_as_deleted_until_keep_is_over_from_then_on(table: Table) -> None:
    table.do(c.PutQueue("default", QueueSettings(keep=Keep(HOUR_MS), keep_failed=Keep(DAY_MS))))
    failed(table)
    table.later(2 * HOUR_MS)
    table.do(delete("t"))
    table.later(HOUR_MS - 1)
    assert table.do(c.Forget("default")).done == 0
    table.later(1)
    assert table.do(c.Forget("default")).done == 1
    assert counts(table, "default") == {}
    table.check()


def test_a_keep_of_its_own_begins_anew_with_its_end(table: Table) -> None:
    failed(table, keep_ms=5000)
    table.later(4000)
    table.do(delete("t"))
    table.later(4999)
    assert table.do(c.Forget("default")).done == 0
    table.check()
    table.later(1)
    assert table.do(c.Forget("default")).done == 1


def test_a_killed_one_is_deleted_while_its_action_still_ends(table: Table) -> None:
    token = table.running("t")
    table.do(c.Kill(("t",)))
    table.do(delete("t"))
    assert table.db.execute("SELECT stop FROM live").fetchall() == [("delete",)]
    table.check()
    table.finish(token, 0)
    assert (table.state("t"), table.value("t", "error")) == ("deleted", "killed")
    table.check()


def test_a_key_that_it_holds_for_a_time_is_freed(table: Table) -> None:
    failed(table, unique=Unique("k", for_ms=DAY_MS))
    assert table.add("u", unique=Unique("k")) == "t"
    table.do(delete("t"))
    assert table.add("u", unique=Unique("k")) == "u"


def test_who_asked_for_deletions_hears_of_it_and_nobody_else(table: Table) -> None:
    failed(table, "a", notify=Notify(url="https://a.example", on=("deleted",)))
    failed(table, "b", notify=Notify(url="https://a.example"))
    table.do(delete("a", "b"))
    rows = table.db.execute("SELECT body.payload FROM task JOIN body ON body.task = seq WHERE queue = '_notify'")
    assert sorted(row[0].partition(b'"type":"')[2].partition(b'"')[0] for row in rows) == [
        b"task.deleted",
        b"task.failed",
    ]


# --- changed ---


def test_what_has_failed_is_moved_and_runs_there_when_it_is_retried(table: Table) -> None:
    failed(table, priority=3)
    assert table.do(change("t", queue="night")) == Done(1, 1)
    assert table.told == ["queue.changed", "task.updated"]
    assert (counts(table, "default"), counts(table, "night")) == ({}, {"failed": 1})
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert (view.row.state, view.row.queue, view.spec.queue, view.row.error) == ("failed", "night", "night", "exit")
    table.check()
    assert table.do(c.DeleteQueue("default")).__class__.__name__ == "Ok"
    table.do(c.RetryTasks(("t",)))
    assert (counts(table, "night"), table.value("t", "rank")) == ({"pending": 1}, -3)
    table.award("t")
    assert table.db.execute("SELECT queue FROM live").fetchall() == [("night",)]
    table.check()


def test_it_is_kept_as_the_queue_keeps_that_it_was_moved_to(table: Table) -> None:
    table.do(c.PutQueue("short", QueueSettings(keep_failed=Keep(1000))))
    failed(table)
    table.later(1000)
    assert table.do(c.Forget("default")).done == 0
    table.do(change("t", queue="short"))
    assert table.do(c.Forget("default")).done == 0
    assert table.do(c.Forget("short")).done == 1


def test_it_runs_as_it_was_changed(table: Table) -> None:
    failed(table)
    assert table.do(change("t", tags=("gpu",), priority=9, limit=2, expires_ms=table.now + 5000)) == Done(1, 1)
    assert table.told == ["task.updated"]
    table.check()
    table.do(c.RetryTasks(("t",)))
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert (view.shape.tags, view.row.rank, view.row.lim, view.row.expiry) == (("gpu",), -9, 2, table.now + 5000)
    table.check()


def test_the_time_of_what_has_begun_is_not_changed_nor_anything_beside_it(table: Table) -> None:
    failed(table)
    before = tables_digest(table.db)
    assert table.do(change("t", queue="night", at_ms=table.now + 5)) == Done(1, 0, {"t": "failed"})
    assert tables_digest(table.db) == before


def test_it_is_retried_in_another_queue_and_in_the_place_of_today(table: Table) -> None:
    failed(table, priority=9)
    table.do(c.PutQueue("night", QueueSettings(discipline="fifo")))
    assert table.do(c.RetryTasks(("t",), queue="night", placed=True)) == Done(1, 1)
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert (view.row.state, view.row.queue, view.spec.queue, view.row.rank) == ("pending", "night", "night", 0)
    assert counts(table, "default") == {}
    table.do(c.RetryTasks(("t",), queue="third"))
    assert table.value("t", "queue") == "night", "what is not failed is not moved by it"


def test_the_discipline_that_its_queue_has_got_meanwhile_places_it(table: Table) -> None:
    failed(table, "t", priority=9)
    failed(table, "u", priority=9)
    table.do(c.PatchQueue("default", c.QueueChanges(discipline="fifo")))
    table.do(c.RetryTasks(("t",), placed=True))
    table.do(c.RetryTasks(("u",)))
    assert (table.value("t", "rank"), table.value("u", "rank")) == (0, -9), "an entry of before: as before"


def test_what_waits_for_its_next_attempt_makes_it_at_once_and_its_attempts_count_on(table: Table) -> None:
    table.finish(table.running("t", retry=Retry(attempts=2, first_ms=HOUR_MS)), 1)
    assert table.do(c.RetryTasks(("t",))).refused == {"t": "retrying"}, "an entry of before: as before"
    assert table.do(c.RetryTasks(("t",), queue="night", sooner=True)).done == 1
    assert [table.value("t", each) for each in ("state", "queue", "due_at", "ended")] == ["pending", "night", None, 1]
    token = table.award("t")
    table.start(token)
    table.finish(token, 1)
    assert table.state("t") == "failed", "that was its last"
    table.check()


def test_what_waits_for_its_next_attempt_waits_on_while_another_has_its_key(table: Table) -> None:
    token = table.running("old", unique=Unique("k", while_="queued"))
    table.add("new", unique=Unique("k", while_="queued"))
    table.finish(token, 1)
    assert table.do(c.RetryTasks(("old",), exclusive=True)).refused == {"old": "retrying"}, (
        "an entry of before: as before"
    )
    assert table.do(c.RetryTasks(("old",), exclusive=True, sooner=True)).code == "unique_held"
    assert table.state("old") == "retrying"
    table.check()


def test_one_in_a_line_of_keys_waits_in_the_line_of_its_new_queue(table: Table) -> None:
    for queue in ("from", "to"):
        table.do(c.PutQueue(queue, QueueSettings(limit_per_key=1)))
    table.running("first", queue="to", key="k")
    failed(table, "t", queue="from", key="k")
    table.do(change("t", queue="to"))
    table.do(c.RetryTasks(("t",)))
    table.check()
    assert (table.award("t"), table.refused) == (0, "key_limit")


def test_many_are_deleted_in_one_entry(table: Table) -> None:
    ids = [f"t{n}" for n in range(100)]
    for each in ids:
        failed(table, each)
    assert table.do(delete(*ids)) == Done(100, 100)
    assert counts(table, "default") == {"deleted": 100}
    table.check()


@pytest.mark.parametrize("verb", [delete("t"), change("t", queue="night")])
def test_an_unknown_id_refuses_it_unless_it_came_from_a_filter(table: Table, verb: Any) -> None:
    assert table.do(verb).code == "not_found"


def test_what_another_has_the_unique_key_of_is_not_retried_by_a_person_while_that_is_so(table: Table) -> None:
    def retry(*ids: str, strict: bool = True) -> Any:
        return table.do(c.RetryTasks(ids, strict, exclusive=True))

    failed(table, "old", unique=Unique("k"))
    failed(table, "older", unique=Unique("k"))
    failed(table, "free")
    table.add("new", unique=Unique("k"))
    refused = retry("free", "old", "older")
    assert refused.code == "unique_held"
    assert [(each.path, each.message) for each in refused.errors] == [
        ("ids[1]", "the unique key of old is held by new"),
        ("ids[2]", "the unique key of older is held by new"),
    ]
    assert [table.state(each) for each in ("free", "old")] == ["failed", "failed"]
    assert retry("old", "nobody").code == "not_found"
    assert retry("free", "old", strict=False) == Done(2, 1, {"old": "failed"})
    table.do(delete("new"))
    assert [each.message for each in retry("old", "older").errors] == ["the unique key of older is held by old"]
    assert retry("old", "older", strict=False).done == 1
    assert table.state("old") == "pending"
    assert table.add("newer", unique=Unique("k")) == "old"
    table.check()


@pytest.mark.parametrize("unique", [Unique("k", "active"), Unique("k", for_ms=1000)])
def test_a_key_that_does_not_hold_what_waits_holds_no_retry_up(unique: Unique, table: Table) -> None:
    failed(table, unique=unique)
    table.later(2000)
    table.running("other", unique=unique)
    assert table.do(c.RetryTasks(("t",), exclusive=True)) == Done(1, 1)


def test_entries_of_before_retry_without_the_key(table: Table) -> None:
    failed(table, unique=Unique("k"))
    table.add("other", unique=Unique("k"))
    assert table.do(c.RetryTasks(("t",))) == Done(1, 1)
