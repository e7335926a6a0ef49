"""A machine of registers and sets whose state file is modelled by images.

A checkpoint writes the whole state to the disk, synced; what was committed since stands in `Wal`, one row a transaction.
A kill keeps all of it; a power failure keeps some first part, as SQLite's WAL does that was not synced. Requests are
remembered by id, so that one repeated is answered as the first time.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

import msgpack

from quvatlh.ports import STATE_FILE, Entry
from quvatlh.raft.disk import Disk


@dataclass
class State:
    """What the log has made so far."""

    index: int = 0
    term: int = 0
    time_ms: int = 0
    digest: bytes = b""
    registers: dict[str, int] = field(default_factory=dict)
    sets: dict[str, list[int]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)

    def apply(self, entry: Entry) -> list[object]:
        results = [self._answer(item) for item in entry.items]
        chain = hashlib.blake2b(self.digest, digest_size=16)
        chain.update(msgpack.packb([entry.index, entry.term, entry.time_ms, entry.items]))
        self.index, self.term, self.time_ms, self.digest = entry.index, entry.term, entry.time_ms, chain.digest()
        return results

    def _answer(self, item: bytes) -> object:
        request, verb, name, *values = msgpack.unpackb(item)
        if request not in self.answers:
            self.answers[request] = self._do(verb, name, values)
        return self.answers[request]

    def _do(self, verb: str, name: str, values: list[Any]) -> object:
        if verb == "write":
            self.registers[name] = values[0]
        elif verb == "cas":
            if self.registers.get(name) != values[0]:
                return False
            self.registers[name] = values[1]
        elif verb == "add" and values[0] not in self.sets.setdefault(name, []):
            self.sets[name].append(values[0])
        return True

    def pack(self) -> bytes:
        row = [self.index, self.term, self.time_ms, self.digest, self.registers, self.sets, self.answers]
        return bytes(msgpack.packb(row))

    @classmethod
    def unpack(cls, data: bytes) -> State:
        return cls(*msgpack.unpackb(data))


@dataclass
class Wal:
    """The transactions since the last checkpoint of one state file; belongs to the disk, not to the process."""

    commits: list[list[Entry]] = field(default_factory=list)

    def power_fail(self, rng: random.Random) -> None:
        del self.commits[rng.randint(0, len(self.commits)) :]


class Wals:
    """Of one disk, by directory."""

    def __init__(self) -> None:
        self._of: dict[str, Wal] = {}

    def at(self, directory: str) -> Wal:
        return self._of.setdefault(directory, Wal())

    def power_fail(self, rng: random.Random) -> None:
        for _, wal in sorted(self._of.items()):
            wal.power_fail(rng)


class SimMachine:
    """Keeps ports.Machine."""

    def __init__(self, disk: Disk, directory: str, wals: Wals) -> None:
        self._disk = disk
        self._path = f"{directory}/{STATE_FILE}"
        self._directory = directory
        self.state = State()
        self._wal = wals.at(directory)
        if disk.exists(self._path):
            self.state = State.unpack(disk.read(self._path))
        else:
            self._wal.commits.clear()
            self._replace()
        for entry in (entry for commit in self._wal.commits for entry in commit):
            if entry.index == self.state.index + 1:
                self.state.apply(entry)
        self._commit: list[Entry] = []

    @property
    def applied_index(self) -> int:
        return self.state.index

    @property
    def digest(self) -> bytes:
        return self.state.digest

    @property
    def time_ms(self) -> int:
        return self.state.time_ms

    def begin(self) -> None:
        self._commit = []

    def apply(self, entry: Entry) -> list[object]:
        self._commit.append(entry)
        return self.state.apply(entry)

    def commit(self) -> None:
        self._wal.commits.append(self._commit)

    def checkpoint(self) -> int:
        index = self.state.index
        self._replace()
        self._wal.commits = [c for c in self._wal.commits if c[-1].index > index]
        return index

    def copy_to(self, path: str) -> int:
        self._write(path)
        return self.state.index

    def _replace(self) -> None:
        """Whole or not at all, and durable on return."""
        partial = f"{self._path}.partial"
        self._write(partial)
        self._disk.rename(partial, self._path)
        self._disk.sync_dir(self._directory)

    def _write(self, path: str) -> None:
        self._disk.remove(path)
        file = self._disk.create(path)
        file.write(self.state.pack())
        file.sync()
        file.close()

    def close(self) -> None:
        pass
