"""What is kept beside tasks and live actions is written last: when somebody looks, when the next entry comes, at the commit."""

from __future__ import annotations

import sqlite3

import pytest

from quvatlh.core import commands as c
from quvatlh.core.model import TaskSpec
from quvatlh.core.rules import TableRules
from quvatlh.core.unit import Unit
from quvatlh.ports import Entry
from tests.core.table import CODEC, WORK, Table

COUNTED = "SELECT n FROM tally WHERE scope = 'state' AND b = 'pending'"
ADDED = "SELECT count(*) FROM task"


def adding(table: Table, *ids: str) -> list[Entry]:
    """An entry each."""
    first = table.machine.applied_index + 1
    items = [
        CODEC.encode_item(c.Item(c.Add((c.NewTask(each, TaskSpec(WORK)),)), c.Request("t", "r", each))) for each in ids
    ]
    return [Entry(first + n, 1, table.now, (item,)) for n, item in enumerate(items)]


def test_rows_stand_at_once_and_counters_as_soon_as_somebody_looks(table: Table) -> None:
    table.machine.begin()
    for each in adding(table, "a"):
        table.machine.apply(each)
    rows = table.machine.rows
    assert (rows.execute(ADDED).fetchone(), rows.execute(COUNTED).fetchone()) == ((1,), None)
    assert table.machine.db.execute(COUNTED).fetchone() == (1,)
    table.machine.commit()
    table.check()


def test_entries_of_one_transaction_keep_all_their_books(table: Table) -> None:
    table.machine.begin()
    for each in adding(table, "a", "b", "c"):
        table.machine.apply(each)
    table.machine.commit()
    assert table.db.execute(COUNTED).fetchone() == (3,)
    assert table.db.execute("SELECT count(*) FROM request").fetchone() == (3,)
    table.check()


def test_books_that_could_not_be_written_are_not_committed_by_half(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked first, and whatever he made of it."""
    table.machine.begin()
    for each in adding(table, "a"):
        table.machine.apply(each)
    real = Unit.flush

    def full(unit: Unit) -> None:
        monkeypatch.setattr(Unit, "flush", real)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Unit, "flush", full)
    for look in (lambda: table.machine.db, table.machine.commit, table.machine.commit):
        with pytest.raises(sqlite3.OperationalError, match="full"):
            look()
    table.rules = TableRules(CODEC)  # as a node that comes back
    table.reopen()
    assert table.db.execute(ADDED).fetchone() == (0,)
