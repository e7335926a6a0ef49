"""A session goes on with the next daemon, and so do the actions of its executor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quvatlh.core import commands as c
from quvatlh.service.pool import BrokeOff
from quvatlh.service.seat import Claim
from tests.fakes.peers import Switchboard
from tests.service.sessions import running
from tests.service.stand import Stand, asked, one, two


async def test_the_next_daemon_goes_on_with_session_and_actions(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        session, process = stand.node.session.id, stand.process
        await stand.crash()
        stand.begin()
        await stand.working()
        assert (stand.node.session.id, stand.process, stand.running()) == (session, process, [action])
        stand.end(action)
        await stand.until_state(task, "succeeded")
        assert (await stand.pool.task(asked(), task))["attempts"] == 1


async def cut_off_while_followed(
    master: Stand, follower: Stand, switchboard: Switchboard
) -> tuple[str, AsyncIterator[bytes], asyncio.Future[bytes]]:
    """The action, what comes of it, and the next of that."""
    task, action = await running(follower, tags=["node=n2"])
    follower.process.write(action, b"one ")
    chunks = (await master.pool.log(asked(), task, "stdout", None, follow=True)).chunks
    assert await anext(chunks) == b"one "
    following = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0)
    switchboard.cut("n2")
    return action, chunks, following


async def test_who_follows_its_output_hears_on_from_the_next_daemon(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        action, chunks, following = await cut_off_while_followed(master, follower, switchboard)
        await follower.crash()
        follower.process.write(action, b"two ")
        follower.begin()
        await asyncio.sleep(0.01)
        assert not following.done()
        switchboard.heal()
        await follower.working()
        assert await following == b"two "
        follower.end(action)
        assert [chunk async for chunk in chunks] == []


async def test_who_follows_the_output_of_what_is_lost_is_told_that_it_is_not_whole(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        _, _, following = await cut_off_while_followed(master, follower, switchboard)
        for _ in range(20):
            master.clock.advance(1)
            await asyncio.sleep(0.01)
        with pytest.raises(BrokeOff, match="cannot be asked for the rest"):
            await following


async def test_an_end_that_no_daemon_saw_is_reported_by_the_next_and_then_forgotten(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        await running(stand)
        await stand.crash()
        stand.end(action, 3)
        stand.begin()
        await stand.until(lambda: stand.peek(task) == "retrying")
        record = await stand.pool.task(asked(), task)
        assert record["actions"][0]["exit_code"] == 3
        await stand.until(lambda: action not in stand.process.held, "it is not forgotten")


async def test_an_end_is_kept_by_the_executor_until_it_is_applied(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        stand.log.hold()
        stand.end(action)
        await asyncio.sleep(0.05)
        assert action in stand.process.held
        stand.log.release()
        await stand.until_state(task, "succeeded")
        await stand.until(lambda: action not in stand.process.held, "it is not forgotten")


async def test_a_start_that_was_not_told_is_told_by_the_next_daemon(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until(stand.running)
        await stand.crash()
        assert stand.peek(task) == "claimed"
        stand.begin()
        await stand.until_state(task, "running")


async def test_a_claim_that_the_executor_does_not_know_is_given_back(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        _, action = await running(stand)
        waiting = await stand.add()
        stand.node.worker.claimed = list[Claim]().extend  # type: ignore[method-assign,assignment]  # it is killed before that
        token = await stand.claim(waiting)
        await stand.crash()
        assert stand.peek(waiting) == "claimed"
        stand.begin()
        await stand.until_state(waiting, "pending")
        assert f"a{token}" not in stand.process.held
        assert (await stand.pool.task(asked(), waiting))["attempts"] == 0
        stand.end(action)
        await stand.until_state(waiting, "running")


async def test_a_claim_that_waits_in_the_executor_is_found_there(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        _, action = await running(stand)
        waiting = await stand.add()
        token = await stand.claim(waiting)
        await stand.until(lambda: f"a{token}" in stand.process.held)
        await stand.crash()
        stand.begin()
        await stand.working()
        stand.end(action)
        await stand.until_state(waiting, "running")
        assert stand.running() == [f"a{token}"]


async def test_what_a_person_wanted_ended_meanwhile_ends(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, _action = await running(stand)
        await stand.crash()
        (row,) = stand.machine.db.execute("SELECT seq FROM task WHERE id = ?", (task,))
        assert row
        await stand.node.door.propose(c.Delete((task,)), 1)
        stand.begin()
        await stand.until(lambda: not stand.running() and not stand.live())


async def test_a_daemon_killed_while_it_was_stopping_leaves_no_drain_behind(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await running(stand)
        await stand.node.session.leave(1)
        await stand.until(lambda: not stand.node.worker.takes)
        await stand.crash()
        stand.begin()
        await running(stand)
