from __future__ import annotations

from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import limits, queries
from quvatlh.core.model import Code, QueueSettings, TaskSpec, Unique, Work
from quvatlh.core.rejections import FieldError, Rejection
from quvatlh.core.results import Added, Done
from tests.core.table import WORK, Table


def new(task_id: str, *, chosen: bool = False, **spec: Any) -> c.NewTask:
    return c.NewTask(task_id, TaskSpec(spec.pop("work", WORK), **spec), chosen)


def test_ids_say_what_stands_for_each_task_in_order(table: Table) -> None:
    table.add("old")
    unique = Unique("k")
    tasks = (new("a", unique=unique), new("old"), new("b", unique=unique), new("a"), new("c"))
    assert table.do(c.Add(tasks)) == Added(("a", "old", "a", "a", "c"), {1: "id", 2: "unique", 3: "id"})
    assert table.db.execute("SELECT id FROM task ORDER BY seq").fetchall() == [("old",), ("a",), ("c",)]


def awarded(*positions: int, session: str = "s-w1") -> tuple[c.Award, ...]:
    return tuple(c.Award(n, "w1", session) for n in positions)


def test_what_is_given_away_with_its_add_is_claimed_at_once(table: Table) -> None:
    assert table.do(c.Add((new("a"), new("b"), new("c")), awarded(2, 0))) == Added(("a", "b", "c"))
    assert table.told == ["queue.changed", "task.added", "task.added", "task.added", "task.claimed", "task.claimed"]
    assert [table.state(name) for name in "abc"] == ["claimed", "pending", "claimed"]
    assert table.db.execute("SELECT token, id, worker FROM live ORDER BY token").fetchall() == [
        (1, "c", "w1"), (2, "a", "w1")
    ]  # fmt: skip


def test_only_what_is_new_is_given_away_with_an_add(table: Table) -> None:
    table.add("old")
    table.add("holder", unique=Unique("k"))
    tasks = (new("old"), new("u", unique=Unique("k")), new("a"), new("a"))
    table.do(c.Add(tasks, awarded(0, 1, 3, 9)))
    assert [table.state(name) for name in ("old", "holder", "a")] == ["pending", "pending", "pending"]


def test_what_cannot_be_given_away_with_its_add_waits_and_the_add_counts(table: Table) -> None:
    assert table.do(c.Add((new("a"),), awarded(0, session="another"))) == Added(("a",))
    table.do(c.PutQueue("full", QueueSettings(limit=1)))
    tasks = (new("b", queue="full"), new("c", queue="full"), c.NewTask("d", TaskSpec(WORK), at_ms=table.now + 1))
    assert table.do(c.Add(tasks, awarded(0, 1, 2, 0))) == Added(("b", "c", "d"))
    assert [table.state(name) for name in "abcd"] == ["pending", "claimed", "pending", "scheduled"]


def test_tasks_of_one_entry_find_each_other(table: Table) -> None:
    first, second = table.entry(c.Item(c.Add((new("a"),))), c.Item(c.Add((new("a"), new("b")))))
    assert (first.result, second.result) == (Added(("a",)), Added(("a", "b"), {0: "id"}))


def test_one_that_cannot_be_taken_refuses_all_and_changes_nothing(table: Table) -> None:
    tasks = (new("a"), new("b", policy=Code(name="nobody")))
    rejection = table.do(c.Add(tasks))
    assert rejection.code == "invalid"
    assert rejection.errors == (FieldError("tasks[1].policy.name", "there is no policy named nobody"),)
    assert table.db.execute("SELECT count(*) FROM task").fetchone() == (0,)
    assert table.told == []


def test_a_chosen_id_stays_known_for_a_day_after_its_task_is_gone(table: Table) -> None:
    table.add("mine", chosen=True)
    table.add("made")
    table.do(c.Delete(("mine", "made")))
    table.do(c.PurgeQueue("default", ("deleted",)))
    assert table.db.execute("SELECT count(*) FROM task").fetchone() == (0,)
    assert queries.is_gone(table.db, "mine", table.now)
    assert not queries.is_gone(table.db, "made", table.now)
    assert table.do(c.Add((new("mine", chosen=True),))) == Added(("mine",), {0: "id"})
    table.later(limits.DAY_MS)
    assert not queries.is_gone(table.db, "mine", table.now)
    assert table.do(c.Add((new("mine", chosen=True),))) == Added(("mine",))


@pytest.mark.parametrize(
    ("way", "held_by"),
    [
        ("queued", {"scheduled", "pending", "retrying"}),
        ("active", {"claimed", "running"}),
        ("unfinished", {"scheduled", "pending", "retrying", "claimed", "running"}),
    ],
)
def test_a_key_is_held_in_exactly_the_states_asked_for(way: Any, held_by: set[str], table: Table) -> None:
    def held() -> bool:
        return bool(table.db.execute("SELECT count(*) FROM unique_key").fetchone() == (1,))

    table.add("t", unique=Unique("k", way), at_ms=table.now + 1000)
    assert held() == ("scheduled" in held_by)
    table.later(1000)
    table.do(c.Promote())
    assert held() == ("pending" in held_by)
    token = table.award("t")
    assert held() == ("claimed" in held_by)
    table.start(token)
    assert held() == ("running" in held_by)
    table.finish(token, 1)
    assert held() == ("retrying" in held_by)
    table.do(c.Delete(("t",)))
    assert not held()


def test_a_key_for_a_time_outlives_its_task_but_not_its_deletion(table: Table) -> None:
    unique = Unique("k", for_ms=10_000)
    table.finish(table.running("t", unique=unique))
    table.do(c.PurgeQueue("default", ("succeeded",)))
    assert table.do(c.Add((new("u", unique=unique),))) == Added(("t",), {0: "unique"})
    table.later(10_000)
    assert table.do(c.Add((new("u", unique=unique),))) == Added(("u",))
    table.finish(table.award("u"))
    table.do(c.Delete(("u",)))
    assert table.do(c.Add((new("v", unique=unique),))) == Added(("v",))


def test_two_groups_do_not_share_keys(table: Table) -> None:
    table.add("a", unique=Unique("k"), group="one")
    assert table.add("b", unique=Unique("k"), group="two") == "b"


def test_without_a_key_the_same_work_is_the_same_task(table: Table) -> None:
    unique = Unique()
    table.add("a", unique=unique, name="n", payload=b"1")
    same = c.NewTask("b", TaskSpec(WORK, name="n", unique=unique, priority=5), payload=b"1")
    other = c.NewTask("c", TaskSpec(WORK, name="n", unique=unique), payload=b"2")
    assert table.do(c.Add((same, other))) == Added(("a", "c"), {0: "unique"})


def test_a_queue_may_ask_for_uniqueness_itself(table: Table) -> None:
    table.do(c.PutQueue("set", QueueSettings(unique=Unique())))
    table.add("a", queue="set")
    assert table.add("b", queue="set") == "a"


def test_a_large_spec_and_a_payload_stand_beside_the_row_and_come_back(table: Table) -> None:
    work = Work(shell="x" * 5000)
    table.add("t", work=work, payload=b"\0\xff")
    view = queries.get_task(table.db, "t")
    assert view is not None
    assert (view.row.spec, view.spec.work) == (None, work)
    assert queries.get_payload(table.db, view.row.seq) == (b"\0\xff", True)
    table.do(c.Update(("t",), c.TaskChanges(tags=("gpu",))))
    again = queries.get_task(table.db, "t")
    assert again is not None
    assert (again.spec.tags, again.spec.work, again.shape.tags) == (("gpu",), work, ("gpu",))
    assert queries.get_payload(table.db, view.row.seq) == (b"\0\xff", True)


def test_a_task_may_bring_its_queues_limit(table: Table) -> None:
    table.add("a", queue="q", queue_limit=1)
    table.add("b", queue="q")
    assert table.award("a") > 0
    assert (table.award("b"), table.refused) == (0, "queue_limit")


def test_a_repeated_request_is_answered_as_the_first_time_and_does_nothing(table: Table) -> None:
    request = c.Request("token", "events", "r1", b"digest")
    first = table.do(c.Add((new("a"),)), request)
    again = table.do(c.Add((new("b"),)), request)
    assert again == first == Added(("a",))
    assert table.told == []
    assert table.seq("b") == 0
    other_token = c.Request("other", "events", "r1", b"digest")
    assert table.do(c.Add((new("c"),)), other_token) == Added(("c",))


def test_a_request_id_used_for_something_else_is_a_conflict(table: Table) -> None:
    table.do(c.Add((new("a"),)), c.Request("token", "events", "r1", b"one"))
    rejection = table.do(c.Add((new("b"),)), c.Request("token", "events", "r1", b"two"))
    assert isinstance(rejection, Rejection)
    assert rejection.code == "conflict"


def test_requests_are_known_for_a_day_and_a_refused_one_may_be_tried_again(table: Table) -> None:
    request = c.Request("token", "events", "r1")
    assert table.do(c.Delete(("a",)), request).code == "not_found"
    table.add("a")
    assert table.do(c.Delete(("a",)), request) == Done(1, 1)
    table.later(limits.KNOWN_MS - 1)
    assert table.do(c.Delete(("b",)), request) == Done(1, 1)
    table.later(1)
    assert table.do(c.Delete(("b",)), request).code == "not_found"


def test_requests_are_known_by_number_and_by_size(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def known() -> int:
        answers = [table.do(c.Kill((f"t{n}",)), c.Request("t", "r", f"r{n}")) for n in range(5)]
        return sum(isinstance(answer, Done) for answer in answers)

    for n in range(5):
        table.add(f"t{n}")
        table.do(c.Delete((f"t{n}",)), c.Request("t", "r", f"r{n}"))
    table.do(c.PurgeQueue("default", ("deleted",)))
    assert known() == 5
    monkeypatch.setattr(limits, "KNOWN_MAX", 3)
    assert known() == 3
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 250)
    assert known() == 2
    table.do(c.Sweep(10))
    assert table.db.execute("SELECT count(*) FROM request").fetchone() == (2,)


def test_the_short_way_into_the_table_leaves_the_row_of_the_long_one(table: Table) -> None:
    """Only a lease of its own tells these two apart, and makes the second no plain one."""
    usual: dict[str, Any] = {
        "name": "n",
        "group": "g",
        "queue": "q",
        "priority": 3,
        "key": "k",
        "slots": 2,
        "tags": ("a",),
    }
    table.add("short", **usual)
    table.add("long", **usual, lease_ms=5000)
    names = [row[1] for row in table.db.execute("PRAGMA table_info(task)")]
    short, long = (
        dict(zip(names, table.db.execute("SELECT * FROM task WHERE id = ?", (each,)).fetchone(), strict=True))
        for each in ("short", "long")
    )
    assert {name for name in names if short[name] != long[name]} == {"seq", "id", "lease_ms", "spec"}
    table.check()


def test_an_add_that_meets_what_is_there_sets_no_limit(table: Table) -> None:
    """It may be a repetition, and somebody has set another limit since."""
    unique = Unique(key="k")
    table.add("a", queue="q", queue_limit=3, unique=unique)
    table.do(c.PatchQueue("q", c.QueueChanges(limit=9)))
    table.add("a", queue="q", queue_limit=3)
    table.add("b", queue="q", queue_limit=5, unique=unique)
    assert queries.queues(table.db, table.now, "q")[0].settings.limit == 9
    table.add("c", queue="q", queue_limit=5)
    assert queries.queues(table.db, table.now, "q")[0].settings.limit == 5
