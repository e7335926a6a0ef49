"""Start-time fair queueing against its definition, and its bound over random histories."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quvatlh.core.disciplines.sfq import PARTS, Fair, span
from tests.examples import examples

FLOWS = "abcd"


@dataclass
class Flow:
    weight: int
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    """(arrival, cost)"""
    held: bool = False


class Eager:
    """The definition as it is told: a tag is given when a task becomes the first of its flow that may run."""

    def __init__(self, weights: dict[str, int]) -> None:
        self.weights = weights
        self.virtual = 0
        self.finish = dict.fromkeys(weights, 0)
        self.tags: dict[str, int] = {}

    def may_run(self, flow: str, *, may: bool) -> None:
        if not may:
            self.tags.pop(flow, None)
        elif flow not in self.tags:
            self.tags[flow] = max(self.virtual, self.finish[flow])

    def serve(self, flow: str, cost: int) -> None:
        tag = self.tags.pop(flow)
        self.virtual = tag
        self.finish[flow] = tag + span(cost, self.weights[flow])


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "serve", "serve", "hold", "free"]), st.sampled_from(FLOWS), st.integers(1, 9)
    ),
    max_size=120,
)
weights = st.fixed_dictionaries(dict.fromkeys(FLOWS, st.integers(1, 12)))


@settings(max_examples=examples(400))
@given(weights, steps)
def test_tags_looked_at_late_are_those_given_when_a_task_becomes_first(weighed: dict[str, int], history: list) -> None:  # type: ignore[type-arg]
    flows = {name: Flow(weight) for name, weight in weighed.items()}
    fair, eager = Fair(), Eager(weighed)
    for number, (what, name, cost) in enumerate(history):
        flow = flows[name]
        if what == "add":
            flow.waiting.append((number, cost))
        elif what != "serve":
            flow.held = what == "hold"
        for each, known in flows.items():
            eager.may_run(each, may=bool(known.waiting) and not known.held)
        able = [each for each, known in flows.items() if known.waiting and not known.held]
        if what == "serve" and able:
            by_definition = min((eager.tags[each], flows[each].waiting[0][0], each) for each in able)
            assert min((fair.start_tag(each), flows[each].waiting[0][0], each) for each in able) == by_definition
            chosen = by_definition[2]
            price = flows[chosen].waiting.popleft()[1]
            eager.serve(chosen, price)
            assert fair.serve(chosen, price, weighed[chosen]) == by_definition[0]


def served(
    chance: random.Random, weighed: dict[str, int], servers: int
) -> tuple[list[dict[str, Fraction]], dict[str, int]]:
    """A history with all flows always waiting: what each has been given, after each start; and the greatest costs."""
    most = {name: chance.randint(1, 20) for name in weighed}
    fair = Fair()
    busy: list[tuple[float, str, int]] = []
    done = dict.fromkeys(weighed, Fraction(0))
    history, now = [], 0.0
    for _ in range(chance.randint(20, 150)):
        if len(busy) == servers:
            now, name, cost = heapq.heappop(busy)
            done[name] += Fraction(cost, weighed[name])
            history.append(dict(done))
        name = min(weighed, key=lambda each: (fair.start_tag(each), each))
        cost = chance.randint(1, most[name])
        fair.serve(name, cost, weighed[name])
        heapq.heappush(busy, (now + cost * chance.uniform(0.5, 2) if servers > 1 else now + cost, name, cost))
    return history, most


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_the_service_of_two_flows_differs_by_no_more_than_the_bound(servers: int) -> None:
    """|W_f/w_f - W_m/w_m| <= (D + 1)(c_f/w_f + c_m/w_m), where one slot has once that."""
    factor = 1 if servers == 1 else servers + 1
    for seed in range(700):
        chance = random.Random(seed)
        weighed = {name: chance.randint(1, 16) for name in FLOWS[: chance.randint(2, 4)]}
        history, most = served(chance, weighed, servers)
        names = sorted(weighed)
        starts = [dict.fromkeys(names, Fraction(0)), *history]
        for _ in range(20):
            first, last = sorted(chance.choices(range(len(starts)), k=2))
            got = {name: starts[last][name] - starts[first][name] for name in names}
            for one in names:
                for other in names:
                    bound = Fraction(most[one], weighed[one]) + Fraction(most[other], weighed[other])
                    assert abs(got[one] - got[other]) <= factor * bound, (seed, one, other)


def test_shares_are_as_the_weights() -> None:
    fair, weighed = Fair(), {"a": 1, "b": 2, "c": 3}
    starts = dict.fromkeys(weighed, 0)
    for _ in range(6000):
        name = min(weighed, key=lambda each: (fair.start_tag(each), each))
        fair.serve(name, 1, weighed[name])
        starts[name] += 1
    assert starts == {"a": 1000, "b": 2000, "c": 3000}


def test_an_idle_flow_saves_up_nothing_and_a_late_one_is_owed_nothing() -> None:
    fair = Fair()
    for _ in range(1000):
        fair.serve("busy", 1, 1)
    order = []
    for _ in range(6):
        name = min(("busy", "late"), key=lambda each: (fair.start_tag(each), each))
        fair.serve(name, 1, 1)
        order.append(name)
    assert order == ["late", "busy", "late", "busy", "late", "busy"]


def test_what_says_nothing_any_more_is_forgotten() -> None:
    fair = Fair()
    for n in range(100):
        fair.serve(f"once-{n}", 1, 1)
    fair.serve("other", 1, 1)
    fair.serve("other", 1, 1)
    fair.serve("other", 1, 1)
    before = {name: fair.start_tag(name) for name in ("once-1", "other", "never")}
    fair.forget()
    assert set(fair.finish) == {"other"}
    assert {name: fair.start_tag(name) for name in before} == before


@given(st.integers(1, 1_000_000), st.integers(1, 1_000_000))
def test_a_span_is_cost_by_weight_to_half_a_part(cost: int, weight: int) -> None:
    assert abs(span(cost, weight) - Fraction(cost * PARTS, weight)) <= (
        1 if span(cost, weight) == 1 else Fraction(1, 2)
    )
