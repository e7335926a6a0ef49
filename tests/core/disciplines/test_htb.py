"""The tree of classes: shares of a link as examples, slots given back, and what must always hold."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from quvatlh.core.disciplines.htb import Full, Lender, Tree
from quvatlh.core.disciplines.sfq import Fair
from quvatlh.core.model import HtbClass

SECONDS = 30


def starts(rate: int, parent: str | None = None, ceil: int | None = None, burst: int = 10) -> HtbClass:
    return HtbClass(parent, rate * 1000, None if ceil is None else ceil * 1000, burst, of="starts")


def slots(rate: int, parent: str | None = None, ceil: int | None = None, **more: Any) -> HtbClass:
    return HtbClass(parent, rate * 1000, None if ceil is None else ceil * 1000, **more)


LINK = {
    "link": starts(100),
    "a": starts(30, "link", 100),
    "b": starts(10, "link", 100),
    "c": starts(60, "link", 100),
}
NESTED = {
    "link": starts(100),
    "inner": starts(40, "link", 100),
    "a": starts(30, "inner", 100),
    "b": starts(10, "inner", 100),
    "c": starts(60, "link", 100),
}


OWN, ROOTS = Lender(0, "", "n2"), Lender(1, "root", "root")


class Market:
    """Chooses as the market does: the lowest level, the highest priority, the least tag among those who ask the same."""

    def __init__(self) -> None:
        self.tags: defaultdict[str, Fair] = defaultdict(Fair)

    def next(self, tree: Tree, able: Iterable[str], need: int = 1) -> str | None:
        found = []
        for name in able:
            lender = tree.lender(name, need)
            if lender is not None:
                tag = self.tags[lender.scope].start_tag(name)
                found.append((lender.level, -tree.classes[name].priority, tag, name))
        return min(found)[3] if found else None

    def take(self, tree: Tree, name: str, need: int = 1) -> None:
        lender = tree.lender(name, need)
        assert lender is not None
        self.tags[lender.scope].serve(name, 1, tree.weight(name))
        tree.take(name, need)


def shares(classes: dict[str, HtbClass], offered: dict[str, int]) -> dict[str, float]:
    """Starts a second of each leaf that offers so many, over half a minute after the first ten seconds."""
    market, buckets = Market(), None
    waiting = dict.fromkeys(offered, 0.0)
    begun = dict.fromkeys(offered, 0)
    for now_ms in range((SECONDS + 10) * 1000):
        for name, each in offered.items():
            waiting[name] = min(waiting[name] + each / 1000, 50.0)
        tree = Tree(classes, buckets=buckets, now_ms=now_ms)
        while (chosen := market.next(tree, [each for each, n in waiting.items() if n >= 1])) is not None:
            market.take(tree, chosen)
            waiting[chosen] -= 1
            begun[chosen] += now_ms >= 10_000
        buckets = tree._buckets
    return {name: n / SECONDS for name, n in begun.items()}


@pytest.mark.parametrize(
    ("classes", "idle", "expected"),
    [
        (LINK, "", {"a": 30, "b": 10, "c": 60}),
        (LINK, "a", {"a": 0, "b": 100 / 7, "c": 600 / 7}),
        (LINK, "c", {"a": 75, "b": 25, "c": 0}),
        (NESTED, "", {"a": 30, "b": 10, "c": 60}),
        (NESTED, "a", {"a": 0, "b": 40, "c": 60}),
        (NESTED, "bc", {"a": 90, "b": 0, "c": 0}),
    ],
)
def test_a_link_is_shared_as_assured_and_what_is_left_by_rates(
    classes: dict[str, HtbClass], idle: str, expected: dict[str, float]
) -> None:
    """A link of 100, each leaf offering 90."""
    got = shares(classes, {name: 0 if name in idle else 90 for name in "abc"})
    assert got == pytest.approx(expected, abs=0.5)


SLOTS = {
    "root": slots(10),
    "n0": slots(3, "root", 3),
    "n1": slots(2, "root", 5),
    "n2": slots(5, "root", 7),
}


def filled(classes: dict[str, HtbClass], able: list[str]) -> dict[str, int]:
    tree, market = Tree(classes), Market()
    while (name := market.next(tree, able)) is not None:
        market.take(tree, name)
    return {name: tree.used(name) for name in ("n0", "n1", "n2")}


@pytest.mark.parametrize(
    ("able", "expected"),
    [
        (["n0", "n1", "n2"], {"n0": 3, "n1": 2, "n2": 5}),
        (["n1", "n2"], {"n0": 0, "n1": 3, "n2": 7}),
        (["n0", "n2"], {"n0": 3, "n1": 0, "n2": 7}),
        (["n0", "n1"], {"n0": 3, "n1": 5, "n2": 0}),
        (["n0"], {"n0": 3, "n1": 0, "n2": 0}),
        (["n1"], {"n0": 0, "n1": 5, "n2": 0}),
        (["n2"], {"n0": 0, "n1": 0, "n2": 7}),
    ],
)
def test_slots_of_a_tree_are_shared_up_to_ceilings(able: list[str], expected: dict[str, int]) -> None:
    assert filled(SLOTS, able) == expected


def test_a_borrowed_slot_that_frees_goes_to_whom_it_is_assured() -> None:
    tree, market = Tree(SLOTS, {"n0": 3, "n2": 7}), Market()
    assert market.next(tree, ["n1", "n2"]) is None
    for held in (1, 2):
        tree.give_back("n2")
        assert market.next(tree, ["n0", "n1", "n2"]) == "n1"
        tree.take("n1")
        assert (tree.used("n1"), tree.used("root")) == (held, 10)
    tree.give_back("n0")
    assert market.next(tree, ["n0", "n1", "n2"]) == "n0"


def test_of_what_is_lent_the_higher_priority_has_first() -> None:
    classes = SLOTS | {"n1": slots(2, "root", 5, priority=1)}
    assert filled(classes, ["n1", "n2"]) == {"n0": 0, "n1": 5, "n2": 5}


def test_a_task_of_many_slots_fits_or_waits() -> None:
    tree = Tree(SLOTS, {"n2": 5})
    assert [tree.lender("n2", need) for need in (0, 1, 2, 3)] == [OWN, ROOTS, ROOTS, None]
    assert (tree.full_at("n2", 3), tree.full_at("n1", 1)) == (Full("n2", ("ceil",), None), None)
    assert Tree(SLOTS, {"n0": 3, "n2": 7}).full_at("n1") == Full("root", ("rate",), None)


def test_what_a_class_may_never_hold_is_told() -> None:
    assert Tree(SLOTS).full_at("n2", 8) == Full("n2", ("ceil",), 7)
    assert Tree({"lone": HtbClass(rate_milli=3000)}).full_at("lone", 5) == Full("lone", ("rate",), 3)
    assert Tree({"lone": HtbClass(rate_milli=3000, ceil_milli=3000)}).full_at("lone", 5) == Full(
        "lone", ("rate", "ceil"), 3
    )


def test_no_class_passes_its_ceiling_and_none_waits_below_its_rate_while_there_is_room() -> None:
    """Over random trees and histories of slots."""
    for seed in range(600):
        chance = random.Random(seed)
        classes, leaves = _tree(chance)
        tree, market = Tree(classes), Market()
        held: list[tuple[str, int]] = []
        for _ in range(60):
            if held and chance.random() < 0.4:
                name, need = held.pop(chance.randrange(len(held)))
                tree.give_back(name, need)
            able = chance.sample(leaves, chance.randint(1, len(leaves)))
            need = chance.choice([1, 1, 1, 2])
            chosen = market.next(tree, able, need)
            if chosen is not None:
                name = chosen
                lenders = [lender for each in able if (lender := tree.lender(each, need)) is not None]
                assert tree.lender(name, need) in lenders
                market.take(tree, name, need)
                held.append((name, need))
            for each, settings in classes.items():
                below = sum(need for name, need in held if each in tree.path(name))
                assert tree.used(each) == below, seed
                ceil = settings.ceil_milli if settings.ceil_milli is not None else 10**9
                assert below * 1000 <= (ceil if settings.parent else settings.rate_milli), seed
            for each in able:
                mine = (tree.used(each) + 1) * 1000 <= classes[each].rate_milli
                room = all(tree.full_at(up) is None for up in tree.path(each))
                own = tree.lender(each)
                assert (own is not None and own.name == each) or not (mine and room), seed


def _tree(chance: random.Random) -> tuple[dict[str, HtbClass], list[str]]:
    classes = {"root": slots(chance.randint(4, 12))}
    left = classes["root"].rate_milli
    leaves = []
    for n in range(chance.randint(1, 3)):
        rate = chance.randint(0, left // 1000)
        left -= rate * 1000
        inner = f"i{n}"
        classes[inner] = slots(rate, "root", chance.choice([None, rate + chance.randint(0, 5)]))
        for m in range(chance.randint(0, 2)):
            leaf = f"l{n}{m}"
            classes[leaf] = slots(rate // 2, inner, chance.choice([None, rate // 2 + chance.randint(0, 4)]))
            leaves.append(leaf)
        if not any(leaf.startswith(f"l{n}") for leaf in leaves):
            leaves.append(inner)
    return classes, leaves
