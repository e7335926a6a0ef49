"""Is there an order, for a set that only grows and whose reads see all of it? Told without a search.

Reads of such a set form a chain: each is contained in the next larger. That places every operation on a level: an add
on the level of the first read that saw its value, a read above the adds that it saw and below all others. Levels follow
each other in any order that explains the answers, so there is one exactly if no operation was answered before the call
of one on a lower level. Values are added once each; histories in which one is not go through the search.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tests.histories.history import Operation


def contradiction(operations: Sequence[Operation]) -> str:
    """In words; empty when the history is linearizable."""
    reads = sorted((each for each in operations if each.kind == "members" and each.is_known), key=_size)
    adds = {each.argument: each for each in operations if each.kind == "add"}
    levels: dict[Hashable, int] = {}
    """Value to the number of the read, by size, that saw it first."""
    leveled: list[tuple[int, Operation]] = []
    seen: frozenset[Hashable] = frozenset()
    level = 0
    for read in reads:
        members = _members(read)
        if not seen <= members:
            return f"{read} misses {_some(seen - members)}, which a smaller read has seen"
        if not members <= adds.keys():
            return f"{read} holds {_some(members - adds.keys())}, which nobody added"
        if members != seen:
            level += 2
            levels |= dict.fromkeys(members - seen, level - 1)
        leveled.append((level, read))
        seen = members
    never_seen = level + 1
    leveled += [(levels.get(value, never_seen), add) for value, add in adds.items() if add.is_known or value in levels]
    return _out_of_order(leveled)


def _out_of_order(leveled: list[tuple[int, Operation]]) -> str:
    """An operation that was answered before one of a lower level was called."""
    latest: Operation | None = None
    below: Operation | None = None
    current = -1
    for level, operation in sorted(leveled, key=lambda pair: pair[0]):
        if level != current:
            below, current = latest, level
        if below is not None and operation.answered < below.called:
            return f"{below} must come before {operation}, and was called after its answer"
        if latest is None or operation.called > latest.called:
            latest = operation
    return ""


def _members(read: Operation) -> frozenset[Hashable]:
    assert isinstance(read.result, frozenset)
    return read.result


def _size(read: Operation) -> int:
    return len(_members(read))


def _some(values: frozenset[Hashable]) -> str:
    shown = sorted(map(repr, values))
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
