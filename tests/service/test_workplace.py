"""Claims that wait, drains, changes while it runs, announcements, outputs nobody may ask for any more."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import limits
from quvatlh.core.limits import JSON_BYTES_MAX
from quvatlh.core.queries import announcements
from quvatlh.ports import Announcement
from quvatlh.service import asks, workplace
from quvatlh.service.worker import BEGIN_S
from tests.service.stand import Stand, asked, one

ANNOUNCE = "function(state, task, action) announce"


async def patch(stand: Stand, **changes: Any) -> None:
    await stand.node.door.write(asks.Do(c.PatchWorker(stand.name, c.WorkerChanges(**changes))), 1)


def said(stand: Stand) -> list[str]:
    return [text for text, _ in stand.notes]


# --- claims beyond the slots ---


async def test_a_claim_beyond_the_slots_starts_as_soon_as_one_is_free(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        first, second = await stand.add(), await stand.add()
        await stand.until(stand.running)
        await stand.claim(second)
        await asyncio.sleep(0.02)
        assert stand.running() == ["a1"]
        stand.end("a1")
        await stand.until_state(first, "succeeded")
        await stand.until(lambda: stand.running() == ["a2"])
        assert stand.peek(second) in {"claimed", "running"}


async def test_a_claim_that_has_not_begun_in_time_is_given_back_and_one_with_a_slot_is_not(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        running = await stand.add()
        await stand.until(stand.running)
        waiting = await stand.add(delivery="at-most-once")
        await stand.claim(waiting)
        stand.clock.advance(BEGIN_S + 0.01)
        stand.process.look()
        await stand.until_state(waiting, "pending")
        record = await stand.pool.task(asked(), waiting)
        assert (record["attempts"], record["actions"]) == (0, [])
        assert stand.running() == ["a1"]
        assert stand.peek(running) in {"claimed", "running"}
        stand.end("a1")
        await stand.until_state(waiting, "running")
        stand.end(stand.running()[0])
        await stand.until_state(waiting, "succeeded")


@pytest.mark.parametrize("wish", [{"slots": 0}, {"draining": True}])
async def test_what_waits_for_a_slot_is_given_back_when_there_is_none_any_more(
    wish: dict[str, Any], tmp_path: Path
) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        await stand.add()
        await stand.until(stand.running)
        waiting = await stand.add()
        await stand.claim(waiting)
        await stand.pool.patch_worker(asked(), stand.name, wish)
        await stand.until_state(waiting, "pending")
        assert stand.running() == ["a1"]


async def test_what_is_given_back_never_starts_here_however_late_it_is_told_of_again(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        await stand.add()
        await stand.until(stand.running)
        waiting = await stand.add(tags=["nowhere"])
        token = await stand.claim(waiting)
        claims = [held.claim for held in stand.node.worker.actions if held.token == token and held.claim]
        stand.clock.advance(BEGIN_S + 0.01)
        stand.process.look()
        await stand.until_state(waiting, "pending")
        stand.end("a1")
        await stand.until(lambda: not stand.running())
        stand.node.worker.claimed(claims)
        await asyncio.sleep(0.05)
        assert stand.running() == []
        assert f"a{token}" not in stand.process.held


async def test_a_waiting_claim_that_is_killed_ends_without_having_begun(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        await stand.add()
        await stand.until(stand.running)
        waiting = await stand.add()
        await stand.claim(waiting)
        await stand.node.door.write(asks.Do(c.Delete((waiting,))), 1)
        await stand.until(lambda: len(stand.live()) == 1)
        assert stand.running() == ["a1"]


async def test_a_claim_whose_lease_is_over_is_not_begun_before_the_next_answered_beat(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        await stand.node.tree.stop("presence")
        stand.clock.advance(1.5)
        task = await stand.add(lease_ms=1000)
        await stand.claim(task)
        await asyncio.sleep(0.05)
        assert (stand.running(), stand.peek(task)) == ([], "claimed")
        await stand.node.session.beat()
        await stand.until_state(task, "running")


# --- while it runs ---


async def test_slots_change_while_it_runs_and_none_is_nothing(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        tasks = [await stand.add() for _ in range(4)]
        await stand.until_state(tasks[0], "running")
        await patch(stand, slots=3)
        await stand.until(lambda: len(stand.running()) == 3)
        await patch(stand, slots=0)
        for name in stand.running():
            stand.end(name)
        await stand.until_state(tasks[2], "succeeded")
        await asyncio.sleep(0.05)
        assert stand.peek(tasks[3]) == "pending"
        await patch(stand, slots=1, queues=("other",))
        await asyncio.sleep(0.05)
        assert stand.peek(tasks[3]) == "pending"
        await patch(stand, queues=("*",))
        await stand.until_state(tasks[3], "running")


async def test_drained_it_finishes_takes_nothing_new_and_says_when_it_is_empty(tmp_path: Path) -> None:
    async with one(tmp_path, slots=3) as stand:
        await stand.working()
        job = await stand.add()
        service = await stand.add(kind="service")
        await stand.until_state(job, "running")
        await stand.until_state(service, "running")
        await patch(stand, draining=True)
        await stand.until_state(service, "pending")
        later = await stand.add()
        await asyncio.sleep(0.05)
        assert (stand.peek(job), stand.peek(later)) == ("running", "pending")
        assert "the worker is empty" not in said(stand)
        stand.end("a1")
        await stand.until(lambda: "the worker is empty" in said(stand))
        await patch(stand, draining=False)
        await stand.until_state(later, "running")
        await stand.until_state(service, "running")


# --- announce ---


async def test_what_is_announced_travels_with_the_start_and_goes_with_the_action(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        stand.judge.teach_announce(
            ANNOUNCE, lambda state, task, action: Announcement({"port": 80, "of": task["name"], "by": action["id"]})
        )
        await stand.working()
        task = await stand.add(announce={"source": ANNOUNCE}, name="web")
        await stand.until_state(task, "running")
        (found,) = announcements(stand.machine.db)
        assert (found.task, found.data) == (task, {"port": 80, "of": "web", "by": "a1"})
        stand.end("a1")
        await stand.until_state(task, "succeeded")
        assert announcements(stand.machine.db) == []


async def test_what_comes_after_the_start_was_told_is_announced_too(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        gate = asyncio.Event()

        async def slow(*_: object) -> Announcement:
            await gate.wait()
            return Announcement({"late": True})

        stand.judge.teach_announce(ANNOUNCE, lambda *_: Announcement({}))
        stand.judge.announce = slow  # type: ignore[assignment, method-assign]
        await stand.working()
        task = await stand.add(announce={"source": ANNOUNCE})
        await stand.until_state(task, "running")
        assert announcements(stand.machine.db) == []
        gate.set()
        await stand.until(lambda: [each.data for each in announcements(stand.machine.db)] == [{"late": True}])


async def test_an_announce_that_fails_is_shown_and_fails_nothing_else(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        stand.judge.teach_announce(ANNOUNCE, lambda *_: Announcement(None, "line 1: no luck"))
        stand.judge.teach_announce("long", lambda *_: Announcement({"x": "x" * JSON_BYTES_MAX}))
        await stand.working()
        tasks = [await stand.add(announce={"source": source}) for source in (ANNOUNCE, "long")]
        for task, words in zip(tasks, ("announce: line 1: no luck", "announce: the table has"), strict=True):
            await stand.until_state(task, "running")
            await stand.until(partial(_shows, stand, task, words))
        assert said(stand).count("announce failed") == 2
        for name in stand.running():
            stand.end(name)
        for task in tasks:
            await stand.until_state(task, "succeeded")


def _shows(stand: Stand, task: str, words: str) -> bool:
    return words in str(stand.machine.db.execute("SELECT progress FROM live WHERE id = ?", (task,)).fetchone())


# --- a chore ---


async def test_outputs_of_what_is_not_listed_any_more_are_pruned(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        failed = await stand.add(retry={"attempts": 1})
        await stand.until(lambda: len(stand.running()) == 2)
        stand.end("a2", 1)
        await stand.until_state(failed, "failed")
        stand.host.kept = {"a1", "a2", "a99"}
        await stand.node.workplace.prune()
        assert stand.host.kept == {"a1", "a2", "a99"}, "what this node has not heard of yet counts as listed"
        stand.end("a1")
        await stand.until_state(task, "succeeded")
        await stand.node.workplace.prune()
        assert stand.host.kept == {"a2", "a99"}


async def test_outputs_of_an_action_that_its_task_has_forgotten_are_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACTIONS_KEPT_MAX", 1)
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add(retry={"attempts": 2, "first_ms": 100, "jitter_permille": 0})
        for action, state in (("a1", "retrying"), ("a2", "failed")):
            await stand.until(stand.running)
            stand.end(action, 1)
            await stand.until_state(task, state)
            stand.clock.advance(0.2)
        stand.host.kept = {"a1", "a2"}
        await stand.node.workplace.prune()
        assert stand.host.kept == {"a2"}
        assert [each["id"] for each in await stand.pool.actions(asked(), task)] == ["a2"]


async def test_pruning_walks_on_round_by_round_and_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workplace, "LISTED_MAX", 2)
    async with one(tmp_path, slots=3) as stand:
        await stand.working()
        failed = [await stand.add(retry={"attempts": 1}) for _ in range(2)]
        last = await stand.add()
        await stand.until(lambda: len(stand.running()) == 3)
        for n in (1, 2):
            stand.end(f"a{n}", 1)
        stand.end("a3")
        for task, state in (*((each, "failed") for each in failed), (last, "succeeded")):
            await stand.until_state(task, state)
        stand.host.kept = {"a1", "a2", "a3"}
        for left in ({"a1", "a2", "a3"}, {"a1", "a2"}):
            await stand.node.workplace.prune()
            assert stand.host.kept == left
        stand.machine.db.execute("DELETE FROM action")
        await stand.node.workplace.prune()
        assert stand.host.kept == set()


async def test_slots_are_given_at_run_time_to_a_worker_that_began_with_none(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0, works=True) as stand:
        await stand.working()
        task = await stand.add()
        assert (await stand.pool.explain(asked(), task))["workers"][0]["verdict"] == "slots"
        await stand.pool.patch_worker(asked(), stand.name, {"slots": 1})
        await stand.until_state(task, "running")
