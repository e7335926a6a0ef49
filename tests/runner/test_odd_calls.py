"""Python code whose exceptions, values and outputs are of an odd make: it fails alone, with as much as can be said."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from quvatlh.runner.pools.ending import AFTER_S_MAX
from quvatlh.runner.pools.lines import LINE_BYTES_MAX
from quvatlh.task import Retry
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


# --- what is no text, or too much of it ---


@pytest.mark.parametrize(
    ("how", "words", "log"),
    [
        ("log", "", "caf\\udce9.txt\n"),
        ("progress", "", ""),
        ("retry", "quvatlh.task.Retry: caf\\udce9.txt", ""),
        ("raise", "ValueError: caf\\udce9.txt", "\nValueError: caf\\udce9.txt\n"),
    ],
)
async def test_text_that_is_no_utf_8_is_escaped(calls: Calls, how: str, words: str, log: str) -> None:
    pid = await calls.value("jobs:pid", width=1)
    end = await calls.run("odd:tells", how, width=1)
    assert text(end) == words
    assert end.stderr_tail.endswith(log)
    assert [each.text for each in calls.progress] == (["caf\\udce9.txt"] if how == "progress" else [])
    assert await calls.value("jobs:pid", width=1) == pid


async def test_of_calls_that_share_a_child_each_may_write_what_is_no_utf_8(calls: Calls, tmp_path: Path) -> None:
    go = tmp_path / "go"
    for target in ("jobs:dozes", "odd:prints"):
        calls.pools.pool("default").paces.ran(target, 1.0, shared=True)
    beside = calls.start("jobs:dozes", str(go), width=9)
    await calls.begun(beside)
    end = await calls.run("odd:prints", width=9)
    assert (code(end), text(end), end.stdout_tail) == ("exception", "ValueError: caf\\udce9.txt", "caf\\udce9.txt\n")
    assert end.stderr_tail.startswith("caf\\udce9.txt\nTraceback")
    assert calls.children() == 1
    go.touch()
    assert code(await calls.end(beside)) is None


@pytest.mark.parametrize("how", ["log", "print"])
async def test_a_line_that_is_longer_than_a_message_is_told_in_several(calls: Calls, how: str) -> None:
    """Each of its characters is six in JSON."""
    count = LINE_BYTES_MAX // 6 + 100_000
    end = await calls.run("odd:floods", how, count)
    assert code(end) is None
    assert (end.stdout_bytes, end.stderr_bytes) == ((0, count + 1) if how == "log" else (count + 1, 0))


async def test_a_retry_is_in_a_time_that_comes(calls: Calls) -> None:
    with pytest.raises(ValueError, match="after: must be seconds, 0 or more"):
        Retry("not yet", after=math.inf)
    end = await calls.run("odd:endless")
    assert (code(end), text(end)) == ("exception", "odd.Endless: not yet")
    assert end.error is not None
    assert end.error.retry_after_s == AFTER_S_MAX


async def test_of_calls_that_share_a_child_that_babbles_none_is_blamed_and_each_runs_alone_next(calls: Calls) -> None:
    for target in ("jobs:nap", "odd:babbles_when"):
        calls.pools.pool("default").paces.ran(target, 1.0, shared=True)
    innocent = [calls.start("jobs:nap", 20, width=9, task=f"i{n}") for n in range(2)]
    guilty = calls.start("odd:babbles_when", 3, width=9, task="guilty")
    ends = [await calls.end(name) for name in (*innocent, guilty)]
    assert {code(end) for end in ends} == {"stopped"}
    again = calls.start("odd:babbles_when", 0, width=9, task="guilty")
    beside = calls.start("jobs:nap", 0.2, width=9, task="i0")
    assert code(await calls.end(again)) == "protocol"
    assert code(await calls.end(beside)) is None


# --- what becomes of standard output and error ---


@pytest.mark.parametrize("target", ["odd:spoils", "odd:spoils_beside"])
@pytest.mark.parametrize("how", ["closes", "takes", "forgets to put back", "exchanges"])
async def test_descriptors_that_a_call_has_spoiled_are_not_the_next_ones(
    calls: Calls, tmp_path: Path, target: str, how: str
) -> None:
    path = tmp_path / "theirs"
    pid = await calls.value("jobs:pid", width=1)
    assert await calls.value(target, how, str(path), width=1) == pid
    end = await calls.run("jobs:speak", "one", width=1)
    assert code(end) is None
    assert end.stdout_tail == "one printed\none from a shell\none from below\n"
    assert sorted(end.stderr_tail.split("\n")) == ["", "one complained", "one logged", "one noted"]
    assert not path.exists() or path.read_text() == ""


async def test_who_puts_its_descriptors_back_keeps_its_child(calls: Calls, tmp_path: Path) -> None:
    pids = [await calls.value("odd:puts_back", str(tmp_path / "file"), width=1) for _ in range(2)]
    assert pids[0] == pids[1] == await calls.value("jobs:pid", width=1)
    assert (tmp_path / "file").read_text() == "aside"
