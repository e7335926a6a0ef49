"""Is there an order? The search of Wing and Gong with Lowe's memory, for one object of any model.

Operations are taken one after the other: next may come any that was called before the earliest answer still open. What
was tried is remembered as (operations taken, state), and neither that nor anything that leaves less is tried again. What
keeps it quick:

- an operation that fits now and never changes anything (a read, a cas that failed, an add of what is in) is taken now,
  without asking what else could be: that spoils no order. A write of the value that is there already is not one of
  them: later it may overwrite another;
- unknown operations, which are open to the end, come last, so that one is taken only where nothing else explains what
  was seen, and never right before it is overwritten, since then it may as well never have happened;
- values that no answer met are all the same, and of unknown operations that do the same only the first is tried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from tests.histories.history import NEVER, Operation
from tests.histories.models import NO, Model

UNMET = ("a value that no answer met",)


def find_order(operations: Sequence[Operation], model: Model) -> tuple[list[Operation], list[Operation]]:
    """The longest order found, and the operations around which it got stuck; none of these when all fits."""
    return _Search(operations, model).run()


class _Search:
    def __init__(self, operations: Sequence[Operation], model: Model) -> None:
        self._model = model
        ordered = sorted(operations, key=lambda each: each.called)
        self._told = [each for each in ordered if each.is_known]
        """The known operations as they were; the rest of the search sees unmet values as one."""
        reduced = _reduced(ordered)
        self._known = [each for each in reduced if each.is_known]
        self._unknown = [each for each in reduced if not each.is_known and each.kind not in {"read", "members"}]
        self._all_known = (1 << len(self._known)) - 1
        self._first_open = 0
        """Index of the first known operation not taken; all before it are."""
        self._taken = 0
        """A bit an operation, the unknown ones above the known."""
        self._tried: dict[tuple[int, Hashable, bool], list[int]] = {}
        """For (known operations taken, state, directly after an unknown one) the sets of unknown ones taken."""

    def run(self) -> tuple[list[Operation], list[Operation]]:
        """Depth first, without recursion: histories are longer than the stack."""
        state = self._model.start()
        path: list[tuple[int, Hashable]] = []
        choices = [self._choices(state, after_unknown=False)]
        longest: list[int] = []
        stuck: list[Operation] = []
        while self._first_open < len(self._known):
            step = next(choices[-1], None)
            if step is None:
                if len(path) >= len(longest):
                    longest, stuck = [number for number, _ in path], self._open_operations()
                choices.pop()
                if not path:
                    return self._shown(longest), stuck
                number, state = path.pop()
                self._put_back(number)
                continue
            number, after = step
            self._take(number)
            is_unknown = number >= len(self._known)
            if self._was_tried(after, after_unknown=is_unknown):
                self._put_back(number)
                continue
            path.append((number, state))
            state = after
            choices.append(self._choices(state, after_unknown=is_unknown))
        return self._shown([number for number, _ in path]), []

    def _choices(self, state: Hashable, *, after_unknown: bool) -> Iterator[tuple[int, Hashable]]:
        """What may come next, with the state after it."""
        end, candidates = self._window()
        changing = []
        for number in candidates:
            after = self._model.step(state, self._known[number])
            if after == state and self._known[number].kind != "write":
                yield number, state
                return
            if after is not NO and not (after_unknown and self._known[number].kind == "write"):
                changing.append((number, after))
        yield from changing
        tried: set[tuple[str, Hashable]] = set()
        for number, operation in enumerate(self._unknown, len(self._known)):
            if operation.called > end:
                return
            same = (operation.kind, operation.argument)
            if self._taken >> number & 1 or same in tried or (after_unknown and operation.kind == "write"):
                continue
            tried.add(same)
            after = self._model.step(state, operation)
            if after is not NO and after != state:
                yield number, after

    def _was_tried(self, state: Hashable, *, after_unknown: bool) -> bool:
        """Whether this position was reached before, or a better one: with fewer unknown operations used up, or free to
        overwrite. Remembered if not."""
        known, unknown = self._taken & self._all_known, self._taken >> len(self._known)
        for freer in {False, after_unknown}:
            if any(used & unknown == used for used in self._tried.get((known, state, freer), ())):
                return True
        self._tried.setdefault((known, state, after_unknown), []).append(unknown)
        return False

    def _window(self) -> tuple[float, list[int]]:
        """The earliest answer among open operations, and those called by then, soonest answered first."""
        end = NEVER
        candidates = []
        for number in range(self._first_open, len(self._known)):
            operation = self._known[number]
            if operation.called > end:
                break
            if not self._taken >> number & 1:
                candidates.append(number)
                end = min(end, operation.answered)
        inside = [number for number in candidates if self._known[number].called <= end]
        return end, sorted(inside, key=lambda number: self._known[number].answered)

    def _take(self, number: int) -> None:
        self._taken |= 1 << number
        while self._first_open < len(self._known) and self._taken >> self._first_open & 1:
            self._first_open += 1

    def _put_back(self, number: int) -> None:
        self._taken &= ~(1 << number)
        self._first_open = min(self._first_open, number)

    def _shown(self, numbers: list[int]) -> list[Operation]:
        return [self._told[n] if n < len(self._told) else self._unknown[n - len(self._told)] for n in numbers]

    def _open_operations(self) -> list[Operation]:
        return [self._told[number] for number in self._window()[1]]


def _reduced(operations: Sequence[Operation]) -> list[Operation]:
    """The same history with UNMET for every value that no answer met and no cas asked for."""
    met: set[Hashable] = set()
    for each in operations:
        if each.kind == "members" and isinstance(each.result, frozenset):
            met |= each.result
        elif each.kind == "cas" and isinstance(each.argument, tuple):
            met.add(each.argument[0])
        else:
            met.add(each.result if each.kind == "read" else UNMET)

    def reduced(each: Operation) -> Operation:
        if each.kind in {"write", "add"}:
            return each if each.argument in met else replace(each, argument=UNMET)
        if each.kind == "cas" and isinstance(each.argument, tuple):
            old, new = each.argument
            return each if new in met else replace(each, argument=(old, UNMET))
        return each

    return [reduced(each) for each in operations]
