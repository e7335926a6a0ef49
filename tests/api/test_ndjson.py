from __future__ import annotations

import itertools
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from quvatlh.api import ndjson
from quvatlh.api.ndjson import CUT_BYTES_MAX, LINE_BYTES_MAX, LINES_MAX, Cut, Cutter

PIECES = [
    b"",
    b" \t\r",
    b"1",
    b"{}\r",
    b"x" * 1000,
    b"a" * 400_000,
    b"b" * CUT_BYTES_MAX,
    b"c" * (CUT_BYTES_MAX + 1),
    b"d" * LINE_BYTES_MAX,
    b"e" * (LINE_BYTES_MAX + 1),
    b"\n".join([b"7"] * 700),
]
LINES = st.lists(st.sampled_from(PIECES), max_size=12)


def cuts(pieces: list[bytes]) -> list[Cut]:
    cutter = Cutter()
    found = [cut for piece in pieces for cut in cutter.feed(piece)]
    return found + cutter.finish()


def chopped(body: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[a:b] for a, b in itertools.pairwise(edges)]


def by_the_book(body: bytes) -> list[Cut]:
    """The rule of section 9, written down plainly."""
    made: list[Cut] = []
    lines: list[bytes] = []
    first = 0

    def close() -> None:
        nonlocal lines, first
        if lines:
            made.append(Cut(first, lines))
            first, lines = first + len(lines), []

    for line in body.split(b"\n"):
        if len(line) > LINE_BYTES_MAX:
            close()
            made.append(Cut(first, [], too_long=True))
            first += 1
        elif line.strip(b" \t\r"):
            if sum(map(len, lines)) + len(line) > CUT_BYTES_MAX:
                close()
            lines.append(line)
            if len(lines) == LINES_MAX:
                close()
    close()
    return made


@given(LINES, st.booleans(), st.lists(st.integers(0, 2**24), max_size=12))
def test_however_the_bytes_arrive_the_cuts_are_those_of_the_rule(
    lines: list[bytes], ends: bool, places: list[int]
) -> None:
    body = b"\n".join(lines) + (b"\n" if ends else b"")
    assert cuts(chopped(body, places)) == by_the_book(body)


def test_byte_by_byte_is_the_same_too() -> None:
    body = b'{"a":1}\n\n \r\n{"b":2}\r\n3'
    assert cuts([bytes([each]) for each in body]) == by_the_book(body) == [Cut(0, [b'{"a":1}', b'{"b":2}\r', b"3"])]


def test_a_cut_is_known_with_its_last_line() -> None:
    """Not only when the next line comes: a producer may wait for the answer before he sends more."""
    cutter = Cutter()
    assert [cut.end for cut in cutter.feed(b"1\n" * LINES_MAX)] == [LINES_MAX]


def test_numbers_go_on_without_gaps() -> None:
    found = cuts([b"1\n" * 2500 + b"x" * (LINE_BYTES_MAX + 1) + b"\n2\n"])
    assert [(cut.first, cut.end, cut.too_long) for cut in found] == [
        (0, 1000, False),
        (1000, 2000, False),
        (2000, 2500, False),
        (2500, 2501, True),
        (2501, 2502, False),
    ]


def test_a_line_without_end_takes_no_memory() -> None:
    cutter, piece = Cutter(), b"x" * 65_536
    tracemalloc.start()
    try:
        for _ in range(1000):
            assert cutter.feed(piece) == []
            assert cutter.held_bytes <= LINE_BYTES_MAX
        assert tracemalloc.get_traced_memory()[1] < 2 * LINE_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert cutter.finish() == [Cut(0, [], too_long=True)]


def test_limits_are_those_of_the_contract() -> None:
    assert (ndjson.LINES_MAX, ndjson.CUT_BYTES_MAX, ndjson.LINE_BYTES_MAX) == (1000, 2**20, 2**21)
