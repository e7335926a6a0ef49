"""Calls as the cluster sees them: who may have them, and what of their ends reaches the record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quvatlh.ports import RunError
from quvatlh.service.pool import Rejected, Turn
from tests.service.stand import Stand, asked, one, two

CALL = {"python": "jobs:add", "args": [1]}
BOTH: Any = {"adapters": ("command", "python")}


async def called(stand: Stand, **spec: Any) -> tuple[str, str]:
    """A new task, and its action once it runs."""
    task = await stand.add(work=CALL, **spec)
    await stand.until_state(task, "running")
    return task, max(stand.running(), key=lambda name: int(name[1:]))


async def put_off(stand: Stand) -> str:
    """A task that is to be tried again in an hour, as it has said."""
    task, action = await called(stand)
    stand.process.answer(action, RunError("exception", "Retry: busy", "quvatlh.task.Retry", retry_after_s=3600))
    await stand.until_state(task, "retrying")
    return task


async def test_only_who_has_the_adapter_gets_a_call(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        call, command = await stand.add(work=CALL), await stand.add()
        await stand.until_state(command, "running")
        assert stand.peek(call) == "pending"


async def test_a_result_is_in_the_record(tmp_path: Path) -> None:
    async with one(tmp_path, **BOTH) as stand:
        await stand.working()
        task, action = await called(stand)
        stand.process.answer(action, result=b'{"sum":2}')
        record = await stand.pool.task(asked(), task, 5000)
        assert (record["state"], record["result"]) == ("succeeded", {"sum": 2})


async def test_an_exception_is_tried_again_when_it_says_so_and_not_where_it_need_not(tmp_path: Path) -> None:
    async with one(tmp_path, **BOTH) as stand:
        await stand.working()
        later = await put_off(stand)
        record = await stand.pool.task(asked(), later)
        assert record["error"] == {"code": "exception", "text": "Retry: busy"}
        await asyncio.sleep(1.2)  # the first wait, if it had not said when
        assert stand.peek(later) == "retrying"
        named, action = await called(stand, retry={"permanent_exceptions": ["builtins.ValueError"]})
        stand.process.answer(action, RunError("exception", "ValueError: no", "builtins.ValueError"))
        await stand.until_state(named, "failed")
        final, action = await called(stand)
        stand.process.answer(action, RunError("exception", "never", "quvatlh.task.PermanentFailure", final=True))
        await stand.until_state(final, "failed")


async def test_a_person_has_it_tried_again_at_once(tmp_path: Path) -> None:
    async with one(tmp_path, **BOTH) as stand:
        await stand.working()
        later = await put_off(stand)
        await stand.pool.act(asked(), Turn("retry"), [later])
        await stand.until_state(later, "running")


async def test_calls_beyond_the_slots_wait_in_the_executor_for_theirs(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1, **BOTH) as stand:
        await stand.working()
        first, action = await called(stand)
        spec = stand.process.held[action].spec
        assert (spec.width, spec.work.call is not None) == (1, True)
        stand.process.answer(action, RunError("stale", "no slot became free for it"))
        await stand.until_state(first, "running")
        assert (await stand.pool.task(asked(), first))["attempts"] == 1


async def test_progress_is_seen_while_it_goes_on(tmp_path: Path) -> None:
    async with one(tmp_path, **BOTH) as stand:
        await stand.working()
        task, action = await called(stand)
        stand.process.say(action, 40, "reading")
        async with asyncio.timeout(5):
            while (found := (await stand.pool.task(asked(), task))["actions"][0]["progress"]) is None:  # noqa: ASYNC110 - as a person looks
                await asyncio.sleep(0.01)
        assert found == {"percent": 40, "text": "reading"}


async def test_any_node_has_any_worker_reload(tmp_path: Path) -> None:
    async with two(tmp_path) as (first, second, _):
        await first.working()
        await second.working()
        for stand in (first, second):
            for name in ("n1", "n2"):
                told = await stand.pool.reload_worker(asked(), name, None)
                assert told == {"worker": name, "environments": ["default"]}
        with pytest.raises(Rejected, match="worker n1 has no environment other"):
            await second.pool.reload_worker(asked(), "n1", "other")
        with pytest.raises(Rejected, match="there is no worker named n3"):
            await second.pool.reload_worker(asked(), "n3", None)
