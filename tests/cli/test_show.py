from __future__ import annotations

from base64 import b64encode
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


def test_what_may_be_begun_once_alone_is_not_said_to_have_attempts_left() -> None:
    task: dict[str, Any] = {"id": "t", "state": "failed", "attempts": 1, "retry": {"attempts": 25}}
    assert dict(pairs(task | {"delivery": "at-most-once"}, 0))["attempts"] == "1, never retried by itself"


@pytest.mark.parametrize("size", range(7))
def test_bytes_of_a_payload_are_counted_without_what_pads_them(size: int) -> None:
    task = {"id": "t", "state": "pending", "payload_base64": b64encode(bytes(size)).decode()}
    assert dict(pairs(task, 0))["payload"] == f"{size} byte{'' if size == 1 else 's'}"


@pytest.mark.parametrize(
    ("percent", "text", "words"), [(None, "reading", "reading"), (0, "", "0 %"), (12.5, "reading", "12.5 % reading")]
)
def test_progress_without_a_percentage_has_none(percent: float | None, text: str, words: str) -> None:
    task = {"id": "t", "state": "running", "actions": [{"progress": {"percent": percent, "text": text}}]}
    assert dict(pairs(task, 0))["progress"] == words


def test_urls_are_shown_without_their_secrets() -> None:
    url = "https://me:mine@example.org/hook?key=hidden"
    task = {
        "id": "t",
        "state": "pending",
        "work": {"http": {"url": url, "method": "PUT"}},
        "notify": {"url": url, "on": ["failed"]},
    }
    shown = dict(pairs(task, 0))
    assert shown["work"] == "PUT https://example.org/hook?…"
    assert shown["notify"] == "https://example.org/hook?… when failed"
