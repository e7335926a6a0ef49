"""Is there an order? The search of Wing and Gong with Lowe's memory, for one object of any model.

Operations are taken one after the other: next may come any that was called before the earliest answer still open. What
was tried is remembered as (operations taken, state), and not tried again. Two choices keep it quick where clients saw
many unknown outcomes, each of which is open to the end:

- unknown operations are tried last, so that one is taken only where nothing else explains what was seen;
- what directly follows an unknown operation must not overwrite it, since then it may as well never have happened.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from tests.histories.history import Operation
from tests.histories.models import NO, Model


def find_order(operations: Sequence[Operation], model: Model) -> tuple[list[Operation], list[Operation]]:
    """The longest order found, and the operations around which it got stuck; none of these when all fits."""
    search = _Search(operations, model)
    return search.run()


class _Search:
    def __init__(self, operations: Sequence[Operation], model: Model) -> None:
        self._model = model
        ordered = sorted(operations, key=lambda each: each.called)
        self._known = [each for each in ordered if each.is_known]
        self._unknown = _worth_trying(ordered)
        self._taken_known = bytearray(len(self._known))
        self._first_open = 0
        """Index of the first known operation not taken; all before it are."""
        self._taken = 0
        """A bit an operation, the unknown ones above the known."""

    def run(self) -> tuple[list[Operation], list[Operation]]:
        state = self._model.start()
        seen: set[tuple[int, Hashable, bool]] = set()
        path: list[int] = []
        states: list[Hashable] = []
        choices = [self._choices(state, after_unknown=False)]
        longest: list[int] = []
        stuck: list[Operation] = []
        while self._first_open < len(self._known):
            step = next(choices[-1], None)
            if step is None:
                if len(path) >= len(longest):
                    longest, stuck = list(path), self._open_operations()
                choices.pop()
                if not path:
                    return [self._operation(number) for number in longest], stuck
                self._put_back(path.pop())
                state = states.pop()
                continue
            number, after = step
            self._take(number)
            unknown = number >= len(self._known)
            key = (self._taken, after, unknown)
            if key in seen:
                self._put_back(number)
                continue
            seen.add(key)
            path.append(number)
            states.append(state)
            state = after
            choices.append(self._choices(state, after_unknown=unknown))
        return [self._operation(number) for number in path], []

    def _choices(self, state: Hashable, *, after_unknown: bool) -> Iterator[tuple[int, Hashable]]:
        """What may come next, with the state after it."""
        end, candidates = self._window()
        candidates += [
            len(self._known) + number
            for number, operation in enumerate(self._unknown)
            if operation.called < end and not self._taken >> (len(self._known) + number) & 1
        ]
        for number in candidates:
            operation = self._operation(number)
            if after_unknown and operation.kind == "write":
                continue
            after = self._model.step(state, operation)
            if after is not NO:
                yield number, after

    def _window(self) -> tuple[float, list[int]]:
        """The earliest answer among open operations, and those called before it, soonest answered first."""
        end = float("inf")
        candidates = []
        for number in range(self._first_open, len(self._known)):
            operation = self._known[number]
            if operation.called >= end:
                break
            if not self._taken_known[number]:
                candidates.append(number)
                end = min(end, operation.answered)
        inside = [number for number in candidates if self._known[number].called < end or len(candidates) == 1]
        return end, sorted(inside, key=lambda number: self._known[number].answered)

    def _take(self, number: int) -> None:
        self._taken |= 1 << number
        if number < len(self._known):
            self._taken_known[number] = 1
            while self._first_open < len(self._known) and self._taken_known[self._first_open]:
                self._first_open += 1

    def _put_back(self, number: int) -> None:
        self._taken &= ~(1 << number)
        if number < len(self._known):
            self._taken_known[number] = 0
            self._first_open = min(self._first_open, number)

    def _operation(self, number: int) -> Operation:
        return self._known[number] if number < len(self._known) else self._unknown[number - len(self._known)]

    def _open_operations(self) -> list[Operation]:
        return [self._known[number] for number in self._window()[1]]


def _worth_trying(operations: Sequence[Operation]) -> list[Operation]:
    """Unknown operations that could explain an answer: a read has no effect, and a value that nobody met explains only
    a cas that failed."""
    unknown = [each for each in operations if not each.is_known and each.kind not in {"read", "members"}]
    if any(each.kind == "cas" and each.is_known and not each.result for each in operations):
        return unknown
    met: set[Hashable] = set()
    for each in operations:
        if each.kind == "read":
            met.add(each.result)
        elif each.kind == "members" and isinstance(each.result, frozenset):
            met |= each.result
        elif each.kind == "cas" and isinstance(each.argument, tuple):
            met.add(each.argument[0])
    return [each for each in unknown if _effect(each) in met]


def _effect(operation: Operation) -> Hashable:
    """The value that it leaves behind."""
    if operation.kind == "cas" and isinstance(operation.argument, tuple):
        new: Hashable = operation.argument[1]
        return new
    return operation.argument
