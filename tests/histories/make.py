"""Makes histories that are linearizable by construction: the objects exist, and every operation takes effect at a point
between its call and its answer. Tests corrupt them."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field

from tests.histories.history import NEVER, Kind, Operation


@dataclass(slots=True)
class Clients:
    """So many clients, one operation at a time each, on one register and one set."""

    chance: random.Random
    count: int = 5
    unknown: float = 0.05
    """The part of changes whose answer is lost; such a client is followed by a new one."""
    kinds: tuple[Kind, ...] = ("write", "cas", "read", "add", "members")
    register: Hashable = None
    members: frozenset[Hashable] = frozenset()
    number: int = 0
    late: list[tuple[float, Kind, Hashable]] = field(default_factory=list)
    """Effects of operations whose clients do not wait any more."""

    def run(self, operations: int) -> list[Operation]:
        """Operations in order of their points of effect."""
        history: list[Operation] = []
        free = [0.0] * self.count
        point = 0.0
        for _ in range(operations):
            client = min(range(self.count), key=free.__getitem__)
            point = max(point, free[client]) + 0.01 + self.chance.random()
            called = max(free[client] + 0.001, point - self.chance.expovariate(0.3))
            self._take_effect(until=point)
            operation, answered = self._operate(called, point)
            history.append(operation)
            free[client] = answered
        return history

    def _operate(self, called: float, point: float) -> tuple[Operation, float]:
        kind = self.chance.choice(self.kinds)
        argument = self._argument(kind)
        name = "set" if kind in {"add", "members"} else "register"
        answered = point + self.chance.expovariate(0.3)
        if kind not in {"read", "members"} and self.chance.random() < self.unknown:
            if self.chance.random() < 0.5:
                self.late.append((point + self.chance.expovariate(0.02), kind, argument))
            return Operation(name, kind, argument, None, called, NEVER), answered
        return Operation(name, kind, argument, self._effect(kind, argument), called, answered), answered

    def _argument(self, kind: Kind) -> Hashable:
        self.number += 1
        if kind == "cas":
            return (self.register if self.chance.random() < 0.6 else self.number - 5, self.number)
        return self.number if kind in {"write", "add"} else None

    def _effect(self, kind: Kind, argument: Hashable) -> Hashable:
        if kind == "cas" and isinstance(argument, tuple):
            done: bool = self.register == argument[0]
            self.register = argument[1] if done else self.register
            return done
        if kind == "write":
            self.register = argument
        elif kind == "add":
            self.members |= {argument}
        elif kind == "read":
            return self.register
        elif kind == "members":
            return self.members
        return True

    def _take_effect(self, until: float) -> None:
        due = sorted((each for each in self.late if each[0] <= until), key=lambda each: each[0])
        for each in due:
            self._effect(each[1], each[2])
            self.late.remove(each)
