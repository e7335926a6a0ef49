"""`--full`, or QUVATLH_FULL=1: the counts that an issue asks to show. Without it a tenth of each.

    pytest tests/cluster -s --full -o faulthandler_timeout=900

`-s` shows the figures; a full test may take longer than the two minutes after which pytest takes a test for hung.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

pytest.register_assert_rewrite("tests.cluster.cluster", "tests.cluster.load", "tests.cluster.node")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="full counts instead of a tenth")


@pytest.fixture
def times(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """How often: the full count, or a tenth of it."""
    full = bool(request.config.getoption("--full")) or os.environ.get("QUVATLH_FULL", "") not in {"", "0"}
    return lambda count: count if full else max(1, count // 10)
