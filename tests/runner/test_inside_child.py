"""A child of an environment, in this process: what comes in moments that no test of real processes can hit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator

import pytest

from quvatlh.runner.inside.child import Child


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Child, int]]:
    """And where its answers are read."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    pipes = [os.pipe() for _ in range(5)]
    (inward, _), (answers, out), (_, bell), (stdout, _), (stderr, _) = pipes
    yield Child({"in": inward, "out": out, "bell": bell, "stdout_read": stdout, "stderr_read": stderr}), answers
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)


@pytest.mark.parametrize("early", [True, False], ids=["before it is there", "before its first step"])
def test_an_async_call_that_is_stopped_as_it_begins_says_so(child: tuple[Child, int], early: bool) -> None:
    inside, answers = child
    stop = {"type": "stop", "id": "a-1"}

    async def work() -> None:
        await asyncio.sleep(3600)

    async def begin() -> None:
        inside._idle = asyncio.get_running_loop().create_future()
        context = inside._context({"id": "a-1"})
        if early:
            inside._take(stop)
        inside._spawn(context, work())
        if not early:
            inside._take(stop)
        async with asyncio.timeout(10):
            await inside._idle

    asyncio.run(begin())
    said = json.loads(os.read(answers, 65536))
    assert (said["type"], said["id"], said["stopped"]) == ("error", "a-1", True)
