"""Python code whose exceptions, values and outputs are of an odd make: it fails alone, with as much as can be said."""

from __future__ import annotations

import pytest

from tests.runner.calls import Calls, code, healthy, text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("silent", "odd.Silent: (it has no text)"),
        ("text", "SyntaxError: bad template (line 3)"),
        ("offset", "SyntaxError: bad template (line 3)"),
        ("causeless", "odd.Causeless: x"),
    ],
)
async def test_an_exception_that_cannot_be_described_says_what_it_can(calls: Calls, kind: str, words: str) -> None:
    await healthy(calls)
    end = await calls.run("odd:raises", kind)
    assert (code(end), text(end)) == ("exception", words)
    assert ", in raises\n" in end.stderr_tail
    await healthy(calls)


async def test_a_loop_that_is_stopped_is_the_crash_of_its_child_alone(calls: Calls) -> None:
    await healthy(calls)
    end = await calls.run("odd:stops_the_loop")
    assert (code(end), text(end)) == ("crash", "its process ended with exit status 1, before the task did")
    assert end.stderr_tail.endswith("RuntimeError: Event loop stopped before Future completed.\n")
    await healthy(calls)


async def test_a_patched_clock_is_not_ours(calls: Calls) -> None:
    assert [code(await calls.run("odd:patches", width=1)) for _ in range(3)] == [None] * 3
    await healthy(calls)


async def test_a_stream_that_is_none_takes_no_traceback(calls: Calls) -> None:
    end = await calls.run("odd:mute")
    assert (code(end), text(end)) == ("exception", "ValueError: no good")


async def test_a_value_that_answers_for_every_name_is_a_value(calls: Calls) -> None:
    assert await calls.value("odd:opened") == {"a": 1}


async def test_a_value_that_ends_the_process_ends_its_own_call(calls: Calls) -> None:
    pid = await calls.value("jobs:pid", width=1)
    assert code(await calls.run("odd:leaving", width=1)) == "exception"
    assert await calls.value("jobs:pid", width=1) == pid
