"""A tree of classes above the queues: what each is assured, what it may have at most, and who borrows what is left.

A class may start something while neither it nor any class above it passes its ceiling, and while it or one above it is
below its rate: that one lends. Level 0 is a leaf's own assured rate, level n what a class lends that has n generations
below it; lower levels go first, then the higher priority, then who has had least of this lender by its rate (sfq.py, with the lender as the
scope of tags). So what is assured comes before what is borrowed, what is left is shared in proportion to rates, and a
borrowed slot that frees goes to whom it is assured.

Of `slots`, rates are slots held at once, and what counts is the live actions. Of `starts`, rates are starts a second, by
two buckets a class: one of its rate, from which the lender and those above it pay, and one of its ceiling, from which all
pay. A tree is of one kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from quvatlh.core.model import HtbClass

START: Final = 1_000_000
"""Units of a start: a rate of r thousandths of starts a second brings r units a millisecond."""
MILLI: Final = 1000


ASSURED: Final = ""
"""The scope of tags of starts that need no loan."""


class Lender(NamedTuple):
    level: int
    scope: str
    """In which those that may have the same compete by tags: the lending class, or ASSURED."""
    name: str


class Full(NamedTuple):
    """What holds up a start."""

    name: str
    """The class."""
    settings: tuple[str, ...]
    """Of it: what would have to be more, of rate and ceil."""
    most: int | None
    """Slots that may ever be held there, where the start takes more."""


@dataclass(slots=True)
class Bucket:
    """Of a class of starts: units as of a time."""

    rate_units: int
    ceil_units: int
    at_ms: int

    def filled(self, settings: HtbClass, now_ms: int) -> Bucket:
        """As they are now. A clock that went back brings nothing."""
        passed = max(0, now_ms - self.at_ms)
        most = capacity(settings)
        return Bucket(
            min(most, self.rate_units + passed * settings.rate_milli),
            min(most, self.ceil_units + passed * ceil_milli(settings)),
            max(self.at_ms, now_ms),
        )


def capacity(settings: HtbClass) -> int:
    return max(1, settings.burst) * START


def full(settings: HtbClass, now_ms: int) -> Bucket:
    """Of a new class."""
    return Bucket(capacity(settings), capacity(settings), now_ms)


def ceil_milli(settings: HtbClass) -> int:
    """A class without a ceiling has its parent's, by way of the parent's own; one without a parent ends at its rate."""
    if settings.ceil_milli is not None:
        return settings.ceil_milli
    return settings.rate_milli if settings.parent is None else _UNBOUND


_UNBOUND: Final = START * MILLI
"""Thousandths of starts a second: a million each second, beyond what a cluster can start."""


class Tree:
    """The classes, and what they have now. `used` counts the slots of a class's own queues; classes above add up."""

    def __init__(
        self,
        classes: Mapping[str, HtbClass],
        used: Mapping[str, int] | None = None,
        buckets: Mapping[str, Bucket] | None = None,
        now_ms: int = 0,
    ) -> None:
        self.classes = classes
        self.now_ms = now_ms
        self._used: dict[str, int] = {}
        self._buckets: dict[str, Bucket] = {}
        self.changed: dict[str, Bucket] = {}
        """Buckets that were paid from."""
        self._height: dict[str, int] = {}
        for name in classes:
            for height, each in enumerate(self.path(name)):
                self._height[each] = max(height, self._height.get(each, 0))
        for name, slots in (used or {}).items():
            for each in self.path(name):
                self._used[each] = self._used.get(each, 0) + slots
        for name, settings in classes.items():
            if settings.of == "starts":
                known = (buckets or {}).get(name)
                self._buckets[name] = full(settings, now_ms) if known is None else known.filled(settings, now_ms)

    def path(self, name: str) -> Iterator[str]:
        """From a class up to its root."""
        at: str | None = name
        while at is not None and at in self.classes:
            yield at
            at = self.classes[at].parent

    def used(self, name: str) -> int:
        """Slots of a class and of all below it."""
        return self._used.get(name, 0)

    def lender(self, name: str, slots: int = 1) -> Lender | None:
        """Who lends for a start that takes so many slots: the class itself or one above it; None: not now."""
        found: Lender | None = None
        for each in self.path(name):
            if not self._below(each, slots, of_ceil=True):
                return None
            if found is None and self._below(each, slots, of_ceil=False):
                level = self._height.get(each, 0)
                found = Lender(level, each if level else ASSURED, each)
        return found

    def full_at(self, name: str, slots: int = 1) -> Full | None:
        """The class that holds up a start: whose ceiling is reached, or else the root, below which nobody lends."""
        if self.lender(name, slots) is not None:
            return None
        path = list(self.path(name))
        at = next((each for each in path if not self._below(each, slots, of_ceil=True)), path[-1])
        settings = self.classes[at]
        its = ("rate",) if settings.parent is None else ()
        return Full(at, its if settings.ceil_milli is None else (*its, "ceil"), self._most(name, slots))

    def _most(self, name: str, slots: int) -> int | None:
        """Slots that it may ever hold, where those are too few."""
        path = [self.classes[each] for each in self.path(name)]
        if path[0].of == "starts":
            return None
        most = min(*map(ceil_milli, path), max(each.rate_milli for each in path)) // MILLI
        return most if most < slots else None

    def _below(self, name: str, slots: int, *, of_ceil: bool) -> bool:
        settings = self.classes[name]
        if settings.of == "starts":
            bucket = self._buckets[name]
            return (bucket.ceil_units if of_ceil else bucket.rate_units) >= START
        most = ceil_milli(settings) if of_ceil else settings.rate_milli
        return (self.used(name) + slots) * MILLI <= most or slots == 0

    def take(self, name: str, slots: int = 1) -> None:
        """It has started."""
        lender = self.lender(name, slots)
        pays = lender is None
        for each in self.path(name):
            pays = pays or (lender is not None and each == lender.name)
            self._used[each] = self.used(each) + slots
            bucket = self._buckets.get(each)
            if bucket is not None:
                bucket.ceil_units -= START
                bucket.rate_units -= START if pays else 0
                self.changed[each] = bucket

    def give_back(self, name: str, slots: int = 1, *, started: bool = False) -> None:
        """It has ended; or, `started`, it never began, and the start is given back, too: to the assured rates."""
        for each in self.path(name):
            self._used[each] = self.used(each) - slots
            bucket = self._buckets.get(each)
            if started and bucket is not None:
                most = capacity(self.classes[each])
                bucket.ceil_units = min(most, bucket.ceil_units + START)
                bucket.rate_units = min(most, bucket.rate_units + START)
                self.changed[each] = bucket

    def free_at(self, name: str) -> int:
        """When the next start could be, of classes of starts, if nobody else starts anything: now or later."""
        path = list(self.path(name))
        at = max((self._free_at(each, of_ceil=True) for each in path), default=self.now_ms)
        lent = min((self._free_at(each, of_ceil=False) for each in path), default=self.now_ms)
        return max(at, lent)

    def _free_at(self, name: str, *, of_ceil: bool) -> int:
        settings, bucket = self.classes[name], self._buckets.get(name)
        if bucket is None:
            return self.now_ms
        missing = START - (bucket.ceil_units if of_ceil else bucket.rate_units)
        rate = ceil_milli(settings) if of_ceil else settings.rate_milli
        if missing <= 0:
            return self.now_ms
        return self.now_ms + (-(-missing // rate) if rate else _NEVER_MS)

    def weight(self, name: str) -> int:
        """Of a class among all: its rate."""
        return max(1, self.classes[name].rate_milli)


_NEVER_MS: Final = 86_400_000
