"""Tasks that are given away by the entry that adds them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.model import QueueSettings
from quvatlh.ports import Role
from tests.service.bidding import POLICY, ready
from tests.service.stand import Stand, one, several, two


class Told:
    """A Hearer: kinds of events, by entry."""

    def __init__(self, stand: Stand) -> None:
        self.entries: list[list[str]] = []
        stand.node.feed.tell(self)

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        self.entries.append([event.kind for event in events])

    def role_changed(self, role: Role) -> None: ...

    def reset(self, index: int) -> None: ...


BOTH = ["task.added", "task.claimed"]


async def test_an_idle_worker_gets_a_task_with_its_add(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await ready(stand)
        await stand.until_state(await stand.add(), "running")
        told = Told(stand)
        task = await stand.add()
        assert told.entries == [BOTH]
        assert stand.peek(task) == "claimed"


@pytest.mark.parametrize(
    "spec",
    [
        {"policy": POLICY}, {"kind": "service"}, {"tags": ["nowhere"]}, {"slots": 3}, {"queue": "limited"},
        {"delay_ms": 5}, {"work": {"http": {"url": "http://x"}}}, {"queue_limit": 5}, {"lease_ms": 1000},
    ],
)  # fmt: skip
async def test_what_more_than_a_slot_has_a_say_in_goes_to_the_market(spec: dict[str, Any], tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await ready(stand)
        await stand.node.door.propose(c.PutQueue("limited", QueueSettings(limit=2)), 1)
        if "lease_ms" in spec:
            await stand.node.tree.stop("session")
            stand.clock.advance(1.5)
        told = Told(stand)
        await stand.add(**spec)
        assert "task.claimed" not in told.entries[0]


async def test_all_of_an_event_or_none_of_it(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await ready(stand)
        told = Told(stand)
        await stand.many(3)
        assert told.entries[0].count("task.claimed") == 0, "who is first is the market's to say"
        await stand.until(lambda: len(stand.running()) == 2)
        for name in stand.running():
            stand.end(name)
        await stand.until(lambda: len(stand.running()) == 1 and len(stand.live()) == 1)
        stand.end(stand.running()[0])
        await stand.until(lambda: not stand.live())
        told.entries.clear()
        await stand.many(2)
        assert told.entries[0].count("task.claimed") == 2


async def test_nobody_overtakes_what_waits(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await ready(stand)
        await stand.until_state(await stand.add(), "running")
        waiting = await stand.add(slots=2)
        told = Told(stand)
        await stand.add()
        assert "task.claimed" not in told.entries[0]
        assert stand.peek(waiting) == "pending"


async def test_nobody_overtakes_what_is_being_added(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await ready(stand)
        first, second = await asyncio.gather(stand.many(3), stand.add())
        await stand.until(lambda: len(stand.live()) == 2)
        assert [stand.peek(task) == "pending" for task in (*first.ids, second)] == [False, False, True, True]


async def test_adds_that_meet_are_not_given_one_slot(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await ready(stand)
        await asyncio.gather(*[stand.add() for _ in range(5)])
        assert len(stand.live()) == 1
        await stand.until(stand.running)
        await asyncio.sleep(0.02)
        assert len(stand.live()) == 1


async def test_an_id_that_is_there_already_is_not_given_away_again(tmp_path: Path) -> None:
    async with one(tmp_path, slots=2) as stand:
        await ready(stand)
        await stand.until_state(await stand.add(id="mine"), "running")
        assert await stand.add(id="mine") == "mine"
        assert len(stand.live()) == 1


async def test_limits_are_judged_as_ever(tmp_path: Path) -> None:
    async with one(tmp_path, slots=4) as stand:
        await ready(stand)
        tasks = [await stand.add(name="n", limit=1) for _ in range(2)]
        await stand.until_state(tasks[0], "running")
        assert stand.peek(tasks[1]) == "pending"
        stand.end(stand.running()[0])
        await stand.until_state(tasks[1], "running")


async def test_through_a_follower_too(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await ready(master, follower)
        told = Told(master)
        await follower.add()
        assert ["queue.changed", *BOTH] in told.entries


async def test_of_workers_that_are_as_free_the_masters_own_is_first(tmp_path: Path) -> None:
    async with several(tmp_path, ("n2", "n1")) as ((master, other), _):
        await ready(master, other)
        for _ in range(3):
            await other.add()
        assert [worker for _, worker in master.live()] == ["n2", "n1", "n2"]
