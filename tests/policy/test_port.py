"""What holds of every Judge, the fake and the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quvatlh.policy.judge import LuaJudge
from quvatlh.ports import Judge, Question, SourceFault, Verdict
from tests.fakes.clock import FakeClock
from tests.fakes.judge import ALWAYS, BROKEN, ENDLESS, FAILING, NEVER, FakeJudge
from tests.policy.parts import state, task


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["fake", "lua"])
async def judge(request: pytest.FixtureRequest, clock: FakeClock) -> AsyncIterator[Judge]:
    made: Judge = FakeJudge(clock) if request.param == "fake" else LuaJudge(clock)
    yield made
    await made.close()


async def ask(judge: Judge, *sources: str) -> list[Verdict]:
    return list(await judge.judge(state(), [Question(source, task()) for source in sources]))


async def words(judge: Judge, *sources: str) -> list[str]:
    return [verdict.word for verdict in await ask(judge, *sources)]


async def test_every_question_has_its_verdict_in_its_place(judge: Judge) -> None:
    sources = [f"function(state, task) return {number} end" for number in range(1000)]
    assert [verdict.score for verdict in await ask(judge, *sources)] == list(range(1000))
    assert await ask(judge) == []


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("true", Verdict("bid", 1.0)),
        ("1", Verdict("bid", 1.0)),
        ("0", Verdict("bid", 0.0)),
        ("-2.5", Verdict("bid", -2.5)),
        ("false", Verdict("no_bid")),
        ("nil", Verdict("no_bid")),
    ],
)
async def test_true_and_numbers_bid_false_and_nothing_do_not(judge: Judge, answer: str, verdict: Verdict) -> None:
    assert await ask(judge, f"function(state, task) return {answer} end") == [verdict]


async def test_the_three_forms_of_a_source_are_the_same(judge: Judge) -> None:
    forms = [ALWAYS, f"return {ALWAYS}", f"PolicyFuncBase = {ALWAYS}"]
    assert [await judge.check(form, "policy") for form in forms] == [None] * 3
    assert await words(judge, *forms) == ["bid"] * 3


async def test_a_policy_that_fails_says_where_and_why(judge: Judge) -> None:
    assert await ask(judge, FAILING) == [Verdict("failed", text="line 1: no luck")]


async def test_what_does_not_compile_is_told_and_fails(judge: Judge) -> None:
    fault = await judge.check(BROKEN, "policy")
    assert isinstance(fault, SourceFault)
    assert fault.line == 1
    assert await words(judge, BROKEN, ALWAYS) == ["failed", "bid"]


async def test_an_endless_policy_overruns_and_the_others_are_answered(judge: Judge) -> None:
    assert await words(judge, ALWAYS, ENDLESS, NEVER) == ["bid", "overran", "no_bid"]


async def test_two_overruns_within_a_minute_mark_a_policy_for_a_minute(judge: Judge, clock: FakeClock) -> None:
    assert await words(judge, ENDLESS) == ["overran"]
    clock.advance(59)
    assert await words(judge, ENDLESS) == ["overran"]
    assert await words(judge, ENDLESS, ALWAYS) == ["marked", "bid"]
    assert await words(judge, ENDLESS + " ") == ["overran"]  # another source is another policy
    clock.advance(59)
    assert await words(judge, ENDLESS) == ["marked"]
    clock.advance(2)
    assert await words(judge, ENDLESS) == ["overran"]
    assert await words(judge, ENDLESS) == ["overran"]
    assert await words(judge, ENDLESS) == ["marked"]


async def test_a_policy_is_marked_in_the_midst_of_a_batch(judge: Judge) -> None:
    sources = [*[ENDLESS] * 300, ALWAYS]
    assert await words(judge, *sources) == ["overran", "overran", *["marked"] * 298, "bid"]


async def test_overruns_more_than_a_minute_apart_do_not_mark(judge: Judge, clock: FakeClock) -> None:
    for _ in range(3):
        assert await words(judge, ENDLESS) == ["overran"]
        clock.advance(61)


async def test_an_announcement_is_a_table_or_a_fault(judge: Judge) -> None:
    made = await judge.announce("function(state, task, action) return {} end", state(), task(), {"id": "a"})
    assert (made.table, made.fault) == ({}, "")
    for answer in ("1", "nil", "true"):
        none = await judge.announce(f"function(state, task, action) return {answer} end", state(), task(), {})
        assert none.table is None
        assert none.fault
    assert (await judge.announce(FAILING, state(), task(), {})).fault == "line 1: no luck"
    assert (await judge.announce(ENDLESS, state(), task(), {})).table is None


async def test_closing_twice_is_closing(judge: Judge) -> None:
    assert await words(judge, ALWAYS) == ["bid"]
    await judge.close()
    await judge.close()
