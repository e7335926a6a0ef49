"""The indexes of the task table: which ones a statement may write, by SQLite's own program for it, and what is in them."""

from __future__ import annotations

import sqlite3


def indexes(db: sqlite3.Connection) -> dict[str, tuple[int, str]]:
    """Root page and condition of every index that a statement about tasks may write."""
    rows = db.execute("SELECT name, rootpage, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'task'")
    return {name: (root, (sql or "").partition(" WHERE ")[2] or "1") for name, root, sql in rows}


def touched(db: sqlite3.Connection, statement: str) -> set[str]:
    """Indexes that the statement's program opens for writing."""
    program = db.execute(f"EXPLAIN {statement}", [None] * statement.count("?")).fetchall()
    opened = {p2 for _, opcode, _, p2, *_ in program if opcode == "OpenWrite"}
    return {name for name, (root, _) in indexes(db).items() if root in opened}


def entries(db: sqlite3.Connection, task_id: str) -> dict[str, int]:
    """How many entries of each index a task has."""
    sql = "SELECT count(*) FROM task WHERE id = ? AND ({})"
    found = {}
    for name, (_, condition) in indexes(db).items():
        found[name] = db.execute(sql.format(condition), (task_id,)).fetchone()[0]
    return found
