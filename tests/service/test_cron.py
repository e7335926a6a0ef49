from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import DAY_MS, HOUR_MS, MINUTE_MS
from quvatlh.core.model import ScheduleSpec, TaskSpec, Work
from quvatlh.service.pool import Rejected, TaskQuery, Unavailable, Unknown
from tests.service.stand import FULL, WORK, Stand, asked, one, two

START = 1_700_000_000_000
"""A second's begin, 20 s after a minute's."""


async def put(stand: Stand, name: str = "s", **spec: Any) -> dict[str, Any]:
    stand.node.cron.look_s = 0.02  # the clock of a test jumps all the time
    rule: dict[str, Any] = {} if "cron" in spec else {"every_ms": 1000}
    return await stand.pool.put_schedule(asked(), name, {"task": {"work": WORK}, **rule, **spec})


async def ledger(stand: Stand, name: str = "s") -> list[tuple[int, str, str | None]]:
    """Slots as seconds from the start, the first one first."""
    page = await stand.pool.ledger(asked(), name, 10_000, None)
    rows = [((row["slot_ms"] - START) // 1000, row["outcome"], row["why"]) for row in page.items]
    return rows[::-1]


def rows(stand: Stand) -> int:
    return int(stand.machine.db.execute("SELECT count(*) FROM ledger").fetchone()[0])


async def written(stand: Stand, count: int) -> None:
    await stand.until(lambda: rows(stand) == count)


async def test_a_slot_that_is_due_is_a_task(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        made = await put(stand, overlap="allow", payload=b"7", expires_in_ms=5000)
        assert made["next_ms"] == [START + 1000 * n for n in range(1, 11)]
        await asyncio.sleep(0.1)
        assert rows(stand) == 0
        stand.clock.advance(1)
        await stand.until(lambda: rows(stand) == 1)
        stand.clock.advance(1)
        await stand.until(lambda: rows(stand) == 2)
        assert await ledger(stand) == [(1, "ran", None), (2, "ran", None)]
        found = await stand.pool.schedule(asked(), "s")
        task = await stand.pool.task(asked(), found["last_task"])
        assert (task["payload"], task["expires_ms"] - task["created_at_ms"]) == (b"7", 5000)
        assert (found["last_slot_ms"], found["next_ms"][0]) == (START + 2000, START + 3000)


async def test_what_was_written_and_cannot_be_shown_is_not_refused(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("quvatlh.core.queries.schedules", lambda *_: [])  # as if somebody had deleted it at once
            with pytest.raises(Unknown, match="it was done"):
                await put(stand)
        assert (await stand.pool.schedule(asked(), "s"))["name"] == "s"


async def test_slots_and_what_became_of_them_are_told(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        events = stand.node.feed.follow(None)
        await put(stand)
        stand.clock.advance(2)
        told = []
        async with asyncio.timeout(5):
            async for event in events:
                if event.kind.startswith("schedule."):
                    told.append((event.kind, event.data["id"], event.data["slot_ms"], event.data["why"]))
                if len(told) == 2:
                    break
        assert told == [("schedule.fired", "s", START + 1000, None), ("schedule.skipped", "s", START + 2000, "overlap")]


@pytest.mark.parametrize("way", [{"overlap": "queue"}, {"catchup": "all"}, {"catchup": "all", "overlap": "replace"}])
async def test_runs_that_wait_for_each_other_have_no_limit_above_one(tmp_path: Path, way: dict[str, Any]) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = {"work": WORK, "limit": 5}
        with pytest.raises(Rejected) as refused:
            await put(stand, task=task, **way)
        assert [error.path for error in refused.value.errors] == ["task.limit"]
        assert await stand.pool.schedules(asked()) == []
        await put(stand, task=task | {"limit": 1}, **way)
        await put(stand, task=task, **way | {"overlap": "allow"})
        await put(stand, task=task, overlap="skip", catchup="last")


async def test_jitter_lets_a_task_begin_later_and_its_slot_stays(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, every_ms=100_000, jitter_ms=60_000, overlap="allow")
        for n in range(1, 4):
            stand.clock.advance(100)
            await written(stand, n)
        tasks = (await stand.pool.tasks(asked(), TaskQuery(TaskFilter()))).items
        late = [task["at_ms"] - task["created_at_ms"] for task in tasks]
        assert all(0 <= ms <= 60_000 for ms in late)
        assert len(set(late)) == 3
        assert [slot for slot, *_ in await ledger(stand)] == [100, 200, 300]


@pytest.mark.parametrize(
    ("catchup", "ran"),
    [("skip", [180, 240]), ("last", [180, 240]), ("all", [0, 60, 120, 180, 240])],
)
async def test_what_is_over_a_minute_late_is_made_up_for_as_wished(
    tmp_path: Path, catchup: str, ran: list[int]
) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, cron="* * * * *", catchup=catchup, overlap="allow")
        stand.clock.advance(280)  # from 20 s after the minute: the last but one is a minute late
        await stand.until(lambda: rows(stand) == 5)
        found = [(slot - 40, outcome) for slot, outcome, _ in await ledger(stand)]
        assert found == [(slot, "ran" if slot in ran else "skipped") for slot in (0, 60, 120, 180, 240)]


async def test_of_a_day_that_was_slept_through_the_last_slot_runs(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, cron="0 * * * *")
        stand.clock.advance(DAY_MS / 1000)
        await stand.until(lambda: rows(stand) == 24)
        found = await ledger(stand)
        assert [outcome for _, outcome, _ in found] == ["skipped"] * 23 + ["ran"]
        assert {why for _, _, why in found} == {"missed", None}


async def test_a_clock_that_is_set_back_repeats_nothing(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, overlap="allow")
        stand.clock.advance(3)
        await stand.until(lambda: rows(stand) == 3)
        stand.clock.set_wall(START - HOUR_MS)
        await stand.add()
        await asyncio.sleep(0.1)
        assert rows(stand) == 3
        stand.clock.set_wall(START + 5000)
        await stand.until(lambda: rows(stand) == 5)
        assert [slot for slot, *_ in await ledger(stand)] == [1, 2, 3, 4, 5]


async def test_a_clock_that_jumps_ahead_is_noticed(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, every_ms=10 * MINUTE_MS)
        await asyncio.sleep(0.05)
        stand.clock.set_wall(START + HOUR_MS)
        await stand.until(lambda: rows(stand) == 6)
        assert [outcome for _, outcome, _ in await ledger(stand)] == ["skipped"] * 5 + ["ran"]


async def test_pause_resume_run_now_and_delete(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand)
        paused = await stand.pool.pause_schedule(asked(), "s", paused=True)
        assert (paused["spec"]["paused"], paused["next_ms"]) == (True, [])
        stand.clock.advance(3)
        ran = await stand.pool.run_schedule(asked(), "s")
        assert (stand.peek(ran["task"]), ran["why"]) == ("pending", None)
        assert await ledger(stand) == [(3, "ran", None)]
        going = await stand.pool.pause_schedule(asked(), "s", paused=False)
        assert going["next_ms"][0] == START + 4000
        stand.clock.advance(1)
        await stand.until(lambda: rows(stand) == 2)
        await stand.pool.delete_schedule(asked(), "s")
        assert (list(await stand.pool.schedules(asked())), rows(stand)) == ([], 0)
        for attempt in (
            stand.pool.schedule(asked(), "s"),
            stand.pool.ledger(asked(), "s", 1, None),
            stand.pool.run_schedule(asked(), "s"),
            stand.pool.delete_schedule(asked(), "s"),
            stand.pool.pause_schedule(asked(), "s", paused=True),
        ):
            with pytest.raises(Rejected, match="there is no schedule named s"):
                await attempt


async def test_a_rule_stamped_before_a_slot_that_was_decided_meanwhile_goes_on_after_it(tmp_path: Path) -> None:
    """Else its first slot would be refused for ever."""
    async with one(tmp_path, slots=0) as stand:
        await put(stand, overlap="allow")
        stand.clock.advance(4)
        await stand.until(lambda: rows(stand) == 4)
        spec = ScheduleSpec(TaskSpec(Work(command=("true",))), every_ms=2000, overlap="allow")
        await stand.node.door.propose(c.PutSchedule("s", spec, START + 2000), 1)
        stand.clock.advance(2)
        await stand.until(lambda: rows(stand) == 5)
        assert [slot for slot, *_ in await ledger(stand)] == [1, 2, 3, 4, 6]


async def test_run_now_asked_twice_under_one_key_runs_once(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand)
        first = await stand.pool.run_schedule(asked(key="k"), "s")
        assert await stand.pool.run_schedule(asked(key="k"), "s") == first
        assert rows(stand) == 1


async def test_a_changed_rule_holds_from_its_entry_on(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, overlap="allow")
        stand.clock.advance(2)
        await stand.until(lambda: rows(stand) == 2)
        await put(stand, every_ms=10_000, overlap="allow")
        stand.clock.advance(9)
        await stand.until(lambda: rows(stand) == 3)
        await asyncio.sleep(0.05)
        assert [slot for slot, *_ in await ledger(stand)] == [1, 2, 10]


async def test_the_same_rule_again_and_again_loses_no_slot(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        for _ in range(20):
            await put(stand, overlap="allow")
            stand.clock.advance(0.5)
            await put(stand, overlap="allow")
            stand.clock.advance(0.5)
        await stand.until(lambda: rows(stand) == 20)
        assert [slot for slot, *_ in await ledger(stand)] == list(range(1, 21))


async def test_a_master_that_is_lost_between_proposal_and_apply_misses_and_doubles_nothing(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        await put(master, overlap="allow")
        master.log.hold()
        master.clock.advance(1)
        await master.until(lambda: master.log._queue)  # it is proposed, and not committed
        master.log.depose("n2")
        follower.clock.advance(2)
        follower.log.elect()
        await follower.until(lambda: rows(follower) == 2)
        assert [(slot, outcome) for slot, outcome, _ in await ledger(follower)] == [(1, "ran"), (2, "ran")]


async def test_a_slot_whose_answer_is_lost_is_in_the_ledger_once(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, overlap="allow")
        stand.log.lose_answers(1)
        stand.clock.advance(1)
        await stand.until(lambda: rows(stand) == 1)
        stand.clock.advance(1)
        await stand.until(lambda: rows(stand) == 2)
        assert [slot for slot, *_ in await ledger(stand)] == [1, 2]


async def test_of_two_that_take_themselves_for_the_master_one_fires(tmp_path: Path) -> None:
    """As an old master's entry that comes in after the new one's."""
    async with one(tmp_path, slots=0) as stand:
        made = await put(stand, overlap="allow")
        stand.clock.advance(1)
        await stand.until(lambda: rows(stand) == 1)
        again = stand.node.cron._planner.fire("s", made["version"], START + 1000, START + 2000)
        assert again is not None
        refused: Any = (await stand.node.door.propose(again, 1)).answer
        assert (refused.code, rows(stand)) == ("conflict", 1)


async def test_a_new_master_keeps_all_schedules(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        for n in range(450):
            name = f"s{n:03d}"
            spec = ScheduleSpec(TaskSpec(Work(command=("true",))), every_ms=1000, overlap="allow")
            await master.node.door.propose(c.PutSchedule(name, spec, START + 1000), 1)
        master.log.depose("n2")
        follower.clock.advance(1)
        follower.log.elect()
        await follower.until(lambda: rows(follower) == 450)


async def test_while_the_disk_is_full_nothing_is_added_and_afterwards_it_is(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, overlap="allow")
        stand.room = FULL
        stand.clock.advance(1)
        await stand.until(lambda: not stand.node.reserves.may_add())
        await asyncio.sleep(0.05)
        assert rows(stand) == 0
        with pytest.raises(Unavailable, match="full"):
            await stand.pool.run_schedule(asked(), "s")
        stand.room = (10 * 2**30, 20 * 2**30)
        stand.clock.advance(1)
        await stand.until(lambda: rows(stand) == 2)


async def test_a_schedule_that_this_node_cannot_keep_is_told_and_harms_no_other(tmp_path: Path) -> None:
    """Another node, with younger zones, has taken it."""
    async with one(tmp_path, slots=0) as stand:
        spec = ScheduleSpec(TaskSpec(Work(command=("true",))), cron="* * * * *", zone="Mars/Olympus")
        await stand.node.door.propose(c.PutSchedule("mars", spec, START), 1)
        await put(stand)
        stand.clock.advance(1)
        await stand.until(lambda: rows(stand) == 1)
        found = await stand.pool.schedule(asked(), "mars")
        assert (found["next_ms"], "no time zone" in found["text"]) == ([], True)
        assert [fields["schedule"] for _, fields in stand.notes if "schedule" in fields] == ["mars"]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * *", "zone": "Berlin"}, "zone"),
        ({"cron": "* * * * *", "every_ms": 1000}, ""),
        ({"every_ms": 10}, "every"),
        ({"every_ms": 1000, "zone": "Europe/Berlin"}, "zone"),
        ({"every_ms": 1000, "task": {"work": WORK, "policy": {"name": "none"}}}, "task.policy.name"),
    ],
)
async def test_what_is_wrong_is_told_with_its_path_and_changes_nothing(
    tmp_path: Path, given: dict[str, Any], path: str
) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand)
        before = await stand.pool.schedule(asked(), "s")
        with pytest.raises(Rejected) as caught:
            await stand.pool.put_schedule(asked(), "s", {"task": {"work": WORK}, **given})
        assert [error.path for error in caught.value.errors] == [path]
        assert await stand.pool.schedule(asked(), "s") == before


async def test_a_ledger_has_pages(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await put(stand, overlap="allow")
        stand.clock.advance(5)
        await stand.until(lambda: rows(stand) == 5)
        seen: list[int] = []
        cursor = None
        while True:
            page = await stand.pool.ledger(asked(), "s", 2, cursor)
            seen += [(row["slot_ms"] - START) // 1000 for row in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert seen == [5, 4, 3, 2, 1]
        with pytest.raises(Rejected, match="the cursor is none of this list"):
            await stand.pool.ledger(asked(), "s", 2, "x")
