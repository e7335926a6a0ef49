"""What a warm process says: what of it is taken, and what that costs."""

from __future__ import annotations

import base64
import tracemalloc

import pytest

from quvatlh.core.limits import PACKED_RESULT
from quvatlh.runner.pools.lines import Garbage, Said, value

LARGE = 1024 * 1024
EMPTY = b"\x90"


def said(data: bytes) -> Said:
    return Said("result", "a", packed=base64.b64encode(data).decode())


def many(count: int, each: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + each * count


def test_a_large_result_in_msgpack_is_not_built_to_be_judged() -> None:
    data = many(LARGE, EMPTY)
    tracemalloc.start()
    try:
        assert value(said(data)) == PACKED_RESULT + data
        assert tracemalloc.get_traced_memory()[1] < 16 * LARGE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xa1\xff",
        b"\xd7\xff" + b"\xff" * 8,
        b"\x91" * 5000 + b"\x01",
        many(LARGE, EMPTY)[:-1],
        many(LARGE, EMPTY) + EMPTY,
        b"\x91" * LARGE + b"\x01",
        many(LARGE, b"\xc1"),
    ],
)
def test_what_is_no_msgpack_is_no_result(data: bytes) -> None:
    with pytest.raises(Garbage, match=r"^returned what others could not read: "):
        value(said(data))


def test_what_is_no_base64_is_no_result() -> None:
    with pytest.raises(Garbage, match=r"^returned what others could not read: "):
        value(Said("result", "a", packed="no base64"))
