"""Lists against a whole scan: any filter, any order, any page length, wherever a page ends."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quvatlh.core import commands as c
from quvatlh.core import pages
from quvatlh.core.counts import GROUPS, Spread, add_groups, count_groups
from quvatlh.core.filters import TaskFilter, condition
from quvatlh.core.model import FINISHED, UNFINISHED, Work
from quvatlh.core.pages import BadCursor, list_ids, list_tasks
from quvatlh.core.views import Groups
from tests.core.table import Table
from tests.core.test_disorder import QUEUES, Chaos

KEYS = {
    "created_at": "created_at",
    "at": "coalesce(at, created_at)",
    "finished_at": "finished_at",
    "priority": "priority",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    with Table(tmp_path_factory.mktemp("pages")) as made:
        chaos = Chaos(made, 5)
        for _ in range(400):
            made.later(chaos.chance.choice([0, 0, 1, 100]))
            command = chaos.command()
            if not isinstance(command, c.Forget | c.PurgeQueue):
                made.entry(c.Item(command))
        for n in range(150):
            made.add(
                f"u{n}", queue=QUEUES[n % 3], priority=n % 4, work=Work(shell=f"echo Needle{n % 7} {'x' * (n * 9)}")
            )
        yield made


def some_filter(chance: random.Random, table: Table) -> TaskFilter:
    first, last = table.db.execute("SELECT min(created_at), max(created_at) FROM task").fetchone()
    every: dict[str, Any] = {
        "state": tuple(chance.sample([*UNFINISHED, *FINISHED], chance.randint(1, 4))),
        "queue": chance.choice(QUEUES),
        "group": "default",
        "kind": chance.choice(["job", "service"]),
        "name": chance.choice(["a", "b", "u3"]),
        "worker": chance.choice(["w1", "w2"]),
        "tag": chance.choice(["gpu", "ssd"]),
        "key": chance.choice("kl"),
        "error": chance.choice(["exit", "killed", "expired", "lost"]),
        "q": chance.choice(["needle3", "ECHO", "u1", "%", "true"]),
        "id": tuple(f"u{n}" for n in range(5)),
        "created_after": chance.randint(first, last),
        "created_before": chance.randint(first, last),
        "at_after": chance.randint(first, last),
        "finished_before": chance.randint(first, last),
    }
    return TaskFilter(**{name: every[name] for name in chance.sample(sorted(every), chance.choice([0, 1, 1, 2, 3]))})


def whole(table: Table, wanted: TaskFilter, sort: str) -> list[str]:
    field, direction = sort.removeprefix("-"), "DESC" if sort.startswith("-") else "ASC"
    sql, values = condition(wanted)
    only = "kept IS NOT NULL" if field == "finished_at" else "1"
    query = f"SELECT id FROM task WHERE {only} AND ({sql}) ORDER BY {KEYS[field]} {direction}, seq {direction}"
    return [row[0] for row in table.db.execute(query, values)]


def walked(table: Table, wanted: TaskFilter, sort: str, limit: int, out_of_time: Any) -> list[str]:
    found: list[str] = []
    cursor = None
    for _ in range(2000):
        page = list_tasks(table.db, wanted, sort=sort, limit=limit, cursor=cursor, out_of_time=out_of_time)
        assert len(page.items) <= limit
        found += [view.row.id for view in page.items]
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages never end")


@pytest.mark.parametrize("gathering", [True, False])
@pytest.mark.parametrize("sort", [sign + field for field in KEYS for sign in ("", "-")])
def test_pages_together_are_the_whole_list(
    sort: str, gathering: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not gathering:
        monkeypatch.setattr(pages, "GATHER_MAX", -1)
    monkeypatch.setattr(pages, "_WINDOW_MIN", 4)
    monkeypatch.setattr(pages, "_WINDOW_MAX", 16)
    chance = random.Random(sort)
    for _ in range(20):
        wanted = some_filter(chance, table)
        limit, hurry = chance.choice([1, 7, 100]), chance.random() < 0.3
        expected = whole(table, wanted, sort)
        assert walked(table, wanted, sort, limit, lambda hurry=hurry: hurry) == expected, wanted
        total = list_tasks(table.db, wanted, sort=sort, limit=1).total
        assert total == len(expected)


def test_services_are_found_without_a_look_at_all_the_others(table: Table) -> None:
    """In no time at all, whatever else they are asked for; of jobs there is only the first window."""
    for more in ({}, {"group": "default"}, {"state": UNFINISHED}):
        wanted = TaskFilter(kind="service", **more)
        page = list_tasks(table.db, wanted, out_of_time=lambda: True)
        assert [view.row.id for view in page.items] == whole(table, wanted, "-created_at")
        assert page.items
        assert page.cursor is None
        assert count_groups(table.db, wanted, "group", out_of_time=lambda: True).cursor is None
    assert list_tasks(table.db, TaskFilter(kind="job"), out_of_time=lambda: True).cursor is not None


def counted(table: Table, wanted: TaskFilter, by: str, *, hurry: bool, spread: Spread | None = None) -> Groups:
    """In a hurry: piece by piece."""
    parts: list[Groups] = []
    while not parts or parts[-1].cursor is not None:
        cursor = parts[-1].cursor if parts else None
        parts.append(count_groups(table.db, wanted, by, spread=spread, cursor=cursor, out_of_time=lambda: hurry))
    return add_groups(parts)


@pytest.mark.parametrize("by", GROUPS)
def test_groups_count_what_a_whole_scan_counts(by: str, table: Table) -> None:
    chance = random.Random(by)
    for _ in range(20):
        wanted = some_filter(chance, table)
        sql, values = condition(wanted)
        column = GROUPS[by]
        rows = table.db.execute(f"SELECT {column}, count(*) FROM task WHERE {sql} GROUP BY 1", values)
        found = counted(table, wanted, by, hurry=chance.random() < 0.5)
        assert {group.value: group.count for group in found.groups} == dict(rows.fetchall())
        counts = [group.count for group in found.groups]
        assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("by", GROUPS)
def test_groups_tell_when_their_tasks_ended(by: str, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(by)
    first, last = table.db.execute("SELECT min(finished_at), max(finished_at) FROM task").fetchone()
    ended = "finished_at IS NOT NULL"
    for _ in range(20):
        monkeypatch.setattr(pages, "GATHER_MAX", chance.choice([0, 10_000]))
        since, until = first - chance.randint(0, 500), last + chance.randint(1, 500)
        spread = Spread(since, until - since, chance.choice([2, 7, 100]))
        times = {"finished_after": since, "finished_before": until}
        wanted = msgspec.structs.replace(some_filter(chance, table), **times)
        sql, values = condition(wanted)
        column, width = GROUPS[by], spread.span_ms / spread.parts
        expected: dict[Any, list[int]] = {}
        for value, at in table.db.execute(f"SELECT {column}, finished_at FROM task WHERE {ended} AND {sql}", values):
            expected.setdefault(value, [0] * spread.parts)[int((at - since) / width)] += 1
        found = counted(table, wanted, by, hurry=chance.random() < 0.5, spread=spread)
        assert {group.value: list(group.parts) for group in found.groups} == expected
        assert all(group.count == sum(group.parts) for group in found.groups)


@pytest.mark.parametrize("hurry", [False, True])
def test_ids_are_those_of_the_tasks(hurry: bool, table: Table) -> None:
    chance = random.Random(hurry)
    for _ in range(20):
        wanted = some_filter(chance, table)
        found: list[str] = []
        cursor: str | None = None
        while True:
            limit = chance.choice([1, 7, 100])
            some, cursor = list_ids(table.db, wanted, limit=limit, cursor=cursor, out_of_time=lambda: hurry)
            found += some
            if cursor is None:
                break
        assert found == whole(table, wanted, "-created_at")


def test_a_page_that_runs_out_of_time_ends_early_with_a_place_to_go_on(table: Table) -> None:
    page = list_tasks(table.db, TaskFilter(q="no such text"), out_of_time=lambda: True)
    assert page.items == ()
    assert page.cursor is not None
    assert page.total is None
    assert count_groups(table.db, TaskFilter(group="default"), "name", out_of_time=lambda: True).cursor is not None


@pytest.mark.parametrize("beside", ["", "x" * 10_000])
def test_nobody_finds_what_stands_in_an_environment(tmp_path: Path, beside: str) -> None:
    with Table(tmp_path) as table:
        table.add("t", work=Work(shell=f"echo found {beside}", env={"PASSWORD": "s3cret"}))
        assert [len(list_tasks(table.db, TaskFilter(q=text)).items) for text in ("echo found", "s3cret")] == [1, 0]


def test_text_is_looked_for_in_no_more_large_tasks_than_there_is_time_for(tmp_path: Path) -> None:
    """Whether they are few and gathered, or many; a page of them that takes long to be read is shorter."""

    def after(looks: int) -> Callable[[], bool]:
        asked = itertools.count(1)
        return lambda: next(asked) > looks

    with Table(tmp_path) as table:
        for n in range(40):
            table.add(f"t{n:02}", work=Work(shell=f"echo {'x' * 100_000} {n % 2}needle"))
        for wanted in (TaskFilter(state=("pending",), q="0NEEDLE"), TaskFilter(group="default", q="0NEEDLE")):
            page = list_tasks(table.db, wanted, out_of_time=after(9))
            assert [view.row.id for view in page.items] == ["t38", "t36", "t34", "t32", "t30"]
            assert page.total is None
            expected = [f"t{n:02}" for n in range(38, -1, -2)]
            assert walked(table, wanted, "-created_at", 100, lambda: True) == expected
            page = list_tasks(table.db, wanted, overdue=lambda: True)
            assert [view.row.id for view in page.items] == expected[:8]
            page = list_tasks(table.db, wanted, cursor=page.cursor)
            assert [view.row.id for view in page.items] == expected[8:]
            assert page.cursor is None
            groups = count_groups(table.db, wanted, "queue", out_of_time=after(9))
            assert ([group.count for group in groups.groups], groups.cursor is None) == ([5], False)


@pytest.mark.parametrize("cursor", ["", "?", "AAAA", "WzEsMiwzXQ"])
def test_a_cursor_that_was_never_given_is_refused(cursor: str, table: Table) -> None:
    with pytest.raises(BadCursor):
        list_tasks(table.db, TaskFilter(), cursor=cursor)


def test_a_cursor_of_another_order_is_refused(table: Table) -> None:
    cursor = list_tasks(table.db, TaskFilter(), sort="priority", limit=1).cursor
    with pytest.raises(BadCursor):
        list_tasks(table.db, TaskFilter(), sort="-priority", cursor=cursor)


def test_pages_go_on_where_they_were_when_tasks_come_and_go(tmp_path: Path) -> None:
    with Table(tmp_path) as table:
        for n in range(20):
            table.add(f"t{n:02}")
        first = list_tasks(table.db, TaskFilter(), sort="-created_at", limit=5)
        table.add("new")
        table.do(c.Delete(("t14",)))
        table.do(c.PurgeQueue("default", ("deleted",)))
        second = list_tasks(table.db, TaskFilter(), sort="-created_at", limit=5, cursor=first.cursor)
        assert [view.row.id for view in second.items] == ["t13", "t12", "t11", "t10", "t09"]
