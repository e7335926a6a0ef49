"""One policy in its state: what it is given, what it is not, what it may answer, and where its source is wrong."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quvatlh.policy import bounds
from quvatlh.policy.lua import Answer, Policies
from tests.policy.parts import policies, state, task

MASK = 2**64 - 1
ANNOUNCE_BYTES = 4096


def run(source: str, **fields: Any) -> Answer:
    return policies().judge(source, state(), task(**fields))


def value(expression: str, **fields: Any) -> Any:
    """Of an expression within a policy, by way of an announcement."""
    source = f"function(state, task) return {{ value = {expression} }} end"
    answer = policies().announce(source, state(), task(**fields), {"id": "a-1"}, ANNOUNCE_BYTES)
    assert answer.word == "made", answer.text
    return json.loads(answer.text).get("value")


def announced(body: str) -> Any:
    answer = policies().announce(
        f"function(state, task, action) {body} end", state(), task(), {"id": "a-1"}, ANNOUNCE_BYTES
    )
    return json.loads(answer.text) if answer.word == "made" else answer.text


# --- what a policy sees ---


@pytest.mark.parametrize(
    ("expression", "seen"),
    [
        ("state.worker.name", "w1"),
        ("state.worker.tags[1]", "zone=eu-1"),
        ("#state.worker.tags", 4),
        ("state.worker.cpu_load * 100", 25),
        ("state.worker.memory_free_bytes // 2^30", 6),
        ("state.worker.actions.group.shop", 3),
        ("state.worker.facts.os", "linux"),
        ("state.cluster.queues.default", 17),
        ("state.now", 1_700_000_000_000),
        ("task.id", "0190a-1"),
        ("task.retry.attempts", 25),
        ("task.work.command[1]", "true"),
        ("task.key == nil", True),
        ("task.nothing", None),
        ("task.payload[2]", "é"),
    ],
)
def test_state_and_task_are_plain_tables(expression: str, seen: object) -> None:
    assert value(expression, payload=[1, "é"]) == seen


def test_bytes_are_a_string_of_bytes() -> None:
    assert value("#task.payload", payload=b"\xff\x00\x01") == 3


def test_what_a_policy_writes_into_its_tables_is_gone_the_next_time() -> None:
    source = "function(state, task) local free = state.worker.free; state.worker.free = 0; return free end"
    kept, given_state = policies(), state()
    assert [kept.judge(source, given_state, task()).score for _ in range(3)] == [2, 2, 2]


def test_policies_do_not_see_each_other() -> None:
    kept = policies()
    hostile = """
        function(state, task)
          left = 'behind'
          string.format, math.floor, next, pcall = nil, nil, nil, nil
          table.concat = function() return 'mine' end
          _G.type = nil
          return true
        end"""
    other = (
        "function() return left == nil and type(string.format) == 'function' and table.concat({'a', 'b'}) == 'ab' end"
    )
    for _ in range(2):
        assert kept.judge(hostile, state(), task()).word == "bid"
        assert kept.judge(other, state(), task()) == Answer("bid", 1.0)


def test_a_number_beyond_64_bits_fails_the_question() -> None:
    assert run("function() return true end", payload=2**63).text == "the task holds a number beyond 64 bits"


# --- what it is not given ---

MISSING = [
    "io", "os", "package", "debug", "load", "loadstring", "loadfile", "dofile", "require", "collectgarbage", "python",
    "print", "warn", "string.dump", "math.randomseed",
]  # fmt: skip


@pytest.mark.parametrize("name", MISSING)
def test_the_library_has_no_way_out(name: str) -> None:
    assert value(f"{name} == nil") is True


def test_nothing_within_reach_is_an_object_of_python() -> None:
    walk = """
        function(state, task, action)
          local seen, found = {}, {}
          local function walk(value, path)
            if seen[value] then return end
            if type(value) == 'userdata' then found[#found + 1] = path end
            if type(value) ~= 'table' then
              local meta = getmetatable(value)
              if meta ~= nil and meta ~= false then found[#found + 1] = path .. '!' end
              return
            end
            seen[value] = true
            for k, v in next, value do walk(k, path .. '.key') walk(v, path .. '.' .. tostring(k)) end
            local meta = getmetatable(value)
            if meta ~= nil then walk(meta, path .. '.meta') end
          end
          walk(_G, '_G') walk(state, 'state') walk(task, 'task') walk(action, 'action') walk('', 'text')
          local ok, problem = pcall(function() return nil + 1 end)
          walk(problem, 'problem') walk(coroutine.running(), 'thread')
          return { found = found }
        end"""
    answer = policies().announce(walk, state(), task(payload=[b"x", {"y": None}]), {"id": "a"}, ANNOUNCE_BYTES)
    assert json.loads(answer.text) == {"found": {}}


@pytest.mark.parametrize(
    "body",
    [
        "getmetatable('').__index = {}",
        "setmetatable('', {})",
        "rawset(getmetatable(''), '__index', nil)",
        "setmetatable({}, {__gc = function() end})",
        "setmetatable({}, setmetatable({__gc = 1}, {}))",
        "coroutine.yield(true)",
        "return string.rep('x', 1 << 62)",
        "return ('x').y.z",
        "error(setmetatable({}, {__tostring = function() error('again') end}))",
        "error()",
        "return {}, 1",
        "return 0/0",
        "return -1/0",
        "return 'true'",
        "return type",
        "table.sort({3, 1, 2, 5, 4, 9, 8, 7, 6}, function() return true end) error('sorted')",
        "return string.format('%d', 'x')",
        "return string.format(('%s'):rep(300, ','))",
        "return select(-2^63, 1)",
        "return table.concat({}, ',', 1, 1 << 62)",
        "return table.unpack({}, 1, 1 << 30)",
        "return utf8.char(-1)",
        "local t <close> = 1",
        "local t <close> = setmetatable({}, {__close = function() error('closing') end}) return true",
    ],
)
def test_attempts_fail_and_say_so(body: str) -> None:
    answer = run(f"function(state, task) {body} end")
    assert answer.word == "failed"
    assert answer.text


def test_a_failure_is_short_text_whatever_was_raised() -> None:
    assert run("function() error(('é'):rep(10000), 0) end").text.isprintable()
    assert len(run("function() error(('x'):rep(1e6)) end").text) < bounds.ERROR_BYTES_MAX + 20
    assert run("function() error('\\255\\254', 0) end").text == "??"
    assert run("function() error(nil) end").text == "raised nothing"
    assert run("function() error({}) end").text == "raised a table that is no text"
    assert run("function()\n\n error('here') end").text == "line 3: here"


def test_tampering_with_the_library_does_not_reach_what_judges() -> None:
    body = """
        for name in pairs(_G) do if type(_G[name]) == 'table' and name ~= '_G' then
          for each in pairs(_G[name]) do _G[name][each] = function() return 'mine' end end end end
        pcall, error, next, type, select, rawlen = nil, nil, nil, nil, nil, nil
    """
    assert announced(f"{body} return {{ a = 1, b = {{ 'x', 2.5 }} }}") == {"a": 1, "b": ["x", 2.5]}


def test_memory_ends_at_its_bound_and_is_given_back() -> None:
    hoard = "function() local t = {} for n = 1, 1e9 do t[n] = {n} end end"
    kept = policies()
    for _ in range(3):
        assert kept.judge(hoard, state(), task()) == Answer("overran", text="needed more than 32 MiB")
    assert kept.judge("t = ('x'):rep(1 << 30) return function() end", state(), task()).word == "overran"
    assert kept.check("t = ('x'):rep(1 << 30) return function() end").word == "overran"


def test_a_policy_that_leaves_much_behind_starts_over() -> None:
    kept = policies()
    source = "local n, all = 0, {} return function(_, task) n = n + 1 all[n] = ('x'):rep(task.size) .. n return n end"
    assert [kept.judge(source, state(), task(size=10)).score for _ in range(3)] == [1, 2, 3]
    assert [kept.judge(source, state(), task(size=2**20)).score for _ in range(3)] == [4, 1, 1]


def test_the_cache_is_bounded() -> None:
    kept = policies()
    counting = "local n = 0 return function() n = n + 1 return n end"
    kept.judge(counting, state(), task())
    for n in range(bounds.STATES_MAX - 1):
        kept.judge(f"function() return {n} end", state(), task())
    assert kept.judge(counting, state(), task()).score == 2
    for n in range(bounds.STATES_MAX):
        kept.judge(f"function() return {n} end", state(), task())
    assert kept.judge(counting, state(), task()).score == 1


# --- helpers ---

GLOB_TEXT = st.text("ab-]é", max_size=6)
GLOB_PATTERN = st.text("ab-]é*?[!\\^", max_size=8)
GLOB = "function(_, task) return glob(task.pattern, task.text) end"
GLOBS = policies()


@given(GLOB_PATTERN, GLOB_TEXT)
def test_glob_matches_as_tags_are_matched(pattern: str, text: str) -> None:
    # Python takes a `!` for a negation that only stands first once an empty range before it is gone: [b-a!x].
    assume(not re.search(r"\[[^]!]+!", pattern))
    answer = GLOBS.judge(GLOB, state(), {"pattern": pattern, "text": text})
    assert answer.word == ("bid" if fnmatch.fnmatchcase(text, pattern) else "no_bid"), (pattern, text, answer)


def test_glob_takes_bytes_that_are_no_text_and_many_stars() -> None:
    assert value(r"glob('a*\255', 'ab\255')") is True
    assert value("glob(('*a'):rep(20) .. 'b', ('a'):rep(200))") is False


@given(st.text(max_size=20))
def test_hash_is_the_same_everywhere(text: str) -> None:
    answer = GLOBS.judge("function(_, task) return hash(task.text) end", state(), {"text": text})
    assert answer.score == _hash(text.encode())
    assert 0 <= answer.score < 2**53


def _hash(data: bytes) -> int:
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & MASK
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = ((h ^ h >> 33) * factor) & MASK
    return (h ^ h >> 33) >> 11


def test_count_is_of_live_actions_here() -> None:
    assert [value(f"count('{name}')") for name in ("web", "db", "none")] == [2, 1, 0]
    assert (
        run("function() local n = count(nil) return n end").text
        == "line 1: bad argument #1 to 'count' (text expected, got nil)"
    )


# --- announcements ---


def test_an_announcement_is_plain_data() -> None:
    body = (
        "return { id = action.id, port = 8000 + 80.0, half = 0.5, on = true, list = {1, {2}}, text = 'a\"\\\\\\n\\0é' }"
    )
    expected = {"id": "a-1", "port": 8080, "half": 0.5, "on": True, "list": [1, [2]], "text": 'a"\\\n\0é'}
    assert announced(body) == expected
    assert isinstance(announced("return { port = 8000.0 }")["port"], int)
    assert announced("return {}") == {}
    assert announced("return { a = {} }") == {"a": {}}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("return 1", "answered a number, not a table"),
        ("", "answered nothing, not a table"),
        ("error('no')", "line 1: no"),
        ("return { f = type }", "the table holds a function"),
        ("return { f = coroutine.create(type) }", "the table holds a thread"),
        ("local t = {} t.t = { t } return t", "the table holds a table that holds itself"),
        ("local t = {} for _ = 1, 100 do t = { t = t } end return t", "the table is deeper than 32 tables"),
        ("return { x = ('x'):rep(5000) }", "the table is longer than 4096 bytes"),
        ("local t = {} for n = 1, 5000 do t[n] = n end return { t = t }", "the table is longer than 4096 bytes"),
        ("local t = {} for n = 1, 5000 do t['k' .. n] = n end return t", "the table is longer than 4096 bytes"),
        (
            "local t = { 1, 2 } for _ = 1, 20 do t = { t, t } end return { t = t }",
            "the table is longer than 4096 bytes",
        ),
        ("return { x = 0/0 }", "the table holds a number that is not finite"),
        ("return { x = '\\255' }", "the table holds text that is no UTF-8"),
        ("return { 'a', 'b' }", "the table holds a table with a number as key among others; names or 1 to n"),
        ("return { x = { 'a', b = 1 } }", "the table holds a table with a number as key among others; names or 1 to n"),
        ("return { [true] = 1 }", "the table holds a table with a boolean as key among others; names or 1 to n"),
    ],
)
def test_an_announcement_that_is_not_says_what_it_is(body: str, fault: str) -> None:
    assert announced(body) == fault


def test_metamethods_of_an_announcement_are_not_asked() -> None:
    trap = "setmetatable({ a = 1 }, { __index = error, __pairs = error, __len = error, __tostring = error })"
    assert announced(f"return {{ x = {trap} }}") == {"x": {"a": 1}}


# --- sources ---


@pytest.mark.parametrize(
    "source",
    [
        "function(state, task) return true end",
        "  -- first a word\n function(state, task) return true end -- and one after",
        "return function(state, task) return true end",
        "local limit = 3\nreturn function(state, task) return limit end",
        "local function mine(state, task) return true end\nreturn mine",
        "PolicyFuncBase = function(state, task) -- returns boolean\n return true\nend",
        "function allowed(state, task) return true end",
        "LIMIT = 3\nfunction allowed(state, task) return LIMIT end",
        "(function() return function() return true end end)()",
    ],
)
def test_these_are_sources(source: str) -> None:
    kept = policies()
    assert kept.check(source) == Answer("fit")
    assert kept.judge(source, state(), task()).word == "bid"


@pytest.mark.parametrize(
    ("source", "line", "column", "message"),
    [
        ("function(state, task) return end end", 1, 34, "<eof> expected near 'end'"),
        ("function(state, task)\n  retrun true\nend", 2, 10, "syntax error near 'true'"),
        ("local a = = 1", 1, 11, "unexpected symbol near '='"),
        ("a = 1 b = b = 2", 1, 13, "unexpected symbol near '='"),
        ("é = 1", 1, 1, "unexpected symbol near '<\\195>'"),
        ("x = 'é' .. 'é' 'é'", 1, 16, "unexpected symbol near ''é''"),
        ("function(state, task) return (", 1, 31, "unexpected symbol near <eof>"),
        ("P = function()\n  if x then\nend\n", 4, 1, "'end' expected (to close 'function' at line 1) near <eof>"),
        ("x = 'open", 1, 10, "unfinished string near <eof>"),
        ("x = 'open\ny = 1", 1, 5, "unfinished string near ''open'"),
        ("goto nowhere", 1, 1, "no visible label 'nowhere' for <goto> at line 1"),
        ("", 1, 1, "gives no function"),
        ("x = 1", 1, 1, "gives no function"),
        ("return 1", 1, 1, "gives a number, not a function"),
        (
            "a = function() end b = function() end",
            1,
            1,
            "assigns more than one global function; return the one that is meant",
        ),
        ("\nlocal x = nil + 1", 2, 1, "attempt to perform arithmetic on a nil value"),
    ],
)
def test_a_source_at_fault_is_told_with_its_place(source: str, line: int, column: int, message: str) -> None:
    answer = policies().check(source)
    assert (answer.word, answer.line, answer.column, answer.text) == ("unfit", line, column, message)


def test_check_calls_nothing_of_the_policy() -> None:
    assert policies().check("function() error('called') end") == Answer("fit")


def test_binary_chunks_are_no_sources() -> None:
    assert Policies.check(policies(), "\x1bLua").word == "unfit"
