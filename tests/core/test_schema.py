"""The index budget, counted in SQLite's own programs; and older tables become today's."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import schema
from quvatlh.core.machine import Machine
from quvatlh.core.model import FINISHED
from quvatlh.core.rules import TableRules
from quvatlh.core.statefile import StateRefused
from quvatlh.core.tables_digest import tables_digest
from tests.core.budget import entries, indexes, touched
from tests.core.table import CODEC, Table

FIXTURES = Path(__file__).parent / "fixtures"
BUDGET = 4


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with Table(tmp_path) as made:
        made.worker()
        yield made


def test_a_short_task_writes_four_index_entries_in_its_life(table: Table) -> None:
    none = dict.fromkeys(indexes(table.db), 0)
    table.add("t")
    added = entries(table.db, "t")
    assert added == none | {"task_id": 1, "task_ready": 1}
    assert touched(table.db, schema.INSERT_PLAIN_TASK) == touched(table.db, schema.INSERT_TASK)
    token = table.award("t")
    awarded = entries(table.db, "t")
    assert (touched(table.db, schema.AWARD_TASK), awarded) == ({"task_ready", "task_line"}, none | {"task_id": 1})
    assert touched(table.db, schema.AWARD_TASKS) == touched(table.db, schema.AWARD_TASK)
    table.finish(token)
    finished = entries(table.db, "t")
    assert (touched(table.db, schema.FINISH_TASK), finished) == ({"task_done"}, none | {"task_id": 1, "task_done": 1})
    assert touched(table.db, schema.FINISH_TASKS) == touched(table.db, schema.FINISH_TASK)
    steps = [none, added, awarded, finished]
    writes = sum(abs(after[name] - before[name]) for before, after in itertools.pairwise(steps) for name in none)
    assert writes == BUDGET


def test_a_task_in_a_line_writes_two_more(table: Table) -> None:
    table.do(c.PatchQueue("fair", c.QueueChanges(discipline="sfq")))
    token = table.award(table.add("first", queue="fair", key="a"))
    for id_, places in (("second", {"task_ready": 1}), ("third", {})):
        table.add(id_, queue="fair", key="a")
        assert entries(table.db, id_) == dict.fromkeys(indexes(table.db), 0) | {"task_id": 1, "task_line": 1} | places
    table.award("second")
    assert entries(table.db, "second")["task_line"] == 0
    assert entries(table.db, "third")["task_ready"] == 1
    table.finish(token)
    table.check()


def test_nothing_else_that_a_short_task_writes_has_a_secondary_index(table: Table) -> None:
    rows = table.db.execute("SELECT tbl_name, name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    assert {owner for owner, _ in rows} == {"task"}
    unique = table.db.execute("SELECT tbl_name FROM sqlite_schema WHERE type = 'index' AND sql IS NULL").fetchall()
    assert {owner for (owner,) in unique if owner not in {"shape", "token"}} <= without_rowid(table.db)


def without_rowid(db: sqlite3.Connection) -> set[str]:
    return {name for name, sql in db.execute("SELECT name, sql FROM sqlite_schema") if "WITHOUT ROWID" in (sql or "")}


def test_an_action_row_only_when_there_is_more_to_say(table: Table) -> None:
    table.finish(table.running("silent"))
    table.finish(table.running("talking"), output_tail=b"hello\n")
    assert table.db.execute("SELECT id FROM action JOIN task ON seq = task").fetchall() == [("talking",)]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("SELECT seq FROM task WHERE ready = 1 AND queue = ? AND shape = ? ORDER BY rank, seq", "task_ready"),
        ("SELECT seq FROM task WHERE due_at IS NOT NULL AND due_at <= ? ORDER BY due_at, seq", "task_due"),
        ("SELECT seq FROM task WHERE expiry IS NOT NULL AND expiry <= ? ORDER BY expiry, seq", "task_expiry"),
        ("SELECT seq FROM task WHERE queue = ? AND kept = ? ORDER BY finished_at, seq", "task_done"),
        ("SELECT seq FROM task WHERE at IS NOT NULL AND at >= ? ORDER BY at, seq", "task_at"),
        ("SELECT seq FROM task WHERE service = 1", "task_service"),
        (
            "SELECT seq FROM task WHERE ready > 0 AND flow = ? AND queue = ? AND shape = ? ORDER BY turn, seq LIMIT 1",
            "task_line",
        ),
        (
            "SELECT shape FROM task WHERE ready > 0 AND queue = ? AND flow = ? AND shape > ? ORDER BY shape LIMIT 1",
            "task_line",
        ),
        (
            "SELECT flow, shape FROM task WHERE ready > 0 AND queue = ? AND flow >= ? ORDER BY flow, shape LIMIT 1",
            "task_line",
        ),
    ],
)
def test_the_orders_that_are_asked_for_are_indexes_without_sorting(query: str, index: str, table: Table) -> None:
    rows = table.db.execute(f"EXPLAIN QUERY PLAN {query}", [0] * query.count("?")).fetchall()
    plan = " ".join(row[3] for row in rows)
    assert index in plan
    assert "TEMP B-TREE" not in plan


# --- versions ---


def restored(path: Path, version: int) -> None:
    """A state file as that version wrote it."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((FIXTURES / f"tables_{version}.sql").read_text())
        db.execute("PRAGMA journal_mode=WAL")


def shape_of(db: sqlite3.Connection) -> list[Any]:
    """Columns that were added stand in the text of a table as they came; what they are is the same."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
    columns = {name: db.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)).fetchall() for _, name, _ in rows}
    return [(kind, name, columns[name] if name == "task" else sql) for kind, name, sql in rows]


@pytest.mark.parametrize("version", range(1, schema.SCHEMA_VERSION + 1))
def test_tables_of_an_older_version_become_those_of_today(version: int, tmp_path: Path) -> None:
    restored(tmp_path / "state", version)
    with Table(tmp_path) as old:
        assert old.db.execute("SELECT version FROM schema_version").fetchone() == (schema.SCHEMA_VERSION,)
        states = dict(old.db.execute("SELECT state, count(*) FROM task GROUP BY 1"))
        assert set(states) >= {"scheduled", "pending", "claimed", "running", "retrying", *FINISHED}
        old.now = old.machine.time_ms + 1000
        old.check()
        old.do(c.Promote())
        old.worker("w9")
        token = old.award(old.add("new"), "w9")
        assert old.finish(token, session="s-w9").refused == {}
        old.check()
        (tmp_path / "fresh").mkdir()
        with Table(tmp_path / "fresh") as fresh:
            assert shape_of(old.db) == shape_of(fresh.db)


def test_version_3_keeps_of_each_task_the_actions_that_ended_last(tmp_path: Path) -> None:
    with Table(tmp_path) as table:
        table.add("s", kind="service")
        table.db.execute("UPDATE task SET attempts = 130, token = 130")
        table.db.execute("UPDATE serial SET n = 130 WHERE name = 'token'")
        row = "INSERT INTO action VALUES (1, ?, 'w', 1, 'failed', 0, 0, ?, 1, NULL, NULL, NULL, NULL, NULL, NULL)"
        table.db.executemany(row, [(token, 1000 if token == 7 else token) for token in range(1, 131)])
        table.db.execute("UPDATE schema_version SET version = 2")
    with Table(tmp_path) as table:
        kept = [token for (token,) in table.db.execute("SELECT token FROM action ORDER BY token")]
        assert kept == [7, *range(32, 131)]


def test_steps_are_taken_from_the_version_that_is_there_all_or_none(tmp_path: Path) -> None:
    def one(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE one (x)")

    def two(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE one ADD COLUMN y")

    def broken(_: sqlite3.Connection) -> None:
        raise RuntimeError("half way")

    with Table(tmp_path) as table:
        table.db.execute("UPDATE schema_version SET version = 1")
        before = tables_digest(table.db)
        with pytest.raises(RuntimeError, match="half way"):
            schema.migrate(table.db, (one, two, broken))
        assert tables_digest(table.db) == before
        assert schema.migrate(table.db, (one,)) == 1
        assert schema.migrate(table.db, (one, two)) == 2
        assert schema.migrate(table.db, (one, two)) == 3
        assert [row[1] for row in table.db.execute("PRAGMA table_info(one)")] == ["x", "y"]


def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    with Table(tmp_path) as table:
        table.db.execute("UPDATE schema_version SET version = 99")
    told = f"the tables in {tmp_path}/state have version 99, this program knows up to {schema.SCHEMA_VERSION}: start "
    with pytest.raises(StateRefused, match=told):
        Machine(str(tmp_path / "state"), TableRules(CODEC))
