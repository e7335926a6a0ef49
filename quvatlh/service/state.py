"""The state in force on this node: the machine that the log drives, whichever generation of it that is now.

A snapshot replaces it, and for a moment there is none. Reads on the loop go through `db`, between transactions, and are
short; longer ones have connections of their own (reads.py), on `path`.
"""

from __future__ import annotations

import os
import sqlite3

from quvatlh.codec import Values
from quvatlh.core.machine import Files, Machine
from quvatlh.core.memory import Memory
from quvatlh.core.rules import TableRules
from quvatlh.core.statefile import StateFile
from quvatlh.ports import STATE_FILE, Unavailable

REPLACED = "this node's state is being replaced; in a moment it is back"


class State:
    """Opens machines as the log asks for them (`open` is a ports.MachineFactory), and knows the last one."""

    def __init__(self, codec: Values, files: Files = StateFile) -> None:
        self._codec = codec
        self._files = files
        self._machine: _Machine | None = None
        self._path = ""

    def open(self, directory: str) -> Machine:
        path = os.path.join(directory, STATE_FILE)
        machine = _Machine(path, TableRules(self._codec), self, self._files)
        self._machine, self._path = machine, path
        return machine

    @property
    def is_open(self) -> bool:
        return self._machine is not None

    @property
    def db(self) -> sqlite3.Connection:
        """For the loop's thread. Unavailable while there is none."""
        return self._open().db

    @property
    def rows(self) -> sqlite3.Connection:
        """For who is told of an entry: its tasks and live actions stand, what is kept beside them may not (core/machine.py)."""
        return self._open().rows

    @property
    def memory(self) -> Memory:
        """What the state machine knows of its tables, for the loop's thread and for reading."""
        machine = self._open()
        return machine.rules.memory(machine.db)

    @property
    def path(self) -> str:
        self._open()
        return self._path

    @property
    def time_ms(self) -> int:
        """Log time of the last entry in it."""
        return 0 if self._machine is None else self._machine.time_ms

    @property
    def applied_index(self) -> int:
        return 0 if self._machine is None else self._machine.applied_index

    def closed(self, machine: Machine) -> None:
        if self._machine is machine:
            self._machine = None

    def _open(self) -> _Machine:
        if self._machine is None:
            raise Unavailable(REPLACED)
        return self._machine


class _Machine(Machine):
    """One that tells when it is closed."""

    def __init__(self, path: str, rules: TableRules, owner: State, files: Files) -> None:
        super().__init__(path, rules, files)
        self.rules = rules
        self._owner = owner

    def close(self) -> None:
        self._owner.closed(self)
        super().close()
