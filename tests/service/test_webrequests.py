from __future__ import annotations

from typing import Any

import pytest

from quvatlh.service.webrequests import Verdict, asked, verdict

URL = "http://x/"


@pytest.mark.parametrize(
    ("given", "status", "expected"),
    [
        ({}, 200, "expect"),
        ({}, 204, "expect"),
        ({}, 302, "retry"),
        ({}, 404, "retry"),
        ({}, 410, "permanent"),
        ({}, 429, "retry"),
        ({}, 503, "retry"),
        ({"expect": [201]}, 201, "expect"),
        ({"expect": [201]}, 200, "retry"),
        ({"expect": ["2xx", 410]}, 410, "expect"),
        ({"permanent": ["4xx"], "retry": [404]}, 404, "retry"),
        ({"permanent": ["4xx"], "retry": [404]}, 403, "permanent"),
        ({"permanent": [404], "retry": ["4xx"]}, 404, "permanent"),
        ({"retry": ["4xx"]}, 410, "retry"),
        ({"expect": ["4xx"], "permanent": ["4xx"]}, 400, "expect"),
        ({"permanent": ["2xx"]}, 200, "permanent"),
    ],
)
def test_a_status_comes_to_what_was_said_of_it_the_exact_one_before_its_class(
    given: dict[str, Any], status: int, expected: Verdict
) -> None:
    assert verdict(asked({"url": URL, **given}), status) == expected


def test_a_header_that_an_old_log_holds_and_that_would_break_the_message_is_left_out() -> None:
    headers = {
        "Content-Length": "1",
        "x-a": "b",
        "transfer-encoding": "chunked",
        "Proxy-Connection": "close",
        "TE": "gzip",
    }
    assert asked({"url": URL, "headers": headers}).headers == {"x-a": "b"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"expect": ["6xx"]}, "'6xx' is no status"),
        ({"permanent": [600]}, "600 is no status"),
        ({"max_bytes": -1}, "max_bytes must be from 0 to 1048576"),
    ],
)
def test_what_is_no_request_is_told(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        asked({"url": URL, **given})
