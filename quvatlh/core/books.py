"""Queues and shapes: read once, changed in memory, written at the end of an entry, known from then on (memory.py)."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from quvatlh.core import disciplines
from quvatlh.core.limits import NO_LIMIT
from quvatlh.core.model import Code, QueueSettings, Rate
from quvatlh.core.tally import SHAPE, Tally

_SETTINGS = msgspec.json.Decoder(QueueSettings)


@dataclass(slots=True)
class QueueState:
    """A queue's settings and its token bucket. The bucket holds `rate.per_ms` units for each start."""

    name: str
    settings: QueueSettings
    bucket_units: int
    bucket_at: int
    rerank_from: int | None
    changed: bool = False

    def rank(self, priority: int) -> int:
        """The place of a new task. Plug-ins set it later (commands.SetRanks)."""
        return disciplines.rank(self.settings.discipline, priority)

    def change(self, settings: QueueSettings, now: int) -> None:
        """Settings that hold from now on; what waits gets its place by a chore."""
        self._fill(now)
        before, self.settings, self.changed = self.settings, settings, True
        if (before.rate, before.burst) != (settings.rate, settings.burst):
            self._keep_starts(before.rate, now)
        if disciplines.rearranged(before, settings):
            self.rerank_from = 0

    def starts(self, now: int) -> int:
        """How many the rate lets start now."""
        rate = self.settings.rate
        if rate is None:
            return NO_LIMIT
        self._fill(now)
        return max(0, self.bucket_units // rate.per_ms)

    def free_at(self, now: int) -> int | None:
        """When the rate allows the next start: now or later; None without a rate."""
        rate = self.settings.rate
        if rate is None:
            return None
        units = min(self._capacity(), self.bucket_units + max(0, now - self.bucket_at) * rate.count)
        return now if units >= rate.per_ms else now + -(-(rate.per_ms - units) // rate.count)

    def take(self) -> None:
        if self.settings.rate is not None:
            self.bucket_units -= self.settings.rate.per_ms
            self.changed = True

    def give_back(self, now: int) -> None:
        if self.settings.rate is not None:
            self._fill(now)
            self.bucket_units = min(self._capacity(), self.bucket_units + self.settings.rate.per_ms)
            self.changed = True

    def _keep_starts(self, before: Rate | None, now: int) -> None:
        """What was left may start under the new rate, as far as its burst goes: who throttles lets nothing more go by that."""
        rate = self.settings.rate
        if before is None or rate is None:
            self.fill_up(now)
        else:
            self.bucket_units = min(self._capacity(), self.bucket_units * rate.per_ms // before.per_ms)

    def fill_up(self, now: int) -> None:
        """A rate where there was none starts with a full bucket."""
        self.bucket_units, self.bucket_at, self.changed = self._capacity(), now, True

    def _capacity(self) -> int:
        rate = self.settings.rate
        if rate is None:
            return 0
        burst = self.settings.burst or max(1, -(-rate.count * 1000 // rate.per_ms))
        return burst * rate.per_ms

    def _fill(self, now: int) -> None:
        rate = self.settings.rate
        if rate is not None and now > self.bucket_at:
            self.bucket_units = min(self._capacity(), self.bucket_units + (now - self.bucket_at) * rate.count)
            self.bucket_at, self.changed = now, True


class Queues:
    """All that were asked for."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._read: dict[str, QueueState | None] = {}

    @property
    def known(self) -> int:
        return len(self._read)

    def items(self) -> Iterable[tuple[str, QueueState | None]]:
        """What is known; None: there is none of that name."""
        return self._read.items()

    def forget(self) -> None:
        """What was read; nothing waits to be written."""
        self._read.clear()

    def get(self, name: str) -> QueueState | None:
        if name not in self._read:
            row = self._db.execute("SELECT * FROM queue WHERE name = ?", (name,)).fetchone()
            self._read[name] = None if row is None else QueueState(row[0], _SETTINGS.decode(row[1]), *row[2:])
        return self._read[name]

    def make(self, name: str, settings: QueueSettings, now: int) -> QueueState:
        queue = self._read[name] = QueueState(name, settings, 0, now, None)
        queue.fill_up(now)
        return queue

    def drop(self, name: str) -> None:
        self._db.execute("DELETE FROM queue WHERE name = ?", (name,))
        self._read[name] = None

    def flush(self) -> None:
        changed = [queue for queue in self._read.values() if queue is not None and queue.changed]
        if not changed:
            return
        self._db.executemany(
            "INSERT OR REPLACE INTO queue VALUES (?, ?, ?, ?, ?)",
            [
                (q.name, msgspec.json.encode(q.settings).decode(), q.bucket_units, q.bucket_at, q.rerank_from)
                for q in changed
            ],
        )
        for queue in changed:
            queue.changed = False


class Shape(Struct, frozen=True, omit_defaults=True):
    """What a task asks of a worker: tasks of one shape and queue are equal to the market."""

    tags: tuple[str, ...] = ()
    adapter: str = "command"
    slots: int = 1
    policy: Code | None = None
    pin: str | None = None
    """The one worker that may have it."""
    avoid: str | None = None
    """The worker that it was moved away from, until it is awarded elsewhere."""
    announce: str | None = None
    """Name of a stored policy: what cannot be deleted while a task has this shape. Of no meaning to a worker."""
    toward: str | None = None
    """The worker that it was moved to by BALANCE, until it is awarded, or that worker is gone."""


_SHAPE = msgspec.json.Decoder(Shape)


class Shapes:
    """Shapes by number, as long as a task has them."""

    def __init__(self, db: sqlite3.Connection, tally: Tally) -> None:
        self._db = db
        self._tally = tally
        self._ids: dict[Shape, int] = {}
        self._shapes: dict[int, Shape] = {}
        self.suspects: set[int] = set()
        """Shapes that some task may have lost in this entry."""
        self.of_new: dict[tuple[object, ...], int] = {}
        """Of new tasks, by what they are made of."""

    @property
    def known(self) -> int:
        return max(len(self._shapes), len(self.of_new))

    def items(self) -> Iterable[tuple[int, Shape]]:
        """What is known."""
        return self._shapes.items()

    def forget(self) -> None:
        """What was read."""
        self._ids.clear()
        self._shapes.clear()
        self.of_new.clear()

    def id_of(self, shape: Shape, next_id: int) -> tuple[int, bool]:
        """Its number, and whether it is new and took `next_id`."""
        known = self._ids.get(shape)
        if known is not None:
            return known, False
        body = msgspec.json.encode(shape)
        digest = hashlib.blake2b(body, digest_size=16).digest()
        row = self._db.execute("SELECT id FROM shape WHERE digest = ?", (digest,)).fetchone()
        number = row[0] if row else next_id
        if row is None:
            self._db.execute("INSERT INTO shape VALUES (?, ?, ?)", (number, digest, body.decode()))
            self.suspects.add(number)
        self._ids[shape], self._shapes[number] = number, shape
        return number, row is None

    def get(self, number: int) -> Shape:
        if number not in self._shapes:
            row = self._db.execute("SELECT body FROM shape WHERE id = ?", (number,)).fetchone()
            self._shapes[number] = _SHAPE.decode(row[0])
        return self._shapes[number]

    def drop_unused(self) -> None:
        """After the tally was written: what no task has any more."""
        if not self.suspects:
            return
        unused = [(number,) for number in sorted(self.suspects) if self._tally.get(SHAPE, "", number) == 0]
        self._db.executemany("DELETE FROM shape WHERE id = ?", unused)
        self.suspects.clear()
        if unused:
            self.forget()
