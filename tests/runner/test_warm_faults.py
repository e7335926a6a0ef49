"""Warm processes with faults: each is its own, and nobody else waits for it or fails with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from quvatlh.config.environments import Environment
from quvatlh.ports import ActionFinished
from tests.runner.calls import APP, Calls, code, text


def faulty_of(*given: str, **settings: Any) -> Environment:
    return Environment("faulty", command=(sys.executable, "faulty.py", *given), cwd=str(APP), **settings)


def begin(calls: Calls, call: str, *args: Any, **given: Any) -> str:
    return calls.start(call, *args, adapter="warm", environment="faulty", **given)


async def run(calls: Calls, call: str, *args: Any, **given: Any) -> ActionFinished:
    return await calls.end(begin(calls, call, *args, **given))


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
