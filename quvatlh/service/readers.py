"""Reads off the loop: connections of their own on the state file, on a few threads, each read one short transaction.

A long read transaction would keep the write-ahead file from shrinking, so each has a time by which it must end: lists end
early and give a cursor, everything else is small.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol, TypeVar
from urllib.parse import quote

from quvatlh.service.state import State

T = TypeVar("T")
Read = Callable[[sqlite3.Connection], T]

THREADS = 2
"""Reads are mostly SQLite's work, which lets other threads run; more would only take cores from the loop."""
PAGE_CACHE_BYTES = 4 * 1024 * 1024
BUSY_S = 1.0


class Reading(Protocol):
    """Where reads are made."""

    async def read(self, query: Read[T]) -> T:
        """What the query finds in the state as of one instant. ports.Unavailable while there is no state."""
        ...

    def close(self) -> None: ...


class Readers:
    """Keeps Reading."""

    def __init__(self, state: State, executor: Executor | None = None) -> None:
        self._state = state
        self._executor = executor or ThreadPoolExecutor(THREADS, thread_name_prefix="state-reader")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: set[sqlite3.Connection] = set()

    async def read(self, query: Read[T]) -> T:
        path = self._state.path
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._run, path, query)
        except sqlite3.OperationalError:
            if path == self._state.path:
                raise
            return await loop.run_in_executor(self._executor, self._run, self._state.path, query)

    def close(self) -> None:
        """No read may be under way any more, or it fails."""
        self._executor.shutdown(wait=True)
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()

    def _run(self, path: str, query: Read[T]) -> T:
        db = self._connection(path)
        db.execute("BEGIN")
        try:
            return query(db)
        finally:
            db.execute("ROLLBACK")

    def _connection(self, path: str) -> sqlite3.Connection:
        """This thread's own, on the file in force."""
        known: tuple[str, sqlite3.Connection] | None = getattr(self._local, "known", None)
        if known is not None and known[0] == path:
            return known[1]
        if known is not None:
            with self._lock, contextlib.suppress(KeyError):
                self._open.remove(known[1])
            known[1].close()
            self._local.known = None
        uri = f"file:{quote(path)}?mode=rw"
        db = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA query_only=ON")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute(f"PRAGMA cache_size={-PAGE_CACHE_BYTES // 1024}")
        self._local.known = (path, db)
        with self._lock:
            self._open.add(db)
        return db
