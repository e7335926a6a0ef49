from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quvatlh.codec import VERSION, Unreadable, Values
from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.model import TaskSpec
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Answer
from tests.codec.strategies import of
from tests.examples import examples

VALUES = Values()


@pytest.mark.parametrize("verb", get_args(c.AnyCommand), ids=lambda verb: verb.__name__)
def test_every_verb_comes_back_as_it_went(verb: type) -> None:
    @settings(max_examples=examples(15))
    @given(command=of(verb), request=st.none() | of(c.Request))
    def comes_back(command: Any, request: c.Request | None) -> None:
        item = c.Item(command, request)
        assert VALUES.decode_item(VALUES.encode_item(item)) == item

    comes_back()


BEFORE: list[tuple[list[Any], c.AnyCommand]] = [
    (["delete", ["t"], True], c.Delete(("t",), failed=False)),
    (["update", ["t"], {"queue": "q"}, False], c.Update(("t",), c.TaskChanges(queue="q"), strict=False, failed=False)),
    (["retry", ["t"], True], c.RetryTasks(("t",), queue=None, placed=False)),
]


@pytest.mark.parametrize(("fields", "command"), BEFORE, ids=lambda each: each[0] if isinstance(each, list) else "")
def test_entries_of_before_are_read_as_they_were_meant(fields: list[Any], command: c.AnyCommand) -> None:
    assert VALUES.decode_item(bytes([VERSION]) + msgspec.msgpack.encode([fields, None])) == c.Item(command)


@given(answer=of(Answer))
def test_every_answer_comes_back_as_it_went(answer: Answer) -> None:
    assert VALUES.decode_answer(VALUES.encode_answer(answer)) == answer


@given(events=of(tuple[Event, ...]))
def test_events_come_back_as_they_went(events: tuple[Event, ...]) -> None:
    assert VALUES.decode_events(VALUES.encode_events(events)) == events


@given(spec=of(TaskSpec))
def test_a_spec_comes_back_as_it_went_from_either_format(spec: TaskSpec) -> None:
    assert VALUES.decode_spec(VALUES.encode_spec(spec)) == spec
    text = msgspec.json.encode(spec)
    assert msgspec.json.encode(msgspec.json.decode(text, type=TaskSpec)) == text


@given(data=st.binary(max_size=200))
def test_any_bytes_get_an_answer(data: bytes) -> None:
    for bytes_ in (data, bytes([VERSION]) + data):
        assert isinstance(VALUES.decode_item(bytes_), c.Item | Rejection)


@given(item=of(c.Item), cut=st.integers(0, 50), flip=st.integers(0, 7))
def test_damaged_items_get_an_answer(item: c.Item, cut: int, flip: int) -> None:
    data = bytearray(VALUES.encode_item(item))
    assert isinstance(VALUES.decode_item(bytes(data[: -cut - 1])), c.Item | Rejection)
    data[cut % len(data)] ^= 1 << flip
    assert isinstance(VALUES.decode_item(bytes(data)), c.Item | Rejection)


def test_an_unknown_version_is_named() -> None:
    data = VALUES.encode_item(c.Item(c.Nothing()))
    assert VALUES.decode_item(b"\x07" + data[1:]) == Rejection("bad_request", "version 7 is not known here, only 1")
    assert VALUES.decode_item(b"") == Rejection("bad_request", "no bytes")


def test_an_unknown_verb_is_refused() -> None:
    answer = VALUES.decode_item(bytes([VERSION]) + msgspec.msgpack.encode([["conquer"], None]))
    assert isinstance(answer, Rejection)
    assert "conquer" in answer.detail


def test_nesting_without_end_is_refused() -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    work = {"work": {"args": 0}}
    whole = msgspec.msgpack.encode([["add", [["a", work, False]]], None])
    data = bytes([VERSION]) + whole.replace(b"\xa4args\x00", b"\xa4args" + deep)
    assert isinstance(VALUES.decode_item(data), Rejection)


@pytest.mark.parametrize(
    "spec",
    [
        {"work": {}, "priority": 2**40},
        {"work": {}, "name": ""},
        {"work": {}, "name": "x" * 257},
        {"work": {}, "lease_ms": 10},
        {"work": {}, "colour": "red"},
        {"work": {}, "limit": 0},
        {"work": {}, "tags": ["x"] * 1001},
        {"work": {}, "retry": {"attempts": 0}},
        {"work": {"shell": "x" * 131_072}},
        {"work": 3},
        {},
    ],
)
def test_what_is_out_of_bounds_does_not_decode(spec: Any) -> None:
    data = bytes([VERSION]) + msgspec.msgpack.encode([["add", [["a", spec]]], None])
    assert isinstance(VALUES.decode_item(data), Rejection)


def test_an_item_of_an_older_program_has_its_new_fields_by_default() -> None:
    """Arrays may end early, maps may lack fields."""
    data = bytes([VERSION]) + msgspec.msgpack.encode([["add", [["a", {"work": {"pull": True}}]]]])
    item = VALUES.decode_item(data)
    assert isinstance(item, c.Item)
    assert isinstance(item.command, c.Add)
    assert item.command.tasks[0].spec.work.adapter == "pull"
    assert (item.request, item.scope) == (None, None)
    assert VALUES.decode_spec(b"\x01\x80") == Unreadable("Object missing required field `work`")
