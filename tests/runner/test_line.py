"""The executor's line: what it says to the daemon, and when."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from quvatlh.core.work import Work
from quvatlh.ports import ActionSpec
from quvatlh.runner import wire
from quvatlh.runner.capture import Bell
from quvatlh.runner.carriers import Carrier
from quvatlh.runner.executor import keeper as keepers
from quvatlh.runner.executor.keeper import Keeper
from quvatlh.system.clock import RealClock
from tests.runner.fake import FakeRunner

TRUE = Work((("true",),))


class Wire:
    """The executor's end of a connection."""

    is_slow = False

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.on_pace: Any = None

    def send(self, kind: str, *rest: Any) -> None:
        if kind == "finished":
            self.said.append((kind, wire.finished_in(rest[0]).action_id))
        elif kind in {"started", "more"}:
            self.said.append((kind, rest[0]))

    def close(self) -> None: ...

    async def until(self, count: int) -> list[tuple[str, str]]:
        async with asyncio.timeout(60):
            while len(self.said) < count:  # noqa: ASYNC110 - nothing tells of what is said
                await asyncio.sleep(0.001)
        return self.said


def kept() -> tuple[Keeper, FakeRunner, Wire]:
    clock = RealClock()
    runner, link = FakeRunner(clock), Wire()
    keeper = Keeper(cast(Carrier, runner), clock, ("s", b"", "w1"), lambda: None, isolated=True)
    keeper.take(cast(wire.Link, link))
    for fence, name in enumerate("abcd", 1):
        keeper.start(ActionSpec(name, "t", 1, fence, "w1", TRUE, width=1, wait_s=60))
    return keeper, runner, link


async def test_ends_wait_for_company_while_others_wait_for_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "TELL_S", 3600)
    _, runner, link = kept()
    for name in "ab":
        await asyncio.sleep(0)
        runner.end(name)
        assert link.said == []
    await asyncio.sleep(0)
    runner.end("c")
    await asyncio.sleep(0)
    assert link.said == [("finished", "a"), ("finished", "b"), ("finished", "c")], "d is the last: work is wanted soon"
    await asyncio.sleep(0)
    assert link.said[3:] == [("started", "d")]


async def test_ends_do_not_wait_long_and_tell_of_their_start() -> None:
    _, runner, link = kept()
    await asyncio.sleep(0)
    runner.end("a")
    assert await link.until(2) == [("finished", "a"), ("started", "b")]


async def test_ends_wait_for_company_while_calls_wait_for_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "TELL_S", 3600)
    keeper, runner, link = kept()
    for name in "abc":
        await asyncio.sleep(0)
        runner.end(name)
    await asyncio.sleep(0)
    link.said.clear()
    runner.has_line = True
    runner.end("d")
    keeper.start(ActionSpec("e", "t", 1, 5, "w1", TRUE, width=1, wait_s=60))
    await asyncio.sleep(0)
    assert link.said == []
    runner.has_line = False
    runner.end("e")
    assert link.said == [("finished", "d"), ("finished", "e")], "the last of them: work is wanted soon"


async def test_a_daemon_that_comes_anew_is_told_nothing_twice() -> None:
    keeper, runner, _ = kept()
    await asyncio.sleep(0)
    runner.end("a")
    await asyncio.sleep(0)
    newer = Wire()
    keeper.take(cast(wire.Link, newer))
    runner.end("b")
    assert await newer.until(2) == [("finished", "b"), ("started", "c")]


class Silent:
    """A run that has written nothing."""

    def __init__(self) -> None:
        self.bell = Bell()

    def written(self) -> tuple[int, int]:
        return 0, 0


async def test_what_is_written_in_the_moment_somebody_asks_for_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, runner, link = kept()
    run = Silent()
    monkeypatch.setattr(runner, "run_of", lambda _: run, raising=False)
    for _ in range(2):
        keeper.heard(cast(wire.Link, link), ("watch", "a", 0, 0))
        run.bell.ring()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [each for each in link.said if each[0] == "more"] == 2 * [("more", "a")]
