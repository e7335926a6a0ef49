"""Many calls, some of which die or never end: each ends as it should, none is lost, and the pool is whole afterwards.

A tenth of what an issue asks to see; `python -m tests.bench.warm hostile --count 10000` runs it in full, through an executor.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.runner.calls import WAIT_S, Calls, code
from tests.runner.mixture import expected, target

pytestmark = pytest.mark.long

COUNT = 1000
AHEAD = 64


async def test_of_many_calls_each_ends_as_it_should(calls: Calls) -> None:
    ends: dict[int, str | None] = {}
    room = asyncio.Semaphore(AHEAD)

    async def one(number: int) -> None:
        async with room:
            timeout_s = 0.3 if expected(number) == "timeout" else WAIT_S  # a machine may stand still for so long
            end = await calls.run(target(number), timeout_s=timeout_s, grace_s=0, width=2)
            ends[number] = code(end)

    await asyncio.gather(*map(one, range(COUNT)))
    assert ends == {number: expected(number) for number in range(COUNT)}
    assert calls.carriers.gate.taken == 0
    assert [await calls.value("jobs:add", n) for n in range(10)] == list(range(1, 11))
    assert calls.children() <= 2
