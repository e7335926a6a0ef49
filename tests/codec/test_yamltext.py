from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.codec.taskfile import read_tasks
from quvatlh.codec.yamltext import BadYaml, Bounds, documents

SMALL = Bounds(bytes_max=2000, depth_max=4, values_max=50)


def test_words_stay_words_and_numbers_are_numbers() -> None:
    text = "[yes, on, ~, 010, 22:22, 3.10, 1e3, 2030-01-01, '1', true, null, 1, -2, 0.5, 12345678901234567890]"
    assert documents(text, SMALL) == [
        ["yes", "on", "~", "010", "22:22", "3.10", "1e3", "2030-01-01", "1", True, None, 1, -2, 0.5,
         "12345678901234567890"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("a:\n  b: 1\n  b: 2", "a.b", "line 3, column 3: 'b' stands twice"),
        ("a: [1, !x 2]", "a[1]", "line 1, column 8: the tag !x is not taken"),
        ("{<<: {a: 1}}", "", ""),
        ("a: {[b]: 1}", "a", "line 1, column 5: a key must be text"),
        ("[[[[[1]]]]]", "", "line 1, column 5: is nested more than 4 levels deep"),
        ("a: &a [[[1]]]\nb: [*a]", "", "line 1, column 9: is nested more than 4 levels deep, aliases followed"),
        (f"[{'x,' * 60}]", "", "has more than 50 values"),
        ("a: &a [1,2,3,4,5,6,7,8,9]\nb: [*a,*a,*a,*a]", "", "has more than 50 values, aliases counted at each use"),
        ("x" * 2001, "", "has more than 2000 bytes"),
        ("é" * 1500, "", "has more than 2000 bytes"),
        (b"a: \xff", "", "is not UTF-8 at byte 3"),
        ("a: [", "", "line 2, column 1: did not find expected node content"),
        ("a: *b", "", "line 1, column 4: found undefined alias"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str | bytes, path: str, words: str) -> None:
    if not words:  # a merge key is a word like any other
        assert documents(text, SMALL) == [{"<<": {"a": 1}}]
        return
    with pytest.raises(BadYaml) as caught:
        documents(text, SMALL)
    assert (str(caught.value), caught.value.path) == (words, path)


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    try:
        documents(text, SMALL)
    except BadYaml as error:
        assert str(error)  # noqa: PT017 - either is fine


def test_tasks_may_be_spelled_with_capitals_and_stand_in_documents_and_lists() -> None:
    text = "Group: web\nLimit: 3\nTags: [zone=eu-*]\nWork: |\n  shell: serve\n---\n---\n- {work: {pull: true}}\n- {Name: b}"
    assert read_tasks(text) == [
        {"group": "web", "limit": 3, "tags": ["zone=eu-*"], "work": "shell: serve\n"},
        {"work": {"pull": True}},
        {"name": "b"},
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "document 1: a task is a mapping"),
        ("{name: a}\n--- 7", "document 2: a task is a mapping"),
        ("{Group: a, group: b}", "document 1: a field stands twice, once with a capital letter"),
    ],
)
def test_what_is_no_task_is_told(text: str, words: str) -> None:
    with pytest.raises(BadYaml, match=words):
        read_tasks(text)
