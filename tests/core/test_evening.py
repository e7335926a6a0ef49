"""BALANCE: the least moves that make a load as even as it can be, against trying everything."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quvatlh.core.evening import Piece, Place, Shift, even
from tests.examples import examples

WORKERS = ("a", "b", "c", "d")


def unevenness(at: dict[str, str], places: dict[str, Place]) -> Fraction:
    load = Counter(at.values())
    return sum(
        (Fraction((load[name] + place.fixed) ** 2, max(1, place.slots)) for name, place in places.items()), Fraction(0)
    )


def best_by_trying(pieces: list[Piece], places: dict[str, Place]) -> tuple[Fraction, int]:
    """The least unevenness, and the fewest moves that bring it about."""
    found: list[tuple[Fraction, int]] = []
    for choice in product(*(sorted({*piece.able, piece.at} & places.keys()) for piece in pieces)):
        at = {piece.id: name for piece, name in zip(pieces, choice, strict=True)}
        load, before = Counter(at.values()), Counter(piece.at for piece in pieces)
        if any(place.room is not None and load[name] > max(place.room, before[name]) for name, place in places.items()):
            continue
        moves = sum(piece.at != at[piece.id] for piece in pieces)
        found.append((unevenness(at, places), moves))
    return min(found)


def applied(pieces: list[Piece], shifts: list[Shift]) -> dict[str, str]:
    at = {piece.id: piece.at for piece in pieces}
    for shift in shifts:
        assert at[shift.id] == shift.source
        at[shift.id] = shift.target
    return at


@st.composite
def loads(draw: st.DrawFn) -> tuple[list[Piece], dict[str, Place]]:
    names = WORKERS[: draw(st.integers(1, 4))]
    alike = draw(st.booleans())
    places = {
        name: Place(
            4 if alike else draw(st.integers(0, 6)),
            draw(st.integers(0, 2)),
            draw(st.none() | st.integers(0, 4)),
        )
        for name in names
    }
    one = st.sampled_from(names)
    pieces = [
        Piece(f"p{n}", draw(one), draw(st.just(frozenset(names)) | st.frozensets(one)))
        for n in range(draw(st.integers(0, 6)))
    ]
    return pieces, places


_FULL = (
    [Piece(f"p{n}", "a" if n < 2 else "c", frozenset(WORKERS)) for n in range(5)],
    {"a": Place(4, 2, 0), "b": Place(4, 0, 0), "c": Place(4, 1, None), "d": Place(4, 0, None)},
)
"""A worker that could take nothing more, and may keep what it has."""


@settings(max_examples=examples(400))
@given(loads())
@example(_FULL)
def test_no_other_placement_is_more_even_and_none_as_even_takes_fewer_moves(
    given_: tuple[list[Piece], dict[str, Place]],
) -> None:
    pieces, places = given_
    shifts = even(pieces, places)
    at = applied(pieces, shifts)
    able = {piece.id: {*piece.able, piece.at} for piece in pieces}
    assert all(name in able[id_] for id_, name in at.items())
    assert (unevenness(at, places), len(shifts)) == best_by_trying(pieces, places)


def test_a_hundred_on_two_of_four_take_fifty_moves() -> None:
    pieces = [Piece(f"p{n:03}", "ab"[n % 2], WORKERS) for n in range(100)]
    shifts = even(pieces, {name: Place(100) for name in WORKERS})
    assert len(shifts) == 50
    assert Counter(applied(pieces, shifts).values()) == Counter(dict.fromkeys(WORKERS, 25))


def test_what_is_even_stays() -> None:
    pieces = [Piece(f"p{n}", WORKERS[n % 4], WORKERS) for n in range(9)]
    assert even(pieces, {name: Place(8) for name in WORKERS}) == []


def test_a_worker_with_more_slots_bears_more() -> None:
    pieces = [Piece(f"p{n}", "a", ("a", "b")) for n in range(8)]
    shifts = even(pieces, {"a": Place(2), "b": Place(6)})
    assert len(shifts) == 6


def test_one_that_may_not_move_makes_room_by_way_of_another() -> None:
    """Only a's action may go to b, and only b's to c: both move, one step each."""
    pieces = [Piece("x", "a", ("b",)), Piece("y", "b", ("c",)), Piece("z", "a", ()), Piece("w", "b", ())]
    shifts = even(pieces, {name: Place(4) for name in "abc"})
    assert [(each.id, each.target) for each in shifts] == [("y", "c")]
    pieces = [Piece("x", "a", ("b",)), Piece("z", "a", ()), Piece("v", "a", ()), *pieces[1:2]]
    shifts = even(pieces, {name: Place(4) for name in "abc"})
    assert sorted((each.id, each.target) for each in shifts) == [("x", "b"), ("y", "c")]


def test_many_workers_and_actions_are_planned_within_moments() -> None:
    names = [f"w{n}" for n in range(40)]
    pieces = [Piece(f"p{n}", names[n % 10], names if n % 7 else names[:20]) for n in range(2000)]
    shifts = even(pieces, {name: Place(64) for name in names})
    load = Counter(applied(pieces, shifts).values())
    assert max(load.values()) - min(load.values()) <= 1
