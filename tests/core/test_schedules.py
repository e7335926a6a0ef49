from __future__ import annotations

from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import limits, queries
from quvatlh.core.model import Code, ScheduleSpec, TaskSpec
from quvatlh.core.results import Fired, Worked
from tests.core.table import WORK, Table

SPEC = TaskSpec(WORK)


def put(table: Table, **spec: Any) -> int:
    answer = table.do(c.PutSchedule("s", ScheduleSpec(SPEC, every_ms=1000, **spec), table.now))
    return int(answer.version)


def fire(table: Table, version: int, slot: int, task_id: str = "", **more: Any) -> Any:
    task = c.NewTask(task_id or f"t{slot}", SPEC)
    return table.do(c.Fire("s", version, slot, task, slot + 1000, **more))


def outcomes(table: Table) -> list[tuple[int, str, str | None]]:
    return [(row.slot, row.outcome, row.why) for row in reversed(queries.ledger(table.db, "s"))]


def test_a_slot_and_its_task_are_one_and_no_slot_is_twice(table: Table) -> None:
    version = put(table, overlap="allow")
    assert fire(table, version, 1000) == Fired("t1000")
    assert table.told == ["queue.changed", "task.added", "schedule.fired"]
    for slot in (1000, 999):
        assert fire(table, version, slot, "other").code == "conflict"
    fire(table, version, 2000)
    assert outcomes(table) == [(1000, "ran", None), (2000, "ran", None)]
    (schedule,) = queries.schedules(table.db)
    assert (schedule.last_slot, schedule.last_task, schedule.next_at) == (2000, "t2000", 3000)


def test_what_was_decided_on_another_rule_is_refused(table: Table) -> None:
    old = put(table)
    new = put(table)
    assert fire(table, old, 1000).code == "conflict"
    assert fire(table, new, 1000).task == "t1000"
    assert table.do(c.Fire("none", 1, 1000, c.NewTask("x", SPEC))).code == "not_found"


@pytest.mark.parametrize(
    ("overlap", "second", "first_state"),
    [
        ("allow", Fired("t2000"), "running"),
        ("skip", Fired(None, "overlap"), "running"),
        ("queue", Fired("t2000"), "running"),
        ("replace", Fired("t2000"), "deleted"),
    ],
)
def test_overlap(overlap: str, second: Fired, first_state: str, table: Table) -> None:
    version = put(table, overlap=overlap)
    fire(table, version, 1000)
    table.start(table.award("t1000"))
    assert fire(table, version, 2000) == second
    assert table.state("t1000") == first_state
    if overlap == "queue":
        assert (table.award("t2000"), table.refused) == (0, "limit")


def test_a_run_by_hand_does_not_hide_the_slot_that_still_runs(table: Table) -> None:
    version = put(table)
    fire(table, version, 1000)
    table.start(table.award("t1000"))
    fire(table, version, 1500, manual=True)
    table.finish(table.award("t1500"))
    assert fire(table, version, 2000) == Fired(None, "overlap")
    assert queries.schedules(table.db)[0].last_task == "t1000"


def test_a_slot_is_skipped_while_a_run_by_hand_goes_on(table: Table) -> None:
    version = put(table)
    for slot in (1100, 1200):
        fire(table, version, slot, manual=True)
    table.finish(table.award("t1200"))
    assert fire(table, version, 2000) == Fired(None, "overlap")
    table.finish(table.award("t1100"))
    assert fire(table, version, 3000).task == "t3000"


def test_a_slot_replaces_whatever_of_the_schedule_goes_on(table: Table) -> None:
    version = put(table, overlap="replace")
    fire(table, version, 1000)
    for slot in (1100, 1200):
        fire(table, version, slot, manual=True)
    table.finish(table.award("t1200"))
    assert fire(table, version, 2000) == Fired("t2000")
    assert [table.state(name) for name in ("t1000", "t1100", "t1200")] == ["deleted", "deleted", "succeeded"]


def test_a_slot_is_held_by_one_that_the_ledger_has_forgotten(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEDGER_ROWS_MAX", 3)
    version = put(table)
    fire(table, version, 1000)
    for slot in range(2000, 7000, 1000):
        assert fire(table, version, slot) == Fired(None, "overlap")


@pytest.mark.parametrize("overlap", ["skip", "replace", "queue"])
def test_all_that_was_missed_is_made_up_for_one_after_the_other(overlap: str, table: Table) -> None:
    version = put(table, overlap=overlap, catchup="all")
    on_time = table.now - limits.SLOT_ON_TIME_MS
    missed = [on_time - 3000, on_time - 2000, on_time - 1000]
    assert [fire(table, version, slot).task for slot in missed] == [f"t{slot}" for slot in missed]
    assert fire(table, version, on_time).task == f"t{on_time}"
    for slot in (*missed, on_time):
        assert fire(table, version, on_time + 500, "by-hand", manual=True).task in {"by-hand", None}
        token = table.award(f"t{slot}")
        assert (table.award("by-hand"), table.refused) == (0, "limit")
        table.finish(token)


@pytest.mark.parametrize(("overlap", "second"), [("skip", Fired(None, "overlap")), ("replace", Fired("t2"))])
def test_slots_on_time_overlap_as_ever_where_all_is_made_up_for(overlap: str, second: Fired, table: Table) -> None:
    version = put(table, overlap=overlap, catchup="all")
    fire(table, version, table.now - 2000, "t1")
    assert fire(table, version, table.now - 1000, "t2") == second
    assert table.state("t1") == ("pending" if overlap == "skip" else "deleted")


def test_a_slot_whose_task_is_over_runs_again(table: Table) -> None:
    version = put(table)
    fire(table, version, 1000)
    table.finish(table.award("t1000"))
    assert fire(table, version, 2000).task == "t2000"


def test_run_now_stands_aside_of_the_slots(table: Table) -> None:
    version = put(table, paused=True)
    assert fire(table, version, 5000, manual=True).task == "t5000"
    table.finish(table.award("t5000"))
    assert fire(table, version, 1000) == Fired(None, "paused")
    assert [row.manual for row in queries.ledger(table.db, "s")] == [False, True]


def test_slots_that_did_not_run_are_in_the_ledger_with_why(table: Table) -> None:
    version = put(table)
    assert table.do(c.SkipSlots("s", version, (1000, 2000), "missed", 3000)) == Worked(2, more=False)
    assert table.told == ["schedule.skipped"] * 2
    assert table.do(c.SkipSlots("s", version, (2000,), "missed")).code == "conflict"
    assert outcomes(table) == [(1000, "skipped", "missed"), (2000, "skipped", "missed")]


def test_a_task_that_cannot_be_added_is_a_skipped_slot(table: Table) -> None:
    version = put(table)
    task = c.NewTask("t", TaskSpec(WORK, policy=Code(name="gone")))
    assert table.do(c.Fire("s", version, 1000, task)) == Fired(None, "there is no policy named gone")
    table.add("taken")
    assert fire(table, version, 2000, "taken") == Fired(None, "id: taken")


def test_the_ledger_keeps_the_last_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEDGER_ROWS_MAX", 3)
    version = put(table, overlap="allow")
    for slot in range(1000, 7000, 1000):
        fire(table, version, slot)
    assert [row.slot for row in queries.ledger(table.db, "s", limit=2)] == [6000, 5000]
    rows = queries.ledger(table.db, "s", before=5)
    assert [row.slot for row in rows] == [4000]


def test_pause_resume_and_delete(table: Table) -> None:
    version = put(table)
    assert table.do(c.PauseSchedule("s", paused=True)).version > version
    assert queries.schedules(table.db, "s")[0].next_at is None
    resumed = table.do(c.PauseSchedule("s", paused=False, next_ms=9000)).version
    assert queries.schedules(table.db, "s")[0].next_at == 9000
    fire(table, resumed, 9000)
    table.do(c.DeleteSchedule("s"))
    assert (queries.schedules(table.db), queries.ledger(table.db, "s")) == ([], [])
    assert table.do(c.PauseSchedule("s", paused=True)).code == "not_found"
    assert table.do(c.PutSchedule("s", ScheduleSpec(TaskSpec(WORK, policy=Code(name="x"))), 1)).code == "invalid"


def test_a_slot_that_has_not_come_is_refused(table: Table) -> None:
    version = put(table)
    refused = fire(table, version, table.now + 1)
    assert (refused.code, refused.detail) == ("conflict", "the slot of schedule s has not come yet")
    assert fire(table, version, table.now).task is not None


def test_the_same_rule_again_goes_on_where_it_was(table: Table) -> None:
    """Somebody who writes his schedules anew each minute loses none of their slots."""

    def next_at(command: c.PutSchedule) -> int | None:
        table.do(command)
        return queries.schedules(table.db, "s")[0].next_at

    every = ScheduleSpec(SPEC, every_ms=1000)
    assert next_at(c.PutSchedule("s", every, 5000)) == 5000
    assert next_at(c.PutSchedule("s", ScheduleSpec(SPEC, every_ms=1000, overlap="allow"), 6000)) == 5000
    assert next_at(c.PutSchedule("s", ScheduleSpec(SPEC, every_ms=2000), 6000)) == 6000
    assert next_at(c.PutSchedule("s", ScheduleSpec(SPEC, every_ms=2000, paused=True), 6000)) is None
    assert next_at(c.PutSchedule("s", ScheduleSpec(SPEC, every_ms=2000), 8000)) == 8000


def test_to_resume_by_a_rule_that_is_not_the_schedules_is_refused(table: Table) -> None:
    """Its next slot was reckoned by another rule, or by none."""
    old = put(table)
    table.do(c.PutSchedule("s", ScheduleSpec(SPEC, every_ms=7000, paused=True), None))
    for version in (old, 0):
        assert table.do(c.PauseSchedule("s", paused=False, next_ms=9000, version=version)).code == "conflict"
    view = queries.schedules(table.db, "s")[0]
    assert (view.spec.paused, view.next_at) == (True, None)
    table.do(c.PauseSchedule("s", paused=False, next_ms=7000, version=view.version))
    assert queries.schedules(table.db, "s")[0].next_at == 7000


def test_to_resume_what_is_not_paused_passes_over_nothing(table: Table) -> None:
    version = put(table)
    due = queries.schedules(table.db, "s")[0].next_at
    assert table.do(c.PauseSchedule("s", paused=False, next_ms=table.now + 9000)).version == version
    assert queries.schedules(table.db, "s")[0].next_at == due


@pytest.mark.parametrize(("payload", "is_json"), [(b'{"a":1}', True), (b"\x00\xff", False)])
def test_each_task_gets_the_payload_of_its_schedule(payload: bytes, is_json: bool, table: Table) -> None:
    spec = ScheduleSpec(SPEC, every_ms=1000, overlap="allow")
    version = int(table.do(c.PutSchedule("s", spec, table.now, payload, is_json)).version)
    for slot in (1000, 2000):
        fire(table, version, slot)
        (seq,) = table.db.execute("SELECT seq FROM task WHERE id = ?", (f"t{slot}",)).fetchone()
        assert queries.get_payload(table.db, seq) == (payload, is_json)
