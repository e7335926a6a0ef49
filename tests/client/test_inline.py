"""Tasks that run here for a test end as they would in a worker."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from quvatlh import App, PermanentFailure, TaskFailed
from quvatlh.client import Rejected, sides
from quvatlh.core.limits import LARGE_RESULT_BYTES_MAX
from quvatlh.runner.inside import functions

app = App(inline=True)
tries: list[int] = []


@app.task
def add(left: int, right: int = 1) -> int:
    return left + right


class Odd(Exception):
    def __str__(self) -> str:
        raise SystemExit(3) if self.args else RuntimeError


@app.task
def odd(how: str) -> object:
    deep: Any = []
    for _ in range(256):
        deep = [deep]
    results: dict[str, object] = {
        "half": "\ud83d",
        "large": "x" * (16 * 1024 * 1024),
        "packed": [float("inf"), "x" * (16 * 1024 * 1024)],
        "deep": deep,
        "flat": deep[0],
    }
    if how in results:
        return results[how]
    raise {"text": Odd(), "exit": Odd(1), "own": PermanentFailure("no"), "bare": ValueError()}[how]


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("text", "exception", "tests.client.test_inline.Odd: (it has no text)"),
        ("exit", "exception", "tests.client.test_inline.Odd: (it has no text)"),
        ("own", "exception", "quvatlh.task.PermanentFailure: no"),
        ("bare", "exception", "ValueError"),
        ("half", "unrunnable", "what it returned has no form in JSON ('utf-8' codec can't encode character '\\ud83d'"),
        ("large", "unrunnable", "what it returned has 16777218 bytes; at most 16777216"),
        ("packed", "unrunnable", "what it returned has 16777231 bytes; at most 16777216"),
        ("deep", "unrunnable", "what it returned is nested deeper than 256 levels"),
    ],
)
def test_an_inline_task_fails_in_the_words_of_a_worker(how: str, code: str, words: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        odd.enqueue(how).result()
    assert caught.value.code == code
    assert caught.value.text.startswith(words)


def test_an_inline_task_has_the_bounds_of_a_worker() -> None:
    assert json.dumps(odd.enqueue("flat").result()) == "[" * 256 + "]" * 256
    assert sides.RESULT_LEVELS_MAX == functions.RESULT_LEVELS_MAX
    assert LARGE_RESULT_BYTES_MAX == functions.RESULT_BYTES_MAX
    for wrong, words in ({"retry": 0}, r"^retry\.attempts: must be"), ({"id": ""}, r"^id: is empty"):
        with pytest.raises(Rejected, match=words):
            add.options(**wrong).enqueue(1)


class Lineless(SyntaxError):
    @property
    def __notes__(self) -> object:  # type: ignore[override]
        raise RuntimeError


def test_an_inline_exception_that_cannot_be_shown_is_one_still() -> None:
    @app.task
    def task() -> None:
        raise Lineless("x")

    with pytest.raises(TaskFailed, match="Lineless: x") as caught:
        task.enqueue().result()
    assert "in task" in caught.value.traceback


@app.task(retry=2)
def leaves(how: int) -> None:
    tries.append(how)
    sys.exit(how)


@app.task
async def leaves_later() -> None:
    sys.exit(3)


@app.task
async def gives_up() -> None:
    raise asyncio.CancelledError


@app.task
def is_interrupted() -> None:
    raise KeyboardInterrupt


@app.task
async def is_interrupted_later() -> None:
    raise KeyboardInterrupt


def test_an_inline_task_that_exits_has_failed_as_in_the_cluster_and_nobody_else() -> None:
    tries.clear()
    for exiting in (leaves.enqueue(3), leaves_later.enqueue()):
        with pytest.raises(TaskFailed) as caught:
            exiting.result()
        assert (caught.value.code, caught.value.text) == ("exception", "SystemExit: 3")
    assert tries == [3, 3]
    with pytest.raises(TaskFailed, match="CancelledError"):
        gives_up.enqueue().result()


async def test_an_inline_task_that_exits_under_a_loop_has_failed_too() -> None:
    for exiting in (leaves_later.enqueue(), await leaves_later.aenqueue()):
        with pytest.raises(TaskFailed, match="SystemExit: 3"):
            await exiting.aresult()


@pytest.mark.parametrize("task", [is_interrupted, is_interrupted_later])
def test_who_interrupts_an_inline_task_means_the_test(task: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        task.enqueue()
