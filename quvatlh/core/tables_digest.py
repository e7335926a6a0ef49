"""Digests over the contents of the tables: of all of them, and of as much as one check can afford.

The entries' digest (machine.py) says that the logs are equal; these say that the same was made of them. Rows are hashed in
the order of their keys, as msgpack, so that neither page layout nor SQLite's version matters.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Final

import msgspec

from quvatlh.core import limits

_LARGE: Final = {"task": "seq", "body": "task", "action": "task"}
"""Tables that grow with the tasks, by the column that a window is cut from."""
_WALKED: Final = ("request", "tombstone", "unique_key", "ledger", "name_live", "tally", "revoked", "turn")
"""Tables that may be large and have no number to cut: a rolling digest takes as many rows of their end."""
_OWN: Final = frozenset({"meta", "own_digest"})
"""About the node, or digested by the machine."""
_CHUNK: Final = 500


def tables_digest(db: sqlite3.Connection) -> bytes:
    """Of everything. A microsecond a row: for tests, the simulation, and a person who wants to know."""
    hashed = hashlib.blake2b(digest_size=16)
    for table in _tables(db):
        _feed(hashed, db, table, f"SELECT * FROM {table} ORDER BY {_key(db, table)}")  # noqa: S608 - text of our own
    return hashed.digest()


def rolling_digest(db: sqlite3.Connection, turn: int) -> bytes:
    """Of all small tables and a window of each large one, the next window each turn: the ends of growing tables, where
    the work is, at every turn."""
    hashed = hashlib.blake2b(digest_size=16)
    rows = limits.DIGEST_WINDOW_ROWS
    for table in _tables(db):
        key = _key(db, table)
        if table in _LARGE:
            column = _LARGE[table]
            last = db.execute(f"SELECT max({column}) FROM {table}").fetchone()[0] or 0  # noqa: S608 - text of our own
            start = (turn - 1) % (last // rows + 1) * rows
            sql = f"SELECT * FROM {table} WHERE {column} > {start} AND {column} <= {start + rows} ORDER BY {key}"  # noqa: S608 - text of our own
            _feed(hashed, db, table, sql)
            _feed(hashed, db, table, f"SELECT * FROM {table} WHERE {column} > {last - rows // 10} ORDER BY {key}")  # noqa: S608 - text of our own
        elif table in _WALKED:
            backwards = ", ".join(f"{column} DESC" for column in key.split(", "))
            _feed(hashed, db, table, f"SELECT * FROM {table} ORDER BY {backwards} LIMIT {rows // 10}")  # noqa: S608 - text of our own
        else:
            _feed(hashed, db, table, f"SELECT * FROM {table} ORDER BY {key}")  # noqa: S608 - text of our own
    return hashed.digest()


def _tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
    return [name for (name,) in rows if name not in _OWN]


def _key(db: sqlite3.Connection, table: str) -> str:
    columns = db.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return ", ".join(name for (name,) in columns)


def _feed(hashed: hashlib.blake2b, db: sqlite3.Connection, table: str, sql: str) -> None:
    hashed.update(table.encode())
    cursor = db.execute(sql)
    while rows := cursor.fetchmany(_CHUNK):
        hashed.update(msgspec.msgpack.encode(rows))
