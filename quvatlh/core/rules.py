"""The rules of the task table, as machine.py wants them: items of an entry in, an Outcome for each out.

Bytes become commands through a codec that is handed in, since core knows no format. A refusal is a value; what raises is a
bug or a broken disk, and carries the story of the item it happened on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from quvatlh.core import schema
from quvatlh.core.commands import Item
from quvatlh.core.machine import LogEntry
from quvatlh.core.memory import Memory
from quvatlh.core.rejections import Rejection
from quvatlh.core.requests import Requests
from quvatlh.core.results import Answer, Awarded, Outcome
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import VERBS

_STORY_CHARS_MAX = 2000


class Codec(Protocol):
    """How items and remembered answers are written."""

    def decode_item(self, data: bytes) -> Item | Rejection:
        """Any bytes: what is no item of a known version is a rejection."""
        ...

    def encode_answer(self, answer: Answer) -> bytes: ...

    def decode_answer(self, data: bytes) -> Answer | Rejection: ...


class ApplyBroken(Exception):
    """Apply raised: a bug, and reason to stop the node. The message is the story of the item."""


class TableRules:
    """machine.Rules of the task table."""

    schema: Sequence[str] = schema.TABLES

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._memory: Memory | None = None
        self._left: Callable[[], None] | None = None
        """What the last entry has not written yet."""

    def migrate(self, db: sqlite3.Connection) -> None:
        schema.migrate(db)

    def memory(self, db: sqlite3.Connection) -> Memory:
        """Of this connection; between entries, it may be asked by others, too."""
        if self._memory is None or self._memory.db is not db:
            self._memory = Memory(db)
        return self._memory

    def apply(self, db: sqlite3.Connection, entry: LogEntry) -> Sequence[Outcome]:
        if not entry.items:
            return ()
        memory = self.memory(db)
        unit = Unit(memory, entry.index, entry.time_ms)
        requests = Requests(unit)
        outcomes = [self._outcome(unit, requests, position, item) for position, item in enumerate(entry.items)]

        def books() -> None:
            requests.flush()
            unit.flush()
            memory.trim()

        unit.flush_tasks()
        self._left = books
        return outcomes

    def settle(self) -> None:
        """Counters, orders and answers, which nobody needs who starts an action. What fails here fails again: a half is not
        to be committed, whoever it was that asked first."""
        left, self._left = self._left, None
        if left is None:
            return
        try:
            left()
        except BaseException as error:
            self._left = partial(_raise, error)
            raise

    def _outcome(self, unit: Unit, requests: Requests, position: int, data: bytes) -> Outcome:
        item = self._codec.decode_item(data)
        if isinstance(item, Rejection):
            return Outcome(item)
        try:
            return self._applied(unit, requests, item)
        except sqlite3.OperationalError:
            raise  # the disk is full or broken, and says so itself
        except Exception as error:
            story = repr(item)[:_STORY_CHARS_MAX]
            raise ApplyBroken(f"item {position} of entry {unit.index} at {unit.now}: {story}") from error

    def _applied(self, unit: Unit, requests: Requests, item: Item) -> Outcome:
        if item.request is not None:
            answered = requests.answered(item.request)
            if answered is not None:
                return Outcome(answered if isinstance(answered, Rejection) else self._codec.decode_answer(answered))
        unit.scope = item.scope
        result = VERBS[type(item.command)](unit, item.command)
        if item.request is not None and not _is_nothing(result):
            requests.remember(item.request, self._codec.encode_answer(result))
        return Outcome(result, unit.take_events())


def _raise(error: BaseException) -> None:
    raise error


def _is_nothing(result: Answer) -> bool:
    """Nothing has come of it, so the same may be asked anew."""
    return isinstance(result, Rejection) or (isinstance(result, Awarded) and not any(result.tokens))
