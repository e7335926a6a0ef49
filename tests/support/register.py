"""Registers and sets on the log: the state that cluster tests write to and histories are judged on.

An item is msgpack: ["write", register, value], ["cas", register, old, new], ["add", set, value]; or one of these inside
["once", request id, item], which is done the first time and answered from memory after that. Values are anything that
msgpack knows, compared as bytes. The memory of request ids has no bound: a test ends.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence

import msgpack

from quvatlh.core.machine import LogEntry, Machine
from quvatlh.ports import STATE_FILE

INVALID = "invalid"
"""The result of an item that is none of the above."""


def write(register: str, value: object) -> bytes:
    return _packed(["write", register, value])


def cas(register: str, old: object, new: object) -> bytes:
    return _packed(["cas", register, old, new])


def add(name: str, value: object) -> bytes:
    return _packed(["add", name, value])


def once(request_id: str, item: bytes) -> bytes:
    return _packed(["once", request_id, msgpack.unpackb(item)])


class RegisterRules:
    """True: done. False: a cas that found another value, an add of what was in already."""

    schema = (
        "CREATE TABLE register (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE TABLE member (name TEXT, value BLOB, PRIMARY KEY (name, value)) STRICT, WITHOUT ROWID",
        "CREATE TABLE answer (request_id TEXT PRIMARY KEY, result BLOB NOT NULL) STRICT, WITHOUT ROWID",
    )

    def apply(self, db: sqlite3.Connection, entry: LogEntry) -> Sequence[object]:
        return [_apply(db, item) for item in entry.items]

    def settle(self) -> None:
        """Nothing is ever left."""


class RegisterMachine(Machine):
    def __init__(self, path: str) -> None:
        super().__init__(path, RegisterRules())

    def read(self, register: str) -> object:
        """None for a register that was never written."""
        row = self.db.execute("SELECT value FROM register WHERE name = ?", (register,)).fetchone()
        return None if row is None else msgpack.unpackb(row[0])

    def members(self, name: str) -> set[object]:
        rows = self.db.execute("SELECT value FROM member WHERE name = ?", (name,))
        return {msgpack.unpackb(value, use_list=False) for (value,) in rows}


def open_in(directory: str) -> RegisterMachine:
    """A ports.MachineFactory."""
    return RegisterMachine(os.path.join(directory, STATE_FILE))


def _apply(db: sqlite3.Connection, item: bytes) -> object:
    try:
        match msgpack.unpackb(item):
            case ["once", str(request_id), list(inner)]:
                return _once(db, request_id, inner)
            case list(words):
                return _do(db, words)
    except ValueError:  # no msgpack
        pass
    return INVALID


def _once(db: sqlite3.Connection, request_id: str, inner: list[object]) -> object:
    known = db.execute("SELECT result FROM answer WHERE request_id = ?", (request_id,)).fetchone()
    if known is not None:
        return msgpack.unpackb(known[0])
    result = _do(db, inner)
    db.execute("INSERT INTO answer VALUES (?, ?)", (request_id, _packed(result)))
    return result


def _do(db: sqlite3.Connection, words: list[object]) -> object:
    match words:
        case ["write", str(register), value]:
            return _set(db, register, _packed(value))
        case ["cas", str(register), old, new]:
            row = db.execute("SELECT value FROM register WHERE name = ?", (register,)).fetchone()
            found = _packed(None) if row is None else row[0]
            return found == _packed(old) and _set(db, register, _packed(new))
        case ["add", str(name), value]:
            return db.execute("INSERT OR IGNORE INTO member VALUES (?, ?)", (name, _packed(value))).rowcount == 1
        case _:
            return INVALID


def _set(db: sqlite3.Connection, register: str, value: bytes) -> bool:
    statement = "INSERT INTO register VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
    db.execute(statement, (register, value))
    return True


_packed: Callable[[object], bytes] = msgpack.packb
