from __future__ import annotations

import pytest

from quvatlh.codec.urls import without_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("https://me:mine@example.org:8080/a", "https://example.org:8080/a"),
        ("HTTP://me:mi@ne@example.org", "HTTP://example.org"),
        ("https://me:mine@example.org?key=a/b@c?d", "https://example.org?…"),
        ("https://example.org/a@b?", "https://example.org/a@b?"),
        ("https://example.org/a#key=b?c", "https://example.org/a#…"),
        ("//me:mine@example.org/", "//example.org/"),
        ("/a?mail=x@y", "/a?…"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
