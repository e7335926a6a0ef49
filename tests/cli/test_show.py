from __future__ import annotations

from typing import Any

import pytest

from quvatlh.cli.show import pairs


@pytest.mark.parametrize(
    ("attempts", "kind", "words"),
    [
        (1, "job", "1 of 2"),
        (2, "job", "2 of 2"),
        (4, "job", "4, with those lost or before a retry; 2 allowed"),
        (7, "service", "7"),
    ],
)
def test_attempts_are_never_more_than_what_they_are_said_to_be_of(attempts: int, kind: str, words: str) -> None:
    task: dict[str, Any] = {"id": "t", "state": "failed", "kind": kind, "attempts": attempts, "retry": {"attempts": 2}}
    assert dict(pairs(task, 0))["attempts"] == words
