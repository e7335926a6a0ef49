"""What holds of every Runner, the fake and the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quvatlh.core.work import check
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted, Runner
from quvatlh.runner.native import NativeRunner
from quvatlh.runner.settings import RunnerSettings
from quvatlh.system.clock import RealClock
from tests.runner.fake import FakeRunner


class Ear:
    def __init__(self) -> None:
        self.events: asyncio.Queue[ActionStarted | ActionFinished] = asyncio.Queue()

    def started(self, event: ActionStarted) -> None:
        self.events.put_nowait(event)

    def progressed(self, event: ActionProgress) -> None: ...

    def finished(self, event: ActionFinished) -> None:
        self.events.put_nowait(event)

    async def next(self) -> ActionStarted | ActionFinished:
        return await asyncio.wait_for(self.events.get(), 20)


@pytest.fixture(params=["fake", "native"])
async def runner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runner]:
    made: Runner
    if request.param == "fake":
        made = FakeRunner(RealClock())
    else:
        made = NativeRunner(RunnerSettings(f"{tmp_path}/outputs", f"{tmp_path}/inputs"), RealClock())
    yield made
    await made.close(0)


def spec(name: str = "a") -> ActionSpec:
    return ActionSpec(name, "t", 1, 1, "w", check({"command": ["sleep", "1000"]}))


async def test_an_action_is_live_from_start_to_finish(runner: Runner) -> None:
    ear = Ear()
    runner.listen(ear)
    runner.start(spec())
    assert list(runner.live()) == ["a"]
    assert isinstance(await ear.next(), ActionStarted)
    runner.stop("a")
    end = await ear.next()
    assert isinstance(end, ActionFinished)
    assert (end.signal, end.exit_code, end.error and end.error.code) == ("TERM", None, "stopped")
    assert list(runner.live()) == []


async def test_an_action_that_is_live_is_not_started_again(runner: Runner) -> None:
    runner.start(spec())
    with pytest.raises(ValueError, match="live already"):
        runner.start(spec())


async def test_stopped_before_it_began_it_finishes_and_never_starts(runner: Runner) -> None:
    ear = Ear()
    runner.listen(ear)
    runner.start(spec())
    runner.stop("a")
    end = await ear.next()
    assert isinstance(end, ActionFinished)
    assert (end.started_at_ms, end.exit_code, end.signal) == (None, None, None)


async def test_stopping_nobody_does_nothing(runner: Runner) -> None:
    runner.stop("nobody")
    assert list(runner.live()) == []


async def test_close_finishes_what_is_live(runner: Runner) -> None:
    ear = Ear()
    runner.listen(ear)
    runner.start(spec("a"))
    runner.start(spec("b"))
    await ear.next()
    await ear.next()
    await runner.close(5)
    ends = [await ear.next(), await ear.next()]
    assert sorted(end.action_id for end in ends) == ["a", "b"]


async def test_a_follower_is_let_go_at_the_end(runner: Runner) -> None:
    ear = Ear()
    runner.listen(ear)
    runner.start(spec())
    await ear.next()
    following = asyncio.ensure_future(_drain(runner))
    await asyncio.sleep(0)
    runner.stop("a")
    assert await asyncio.wait_for(following, 60) == []


async def _drain(runner: Runner) -> list[object]:
    return [chunk async for chunk in runner.follow("a")]
