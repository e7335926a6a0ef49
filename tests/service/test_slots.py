"""What becomes of slots that come late: decided without a loop, a log or a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.core.limits import CATCH_UP_MAX, LEDGER_ROWS_MAX
from quvatlh.core.model import CatchUp
from quvatlh.service.calendar import Cron, Every, Rule, cron_rule
from quvatlh.service.slots import MISSED, TOO_MANY, Gap, Plan, Plans, Run, Skip

MINUTE = 60_000
NOW = 1_700_000_000_000 // MINUTE * MINUTE


class Minutely:
    """Every minute, the long way round."""

    def after(self, ms: int) -> int | None:
        return (ms // MINUTE + 1) * MINUTE

    def words(self) -> str:
        return ""


def closed(rule: Rule, catchup: CatchUp, first: int, now: int) -> tuple[list[Run | Skip], int | None]:
    """All steps of a gap, and the slot at which its plan goes on."""
    plan = Plan("s", 1, rule, catchup, first)
    gap = Gap(plan, now)
    while gap.step is None and not gap.is_over:
        gap.gather(7)
    steps = []
    while gap.step is not None:
        steps.append(gap.step)
        gap.advance()
    assert gap.is_over
    return steps, plan.slot


@pytest.mark.parametrize(
    ("catchup", "now", "expected"),
    [
        ("skip", NOW, ["skip 4", "on 5"]),
        ("last", NOW, ["skip 4", "on 5"]),
        ("last", NOW + 1, ["skip 4", "run 5", "on 6"]),  # none is on time, since the next one is not due yet
        ("skip", NOW + 1, ["skip 5", "on 6"]),
        ("all", NOW, ["run 1", "run 2", "run 3", "run 4", "on 5"]),
    ],
)
def test_what_runs_of_what_is_late(catchup: CatchUp, now: int, expected: list[str]) -> None:
    """Six minutes back the first slot was due; on time is what is a minute late. One slot each minute but the last."""
    first = NOW - 5 * MINUTE

    class Until(Minutely):
        def after(self, ms: int) -> int | None:
            found = super().after(ms)
            return NOW + 9 * MINUTE if found == NOW else found

    steps, then = closed(Until(), catchup, first, now)

    def number(slot: int | None) -> int:
        assert slot is not None
        return 6 if slot > NOW else (slot - first) // MINUTE + 1

    told = [f"run {number(s.slot)}" if isinstance(s, Run) else f"skip {number(s.slots[-1])}" for s in steps]
    assert [*told, f"on {number(then)}"] == expected


@pytest.mark.parametrize("rule", [Every(MINUTE), cron_rule("* * * * *", "UTC")])
def test_of_a_long_gap_as_much_is_written_as_a_ledger_holds(rule: Every | Cron) -> None:
    steps, then = closed(rule, "all", NOW - 3 * LEDGER_ROWS_MAX * MINUTE, NOW)
    skips = [step for step in steps if isinstance(step, Skip)]
    runs = [step.slot for step in steps if isinstance(step, Run)]
    assert then == NOW - MINUTE
    assert runs == [NOW - n * MINUTE for n in range(CATCH_UP_MAX + 1, 1, -1)]
    assert sum(len(step.slots) for step in skips) == LEDGER_ROWS_MAX - CATCH_UP_MAX
    assert {step.why for step in skips} == {TOO_MANY}
    assert all(len(step.slots) <= CATCH_UP_MAX for step in skips)


@given(
    st.sampled_from(["skip", "last", "all"]),
    st.integers(1000, 200_000),
    st.integers(0, 4_000_000),
    st.integers(60_001, 8_000_000),
)
def test_each_slot_of_a_gap_is_decided_once_and_in_order(catchup: CatchUp, span: int, start: int, late: int) -> None:
    rule = Every(span)
    first = rule.after(NOW + start)
    assert first is not None
    now = first + late
    steps, then = closed(rule, catchup, first, now)
    slots = [slot for step in steps for slot in ([step.slot] if isinstance(step, Run) else step.slots)]
    due = [slot for slot in range(first, now, span) if slot < now - MINUTE]
    assert slots == due[-LEDGER_ROWS_MAX:]
    assert then == rule.after(due[-1])
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        expected = then if following is None else following.slot if isinstance(following, Run) else following.slots[0]
        assert step.next_ms == expected
    ran = sum(isinstance(step, Run) for step in steps)
    assert ran <= {"skip": 0, "last": 1, "all": CATCH_UP_MAX}[catchup]
    assert all(step.why == (TOO_MANY if catchup == "all" else MISSED) for step in steps if isinstance(step, Skip))


def test_plans_come_in_the_order_of_their_slots_and_replaced_ones_not_at_all() -> None:
    plans = Plans()
    made = {name: Plan(name, 1, Every(1000), "last", slot) for name, slot in (("b", 2000), ("a", 1000), ("c", 3000))}
    for plan in made.values():
        plans.put(plan)
    newer = Plan("a", 2, Every(1000), "last", 2500)
    plans.put(newer)
    plans.drop("b")
    assert plans.next_ms() == 2500
    assert plans.due(2999, 10) == [newer]
    assert plans.due(9999, 10) == [made["c"]]
    assert plans.next_ms() is None
    assert not plans.holds(made["a"])
