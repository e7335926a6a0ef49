"""Attempts of a native command, from the executor's word to the next try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quvatlh.service.pool import Turn
from quvatlh.service.presence import ELECTION_S, SILENT_S
from tests.service.stand import Stand, asked, one

EXACT = {"jitter_permille": 0}


async def fails(stand: Stand, task: str, code: int = 1) -> dict[str, Any]:
    """Its run ends so; the task after it."""
    await stand.until_state(task, "running")
    (action,) = stand.running()
    stand.end(action, code)
    await stand.until(lambda: action not in [f"a{token}" for token, _ in stand.live()])
    return dict(await stand.pool.task(asked(), task))


async def passes(stand: Stand, ms: int) -> None:
    """Time, with beats in it."""
    while ms > 0:
        stand.clock.advance(min(ms, 1000) / 1000)
        await stand.node.session.beat()
        ms -= 1000


@pytest.mark.parametrize(
    ("retry", "waits_ms"),
    [
        ({"backoff": "exponential", "first_ms": 1000, "factor_milli": 3000, "max_ms": 5000}, [1000, 3000, 5000, 5000]),
        ({"backoff": "linear", "first_ms": 2000, "max_ms": 5000}, [2000, 4000, 5000, 5000]),
        ({"backoff": "constant", "first_ms": 700}, [700, 700, 700, 700]),
        ({"backoff": "list", "delays_ms": [100, 5000, 10]}, [100, 5000, 10, 10]),
    ],
)
@pytest.mark.parametrize("of_queue", [False, True])
async def test_the_next_attempt_is_when_the_backoff_says(
    tmp_path: Path, retry: dict[str, Any], waits_ms: list[int], *, of_queue: bool
) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        given: dict[str, Any] = {} if of_queue else {"retry": retry | EXACT}
        if of_queue:
            await stand.pool.queueing.put_queue(asked(), "q", {"retry": retry | EXACT})
        task = await stand.add(queue="q", **given)
        for wait_ms in waits_ms:
            record = await fails(stand, task)
            assert record["state"] == "retrying"
            assert record["due_at_ms"] == stand.clock.wall_ms() + wait_ms
            await passes(stand, wait_ms)
        assert (await fails(stand, task))["attempts"] == len(waits_ms) + 1


@pytest.mark.parametrize(("code", "state"), [(7, "failed"), (8, "failed"), (9, "retrying")])
async def test_an_exit_code_that_was_called_permanent_is(tmp_path: Path, code: int, state: str) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        task = await stand.add(retry={"permanent_exit_codes": [7, 8]})
        record = await fails(stand, task, code)
        assert (record["state"], record["error"]) == (state, {"code": "exit", "text": f"exit status {code}"})


async def test_attempts_count_what_was_lost_and_the_bound_only_what_ended_by_itself(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1, isolated=True) as stand:
        await stand.working()
        task = await stand.add(retry={"attempts": 2, "first_ms": 500} | EXACT)
        for _ in range(2):
            await stand.until_state(task, "running")
            stand.process.kill()
            await stand.until(lambda: not stand.node.session.is_open)
            stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
            await stand.working()
        assert (await fails(stand, task))["attempts"] == 3
        await passes(stand, 500)
        record = await fails(stand, task)
        assert (record["state"], record["attempts"]) == ("failed", 4)
        await stand.pool.act(asked(), Turn("retry"), [task])
        assert (await fails(stand, task))["attempts"] == 5
        await passes(stand, 500)
        record = await fails(stand, task)
        assert (record["state"], record["attempts"]) == ("failed", 6), "a person gives all attempts again"
