"""Globs of scopes: one meaning in Python and SQL, and what is left of globs within others."""

from __future__ import annotations

import fnmatch
import itertools
import re
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.core.scopes import Scope, condition, matches_any, narrowed, of_column

LETTERS = "ab*?[]-!A"
PATTERNS = st.text(LETTERS, min_size=1, max_size=5)
NAMES = st.text("ab[]-!A?*ä", min_size=1, max_size=5)


def meant(name: str, pattern: str) -> bool:
    """By its definition."""
    return re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), name) is not None


def in_sql(name: str, patterns: list[str]) -> bool:
    where, values = of_column("name", patterns)
    sql = f"SELECT count(*) FROM (SELECT ? AS name) WHERE {where}"
    return bool(sqlite3.connect(":memory:").execute(sql, (name, *values)).fetchone()[0])


@given(NAMES, st.lists(PATTERNS, max_size=3))
def test_python_and_sql_mean_what_is_written(name: str, patterns: list[str]) -> None:
    expected = any(meant(name, pattern) for pattern in patterns)
    assert matches_any(name, patterns) == expected
    assert in_sql(name, patterns) == expected


@pytest.mark.parametrize(
    ("pattern", "name", "is_in"),
    [
        ("mail*", "mail", True),
        ("mail*", "Mail", False),
        ("mail?", "mail", False),
        ("*", "", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a[*", "a[x]", True),
        ("?", "ä", True),
        ("a.c", "abc", False),
        ("100%", "100x", False),
        ("a_c", "abc", False),
        ("a\\*", "a\\b", True),
        ("a'--", "a'--", True),
        ("_*", "_notify", True),
        ("ma*", "x\nmail", False),
    ],
)
def test_what_people_may_write(pattern: str, name: str, is_in: bool) -> None:
    assert matches_any(name, [pattern]) == is_in
    assert in_sql(name, [pattern]) == is_in


GLOBS = st.lists(st.text("ab*?", min_size=1, max_size=4), min_size=1, max_size=3)
SHORT = ["".join(letters) for n in range(1, 5) for letters in itertools.product("abc", repeat=n)]


@given(GLOBS, GLOBS)
def test_what_is_left_is_never_more_than_both(patterns: list[str], bounds: list[str]) -> None:
    left = narrowed(patterns, bounds)
    for name in SHORT:
        if any(fnmatch.fnmatchcase(name, each) for each in left):
            assert any(fnmatch.fnmatchcase(name, each) for each in patterns), (name, left)
            assert matches_any(name, bounds), (name, left)


@given(GLOBS, st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3))
def test_of_exact_names_exactly_those_that_match_are_left(patterns: list[str], names: list[str]) -> None:
    assert set(narrowed(patterns, names)) == {name for name in names if matches_any(name, patterns)}
    assert set(narrowed(names, patterns)) == ({*names} if "*" in patterns else set(narrowed(patterns, names)))


@pytest.mark.parametrize(
    ("patterns", "bounds", "left"),
    [
        (["*"], ["mail*"], ("mail*",)),
        (["mail*"], ["*"], ("mail*",)),
        (["mail-*", "images"], ["mail*"], ("mail-*",)),
        (["a*"], ["a?*"], ("a?*",)),
        (["*a"], ["a*"], ()),
        (["[ab]*"], ["a*"], ()),
        (["[ab]*"], ["*"], ("[ab]*",)),
        (["*"], [], ()),
        (["*"], ["[x]"], ()),
    ],
)
def test_globs_within_others(patterns: list[str], bounds: list[str], left: tuple[str, ...]) -> None:
    assert narrowed(patterns, bounds) == left


def test_a_scope_needs_both_and_without_patterns_there_is_nothing_in_it() -> None:
    scope = Scope(("mail*",), ("a",))
    places = [(queue, group) for queue in ("mail", "mail-x", "images") for group in ("a", "b")]
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE task (queue TEXT, grp TEXT)")
    db.executemany("INSERT INTO task VALUES (?, ?)", places)
    for each in (scope, Scope(), Scope((), ("*",)), Scope(("*",), ()), Scope(("*",), ("b",))):
        where, values = condition(each)
        found = db.execute(f"SELECT queue, grp FROM task WHERE {where}", values).fetchall()
        assert found == [place for place in places if each.has(*place)]
    assert [each.is_all for each in (Scope(), scope, Scope((), ("*",)))] == [True, False, False]
