"""What clients saw: operations with the instants at which they were called and answered.

An operation without an answer may take effect at any time after its call, or never. One that was certainly not done is
no part of a history.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["write", "cas", "read", "add", "members"]

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Operation:
    object: str
    """The register or set."""
    kind: Kind
    argument: Hashable = None
    """Of write and add the value, of cas (old, new)."""
    result: Hashable = None
    """Of read the value (None: never written), of members a frozenset, of cas whether it took effect. Else no matter."""
    called: float = 0.0
    answered: float = NEVER
    """NEVER when the outcome is unknown."""

    @property
    def is_known(self) -> bool:
        return self.answered != NEVER

    def __str__(self) -> str:
        answer = f"{self.result!r} at {self.answered:g}" if self.is_known else "no answer"
        return f"{self.object}.{self.kind}({self.argument!r}) at {self.called:g}: {answer}"


@dataclass(slots=True)
class Call:
    """One operation under way."""

    history: History
    object: str
    kind: Kind
    argument: Hashable
    called: float

    def answered(self, result: Hashable, at: float) -> None:
        self._end(result, at)

    def unknown(self) -> None:
        self._end(None, NEVER)

    def not_done(self) -> None:
        self.history.open.remove(self)

    def _end(self, result: Hashable, at: float) -> None:
        self.history.open.remove(self)
        operation = Operation(self.object, self.kind, self.argument, result, self.called, at)
        self.history.operations.append(operation)


@dataclass(slots=True)
class History:
    """Records operations by any clock that all its clients share."""

    operations: list[Operation] = field(default_factory=list)
    open: list[Call] = field(default_factory=list)

    def call(self, name: str, kind: Kind, argument: Hashable = None, *, at: float) -> Call:
        call = Call(self, name, kind, argument, at)
        self.open.append(call)
        return call

    def close(self) -> list[Operation]:
        """All operations; what has no answer yet is unknown."""
        for call in list(self.open):
            call.unknown()
        return self.operations


def by_object(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Histories of single objects, in order of calls: a history is linearizable if each of these is."""
    parts: dict[str, list[Operation]] = {}
    for operation in sorted(operations, key=lambda each: each.called):
        parts.setdefault(operation.object, []).append(operation)
    return parts
