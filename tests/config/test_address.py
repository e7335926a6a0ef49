from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.config import address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:7421", ("127.0.0.1", 7421)),
        ("node-1.example.org:1", ("node-1.example.org", 1)),
        ("[::1]:0", ("::1", 0)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
    ],
)
def test_an_address_is_taken_apart(text: str, expected: tuple[str, int]) -> None:
    assert address.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":1", "a", "a:", "a:x", "::1:80", "[a]:1", "[]:1", "-a:1", "a b:1", "256.1.1.1:1", "a:99999", "a..b:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|neither"):
        address.parse(text)


@given(st.text())
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        host, port = address.parse(text)
        assert host
        assert 0 <= port <= address.PORT_MAX
