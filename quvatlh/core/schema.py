"""The tables, and how older ones become these.

Index budget. A short task writes four entries of secondary indexes in its life, by these statements and no others:
  1. INSERT_TASK  task_id     (its id must be found; INSERT_PLAIN_TASK is the same with less to bind)
  2. INSERT_TASK  task_ready  (its place in the ready order)
  3. AWARD_TASK   task_ready  (and out of it; AWARD_TASKS, of many)
  4. FINISH_TASK  task_done   (its place in what is forgotten, and in lists by finished_at; FINISH_TASKS, of many)
The other indexes are partial and hold only services, tasks that wait for a time or carry one, and tasks in lines (two more
writes). No condition of a partial index names `state`, so that a change of state alone touches none.
tests/core/test_schema.py counts this in SQLite's own programs.

What is counted is in `tally`, written once an entry for all its items: totals, limits and the non-empty (queue, shape)
pairs are read there, never by scanning. `live` has one row an action that has not ended: small, and always in memory.
An ended action has a row in `action` only when there is more to say than its task's row holds.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

from quvatlh.core.statefile import StateRefused

SCHEMA_VERSION: Final = 3

TASK: Final = """
CREATE TABLE task (
    seq INTEGER PRIMARY KEY,            -- arrival
    id TEXT NOT NULL,
    chosen INTEGER NOT NULL,            -- 1: a producer chose the id
    state TEXT NOT NULL,
    service INTEGER NOT NULL,
    once INTEGER NOT NULL,              -- 1: at-most-once
    grp TEXT NOT NULL,
    name TEXT,                          -- NULL: the id
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    key TEXT,
    lim INTEGER,                        -- of a service: how many instances are wanted
    shape INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    at INTEGER,                         -- NULL: created_at
    due_at INTEGER,                     -- when a scheduled or retrying task, or a resting instance, is looked at again
    expires_at INTEGER,
    expiry INTEGER,                     -- expires_at while the task waits, else NULL
    ready INTEGER NOT NULL,             -- 1: in the ready order; 2: in a line behind it (lines.py)
    rank INTEGER NOT NULL,              -- place in the ready order of its queue: smaller first, equals by seq
    keep_ms INTEGER,
    lease_ms INTEGER,
    unique_key TEXT,
    unique_while TEXT,                  -- queued, active, unfinished, for
    spec TEXT,                          -- JSON of model.TaskSpec; NULL: in body
    attempts INTEGER NOT NULL DEFAULT 0,
    ended INTEGER NOT NULL DEFAULT 0,   -- executions that ended by themselves and failed
    deaths INTEGER NOT NULL DEFAULT 0,  -- workers that died with it
    live INTEGER NOT NULL DEFAULT 0,    -- rows in live
    running INTEGER NOT NULL DEFAULT 0, -- of those, begun
    resting INTEGER NOT NULL DEFAULT 0, -- instances of a service that wait for due_at
    streak INTEGER NOT NULL DEFAULT 0,  -- instances in a row that ended early
    token INTEGER NOT NULL DEFAULT 0,   -- of the last award
    worker TEXT,                        -- of the last award
    started_at INTEGER,
    finished_at INTEGER,
    kept INTEGER,                       -- finished: 0, failed: 1, with a keep of its own: 2
    error TEXT,
    error_text TEXT,
    cost INTEGER NOT NULL DEFAULT 1,
    flow TEXT,                          -- the line it waits in, by queue and shape; NULL: in none
    turn INTEGER NOT NULL DEFAULT 0     -- place in its line: smaller first, equals by seq
) STRICT"""

INDEXES: Final = (
    "CREATE UNIQUE INDEX task_id ON task (id)",
    "CREATE INDEX task_ready ON task (queue, shape, rank) WHERE ready = 1",
    "CREATE INDEX task_done ON task (queue, kept, finished_at) WHERE kept IS NOT NULL",
    "CREATE INDEX task_due ON task (due_at) WHERE due_at IS NOT NULL",
    "CREATE INDEX task_expiry ON task (expiry) WHERE expiry IS NOT NULL",
    "CREATE INDEX task_at ON task (at) WHERE at IS NOT NULL",
    "CREATE INDEX task_line ON task (queue, flow, shape, turn) WHERE ready > 0 AND flow IS NOT NULL",
    "CREATE INDEX task_service ON task (grp) WHERE service = 1",
)

LIVE: Final = """
CREATE TABLE live (
    token INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,              -- seq
    worker TEXT NOT NULL,
    session TEXT NOT NULL,
    state TEXT NOT NULL,                -- claimed, running, stopping
    stop TEXT,                          -- why it is stopping: kill, delete, relocate, surplus
    id TEXT NOT NULL,
    service INTEGER NOT NULL,
    plain INTEGER NOT NULL,             -- 1: a success of it goes the short way (FINISH_TASK)
    queue TEXT NOT NULL,                -- as it was when awarded: that is where it counts
    grp TEXT NOT NULL,
    name TEXT,                          -- NULL: not counted by name (no name of its own, no limit)
    key TEXT,
    lim INTEGER,
    slots INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    awarded_at INTEGER NOT NULL,
    started_at INTEGER,
    announcement TEXT,
    progress TEXT
) STRICT"""

TURNS: Final = (
    # Tags of fair queueing: the virtual time of a scope, and the last finish tag of those who share it.
    "CREATE TABLE virtual (scope TEXT PRIMARY KEY, tag INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE turn (scope TEXT, flow TEXT, finish INTEGER NOT NULL,
        PRIMARY KEY (scope, flow)) STRICT, WITHOUT ROWID""",
    # Of a class of starts.
    """CREATE TABLE bucket (class TEXT PRIMARY KEY, rate_units INTEGER NOT NULL, ceil_units INTEGER NOT NULL,
        at INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
)

TABLES: Final = (
    TASK,
    *INDEXES,
    LIVE,
    # Large parts of a task; read only when it is shown or started.
    "CREATE TABLE body (task INTEGER PRIMARY KEY, spec TEXT, payload BLOB, payload_json INTEGER NOT NULL) STRICT",
    """CREATE TABLE action (
        task INTEGER NOT NULL, token INTEGER NOT NULL, worker TEXT NOT NULL, attempt INTEGER NOT NULL,
        state TEXT NOT NULL, awarded_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER NOT NULL,
        exit_code INTEGER, signal INTEGER, error TEXT, error_text TEXT, result BLOB, output_tail BLOB, progress TEXT,
        PRIMARY KEY (task, token)) STRICT, WITHOUT ROWID""",
    # What is wanted of a worker, as far as it differs among tasks; a row as long as a task has it.
    "CREATE TABLE shape (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body TEXT NOT NULL) STRICT",
    "CREATE TABLE tally (scope TEXT, a TEXT, b ANY, n INTEGER NOT NULL, PRIMARY KEY (scope, a, b)) STRICT, WITHOUT ROWID",
    """CREATE TABLE name_live (grp TEXT, name TEXT, lim INTEGER, n INTEGER NOT NULL,
        PRIMARY KEY (grp, name, lim)) STRICT, WITHOUT ROWID""",
    "CREATE TABLE serial (name TEXT PRIMARY KEY, n INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE unique_key (grp TEXT, key TEXT, task INTEGER NOT NULL, id TEXT NOT NULL, until INTEGER,
        PRIMARY KEY (grp, key)) STRICT, WITHOUT ROWID""",
    "CREATE TABLE own_keep (gone_at INTEGER, task INTEGER, PRIMARY KEY (gone_at, task)) STRICT, WITHOUT ROWID",
    # Known for a while. Whether a row still counts follows from its numbers; sweeping only saves space.
    "CREATE TABLE tombstone (id TEXT PRIMARY KEY, at INTEGER NOT NULL, ordinal INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE request (token TEXT, route TEXT, id TEXT, digest BLOB NOT NULL, at INTEGER NOT NULL,
        ordinal INTEGER NOT NULL, bytes_before INTEGER NOT NULL, answer BLOB NOT NULL,
        PRIMARY KEY (token, route, id)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE queue (name TEXT PRIMARY KEY, settings TEXT NOT NULL, bucket_units INTEGER NOT NULL,
        bucket_at INTEGER NOT NULL, rerank_from INTEGER) STRICT, WITHOUT ROWID""",
    "CREATE TABLE class (name TEXT PRIMARY KEY, settings TEXT NOT NULL) STRICT, WITHOUT ROWID",
    *TURNS,
    """CREATE TABLE worker (name TEXT PRIMARY KEY, session TEXT, state TEXT NOT NULL, draining INTEGER NOT NULL,
        facts TEXT NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE session (id TEXT PRIMARY KEY, worker TEXT NOT NULL, secret_hash BLOB NOT NULL,
        directory TEXT NOT NULL, isolated INTEGER NOT NULL, opened_at INTEGER NOT NULL, floor INTEGER NOT NULL,
        ended INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE schedule (name TEXT PRIMARY KEY, spec TEXT NOT NULL, payload BLOB, payload_json INTEGER NOT NULL,
        version INTEGER NOT NULL, next_at INTEGER, last_slot INTEGER, last_task TEXT, ordinal INTEGER NOT NULL)
        STRICT, WITHOUT ROWID""",
    """CREATE TABLE ledger (schedule TEXT, ordinal INTEGER, slot INTEGER NOT NULL, at INTEGER NOT NULL,
        outcome TEXT NOT NULL, task TEXT, why TEXT, manual INTEGER NOT NULL,
        PRIMARY KEY (schedule, ordinal)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE policy (name TEXT PRIMARY KEY, version INTEGER NOT NULL, digest BLOB NOT NULL, source TEXT NOT NULL,
        at INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE token (name TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, scope TEXT NOT NULL, at INTEGER NOT NULL)
        STRICT, WITHOUT ROWID""",
    "CREATE TABLE revoked (hash BLOB PRIMARY KEY, name TEXT NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    # Of this node alone, and so in no digest.
    "CREATE TABLE own_digest (id INTEGER PRIMARY KEY CHECK (id = 1), at_index INTEGER, value BLOB) STRICT",
    "CREATE TABLE schema_version (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL) STRICT",
    f"INSERT INTO schema_version VALUES (1, {SCHEMA_VERSION})",  # noqa: S608 - text of our own
)

ROWS_TOGETHER: Final = 32
"""Rows of one INSERT: each execution opens the table and all of its indexes, which takes as long as to write a row."""


def _inserts(into: str, values: str) -> tuple[str, str]:
    """Of one row, and of ROWS_TOGETHER."""
    return f"{into} VALUES {values}", f"{into} VALUES {', '.join([values] * ROWS_TOGETHER)}"


INSERT_TASK, INSERT_TASKS = _inserts(
    """
INSERT INTO task (seq, id, chosen, state, service, once, grp, name, queue, priority, key, lim, shape, slots, created_at,
    at, due_at, expires_at, expiry, ready, rank, keep_ms, lease_ms, unique_key, unique_while, spec, cost, flow, turn)""",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
)

INSERT_PLAIN_TASK, INSERT_PLAIN_TASKS = _inserts(
    """
INSERT INTO task (seq, id, chosen, state, service, once, grp, name, queue, priority, key, shape, slots, created_at, ready,
    rank, spec)""",
    "(?, ?, ?, 'pending', 0, ?, ?, nullif(?, ''), ?, ?, nullif(?, ''), ?, ?, ?, 1, ?, ?)",
)
"""Of a job that may be awarded at once and has neither limit, end, keep, lease nor unique key. What it has not is not
bound, or is empty: Python's sqlite3 takes 0.2 µs for each None, and for each bool, and most of the 26 were such."""

INSERT_LINED_TASK, INSERT_LINED_TASKS = _inserts(
    """
INSERT INTO task (seq, id, chosen, state, service, once, grp, name, queue, priority, key, lim, shape, slots, created_at, ready,
    rank, spec, cost, flow, turn)""",
    "(?, ?, ?, 'pending', 0, ?, ?, nullif(?, ''), ?, ?, nullif(?, ''), nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?, ?)",
)
"""The same of one that waits in a line, and may have a limit and a cost."""

_MANY: Final = "seq IN (SELECT value FROM json_each(?))"

_AWARD: Final = "UPDATE task SET state = 'claimed', ready = 0, attempts = attempts + 1, live = 1, worker = ?, token ="
AWARD_TASK: Final = f"{_AWARD} ? WHERE seq = ?"
"""Of a job whose only index is the ready order; others are stored as a whole."""
AWARD_TASKS: Final = f"{_AWARD} seq + ? WHERE {_MANY}"
"""The same of many whose tokens are as far from their numbers: half the time that each takes alone."""

_FINISH: Final = """
UPDATE task SET state = 'succeeded', live = 0, running = 0, finished_at = ?, kept = 0, error = NULL, error_text = NULL,
    started_at ="""
FINISH_TASK: Final = f"{_FINISH} ? WHERE seq = ?"
"""Of a job that succeeded and has no keep of its own."""
FINISH_TASKS: Final = f"{_FINISH} began.value FROM json_each(?) began WHERE seq = CAST(began.key AS INTEGER)"
"""The same of many: when each began, by its number."""

CLAIMED_TASK: Final = """
INSERT INTO task (seq, id, chosen, state, service, once, grp, name, queue, priority, key, shape, slots, created_at, ready,
    rank, spec, attempts, live, worker, token)
VALUES (?, ?, ?, 'claimed', 0, ?, ?, nullif(?, ''), ?, ?, nullif(?, ''), ?, ?, ?, 0, ?, ?, 1, 1, ?, ?)"""
"""INSERT_PLAIN_TASK and AWARD_TASK in one: it never stands in the ready order."""

_LIVE: Final = """
INSERT INTO live (token, task, worker, session, state, id, service, plain, queue, grp, name, key, lim, slots, attempt,
    lease_ms, awarded_at)"""
INSERT_LIVE: Final = f"""{_LIVE}
VALUES (?, ?, ?, ?, 'claimed', ?, ?, 0, ?, ?, nullif(?, ''), nullif(?, ''), nullif(?, 0), ?, ?, ?, ?)"""
_PLAIN_LIVE: Final = """seq, ?, ?, 'claimed', id, 0, 1, queue, grp, CASE WHEN lim IS NULL THEN name ELSE coalesce(name, id) END,
    key, lim, slots, attempts + 1, ?, ? FROM task WHERE"""
INSERT_PLAIN_LIVE: Final = f"{_LIVE} SELECT ?, {_PLAIN_LIVE} seq = ?"
"""Of a task that goes the short way, before AWARD_TASK: nothing of it has to be bound that its row says."""
CLAIMED_LIVE: Final = f"""{_LIVE}
VALUES (?, ?, ?, ?, 'claimed', ?, 0, 1, ?, ?, nullif(?, ''), nullif(?, ''), NULL, ?, 1, ?, ?)"""
"""The same for CLAIMED_TASK, from what is known of it."""
INSERT_PLAIN_LIVES: Final = f"{_LIVE} SELECT seq + ?, {_PLAIN_LIVE} {_MANY}"
"""The same before AWARD_TASKS."""

RELEASE: Final = "DELETE FROM live WHERE token = ?"
RELEASE_MANY: Final = "DELETE FROM live WHERE token IN (SELECT value FROM json_each(?))"
TOGETHER_MIN: Final = 8
"""Fewer go one by one: to read a list costs as much as to step through so many rows."""

Migration = Callable[[sqlite3.Connection], None]


def _lines(db: sqlite3.Connection) -> None:
    """Version 2: lines, and tags of fair queueing. What waits gets its line by reranking its queue."""
    for column in ("cost INTEGER NOT NULL DEFAULT 1", "flow TEXT", "turn INTEGER NOT NULL DEFAULT 0"):
        db.execute(f"ALTER TABLE task ADD COLUMN {column}")
    for statement in (*(each for each in INDEXES if "task_line" in each), *TURNS):
        db.execute(statement)
    db.execute("""UPDATE queue SET rerank_from = 0 WHERE name IN (SELECT queue FROM task WHERE kept IS NULL)
        AND (settings ->> 'limit_per_key' IS NOT NULL OR settings ->> 'discipline' IS NOT NULL
            OR name IN (SELECT queue FROM task WHERE kept IS NULL AND service = 0 AND lim IS NOT NULL))""")


def _last_actions(db: sqlite3.Connection) -> None:
    """Version 3: of each task the 100 actions that ended last. With them, the next end has no more than one to forget."""
    db.execute("""DELETE FROM action WHERE (task, token) IN (SELECT task, token FROM (
        SELECT task, token, row_number() OVER (PARTITION BY task ORDER BY finished_at DESC, token DESC) AS place
        FROM action WHERE task IN (SELECT seq FROM task WHERE attempts > 100)) WHERE place > 100)""")


MIGRATIONS: Final[Sequence[Migration]] = (_lines, _last_actions)
"""`MIGRATIONS[n]` makes version n + 2 of version n + 1. Never changed once released; a new one is added at the end,
with a fixture of the version before it (tests/core/fixtures)."""

assert len(MIGRATIONS) == SCHEMA_VERSION - 1


class SchemaTooNew(StateRefused):
    """A newer version has written these tables."""

    def __init__(self, path: str, version: int, newest: int) -> None:
        super().__init__(
            f"the tables in {path} have version {version}, this program knows up to {newest}: "
            "start the version that wrote them, or a newer one."
        )


def migrate(db: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the tables up to date, in one transaction; the version they had. Nothing is done to tables of today."""
    version = int(db.execute("SELECT version FROM schema_version").fetchone()[0])
    newest = len(migrations) + 1
    if version > newest:
        path = str(db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0])
        raise SchemaTooNew(path, version, newest)
    if version == newest:
        return version
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in migrations[version - 1 :]:
            step(db)
        db.execute("UPDATE schema_version SET version = ?", (newest,))
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
    return version


def refuse_newer(path: str, name: str) -> None:
    """SchemaTooNew, as of the file `name`, if the tables at `path`, where nothing writes, are of a newer version. The file is
    as it was; what else is wrong with it, its opening says."""
    with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)) as db:
        try:
            version = int(db.execute("SELECT version FROM schema_version").fetchone()[0])
        except sqlite3.DatabaseError:
            return
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(name, version, SCHEMA_VERSION)
