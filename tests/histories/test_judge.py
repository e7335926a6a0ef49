from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.growing import contradiction
from tests.histories.history import NEVER, History, Kind, Operation, by_object
from tests.histories.judge import judge
from tests.histories.make import Clients
from tests.histories.models import NO, GrowingSet, Model, Register
from tests.histories.search import find_order


def op(
    kind: Kind, value: Hashable, called: float, answered: float = NEVER, *, result: Hashable = None, name: str = "x"
) -> Operation:
    """`value` is what was written, added or seen."""
    if kind in {"read", "members"}:
        seen = frozenset(value) if isinstance(value, str) else value
        return Operation(name, kind, None, seen if kind == "members" else value, called, answered)
    return Operation(name, kind, value, result, called, answered)


GOOD: dict[str, list[Operation]] = {
    "nothing": [],
    "a read of what was never written": [op("read", None, 0, 1)],
    "one after the other": [op("write", 1, 0, 1), op("read", 1, 2, 3), op("write", 2, 4, 5), op("read", 2, 6, 7)],
    "a read beside a write sees the old": [op("write", 1, 0, 1), op("write", 2, 2, 9), op("read", 1, 3, 4)],
    "a read beside a write sees the new": [op("write", 1, 0, 1), op("write", 2, 2, 9), op("read", 2, 3, 4)],
    "old then new beside a write": [
        op("write", 1, 0, 1),
        op("write", 2, 2, 9),
        op("read", 1, 3, 4),
        op("read", 2, 5, 6),
    ],
    "two writes at once, either last": [op("write", 1, 0, 5), op("write", 2, 1, 4), op("read", 1, 6, 7)],
    "unknown, and done much later": [
        op("write", 1, 0, 1),
        op("write", 2, 2),
        op("read", 1, 50, 51),
        op("read", 2, 90, 91),
    ],
    "unknown, and never done": [op("write", 1, 0, 1), op("write", 2, 2), op("read", 1, 50, 51)],
    "unknown, done, and overwritten": [
        op("write", 1, 0, 1),
        op("write", 2, 2),
        op("read", 2, 3, 4),
        op("write", 3, 5, 6),
        op("read", 3, 7, 8),
    ],
    "unknown and unseen, but a cas failed by it": [
        op("write", 1, 0, 1),
        op("write", 2, 2),
        op("cas", (1, 3), 4, 5, result=False),
    ],
    "one of two cas": [
        op("write", 1, 0, 1),
        op("cas", (1, 2), 2, 5, result=False),
        op("cas", (1, 3), 2, 5, result=True),
    ],
    "an unknown cas that took effect": [op("write", 1, 0, 1), op("cas", (1, 2), 2), op("read", 2, 3, 4)],
    "answers at the instant of the next call": [op("write", 1, 0, 1), op("write", 2, 1, 2), op("read", 2, 2, 3)],
    "a set that grows": [
        op("add", "a", 0, 1),
        op("members", "a", 2, 3),
        op("add", "b", 4, 5),
        op("members", "ab", 6, 7),
    ],
    "adds at once, seen one by one": [
        op("add", "a", 0, 9),
        op("add", "b", 0, 9),
        op("members", "b", 1, 2),
        op("members", "ab", 3, 4),
    ],
    "an unknown add that came late": [op("add", "a", 0), op("members", "", 5, 6), op("members", "a", 7, 8)],
    "an empty set": [op("members", "", 0, 1)],
    "the same value added twice": [op("add", "a", 0, 1), op("members", "a", 2, 3), op("add", "a", 4, 5)],
}

BAD: dict[str, list[Operation]] = {
    "a stale read": [op("write", 1, 0, 1), op("write", 2, 2, 3), op("read", 1, 4, 5)],
    "a lost write": [op("write", 1, 0, 1), op("read", None, 2, 3)],
    "a value from nowhere": [op("write", 1, 0, 1), op("read", 7, 2, 3)],
    "a read before its write": [op("read", 1, 0, 1), op("write", 1, 2, 3)],
    "new then old beside a write": [
        op("write", 1, 0, 1), op("write", 2, 2, 9), op("read", 2, 3, 4), op("read", 1, 5, 6),
    ],
    "an unknown write that is undone": [
        op("write", 1, 0, 1), op("write", 2, 2), op("read", 2, 3, 4), op("read", 1, 5, 6),
    ],
    "an unknown write before its call": [op("read", 2, 0, 1), op("write", 2, 2)],
    "both of two cas": [
        op("write", 1, 0, 1), op("cas", (1, 2), 2, 5, result=True), op("cas", (1, 3), 2, 5, result=True),
    ],
    "a cas that failed for no reason": [op("write", 1, 0, 1), op("cas", (1, 2), 2, 3, result=False)],
    "two orders at once": [
        op("write", 1, 0, 9), op("write", 2, 0, 9),
        op("read", 1, 10, 11), op("read", 2, 12, 13),
    ],
    "a lost add": [op("add", "a", 0, 1), op("members", "", 2, 3)],
    "an add from nowhere": [op("members", "a", 0, 1)],
    "an add seen before its call": [op("members", "a", 0, 1), op("add", "a", 2, 3)],
    "a set that shrinks": [
        op("add", "a", 0, 1), op("add", "b", 2), op("members", "ab", 3, 4), op("members", "a", 5, 6),
    ],
    "reads that disagree": [
        op("add", "a", 0, 9), op("add", "b", 0, 9), op("members", "a", 1, 8), op("members", "b", 1, 8),
    ],
    "a lost add of a value added twice": [op("add", "a", 0, 1), op("add", "a", 2, 3), op("members", "", 4, 5)],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_histories_pass(name: str) -> None:
    assert judge(GOOD[name]).story == ""


@pytest.mark.parametrize("name", BAD)
def test_bad_histories_fail_with_their_object(name: str) -> None:
    verdict = judge([*BAD[name], op("write", 1, 0, 1, name="another")])
    assert not verdict
    assert verdict.object == "x"
    assert "x." in verdict.story


def test_a_history_is_recorded_as_it_was_seen() -> None:
    history = History()
    first = history.call("x", "write", 1, at=0)
    second = history.call("x", "write", 2, at=1)
    third = history.call("x", "read", at=2)
    history.call("x", "write", 4, at=3)
    first.answered(result=True, at=4)
    second.not_done()
    third.answered(result=1, at=5)
    assert history.close() == [
        Operation("x", "write", 1, result=True, called=0, answered=4),
        Operation("x", "read", None, 1, 2, 5),
        Operation("x", "write", 4, None, 3, NEVER),
    ]


# Against the definition: every order of a small history, tried one by one.


def has_order(operations: list[Operation], model: Model) -> bool:
    known = [each for each in operations if each.is_known]
    unknown = [each for each in operations if not each.is_known]
    return any(
        fits(order, model)
        for count in range(len(unknown) + 1)
        for done in itertools.combinations(unknown, count)
        for order in itertools.permutations([*known, *done])
    )


def fits(order: tuple[Operation, ...], model: Model) -> bool:
    state: Hashable | object = model.start()
    for position, operation in enumerate(order):
        if any(later.answered < operation.called for later in order[position + 1 :]):
            return False
        state = model.step(state, operation)
        if state is NO:
            return False
    return True


INSTANT = st.integers(0, 12)
VALUE = st.integers(1, 3)


@st.composite
def operations(draw: st.DrawFn, kinds: tuple[Kind, ...]) -> Operation:
    kind = draw(st.sampled_from(kinds))
    called = draw(INSTANT)
    answered = draw(st.one_of(st.integers(1, 6).map(lambda length: called + length), st.just(NEVER)))
    match kind:
        case "write" | "add":
            return Operation("x", kind, draw(VALUE), True, called, answered)
        case "cas":
            return Operation("x", kind, (draw(st.none() | VALUE), draw(VALUE)), draw(st.booleans()), called, answered)
        case "read":
            return Operation("x", kind, None, draw(st.none() | VALUE), called, answered)
        case "members":
            return Operation("x", kind, None, draw(st.frozensets(VALUE)), called, answered)


@given(st.lists(operations(("write", "cas", "read")), max_size=6))
def test_registers_are_judged_by_the_definition(history: list[Operation]) -> None:
    assert bool(judge(history)) == has_order(history, Register())


@given(st.lists(operations(("add", "members")), max_size=6))
def test_sets_are_judged_by_the_definition(history: list[Operation]) -> None:
    assert bool(judge(history)) == has_order(history, GrowingSet())


@given(
    st.lists(
        operations(("add", "members")), max_size=12, unique_by=lambda each: (each.kind, each.argument, each.called)
    )
)
def test_the_chain_of_reads_and_the_search_agree(history: list[Operation]) -> None:
    once = list(
        {(each.kind, each.called if each.argument is None else each.argument): each for each in history}.values()
    )
    assert bool(contradiction(once)) == bool(find_order(once, GrowingSet())[1])


# Large ones: linearizable by construction, and corrupted.


@given(seed=st.integers(), count=st.integers(1, 8), unknown=st.sampled_from([0.0, 0.1, 0.5]))
def test_what_objects_really_did_passes(seed: int, count: int, unknown: float) -> None:
    assert judge(Clients(random.Random(seed), count, unknown).run(200)).story == ""


def truth(seed: int, length: int = 200, count: int = 5) -> list[Operation]:
    return Clients(random.Random(seed), count).run(length)


@given(seed=st.integers())
def test_a_stale_read_is_found(seed: int) -> None:
    """A read answers what had been overwritten by an answered write before its call."""
    history = truth(seed)
    writes = [each for each in by_object(history).get("register", []) if each.kind == "write" and each.is_known]
    for read in [each for each in history if each.kind == "read"]:
        before = sorted((each for each in writes if each.answered < read.called), key=lambda each: each.answered)
        pairs = [(old, new) for old, new in itertools.pairwise(before) if old.answered < new.called]
        if pairs:
            stale = dataclasses.replace(read, result=pairs[0][0].argument)
            assert not judge([stale if each is read else each for each in history])
            return


@given(seed=st.integers())
def test_a_lost_add_is_found(seed: int) -> None:
    history = truth(seed)
    for add in [each for each in history if each.kind == "add" and each.is_known]:
        if any(each.kind == "members" and each.called > add.answered for each in history):
            lost = [
                dataclasses.replace(each, result=frozenset(each.result) - {add.argument})
                if each.kind == "members" and isinstance(each.result, frozenset)
                else each
                for each in history
            ]
            assert judge(lost).object == "set"
            return


@given(seed=st.integers())
def test_a_lost_write_is_found(seed: int) -> None:
    """One client at a time: a read right after a write answers what was there before it."""
    history = Clients(random.Random(seed), 1, 0.0, kinds=("write", "read")).run(50)
    for before, write, read in zip(history, history[1:], history[2:], strict=False):
        if (before.kind, write.kind, read.kind) == ("read", "write", "read"):
            lost = dataclasses.replace(read, result=before.result)
            assert judge([lost if each is read else each for each in history]).object == "register"
            return


@pytest.mark.long
@pytest.mark.parametrize("corrupt", [False, True])
def test_thousands_of_operations_are_judged_in_seconds(corrupt: bool) -> None:
    """Ten clients, one outcome in twenty unknown. The bound is wide: it tells minutes from seconds, no more."""
    history = truth(7, 6000, 10)
    if corrupt:
        last = max((each for each in history if each.kind == "read"), key=lambda each: each.called)
        first = next(each for each in history if each.kind == "write" and each.is_known)
        history = [dataclasses.replace(each, result=first.argument) if each is last else each for each in history]
    started = time.process_time()
    assert bool(judge(history)) != corrupt
    assert time.process_time() - started < 30
