"""What a register and a set do when nothing happens at once: the sequential truth that histories are held against."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from tests.histories.history import Operation

NO = object()
"""The operation cannot have had its answer in this state."""


class Model(Protocol):
    def start(self) -> Hashable: ...

    def step(self, state: Hashable, operation: Operation) -> Hashable | object:
        """The state after it, or NO. An unknown operation is asked for its effect, not for an answer."""
        ...


class Register:
    """write, cas, read; None until written."""

    def start(self) -> Hashable:
        return None

    def step(self, state: Hashable, operation: Operation) -> Hashable | object:
        match operation.kind, operation.argument:
            case "write", value:
                return value
            case "read", _:
                return state if operation.result == state else NO
            case "cas", (old, new):
                done = state == old
                if operation.is_known and operation.result != done:
                    return NO
                if not operation.is_known and not done:
                    return NO  # without effect it may as well never have happened
                return new if done else state
        raise ValueError(f"a register does not know {operation}")


class GrowingSet:
    """add and members."""

    def start(self) -> Hashable:
        return frozenset()

    def step(self, state: Hashable, operation: Operation) -> Hashable | object:
        assert isinstance(state, frozenset)
        match operation.kind:
            case "add":
                return state | {operation.argument}
            case "members":
                return state if operation.result == state else NO
        raise ValueError(f"a set does not know {operation}")
