"""Parts by themselves: marks over time, and what the node takes of what it is told."""

from __future__ import annotations

import asyncio

import msgpack
import pytest

from quvatlh.policy import bounds
from quvatlh.policy.frames import frame
from quvatlh.policy.marks import Marks
from quvatlh.policy.told import Answer, Line, Told


def test_a_mark_needs_two_overruns_of_one_source_within_a_minute() -> None:
    marks = Marks()
    marks.overran("a", 0)
    marks.overran("b", 1)
    assert (marks.left_s("a", 1), marks.left_s("b", 1)) == (0, 0)
    marks.overran("a", 60)
    assert marks.left_s("a", 60) == 0  # the first is a minute old
    marks.overran("a", 119)
    assert (marks.left_s("a", 119), marks.left_s("a", 149), marks.left_s("a", 179)) == (60, 30, 0)
    assert marks.left_s("b", 119) == 0
    marks.overran("a", 180)
    assert marks.left_s("a", 180) == 0  # it starts over


def test_marks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quvatlh.policy.marks.MARKS_MAX", 10)
    marks = Marks()
    for n in range(100):
        for _ in range(2):
            marks.overran(str(n), n / 10)
    assert [n for n in range(100) if marks.left_s(str(n), 10)] == list(range(90, 100))


def told(*what: object) -> bytes:
    return frame(msgpack.packb(what))


async def test_what_is_told_arrives_frame_by_frame_however_it_is_cut() -> None:
    line = Line()
    data = told(1, 0, [["bid", 2.5, ""]], False) + told(1, 1, [["unfit", 0.0, "no", 3, 4]], True)
    for n in range(len(data)):
        line.data_received(data[n : n + 1])
    assert await line.next() == Told(1, 0, [Answer("bid", 2.5)], is_all=False)
    assert await line.next() == Told(1, 1, [Answer("unfit", 0.0, "no", 3, 4)], is_all=True)
    line.connection_lost(None)
    assert await line.next() is None


ODD = {
    "another shape": told(1, 0),
    "another word": told(1, 0, [["kill", 1.0, ""]], True),
    "another type": told("x", 0, [], True),
    "no msgpack": frame(b"\xc1"),
    "more than one": frame(msgpack.packb([1, 0, [], True]) * 2),
    "nothing": b"\0\0\0\0",
    "too long": b"\xff\xff\xff\x7f",
    "last words": b"!ImportError()",
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD.keys())
async def test_what_is_of_no_known_shape_ends_the_line(data: bytes) -> None:
    line = Line()
    waiting = asyncio.create_task(line.next())
    await asyncio.sleep(0)
    line.data_received(data)
    assert line.over
    assert await waiting is None
    assert line.last_words == ("ImportError()" if data[:1] == b"!" else "")


async def test_who_tells_more_than_was_asked_ends_the_line() -> None:
    line = Line()
    for _ in range(bounds.TOLD_MAX):
        line.data_received(told(1, 0, [], False))
    assert not line.over
    line.data_received(told(1, 0, [], False))
    assert line.over
