"""Warm processes with faults: each is its own, and nobody else waits for it or fails with it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from quvatlh.config.environments import Environment
from quvatlh.core.limits import LARGE_RESULT_BYTES_MAX
from quvatlh.ports import ActionFinished
from quvatlh.runner.settings import TAIL_BYTES
from tests.runner.calls import APP, WAIT_S, Calls, code, text


def faulty_of(*given: str, **settings: Any) -> Environment:
    return Environment("faulty", command=(sys.executable, "faulty.py", *given), cwd=str(APP), **settings)


def begin(calls: Calls, call: str, *args: Any, **given: Any) -> str:
    return calls.start(call, *args, adapter="warm", environment="faulty", **given)


async def run(calls: Calls, call: str, *args: Any, **given: Any) -> ActionFinished:
    return await calls.end(begin(calls, call, *args, **given))


async def refused(calls: Calls) -> None:
    async with asyncio.timeout(WAIT_S):
        while not calls.pools.pool("faulty")._refusal.text:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)


@pytest.fixture
async def faulty(calls: Calls) -> Calls:
    calls.pools.configure([faulty_of()])
    return calls


async def test_a_flood_waits_at_its_pipe_and_holds_up_nobody(faulty: Calls, tmp_path: Path) -> None:
    go = tmp_path / "go"
    name = begin(faulty, "floods", str(go))
    await faulty.told()
    assert (await run(faulty, "hello")).result == b'"hello"'
    go.touch()
    assert (await faulty.end(name)).result == b"true", "it was heard before its flood was over"


async def test_of_progress_that_comes_too_fast_the_newest_is_told(faulty: Calls) -> None:
    assert (await run(faulty, "hurries")).error is None
    assert faulty.progress[-1].text == "999"
    assert len(faulty.progress) < 100


async def test_a_stop_that_nobody_asked_for_is_a_failure(faulty: Calls) -> None:
    end = await run(faulty, "gives_up")
    assert (code(end), text(end)) == ("exception", "stopped (and nobody had asked it to)")


async def test_a_process_that_does_not_start_fails_nobody_while_another_is_there(calls: Calls, tmp_path: Path) -> None:
    go = tmp_path / "go"
    calls.pools.configure([faulty_of("first", str(tmp_path / "first"))])
    names = [begin(calls, "waits", str(go), width=4)]
    await calls.told()
    names += [begin(calls, "hello", width=4) for _ in range(40)]
    await refused(calls)
    go.touch()
    assert [code(await calls.end(name)) for name in names] == 41 * [None]


async def test_after_a_refusal_more_processes_are_made_though_another_is_at_work(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quvatlh.runner.pools.pool.REFUSE_S", 0.05)
    mark, go = tmp_path / "first", tmp_path / "go"
    calls.pools.configure([faulty_of("first", str(mark))])
    at_work = begin(calls, "waits", str(go))
    await calls.told()
    behind = begin(calls, "hello")
    await refused(calls)
    mark.unlink()
    assert (await calls.end(behind)).error is None
    go.touch()
    assert (await calls.end(at_work)).error is None


@pytest.mark.parametrize("version", [1, 2])
async def test_who_is_ready_twice_fails_its_call_and_not_its_environment(
    faulty: Calls, tmp_path: Path, version: int
) -> None:
    go = tmp_path / "go"
    other = begin(faulty, "waits", str(go))
    await faulty.told()
    end = await run(faulty, "is_ready_again", version)
    assert (code(end), text(end)) == ("protocol", "said a second time that it is ready")
    assert (await run(faulty, "hello")).error is None
    go.touch()
    assert (await faulty.end(other)).error is None


async def test_what_a_process_says_before_it_fails_to_start_is_in_the_log_of_its_calls(
    calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    calls.pools.configure([faulty_of("complains", "200000")])
    first, second = await asyncio.gather(run(calls, "hello"), run(calls, "hello"))
    for end in (first, second):
        assert (code(end), end.stderr_tail.count("\n")) == ("environment", 2)
        assert end.stderr_tail.endswith("x\nno gem \N{REPLACEMENT CHARACTER} of that name\n")
        assert len(end.stderr_tail.encode()) <= TAIL_BYTES
    noted = capsys.readouterr().err
    assert noted.startswith(f"{text(first)}\nx")
    assert noted.endswith("x\nno gem \N{REPLACEMENT CHARACTER} of that name\n")


async def test_what_a_process_says_before_it_is_ready_is_in_the_log_of_its_first_call(calls: Calls) -> None:
    calls.pools.configure([faulty_of("complains_of_little")])
    ends = [await run(calls, "hello") for _ in range(2)]
    assert [end.stderr_tail for end in ends] == ["deprecated\n", ""]


@pytest.fixture
async def lone(faulty: Calls, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """There is one process at a time, and nobody waits long for its end."""
    monkeypatch.setattr("quvatlh.runner.pools.pool.LOST_S", 0.05)
    monkeypatch.setattr("quvatlh.runner.pools.child.GRACE_S", 0.05)
    faulty.pools.configure([faulty_of(children=1)])
    return faulty


async def test_who_hears_nothing_any_more_is_replaced(lone: Calls) -> None:
    for call in ("is_deaf_after", "hello"):
        assert (await run(lone, call)).error is None


async def test_who_hears_nothing_any_more_fails_its_call(lone: Calls) -> None:
    end = await run(lone, "is_deaf")
    words = "its process has closed its standard input before the task's end, and was ended"
    assert (code(end), text(end)) == ("crash", words)
    assert (await run(lone, "hello")).error is None


async def test_who_says_nothing_any_more_fails_its_call(lone: Calls) -> None:
    end = await run(lone, "is_dumb")
    words = "its process has closed its standard output before the task's end, and was ended"
    assert (code(end), text(end)) == ("crash", words)
    assert (await run(lone, "hello")).error is None


async def test_who_says_nothing_from_the_beginning_is_no_environment(lone: Calls) -> None:
    lone.pools.configure([faulty_of("mute")])
    end = await run(lone, "hello")
    words = "environment faulty: its process has closed its standard output, before it was ready"
    assert (code(end), text(end)) == ("environment", words)


async def test_who_leaves_and_stays_is_ended_and_its_answer_counts(lone: Calls) -> None:
    assert (await run(lone, "stays")).error is None
    assert (await run(lone, "hello")).error is None


@pytest.mark.parametrize("call", ["names_nothing", "fails_without_a_name"])
async def test_an_answer_without_a_name_fails_the_call(lone: Calls, call: str) -> None:
    end = await run(lone, call)
    assert (code(end), text(end)) == ("protocol", "answered what it was not asked: ''")
    assert (await run(lone, "hello")).error is None


async def test_numbers_with_fractions_are_rounded_and_there_need_be_no_text(faulty: Calls) -> None:
    end = await run(faulty, "rounds")
    assert (end.error, end.started_at_ms) == (None, 1501)
    assert [(each.percent, each.text) for each in faulty.progress] == [(33, "a third"), (66, ""), (100, "")]
    assert text(await run(faulty, "fails_without_words")) == "it failed, and did not say why"


@pytest.mark.parametrize("before", [(), ("sh", "-c", '"$@"; exit 0', "sh")], ids=["by itself", "behind a shell"])
async def test_a_process_that_has_grown_is_replaced(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...]
) -> None:
    monkeypatch.setattr("quvatlh.runner.pools.brood.MEMORY_S", 0.0)
    command = (*before, sys.executable, "faulty.py")
    calls.pools.configure([Environment("faulty", command=command, cwd=str(APP), recycle_megabytes=100)])
    first = await run(calls, "pid")
    grown = await run(calls, "grows", 150)
    assert first.result == grown.result
    assert (await run(calls, "pid")).result != grown.result


async def test_a_result_beyond_the_bound_fails_its_call_for_good(faulty: Calls) -> None:
    before = await run(faulty, "pid")
    assert (await run(faulty, "returns", LARGE_RESULT_BYTES_MAX)).error is None
    end = await run(faulty, "returns", LARGE_RESULT_BYTES_MAX + 1)
    words = "what it returned has 16777217 bytes; at most 16777216, the rest belongs into a file"
    assert (code(end), text(end)) == ("unrunnable", words)
    assert (await run(faulty, "pid")).result == before.result
