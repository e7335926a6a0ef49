from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from quvatlh.ports import Member
from quvatlh.service.asks import ASK, AddTasks, Ask
from quvatlh.service.pool import Rejected, Turn, Unavailable, Unknown
from quvatlh.service.stamps import Stamps
from tests.fakes.clock import FakeClock
from tests.fakes.entropy import FakeEntropy
from tests.service.stand import FULL, Stand, asked, lead, one, several, two


async def test_an_add_is_applied_when_it_is_answered(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        added = await stand.added()
        assert stand.machine.applied_index == added.index
        assert await stand.state_of(added.ids[0]) == "pending"


@pytest.mark.parametrize("through", ["master", "follower"])
async def test_adds_that_share_a_turn_are_applied_in_their_order(through: str, tmp_path: Path) -> None:
    """A large one takes several turns of the loop to be prepared, and a small one none."""
    task: Any = {"spec": {"work": {"command": ["true"]}}}
    async with two(tmp_path, slots=0) as (master, follower, _):
        pool = (master if through == "master" else follower).pool
        call = replace(asked(), turn=asyncio.Lock())
        added = await asyncio.gather(*(pool.add(call, [task] * count) for count in (900, 1, 450, 1)))
        arrived = [row[0] for row in master.machine.db.execute("SELECT id FROM task ORDER BY seq")]
        assert arrived == [each for answer in added for each in answer.ids]


async def test_ids_are_uuids_that_sort_by_their_add(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        ids = [await stand.add() for _ in range(5)]
        ids += (await stand.pool.add(asked(), [{"spec": {"work": {"command": ["true"]}}}] * 50)).ids
        assert ids == sorted(ids)
        assert len(set(ids)) == 55
        assert {UUID(each).version for each in ids} == {7}
        assert {UUID(each).variant for each in ids} == {RFC_4122}


def test_ids_count_on_where_their_last_digits_overflow() -> None:
    stamps = Stamps(FakeClock(), FakeEntropy(1))
    (before,) = stamps.task_ids(1)
    stamps._last |= (1 << 48) - 3
    ids = stamps.task_ids(6)
    assert [int(each[-12:], 16) for each in ids] == [(1 << 48) - 2, (1 << 48) - 1, 0, 1, 2, 3]
    assert [before, *ids] == sorted({before, *ids})
    assert {(UUID(each).version, UUID(each).variant) for each in ids} == {(7, RFC_4122)}


async def test_any_node_takes_a_write_and_has_applied_it_when_it_answers(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        added = await follower.added()
        assert follower.machine.applied_index >= added.index
        assert follower.peek(added.ids[0]) == master.peek(added.ids[0]) == "pending"


async def test_times_are_the_masters(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        follower.clock.set_wall(master.clock.wall_ms() + 3_600_000)
        task = await follower.pool.task(asked(), await follower.add(delay_ms=1000))
        assert task["at_ms"] == master.clock.wall_ms() + 1000


async def test_a_request_goes_over_the_link_and_not_an_entry(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        seen: list[Ask] = []
        there = master.peers._handlers["door"]

        async def listening(asker: str, body: bytes) -> bytes:
            seen.append(ASK.decode(body))
            return await there(asker, body)

        master.peers.handle("door", listening)
        await follower.add()
        adds = [ask.wish for ask in seen if isinstance(ask.wish, AddTasks)]
        assert [draft.id for wish in adds for draft in wish.tasks] == [None]


async def test_an_add_whose_answer_was_lost_counts_once(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        stand.log.lose_answers(2)
        added = await stand.added()
        assert stand.machine.db.execute("SELECT id FROM task").fetchall() == [(added.ids[0],)]


async def test_a_hop_whose_answer_was_lost_counts_once(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, switchboard):
        switchboard.mute("n1")
        adding = asyncio.create_task(follower.added())
        await master.until(lambda: master.machine.db.execute("SELECT count(*) FROM task").fetchone()[0] == 1)
        switchboard.heal()
        added = await adding
        assert follower.machine.db.execute("SELECT id FROM task").fetchall() == [(added.ids[0],)]


async def test_a_write_waits_for_the_next_master(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0, elect=False) as stand:
        adding = asyncio.create_task(stand.added())
        await asyncio.sleep(0.05)
        assert not adding.done()
        stand.log.elect()
        assert stand.peek((await adding).ids[0]) == "pending"


async def test_a_master_that_was_deposed_is_not_waited_for(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        master.log.hold()
        adding = asyncio.create_task(follower.added())
        await master.until(lambda: master.log._queue)
        master.log.depose("n2")
        follower.log.elect()
        assert follower.peek((await asyncio.wait_for(adding, 2)).ids[0]) == "pending"


async def test_without_a_master_a_write_is_certainly_not_done(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0, elect=False) as stand:
        with pytest.raises(Unavailable) as caught:
            await stand.add(call=asked(100))
        assert caught.value.code == "no_master"


async def test_without_a_majority_the_outcome_is_unknown_even_if_there_is_no_master_later(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        stand.log.hold()
        adding = asyncio.create_task(stand.add(call=asked(300)))
        await stand.until(lambda: any(waiting.appended for waiting in stand.log._queue))
        stand.log.depose(None)
        with pytest.raises(Unknown):
            await adding


async def test_the_same_key_is_answered_the_same_and_another_request_under_it_refused(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        first = await stand.added(call=asked(key="k"))
        again = await stand.added(call=asked(key="k"))
        assert list(again.ids) == list(first.ids)
        with pytest.raises(Rejected) as caught:
            await stand.added(call=asked(key="k", digest=b"other"))
        assert caught.value.code == "conflict"


async def test_an_unknown_id_refuses_a_delete_and_is_named(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        known = await stand.add()
        with pytest.raises(Rejected) as caught:
            await stand.pool.act(asked(), Turn("delete"), [known, "nobody"])
        assert caught.value.code == "not_found"
        assert [error.path for error in caught.value.errors] == ["ids[1]"]
        assert stand.peek(known) == "pending"


async def test_a_full_disk_takes_no_add_and_still_deletes(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        task = await stand.add()
        stand.room = FULL
        stand.clock.advance(2)
        with pytest.raises(Unavailable) as caught:
            await stand.add()
        assert caught.value.code == "disk_full"
        done: Any = await stand.pool.act(asked(), Turn("delete"), [task])
        assert (done.matched, done.done) == (1, 1)
        stand.room = (19 * 2**30, 20 * 2**30)
        stand.clock.advance(2)
        await stand.add()


async def test_a_full_follower_takes_no_add_itself_and_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        follower.room = FULL
        follower.clock.advance(2)
        with pytest.raises(Unavailable) as caught:
            await follower.add()
        assert caught.value.code == "disk_full"
        await master.add()


async def test_a_refusal_after_an_unknown_outcome_is_not_told_as_one(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, switchboard):
        master.log.found(Member("n1", "n1", "n1:7421", ""), Member("n3", "n3", "n3:7421", ""))
        with pytest.raises(Rejected) as caught:
            await follower.pool.remove_member(asked(), "nobody")
        assert caught.value.code == "not_found"
        switchboard.mute("n1")
        removing = asyncio.create_task(follower.pool.remove_member(asked(), "n3"))
        await master.until(lambda: master.log.membership and len(master.log.membership.voters) == 1)
        switchboard.heal()
        with pytest.raises(Unknown):
            await removing


def will_lead(heir: Stand) -> Callable[[str], None]:
    """What becomes of the one that a master hands over to: it leads a moment later."""

    def elect(_node_id: str) -> None:
        asyncio.get_running_loop().call_later(0.05, heir.log.elect)

    return elect


@pytest.mark.parametrize("door", ["master", "follower"])
async def test_a_master_that_is_removed_hands_over_and_the_next_one_removes_it(door: str, tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        master.log.heir = will_lead(follower)
        asks = {"master": master, "follower": follower}[door]
        found = await asks.pool.remove_member(asked(), "n1")
        assert [node["id"] for node in found["nodes"]] == ["n2"]
        membership = follower.log.membership
        assert membership is not None
        assert [voter.id for voter in membership.voters] == ["n2"]
        assert follower.log.acts()
        assert not master.log.acts()


async def test_a_master_that_can_hand_over_to_nobody_stays_and_says_what_to_do(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, _, _):
        with pytest.raises(Rejected, match="see that another voter is up, and ask again") as caught:
            await master.pool.remove_member(asked(), "n1")
        assert caught.value.code == "conflict"
        assert master.log.acts()


async def test_a_master_that_has_handed_over_and_is_not_removed_in_time_says_what_to_do(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        master.log.heir = lambda _node_id: None
        with pytest.raises(Unavailable, match="n1 is still a member: ask again"):
            await master.pool.remove_member(asked(300), "n1")
        follower.log.elect()
        await master.pool.remove_member(asked(), "n1")
        assert follower.log.membership is not None
        assert follower.log.membership.get("n1") is None


async def test_a_stopping_node_says_so(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0, elect=False) as stand:
        adding = asyncio.create_task(stand.add())
        await asyncio.sleep(0)
        stand.node.door.stop()
        with pytest.raises(Unavailable) as caught:
            await adding
        assert caught.value.code == "stopping"


async def test_a_message_of_another_version_changes_nothing(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        before = master.machine.applied_index
        for body in (b"", b"\x09abc", b"\x01\xff", b"\x01"):
            await follower.peers.request("n1", "door", body, deadline=1)
        assert master.machine.applied_index == before


async def test_a_consistent_read_sees_what_was_answered_elsewhere(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        task = await master.add()
        before = master.machine.applied_index
        assert (await follower.pool.task(asked(consistent=True), task))["id"] == task
        assert follower.machine.applied_index > before


async def test_a_consistent_read_without_master_is_unavailable(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0, elect=False) as stand:
        with pytest.raises(Unavailable):
            await stand.pool.cluster(asked(50, consistent=True))


async def test_what_a_refusal_is_about_can_be_seen_on_the_node_that_tells_it(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        await follower.added(call=asked(key="k"))
        with pytest.raises(Rejected):
            await follower.added(call=asked(key="k", digest=b"other"))
        assert follower.machine.applied_index == master.machine.applied_index


async def test_a_node_that_is_behind_answers_when_it_has_caught_up(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        (mirror,) = master.mirrors
        mirror.hold()
        adding = asyncio.create_task(follower.added())
        await master.until(lambda: master.machine.db.execute("SELECT count(*) FROM task").fetchone()[0] == 1)
        await asyncio.sleep(0.02)
        assert not adding.done()
        mirror.release()
        assert follower.peek((await adding).ids[0]) == "pending"


async def test_a_master_that_was_paused_is_left_for_the_next_within_a_fraction_of_the_deadline(tmp_path: Path) -> None:
    async with several(tmp_path, 3, slots=0) as (stands, _):
        paused, asked_one, next_one = stands
        heard, thaws = asyncio.Event(), asyncio.Event()
        adds: list[Ask] = []

        async def frozen(_asker: str, body: bytes) -> bytes:
            ask = ASK.decode(body)
            if isinstance(ask.wish, AddTasks):
                adds.append(ask)
                heard.set()
            await thaws.wait()
            return b""

        there = next_one.peers._handlers["door"]

        async def listening(asker: str, body: bytes) -> bytes:
            ask = ASK.decode(body)
            if isinstance(ask.wish, AddTasks):
                adds.append(ask)
            return await there(asker, body)

        paused.peers.handle("door", frozen)
        next_one.peers.handle("door", listening)
        adding = asyncio.create_task(asked_one.add(call=asked(deadline_ms=60_000)))
        await heard.wait()
        for mirror in paused.mirrors:
            mirror.hold()
        lead(next_one, [asked_one])
        task = await asyncio.wait_for(adding, 3)
        assert asked_one.peek(task) == next_one.peek(task) == "pending"
        assert paused.peek(task) is None
        first, again = adds
        assert first.request == again.request is not None
        thaws.set()


async def test_a_master_that_answers_nobody_is_left_for_the_next(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        asked_it = asyncio.Event()

        async def silent(_asker: str, _body: bytes) -> bytes:
            asked_it.set()
            await asyncio.sleep(60)
            return b""

        master.peers.handle("door", silent)
        adding = asyncio.create_task(follower.added())
        await asked_it.wait()
        master.log.depose("n2")
        follower.log.elect()
        assert follower.peek((await asyncio.wait_for(adding, 2)).ids[0]) == "pending"


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800"])
async def test_what_the_log_cannot_carry_is_refused_on_any_node(tmp_path: Path, value: object) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        before = master.machine.db.execute("SELECT count(*) FROM task").fetchone()
        for stand in (master, follower):
            with pytest.raises(Rejected) as caught:
                await stand.add(work={"python": "a:b", "args": [value]})
            assert caught.value.code == "bad_request"
        assert master.machine.db.execute("SELECT count(*) FROM task").fetchone() == before
