"""What a person changes of tasks that stand: times that leave a task something to wait for."""

from __future__ import annotations

from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.limits import HOUR_MS
from quvatlh.core.results import Done
from tests.core.table import Table


def change(*ids: str, timely: bool = True, strict: bool = True, **changes: Any) -> c.Update:
    return c.Update(ids, c.TaskChanges(**changes), strict, failed=True, timely=timely)


@pytest.mark.parametrize(("at_h", "expires_h"), [(3, None), (None, 1), (2, None), (4, 3)])
def test_what_could_then_only_expire_is_refused_by_name_and_of_a_filter_left_as_it_is(
    table: Table, at_h: int | None, expires_h: int | None
) -> None:
    table.add("free")
    table.add("t", at_ms=table.now + HOUR_MS, expires_ms=table.now + 2 * HOUR_MS)
    hours: dict[str, int | None] = {"at_ms": at_h, "expires_ms": expires_h}
    times: dict[str, Any] = {name: table.now + each * HOUR_MS for name, each in hours.items() if each is not None}
    before = [table.value("t", column) for column in ("due_at", "expires_at")]
    refused = table.do(change("free", "t", **times))
    assert refused.code == "invalid"
    assert ("ids[1]", "t would expire before its time comes") in [(each.path, each.message) for each in refused.errors]
    assert table.do(change("t", "nobody", **times)).code == "not_found"
    assert table.do(change("t", strict=False, **times)) == Done(1, 0, {"t": "scheduled"})
    assert [table.value("t", column) for column in ("due_at", "expires_at")] == before
    table.check()


def test_times_that_leave_room_are_set_and_so_are_those_of_what_has_begun(table: Table) -> None:
    table.add("t", at_ms=table.now + HOUR_MS, expires_ms=table.now + 2 * HOUR_MS)
    assert table.do(change("t", at_ms=table.now + 3 * HOUR_MS, expires_ms=table.now + 4 * HOUR_MS)) == Done(1, 1)
    assert table.do(change("t", at_ms=table.now - HOUR_MS)) == Done(1, 1)
    assert table.do(change("t", expires_ms=table.now + 1)) == Done(1, 1)
    table.running("begun", expires_ms=table.now + HOUR_MS)
    assert table.do(change("begun", at_ms=table.now + 3 * HOUR_MS)) == Done(1, 1)
    table.check()


def test_an_entry_of_before_is_as_before(table: Table) -> None:
    table.add("t", expires_ms=table.now + HOUR_MS)
    assert table.do(change("t", timely=False, at_ms=table.now + 2 * HOUR_MS)) == Done(1, 1)
    assert table.state("t") == "scheduled"
