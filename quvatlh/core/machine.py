"""The state machine: entries of the log go in, in order; one result for each item comes out.

Here is what holds whatever the items mean: order, the index inside the transaction, re-applying as a no-op, the rolling
digest by which replicas are compared. What an item does is a `Rules`, which sees the database and the entry and nothing
else: no clock, no chance, no network. `Positions` is the one that gives items no meaning at all.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from quvatlh.core.statefile import Meta, StateFile

_HEAD = struct.Struct("<QQQI")
_LENGTH = struct.Struct("<I")


class LogEntry(Protocol):
    """What the machine looks at in an entry; the log's own type has it."""

    @property
    def index(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def time_ms(self) -> int: ...
    @property
    def items(self) -> Sequence[bytes]: ...


class Rules(Protocol):
    """What items mean. Total: any bytes get a result, a refusal is one, and what raises is a bug that stops the node."""

    @property
    def schema(self) -> Sequence[str]:
        """Statements that make the tables of a new state."""
        ...

    def apply(self, db: sqlite3.Connection, entry: LogEntry) -> Sequence[object]:
        """Inside a transaction; one result an item, the same on every node. The rows of tasks and of live actions stand then;
        what is kept of them beside may be left to `settle`."""
        ...

    def settle(self) -> None:
        """Write what the last entry has left to be written, if that was not done yet."""
        ...


@runtime_checkable
class Migrating(Protocol):
    """Rules whose tables change from version to version."""

    def migrate(self, db: sqlite3.Connection) -> None:
        """Bring the tables of an existing state up to date; called when it is opened, outside of a transaction."""
        ...


Files = Callable[[str, Sequence[str]], StateFile]
"""Opens the state file of a path, new ones with these tables; a simulation has one that no disk knows."""


class Positions:
    """Rules without meaning: the result of an item is its position in the entry."""

    schema: Sequence[str] = ()

    def apply(self, db: sqlite3.Connection, entry: LogEntry) -> Sequence[object]:  # noqa: ARG002 - as the protocol
        return range(len(entry.items))

    def settle(self) -> None:
        """Nothing is ever left."""


class OutOfOrder(Exception):
    """An entry that does not follow the last one: a bug of the log, and reason to stop."""


class Machine:
    """ports.Machine on a state file. One thread, but for `checkpoint` and `copy_to`."""

    def __init__(self, path: str, rules: Rules | None = None, files: Files = StateFile) -> None:
        self._rules: Rules = Positions() if rules is None else rules
        self._file = files(path, self._rules.schema)
        if isinstance(self._rules, Migrating):
            try:
                self._rules.migrate(self._file.db)
            except BaseException:
                self._file.close()
                raise
        self._meta = self._file.meta
        """Ahead of the file's between begin and commit."""

    @property
    def applied_index(self) -> int:
        return self._meta.applied_index

    @property
    def time_ms(self) -> int:
        return self._meta.time_ms

    @property
    def digest(self) -> bytes:
        """Of all entries so far: equal at equal index on every node, or the logs differ."""
        return self._meta.digest

    @property
    def db(self) -> sqlite3.Connection:
        """For reads on the loop's thread, between entries."""
        self._rules.settle()
        return self._file.db

    @property
    def rows(self) -> sqlite3.Connection:
        """The same for who reads rows of tasks and live actions alone, and cannot wait for what is kept beside them."""
        return self._file.db

    def begin(self) -> None:
        self._file.begin()

    def apply(self, entry: LogEntry) -> Sequence[object]:
        """One result an item; none for an entry that is in already."""
        if entry.index <= self._meta.applied_index:
            return ()
        self._check_follows(entry)
        self._rules.settle()
        results = self._rules.apply(self._file.db, entry)
        digest = _rolled(self._meta.digest, entry)
        self._meta = Meta(entry.index, entry.term, entry.time_ms, digest)
        return results

    def commit(self) -> None:
        self._rules.settle()
        self._file.commit(self._meta)

    def checkpoint(self) -> int:
        return self._file.checkpoint()

    def copy_to(self, path: str) -> int:
        return self._file.copy_to(path)

    def close(self) -> None:
        self._file.close()

    def _check_follows(self, entry: LogEntry) -> None:
        last = self._meta
        if entry.index != last.applied_index + 1:
            raise OutOfOrder(f"entry {entry.index} after {last.applied_index}")
        if entry.term < last.term or entry.time_ms < last.time_ms:
            raise OutOfOrder(
                f"entry {entry.index} of term {entry.term} and time {entry.time_ms} "
                f"after term {last.term} and time {last.time_ms}"
            )


def _rolled(digest: bytes, entry: LogEntry) -> bytes:
    """Lengths are part of it, so that no two entries have the same bytes."""
    hashed = hashlib.blake2b(digest, digest_size=len(digest))
    hashed.update(_HEAD.pack(entry.index, entry.term, entry.time_ms, len(entry.items)))
    for item in entry.items:
        hashed.update(_LENGTH.pack(len(item)))
        hashed.update(item)
    return hashed.digest()
