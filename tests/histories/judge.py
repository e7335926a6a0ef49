"""Judges a history: linearizable, or the object and the operations that no order explains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.histories.growing import contradiction
from tests.histories.history import Operation, by_object
from tests.histories.models import GrowingSet, Register
from tests.histories.search import find_order

SHOWN_MAX = 10
"""Operations of a story; more hide the one that matters."""


@dataclass(frozen=True, slots=True)
class Verdict:
    object: str = ""
    """The first object whose history has no order; empty when all have."""
    story: str = ""

    def __bool__(self) -> bool:
        return not self.object


def judge(operations: Iterable[Operation]) -> Verdict:
    for name, part in by_object(operations).items():
        story = _judge_set(part) if part[0].kind in {"add", "members"} else _judge_register(part)
        if story:
            return Verdict(name, story)
    return Verdict()


def _judge_register(operations: Sequence[Operation]) -> str:
    order, stuck = find_order(operations, Register())
    return _story(order, stuck) if stuck else ""


def _judge_set(operations: Sequence[Operation]) -> str:
    added = [each.argument for each in operations if each.kind == "add"]
    if len(set(added)) == len(added):
        return contradiction(operations)
    order, stuck = find_order(operations, GrowingSet())
    return _story(order, stuck) if stuck else ""


def _story(order: Sequence[Operation], stuck: Sequence[Operation]) -> str:
    lines = ["no order explains all answers; the longest one ends with"]
    lines += [f"  {each}" for each in order[-SHOWN_MAX:]] or ["  nothing"]
    lines += ["and then none of these can follow:"]
    lines += [f"  {each}" for each in stuck[:SHOWN_MAX]]
    return "\n".join(lines)
