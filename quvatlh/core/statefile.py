"""The state file: one SQLite database that holds what the log says, and the index up to which it does.

Plumbing only: transactions, durability, copies, and what makes a file refused. Which tables there are and what an entry
does to them belongs to machine.py and its rules.

One connection writes, on one thread; `checkpoint` and `copy_to` run on another thread, one at a time, through
connections of their own, and never make the writer wait (but see `checkpoint`). Nobody else may open the file except
through SQLite: closing a plain file descriptor of it would drop the process's locks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

FORMAT_VERSION = 1
"""Kept as user_version. A file of a newer one is refused: what it means is not known here."""
APPLICATION_ID = 0x51767468
"""Kept in the header, so that another program's database is not taken for a state."""

MIB = 1024 * 1024
WAL_BYTES_MAX = 64 * MIB
"""Above it a checkpoint makes several passes, to close the gap to the writer. Too small costs work; too large fills the
disk."""
PASSES_MAX = 8
"""Each moves what was written during the one before it."""
WAL_BYTES_HELD = 192 * MIB
"""Above it the writer is held for the last pages: tens of milliseconds. Below the disk's reserve of 256 MiB."""
PAGE_CACHE_BYTES = 16 * MIB
BUSY_S = 10.0
"""The writer waits so long for a checkpoint that closes the gap; it takes tens of milliseconds at worst."""
SIDE_BUSY_S = 0.05
"""A checkpoint waits so long for the writer; when it does not come in between, the next one tries again."""

REJOIN = (
    "The other nodes hold the same state: stop this node, move its data directory away, start it with an empty one "
    "and admit it as a new member; or restore a backup into an empty directory."
)

_META = """
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    applied_index INTEGER NOT NULL,
    term INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    digest BLOB NOT NULL
) STRICT
"""


class StateRefused(Exception):
    """The state file cannot be used, and was not touched."""


class StateCorrupt(StateRefused):
    """The file is damaged, or none of ours."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"state file {path} does not open: {reason}. {REJOIN}")


class StateTooNew(StateRefused):
    """A newer version has written it."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"state file {path} has format {version}, this version knows up to {FORMAT_VERSION}: "
            "start the version that wrote it, or a newer one."
        )


@dataclass(frozen=True, slots=True)
class Meta:
    """How far the state is, as it stands in the file itself."""

    applied_index: int = 0
    term: int = 0
    time_ms: int = 0
    digest: bytes = bytes(16)


class StateFile:
    """Open on a path. `db` is the writer's connection: its thread may also read through it, between transactions."""

    def __init__(self, path: str, schema: Sequence[str] = ()) -> None:
        """Open the state, or make a new one with the tables of `schema`. StateRefused when the file is no good."""
        self.path = path
        # One thread at a time; the last one, which closes, is another than the one that writes.
        self.db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with _damage_named(path):
                new = _is_empty(self.db)
                if not new:
                    self.meta = _checked_meta(self.db, path)
                _configure(self.db)
                if new:
                    self.meta = _create(self.db, schema)
                    _sync_directory(path)
        except BaseException:
            self.db.close()
            raise

    def begin(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")

    def commit(self, meta: Meta) -> None:
        """End the transaction; `meta` becomes visible with all that it speaks of, or nothing does."""
        self.db.execute(
            "UPDATE meta SET applied_index = ?, term = ?, time_ms = ?, digest = ?",
            (meta.applied_index, meta.term, meta.time_ms, meta.digest),
        )
        self.db.execute("COMMIT")
        self.meta = meta

    def rollback(self) -> None:
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def close(self) -> None:
        """What is in an open transaction is gone. Checkpoints and copies must have ended."""
        self.rollback()
        self.db.close()

    def checkpoint(self) -> int:
        """Move committed pages into the file proper and sync; the greatest index that surely survives a power failure.

        The index is read first: what is committed meanwhile may or may not be covered. SQLite starts its write-ahead
        file anew when a writer comes and finds nothing left in it. A writer that never pauses leaves something at each
        pass, but less and less, so beyond WAL_BYTES_MAX passes follow each other until one is quicker than the writer.
        Only beyond WAL_BYTES_HELD the last pages are moved with the writer held.
        """
        with self._side_connection() as side:
            index = _applied_index(side)
            whole = _checkpoint_pass(side, "PASSIVE")
            for _ in range(PASSES_MAX):
                if self._wal_bytes() <= WAL_BYTES_MAX:
                    break
                _checkpoint_pass(side, "PASSIVE")
            if self._wal_bytes() > WAL_BYTES_HELD:
                _checkpoint_pass(side, "FULL")
            if not whole:
                # A reader of an older state holds pages back; the write-ahead file is as good once it is synced.
                _sync(self.path + "-wal")
            return index

    def copy_to(self, path: str) -> int:
        """Write the state as of now to a new file, whole, synced and without a write-ahead file; the index inside it.

        OSError where it cannot be written, and then there is nothing of it.
        """
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with (
                self._side_connection() as side,
                contextlib.closing(sqlite3.connect(path, isolation_level=None)) as copy,
            ):
                copy.execute("PRAGMA synchronous=OFF")  # synced as a whole below
                side.execute("BEGIN")
                _applied_index(side)  # the first read fixes what the transaction sees
                side.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")
                index = _applied_index(copy)
            _sync(path)
            _sync_directory(path)
        except BaseException as error:
            for name in (path, f"{path}-journal", f"{path}-wal"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(name)
            if isinstance(error, sqlite3.OperationalError):
                raise _copy_failed(error, path) from error
            raise
        return index

    @contextlib.contextmanager
    def _side_connection(self) -> Iterator[sqlite3.Connection]:
        uri = f"file:{quote(os.path.abspath(self.path))}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=SIDE_BUSY_S, isolation_level=None)) as side:
            side.execute("PRAGMA synchronous=NORMAL")
            side.execute("PRAGMA wal_autocheckpoint=0")
            yield side

    def _wal_bytes(self) -> int:
        try:
            return os.path.getsize(self.path + "-wal")
        except FileNotFoundError:
            return 0


def _configure(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute(f"PRAGMA journal_size_limit={WAL_BYTES_MAX}")
    db.execute(f"PRAGMA cache_size={-PAGE_CACHE_BYTES // 1024}")
    db.execute("PRAGMA temp_store=MEMORY")
    db.execute("PRAGMA trusted_schema=OFF")
    db.execute("PRAGMA cell_size_check=ON")


def _is_empty(db: sqlite3.Connection) -> bool:
    """New, or made and not yet filled when the process ended."""
    return _one(db, "SELECT count(*) FROM sqlite_schema") == 0 and _one(db, "PRAGMA user_version") == 0


def _create(db: sqlite3.Connection, schema: Sequence[str]) -> Meta:
    """All in one transaction: there is no half-made state."""
    db.execute("BEGIN IMMEDIATE")
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.execute(f"PRAGMA user_version={FORMAT_VERSION}")
    db.execute(_META)
    new = Meta()
    db.execute("INSERT INTO meta VALUES (1, ?, ?, ?, ?)", (new.applied_index, new.term, new.time_ms, new.digest))
    for statement in schema:
        db.execute(statement)
    db.execute("COMMIT")
    return new


def _checked_meta(db: sqlite3.Connection, path: str) -> Meta:
    """What can be told at once. A damaged page further in is found by the read that meets it."""
    if _one(db, "PRAGMA application_id") != APPLICATION_ID:
        raise StateCorrupt(path, "it is a database of another program")
    version = _one(db, "PRAGMA user_version")
    if version > FORMAT_VERSION:
        raise StateTooNew(path, version)
    try:
        rows = db.execute("SELECT applied_index, term, time_ms, digest FROM meta").fetchall()
    except sqlite3.OperationalError as error:
        raise StateCorrupt(path, str(error)) from error
    if len(rows) != 1:
        raise StateCorrupt(path, f"its meta table has {len(rows)} rows instead of one")
    return Meta(*rows[0])


@contextlib.contextmanager
def _damage_named(path: str) -> Iterator[None]:
    """Damage becomes StateCorrupt; a full disk or missing rights stay what they are."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise StateCorrupt(path, str(error)) from error
        raise


def _copy_failed(error: sqlite3.OperationalError, path: str) -> OSError:
    """SQLite's word for it, as any other file would say it: what goes wrong beside the state is no harm to the state."""
    is_full = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
    number = errno.ENOSPC if is_full else errno.EIO
    return OSError(number, os.strerror(number) if is_full else str(error), path)


def _checkpoint_pass(db: sqlite3.Connection, mode: str) -> bool:
    """Whether everything that was committed when the pass began is in the file proper, synced."""
    busy, total, moved = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return bool(busy == 0 and total == moved)


def _applied_index(db: sqlite3.Connection) -> int:
    return _one(db, "SELECT applied_index FROM meta")


def _one(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def _sync_directory(path: str) -> None:
    _sync(os.path.dirname(os.path.abspath(path)))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
