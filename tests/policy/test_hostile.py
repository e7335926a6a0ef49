"""Policies that want to harm: each ends within its bounds, whoever is asked with it is answered, the loop that asks never
stands still, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quvatlh.policy import judge as judging
from quvatlh.policy.judge import LuaJudge
from quvatlh.ports import Question, Verdict
from tests.examples import examples
from tests.fakes.clock import FakeClock
from tests.policy.parts import GOOD, state, task
from tests.support.gauge import Ticker

COMPUTING_MS_MAX = 20.0
"""What the asking thread itself computes at a stretch: far under what a policy is allowed, times the batch."""

TIME, MEMORY = "ran over 10 ms of its own time", "needed more than 32 MiB"

OVERRUN = {
    "loop": ("while true do end", TIME),
    "goto": ("::again:: goto again", TIME),
    "loop in a coroutine": ("coroutine.wrap(function() while true do end end)()", TIME),
    "coroutines without end": ("while true do coroutine.wrap(function() coroutine.yield() end)() end", TIME),
    "coroutine that starts the next": (
        "local function go() return coroutine.wrap(go)() end while true do pcall(go) end",
        TIME,
    ),
    "loop under pcall": ("pcall(function() while true do end end) return true", TIME),
    "pcall again and again": ("while true do pcall(error, 'x') end", TIME),
    "handler without end": ("xpcall(error, function() while true do end end)", TIME),
    "loop in __index": ("return setmetatable({}, {__index = function() while true do end end}).x", TIME),
    "loop in __eq": ("local m = {__eq = function() while true do end end} return setmetatable({}, m) == setmetatable({}, m)", TIME),
    "loop in __close": ("local x <close> = setmetatable({}, {__close = function() while true do end end})", TIME),
    "loop in __pairs": ("for _ in pairs(setmetatable({}, {__pairs = function() while true do end end})) do end", TIME),
    "loop in __concat": ("return setmetatable({}, {__concat = function() while true do end end}) .. 'x'", TIME),
    "__index chain in a ring": ("local a, b = {}, {} setmetatable(a, {__index = b}) b.x = 1 while a.x do end", TIME),
    "pattern that explodes": ("return (('a'):rep(40)):find(('a*'):rep(40) .. 'b')", TIME),
    "pattern under pcall": ("pcall(string.find, ('a'):rep(5000), ('.-'):rep(30) .. 'b') return true", TIME),
    "gsub that explodes": ("return (('x'):rep(1e6):gsub('.-.-.-y', ''))", TIME),
    "empty rep": ("return #(''):rep(1 << 40)", TIME),
    "move without end": ("table.move({}, 1, 1 << 60, 2)", TIME),
    "lying comparator": (
        "local t = {} for n = 1, 1e5 do t[n] = n end while true do pcall(table.sort, t, function() return true end) end",
        TIME,
    ),
    "moody comparator": (
        "local t = {} for n = 1, 1e6 do t[n] = n % 7 end table.sort(t, function() return math.random() < 0.5 end)",
        TIME,
    ),
    "random numbers": ("while math.random() >= 0 do end", TIME),
    "string without end": ("local s = 'x' while true do s = s .. s end", None),
    "gigabyte": ("return #('x'):rep(1 << 30)", MEMORY),
    "gigabyte under pcall": ("while not pcall(string.rep, 'x', 1 << 30) do end", TIME),
    "recursion": ("local function f() return 1 + f() end return f()", None),
    "recursion under pcall": ("local function f() pcall(f) return f() end return f()", TIME),
    "recursion of metamethods": ("local t = setmetatable({}, {__index = function(t, k) return t[k .. 'x'] end}) return t.x", None),
    "recursion in patterns": ("return (('('):rep(1e5)):match(('%b()'):rep(1e5))", None),
    "concat of much": ("local t = {} for n = 1, 200 do t[n] = ('x'):rep(1e6) end return #table.concat(t)", None),
    "format of much": ("local s = ('x'):rep(1e7) return #string.format(('%s'):rep(90), table.unpack({s, s, s, s, s, s}))", None),
    "tables without end": ("local t = {} while true do t = {t} end", None),
    "globals without end": ("local n = 0 while true do n = n + 1 _G['g' .. n] = n end", None),
    "pack of much": ("while true do table.pack(table.unpack({}, 1, 1e6 - 100)) end", None),
    "text of everything": ("local s = '' for n = 1, 1e9 do s = s .. tostring({}) end", None),
    "one helper for ever": ("while true do glob(('*a'):rep(100), ('a'):rep(1000) .. 'b') end", TIME),
    "hash of much": ("return hash(('x'):rep(3e7))", None),
}  # fmt: skip


@pytest.fixture
async def judge() -> AsyncIterator[LuaJudge]:
    made = LuaJudge(FakeClock())
    yield made
    await made.close()


@pytest.fixture(scope="module", autouse=True)
def no_collection() -> Iterator[None]:
    """What a test run has piled up is not the loop's to walk through."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(("body", "why"), OVERRUN.values(), ids=OVERRUN.keys())
async def test_it_ends_and_the_others_are_answered(judge: LuaJudge, body: str, why: str | None) -> None:
    good = [Question(GOOD, task(id=f"t-{n}")) for n in range(20)]
    await judge.judge(state(), good)
    ticker = Ticker()
    verdicts = await judge.judge(state(), [*good, Question(f"function(state, task) {body} end", task()), *good])
    ticker.stop()
    assert [*verdicts[:20], *verdicts[21:]] == [Verdict("bid", 2.0)] * 40
    assert verdicts[20].word in ({"overran"} if why else {"overran", "failed"})
    assert verdicts[20].text == why if why else verdicts[20].text
    assert ticker.longest_ms <= COMPUTING_MS_MAX


@pytest.mark.parametrize(
    "body", ["while true do end", "x = ('x'):rep(1 << 30)", "local function f() pcall(f) f() end f()"]
)
async def test_what_runs_before_there_is_a_function_has_the_same_bounds(judge: LuaJudge, body: str) -> None:
    source = f"{body} return function() return true end"
    fault = await judge.check(source, "policy")
    assert fault is not None
    assert fault.message
    assert await judge.check(GOOD, "policy") is None
    verdicts = await judge.judge(
        state(), [Question(GOOD, task()), Question(source + " ", task()), Question(GOOD, task())]
    )
    assert [verdict.word for verdict in verdicts] == ["bid", "overran", "bid"]


async def test_an_announcement_is_bound_as_a_policy_is(judge: LuaJudge) -> None:
    for body, fault in (("while true do end", TIME), ("return { x = ('x'):rep(1 << 30) }", MEMORY)):
        told = await judge.announce(f"function() {body} end", state(), task(), {"id": "a"})
        assert told.table is None
        assert fault in told.fault
    assert (await judge.announce("function() return { a = 1 } end", state(), task(), {})).table == {"a": 1}


async def test_source_of_any_kind_is_taken_or_refused(judge: LuaJudge) -> None:
    for source in (
        "\ud800",
        "x" * 70_000,
        "\x00",
        "(" * 60_000,
        "{" * 60_000,
        "a." * 30_000,
        "return " + "not " * 15_000 + "1",
    ):
        fault = await judge.check(source, "policy")
        assert fault is not None
        assert fault.line >= 1
        assert fault.column >= 1
        assert fault.message
    assert await judge.check(GOOD, "policy") is None


async def test_tasks_of_any_kind_are_judged(judge: LuaJudge) -> None:
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    too_deep: list[object] = []
    for _ in range(2000):
        too_deep = [too_deep]
    odd = [
        {"x": deep},
        {"x": too_deep},
        {"x": 2**70},
        {"x": object()},
        {"x": "y" * 5_000_000},
        {"x": {1, 2}},
        {1: 2, "\0": b""},
    ]
    questions = [Question("function(state, task) return true end", each) for each in odd]  # type: ignore[arg-type]
    words = [verdict.word for verdict in await judge.judge(state(), [*questions, Question(GOOD, task())])]
    assert words == ["bid", "failed", "failed", "failed", "failed", "failed", "bid", "bid"]


async def test_a_batch_of_nothing_but_hostile_ones_ends(judge: LuaJudge) -> None:
    bad = [Question(f"function(state, task) while {n} do end end", task()) for n in range(30)]
    verdicts = await judge.judge(state(), [*bad, Question(GOOD, task())])
    assert [verdict.word for verdict in verdicts] == ["overran"] * 30 + ["bid"]


async def test_who_asks_meanwhile_waits_for_no_batch(judge: LuaJudge) -> None:
    bad = [Question(f"function(state, task) while {n} do end end", task()) for n in range(30)]
    batch = asyncio.create_task(judge.judge(state(), bad))
    await asyncio.sleep(0)
    assert await judge.check(GOOD, "policy") is None
    assert not batch.done()
    assert len(await batch) == 30


async def test_a_long_batch_of_harmless_ones_gives_way_too(judge: LuaJudge) -> None:
    source = "function(state, task) for n = 1, 5e4 do local x = n end return 1 end"
    assert await judge.check(source, "policy") is None
    batch = asyncio.create_task(judge.judge(state(), [Question(source, task())] * 250))  # one frame
    await asyncio.sleep(0)
    assert await judge.check(GOOD, "policy") is None
    assert not batch.done()
    assert [verdict.word for verdict in await batch] == ["bid"] * 250


async def test_a_caller_that_goes_away_leaves_the_judge_whole(judge: LuaJudge) -> None:
    assert await judge.check(GOOD, "policy") is None
    all_gone = []
    for n in range(10):
        endless = f"function(state, task) while {n} do end end"
        good, bad = [Question(GOOD, task())] * 300, [Question(endless, task())]
        gone = asyncio.create_task(judge.judge(state(), good + bad if n % 2 else bad + good))
        await asyncio.sleep(n / 2000)
        gone.cancel()
        all_gone.append(gone)
        verdicts = await judge.judge(state(), [Question(f"function() return {n} end", task())] * 3)
        assert verdicts == [Verdict("bid", float(n))] * 3
    await asyncio.gather(*all_gone, return_exceptions=True)


async def test_a_process_that_is_stopped_is_killed_and_another_answers_while_the_loop_goes_on(judge: LuaJudge) -> None:
    assert await judge.check(GOOD, "policy") is None
    warden = judge.pid
    assert warden is not None
    os.killpg(warden, signal.SIGSTOP)
    asked = asyncio.create_task(judge.judge(state(), [Question(GOOD, task())]))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not asked.done()
    async with asyncio.timeout(60):
        verdicts = await asked
    assert verdicts == [Verdict("bid", 2.0)]
    assert judge.pid != warden


@pytest.mark.parametrize("whom", ["warden", "cell", "both"])
async def test_a_process_that_is_killed_is_replaced(judge: LuaJudge, whom: str) -> None:
    for _ in range(3):
        assert await judge.check(GOOD, "policy") is None
        warden = judge.pid
        assert warden is not None
        if whom == "both":
            os.killpg(warden, signal.SIGKILL)
        else:
            os.kill(warden if whom == "warden" else _cell(warden), signal.SIGKILL)
        async with asyncio.timeout(60):
            while judge.pid == warden:  # a warden's death is seen a moment later; till then its cell answers
                assert await judge.judge(state(), [Question(GOOD, task())]) == [Verdict("bid", 2.0)]
                await asyncio.sleep(0.001)


async def test_nothing_is_left_when_the_judge_is_closed(judge: LuaJudge) -> None:
    assert await judge.check(GOOD, "policy") is None
    warden = judge.pid
    assert warden is not None
    cell = _cell(warden)
    await judge.close()
    assert not Path(f"/proc/{warden}").exists()
    async with asyncio.timeout(60):
        while _is_there(cell):  # noqa: ASYNC110 - a stranger's child tells nobody
            await asyncio.sleep(0.001)
    late = await judge.judge(state(), [Question(GOOD, task())])
    assert late == [Verdict("failed", text="policies are not asked any more: the node stops")]


async def test_a_process_that_nobody_asks_ends(judge: LuaJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "IDLE_S", 0.02)
    for _ in range(3):
        assert await judge.check(GOOD, "policy") is None
        async with asyncio.timeout(60):
            while judge.pid is not None:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.005)


async def test_where_no_process_can_be_had_policies_fail_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    judge = LuaJudge(clock)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        verdicts = await judge.judge(state(), [Question(GOOD, task())] * 2)
        assert verdicts == [Verdict("failed", text="no process for policies: No such file or directory")] * 2
        again = await judge.judge(state(), [Question(GOOD, task())])
        assert again == [Verdict("failed", text="no process for policies could be started a moment ago")]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [each for each in sys.path if "site-packages" not in each])
        clock.advance(2)
        fault = await judge.check(GOOD, "policy")
        assert fault is not None
        assert fault.message.startswith("no process for policies: ModuleNotFoundError")
    clock.advance(2)
    assert await judge.judge(state(), [Question(GOOD, task())]) == [Verdict("bid", 2.0)]
    await judge.close()


async def test_a_finalizer_that_is_set_later_never_runs(judge: LuaJudge) -> None:
    body = """
        for _ = 1, 100 do
          local m = {}
          setmetatable({}, m)
          m.__gc = function() while true do end end
        end
        return #('x'):rep(1e5) > 0"""
    source = f"function() {body} end"
    for _ in range(5):
        assert await judge.judge(state(), [Question(source, task())] * 20) == [Verdict("bid", 1.0)] * 20


async def test_each_question_has_the_group_that_it_is_about(judge: LuaJudge) -> None:
    source = "function(state, task) return state.cluster.group.w1 or -1 end"
    given = state()
    given["cluster"]["group"] = {"w1": 9}
    questions = [Question(source, task(), {"w1": 3}), Question(source, task(), {"w2": 1}), Question(source, task())]
    assert [verdict.score for verdict in await judge.judge(given, questions)] == [3, -1, 9]
    odd = await judge.judge({"worker": 1, "cluster": "none"}, [Question("function() return 1 end", task())])
    assert odd[0].word == "failed"


async def test_the_process_sees_nothing_of_the_daemon(judge: LuaJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUVATLH_TOKEN", "secret")
    assert await judge.check(GOOD, "policy") is None
    warden = judge.pid
    assert warden is not None
    assert Path(f"/proc/{warden}/environ").read_bytes() == b"LC_ALL=C.UTF-8\0"
    files = {os.readlink(each) for each in Path(f"/proc/{_cell(warden)}/fd").iterdir()}
    assert {each.split(":")[0].split(" ")[0] for each in files} == {"/dev/null", "socket", "/memfd"}


@pytest.mark.long
async def test_memory_does_not_grow(judge: LuaJudge) -> None:
    """Neither by hostile policies nor by ever new ones: the second half of a run takes no more than the first."""
    sizes = []
    for half in range(2):
        for n in range(15):
            new = [Question(f"function() return {half * 4000 + n * 100 + k} end", task()) for k in range(100)]
            hoard = [
                Question(f"t = {{}} return function() t[#t + 1] = ('x'):rep(1 << 2{k % 5}) .. {n} end", task())
                for k in range(5)
            ]
            await judge.judge(state(), [*new, *hoard])
        assert judge.pid is not None
        sizes.append(_rss_kb(_cell(judge.pid)))
    assert sizes[1] <= sizes[0] + 2048


WORDS = """
    function end local return if then else elseif while do for in repeat until goto break not and or nil true false
    state task ( ) { } [ ] = == ~= < > + - * / // % ^ # .. ... . : , ; x y 1 0x 'a "b" [[ ]] -- :: <close> é error pcall string.rep
"""
TOKENS = [*WORDS.split(), "\n", "\r"]


def test_any_source_is_judged_and_the_next_one_too() -> None:
    with asyncio.Runner() as runner:
        judge = LuaJudge(FakeClock())
        runner.run(judge.check(GOOD, "policy"))

        @settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
        @given(st.one_of(st.lists(st.sampled_from(TOKENS), max_size=20).map(" ".join), st.text(max_size=60)))
        def judged(source: str) -> None:
            for each in (source, f"function(state, task) {source} end"):
                fault = runner.run(judge.check(each, "policy"))
                if fault is not None:
                    lines = re.split(r"\r\n|\n\r|\r|\n", each)
                    assert 1 <= fault.line <= len(lines)
                    assert 1 <= fault.column <= len(lines[fault.line - 1]) + 1
                    assert fault.message
                verdicts = runner.run(judge.judge(state(), [Question(each, task()), Question(GOOD, task())]))
                assert verdicts[1] == Verdict("bid", 2.0)
                assert fault is None or verdicts[0].word in {"failed", "overran", "marked"}

        try:
            judged()
        finally:
            runner.run(judge.close())


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def _cell(warden: int) -> int:
    return int(Path(f"/proc/{warden}/task/{warden}/children").read_text().split()[0])


def _rss_kb(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])
