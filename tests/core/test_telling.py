"""The end of a task told: by a task of its own, in the same entry, whatever the end was."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.limits import SPEC_INLINE_BYTES_MAX, TIME_MS_MAX
from quvatlh.core.model import Notify, QueueSettings, Retry, Unique, Work
from quvatlh.core.moments import rfc3339
from tests.core.table import Table

URL = Notify(url="https://example.org/hook")


def told(table: Table) -> list[dict[str, Any]]:
    """What the tasks of `_notify` have to tell, in order."""
    rows = table.db.execute(
        "SELECT payload FROM body JOIN task ON task.seq = body.task WHERE queue = '_notify' ORDER BY seq"
    )
    return [json.loads(row[0]) for row in rows]


def kinds(table: Table) -> list[str]:
    return [each["type"] for each in told(table)]


def test_a_success_is_told_in_its_own_entry(table: Table) -> None:
    table.add("a", notify=URL, group="g", name="n", queue="q")
    token = table.award("a")
    table.start(token)
    table.later(5)
    table.finish(token)
    assert table.told[:2] == ["task.succeeded", "queue.changed"]
    assert table.told[2] == "task.added"
    view = queries.get_task(table.db, "notify-1")
    assert view is not None
    spec = view.spec
    assert (view.row.state, spec.queue, spec.group, spec.slots, spec.timeout_ms) == (
        "pending",
        "_notify",
        "g",
        0,
        30_000,
    )
    headers = {"content-type": "application/json"}
    assert spec.work.http == {"url": URL.url, "method": "POST", "headers": headers, "sign": True}
    (said,) = told(table)
    assert said == {
        "type": "task.succeeded",
        "timestamp": rfc3339(table.now),
        "data": {
            "id": "a", "name": "n", "group": "g", "queue": "q", "state": "succeeded", "attempts": 1,
            "worker": said["data"]["worker"], "created_at": rfc3339(table.now - 5),
            "started_at": said["data"]["started_at"], "finished_at": rfc3339(table.now), "error": None,
        },
    }  # fmt: skip


def test_a_command_gets_it_as_a_task_of_its_own(table: Table) -> None:
    table.add("a", notify=Notify(command=("mail", "-s", "done", "ann")))
    table.finish(table.award("a"))
    view = queries.get_task(table.db, "notify-1")
    assert view is not None
    assert (view.spec.work.command, view.spec.slots) == (("mail", "-s", "done", "ann"), 1)
    assert kinds(table) == ["task.succeeded"]


def test_a_failure_is_told_when_it_is_final_and_with_why(table: Table) -> None:
    table.add("a", notify=URL, retry=Retry(attempts=2, first_ms=0))
    table.finish(table.award("a"), how=1, exit_code=3)
    assert told(table) == []
    table.do(c.Promote())
    table.finish(table.award("a"), how=1, exit_code=4)
    (said,) = told(table)
    assert (said["type"], said["data"]["attempts"]) == ("task.failed", 2)
    assert said["data"]["error"] == {"code": "exit", "text": "exit status 4"}


def test_only_what_was_asked_for_is_told(table: Table) -> None:
    table.add("a", notify=Notify(url="https://a.example", on=("failed",)))
    table.finish(table.award("a"))
    table.add("b", notify=Notify(url="https://a.example", on=("deleted",)))
    table.do(c.Delete(("b",)))
    table.add("c")
    table.finish(table.award("c"))
    assert kinds(table) == ["task.deleted"]


def test_ends_that_no_worker_reports_are_told_too(table: Table) -> None:
    table.add("killed", notify=URL)
    table.start(table.award("killed"))
    table.do(c.Kill(("killed",)))
    table.add("late", notify=URL, expires_ms=table.now + 10)
    table.later(20)
    table.do(c.Expire())
    assert [(each["data"]["id"], each["data"]["error"]["code"]) for each in told(table)] == [
        ("killed", "killed"),
        ("late", "expired"),
    ]


def test_what_fails_again_after_a_person_has_retried_it_is_told_again(table: Table) -> None:
    table.add("a", notify=URL, retry=Retry(attempts=1))
    for _ in range(2):
        table.finish(table.award("a"), how=1)
        table.do(c.RetryTasks(("a",)))
    assert kinds(table) == ["task.failed"] * 2


def test_a_spec_that_stands_in_a_row_of_its_own_is_looked_at_too(table: Table) -> None:
    table.add("a", notify=URL, work=Work(command=("x" * SPEC_INLINE_BYTES_MAX,)))
    assert table.value("a", "spec") is None
    table.finish(table.award("a"))
    assert kinds(table) == ["task.succeeded"]


def test_an_id_that_somebody_has_chosen_is_passed_over(table: Table) -> None:
    table.add("notify-1")
    table.add("a", notify=URL)
    table.finish(table.award("a"))
    assert queries.get_task(table.db, "notify-2") is not None


def test_a_queue_whose_tasks_are_unique_tells_all_the_same(table: Table) -> None:
    """What is told differs, and is part of the key."""
    table.do(c.PutQueue("_notify", QueueSettings(unique=Unique())))
    for id_ in ("a", "b"):
        table.add(id_, notify=URL)
        table.finish(table.award(id_))
    assert kinds(table) == ["task.succeeded"] * 2


def test_deliveries_are_told_of_to_nobody(table: Table) -> None:
    table.add("a", notify=URL)
    table.finish(table.award("a"))
    table.finish(table.award("notify-1"))
    assert kinds(table) == ["task.succeeded"]


@given(st.integers(0, TIME_MS_MAX))
def test_moments_are_those_of_the_calendar(ms: int) -> None:
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    when = epoch + dt.timedelta(milliseconds=ms)
    assert rfc3339(ms) == when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
