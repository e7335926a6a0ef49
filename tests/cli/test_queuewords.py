from __future__ import annotations

import pytest

from quvatlh.cli.queuewords import rounded


@pytest.mark.parametrize(
    ("told", "shown"),
    [("42495ms", "42s"), ("1500ms", "1.5s"), ("117ms", "117ms"), ("0s", "0s"), ("3m", "3m"), ("-", "-")],
)
def test_a_wait_is_as_long_as_a_person_reads_it(told: str, shown: str) -> None:
    assert rounded(told) == shown
