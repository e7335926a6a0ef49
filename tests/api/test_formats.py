from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.api.formats import DEPTH_MAX, decode, duration_ms, duration_text, encode, time_ms, time_text
from quvatlh.core.limits import TIME_MS_MAX

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=4), part, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("30", 30_000),
        ("0.5", 500),
        ("1.5s", 1500),
        (2, 2000),
        (0.25, 250),
        (0, 0),
    ],
)
def test_durations_are_read(text: object, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "s", "1w", "-1s", "1h30m", " 1s", "1 s", "1e3", "٣s", -1, True, None, [], "9" * 16]
)
def test_what_is_no_duration_is_told_the_form(text: object) -> None:
    with pytest.raises(ValueError, match="must be a duration such as"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["999999999999999d", 1e300, float("inf")])
def test_a_duration_longer_than_time_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is longer than any time"):
        duration_ms(text)


@given(st.integers(0, TIME_MS_MAX))
def test_durations_are_written_so_that_they_are_read_back(ms: int) -> None:
    assert duration_ms(duration_text(ms)) == ms


@given(st.integers(0, TIME_MS_MAX))
def test_times_are_written_so_that_they_are_read_back(ms: int) -> None:
    assert time_ms(time_text(ms)) == ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("2024-02-29T12:00:00.1239+02:00", "2024-02-29T10:00:00.123Z"),
        ("2024-02-29t12:00:00z", "2024-02-29T12:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_times_are_read_with_their_offset(text: str, expected: str) -> None:
    assert time_text(time_ms(text)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2024-02-29T12:00:00", "must be a time such as"),
        ("2024-02-29", "must be a time such as"),
        ("2023-02-29T12:00:00Z", "is no day or time that exists"),
        ("2024-02-29T24:00:01Z", "is no day or time that exists"),
        ("1969-12-31T23:59:59Z", "must be between 1970 and 9999"),
        (5, "must be a time such as"),
    ],
)
def test_what_is_no_time_is_told_so(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        time_ms(text)


@given(JSON)
def test_any_json_value_goes_through(value: object) -> None:
    for raw in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False, indent=1).encode(), encode(value)):
        assert decode(raw) == json.loads(raw)


@given(st.dictionaries(st.text(max_size=3), JSON, min_size=1, max_size=4), st.data())
def test_a_key_twice_is_found_wherever_it_stands(value: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(value)))
    inner = json.dumps(value)[:-1] + f", {json.dumps(key)}: 1}}"
    with pytest.raises(ValueError, match="twice in one object"):
        decode(f'{{"a": [{inner}]}}'.encode())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty, where JSON is needed"),
        (b"{", "is malformed JSON"),
        (b"[1,]", "is malformed JSON"),
        (b"[1] x", "is malformed JSON"),
        (b"NaN", "is malformed JSON"),
        (b"[Infinity]", "is malformed JSON"),
        (b"\xef\xbb\xbf{}", "is malformed JSON"),
        (b'"\\ud800"', "half a surrogate pair"),
        (b'"\xff"', "is not UTF-8"),
        (b"1e999", "out of range"),
        (b"[123456789012345678901]", "beyond 64 bits"),
        (b'{"a":1,"\\u0061":2}', "names 'a' twice"),
        (b'{"a\\u003a":1,"a:":2}', "names 'a:' twice"),
        (b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), "is nested deeper than 64 levels"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "is nested deeper than 64 levels"),
        (b"[" * 1_000_000, "is nested deeper|is malformed"),
    ],
)
def test_malformed_json_is_told_why(raw: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode(raw)


def test_the_deepest_nesting_allowed_is_taken() -> None:
    raw = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert encode(decode(raw)) == raw
