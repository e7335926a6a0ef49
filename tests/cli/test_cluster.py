"""What `cluster status` says of the cluster's time."""

from __future__ import annotations

from typing import Any

import pytest

from quvatlh.cli.cluster import time_lines

AT = "2026-01-31T08:00:00.000Z"
JUMP = {"at": AT, "way": "back", "by": "1h", "seen_by": "n1"}
STILL = f"log time stands still at {AT}: the clocks are 10m behind it, and nothing becomes due"
JUMPED = f"the clocks jumped back by 1h at {AT}, as n1 saw it"


@pytest.mark.parametrize(
    ("clock", "lines"),
    [
        (None, []),
        ({"at": AT, "behind": "0s", "jumped": None}, []),
        ({"at": AT, "behind": "10m", "jumped": None}, [STILL]),
        ({"at": AT, "behind": "10m", "jumped": JUMP}, [STILL, JUMPED]),
        ({"at": AT, "behind": "0s", "jumped": JUMP}, [JUMPED]),
    ],
)
def test_time_is_spoken_of_where_it_does_not_go_as_it_should(clock: dict[str, Any] | None, lines: list[str]) -> None:
    assert list(time_lines(clock)) == lines
