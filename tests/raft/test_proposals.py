"""Writes on their way into the log: grouped, bounded, and each answered once, with what is true."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quvatlh.ports import Applied, Entry, LogError, Refused, Unavailable, Unknown
from quvatlh.raft.proposals import Proposals
from quvatlh.raft.settings import Settings
from tests.examples import examples
from tests.raft.net_parts import simulate
from tests.raft.parts import turns
from tests.raft.teeth import fails_under
from tests.sim.loop import SimLoop

DEADLINE_S = 5.0


class Log:
    """What a master's log is to its proposals: entries appended, then applied, or replaced."""

    def __init__(self, chosen: Settings | None = None) -> None:
        self.proposals = Proposals(chosen or Settings(), self._wake)
        self.term = 1
        self.entries: list[tuple[int, tuple[bytes, ...]]] = []
        """(term, items), first index 1."""
        self.applied: list[bytes] = []
        self.applied_index = 0
        self.woken = 0

    def _wake(self) -> None:
        self.woken += 1

    def ask(self, item: bytes | None, deadline_s: float = DEADLINE_S) -> asyncio.Task[Applied]:
        return asyncio.get_running_loop().create_task(self.proposals.submit(item, deadline_s))

    def flush(self) -> None:
        self.proposals.flush(self.term, self.append)

    def append(self, items: list[bytes]) -> int:
        self.entries.append((self.term, tuple(items)))
        return len(self.entries)

    def apply(self) -> None:
        """The next entry, whoever made it."""
        index = self.applied_index + 1
        term, items = self.entries[index - 1]
        self.applied_index = index
        self.applied += items
        self.proposals.applied(Entry(index, term, 0, items), [f"did {item!r}" for item in items])

    def lose(self) -> None:
        """Another master's entries stand in place of what is not applied."""
        lost = len(self.entries) - self.applied_index
        self.term += 1
        self.entries[self.applied_index :] = [(self.term, (b"of another",))] * lost
        self.term += 1


async def outcome(task: asyncio.Task[Applied]) -> Applied | LogError:
    try:
        return await task
    except LogError as error:
        return error


# --- grouping ---------------------------------------------------------------------------------------------------------


async def test_all_that_waits_shares_an_entry() -> None:
    log = Log()
    asked = [log.ask(b"%d" % number) for number in range(10)]
    await turns(1)
    log.flush()
    assert log.entries == [(1, tuple(b"%d" % number for number in range(10)))]
    log.apply()
    answers = await asyncio.gather(*asked)
    assert answers == [Applied(1, f"did {b'%d' % number!r}") for number in range(10)]


async def test_a_barrier_is_an_entry_without_items_or_shares_one() -> None:
    log = Log()
    barrier = log.ask(None)
    await turns(1)
    log.flush()
    assert log.entries == [(1, ())]
    shared = [log.ask(b"x"), log.ask(None), log.ask(b"y")]
    await turns(1)
    log.flush()
    assert log.entries[1] == (1, (b"x", b"y"))
    log.apply()
    log.apply()
    assert await barrier == Applied(1, None)
    assert [answer.result for answer in await asyncio.gather(*shared)] == ["did b'x'", None, "did b'y'"]


async def test_no_more_entries_are_in_flight_than_the_setting_says() -> None:
    log = Log(Settings(in_flight_entries=2))
    asked = []
    for number in range(5):
        asked.append(log.ask(b"%d" % number))
        await turns(1)
        log.flush()
    assert [items for _, items in log.entries] == [(b"0",), (b"1",)]
    log.apply()
    log.flush()
    assert [items for _, items in log.entries] == [(b"0",), (b"1",), (b"2", b"3", b"4")]
    log.apply()
    log.apply()
    await asyncio.gather(*asked)
    assert log.proposals.idle(1)


async def test_entries_of_an_earlier_leadership_do_not_count_as_in_flight() -> None:
    log = Log(Settings(in_flight_entries=1))
    earlier = log.ask(b"x")
    await turns(1)
    log.flush()
    log.term = 5
    assert log.proposals.idle(5)
    later = log.ask(b"y")
    await turns(1)
    log.flush()
    assert len(log.entries) == 2
    log.apply()
    log.apply()
    assert [(await earlier).index, (await later).index] == [1, 2]


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 120), min_size=1, max_size=30))
def test_no_group_is_larger_than_the_setting_unless_one_item_is(sizes: list[int]) -> None:
    async def main(_loop: SimLoop) -> None:
        log = Log(Settings(group_bytes_max=120, in_flight_entries=100))
        asked = [log.ask(bytes(size)) for size in sizes]
        await turns(1)
        log.flush()
        assert [len(item) for _, items in log.entries for item in items] == sizes
        for _, items in log.entries:
            assert len(items) == 1 or sum(len(item) + 8 for item in items) <= 120
        while log.applied_index < len(log.entries):
            log.apply()
        await asyncio.gather(*asked)

    simulate(main)


# --- bounds -----------------------------------------------------------------------------------------------------------


@fails_under("items-of-any-size", raises=(Unavailable,))
async def test_an_item_that_fits_into_no_entry_is_refused_at_once() -> None:
    log = Log(Settings(group_bytes_max=100, entry_bytes_max=1000))
    with pytest.raises(Refused) as caught:
        await log.proposals.submit(bytes(1000), 0.01)
    assert (caught.value.code, log.woken) == ("too_large", 0)


async def test_an_item_larger_than_a_group_goes_alone() -> None:
    log = Log(Settings(group_bytes_max=100, entry_bytes_max=1000))
    asked = [log.ask(bytes(size)) for size in (10, 900, 10)]
    await turns(1)
    log.flush()
    while log.applied_index < len(log.entries):
        log.apply()
        log.flush()
    await asyncio.gather(*asked)
    assert [[len(item) for item in items] for _, items in log.entries] == [[10], [900], [10]]


async def test_no_more_waits_than_the_queue_holds_and_room_comes_back() -> None:
    log = Log(Settings(queue_bytes_max=100, group_bytes_max=60))
    first = [log.ask(bytes(50)), log.ask(bytes(50))]
    await turns(1)
    with pytest.raises(Unavailable) as caught:
        await log.proposals.submit(b"x", DEADLINE_S)
    assert caught.value.code == "busy"
    log.flush()
    more = log.ask(bytes(40))
    await turns(1)
    assert not more.done()
    for task in (*first, more):
        task.cancel()
    await asyncio.gather(*first, more, return_exceptions=True)


async def test_what_is_withdrawn_makes_room_and_never_reaches_the_log() -> None:
    log = Log(Settings(queue_bytes_max=100))
    gone = log.ask(bytes(90))
    await turns(1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    stays = log.ask(bytes(80))
    await turns(1)
    log.flush()
    assert log.entries == [(1, (bytes(80),))]
    log.apply()
    assert (await stays).index == 1


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_deadline_in_the_queue_is_certainly_not_done_and_one_in_the_log_is_unknown() -> None:
    async def main(loop: SimLoop) -> None:
        log = Log()
        waiting = log.ask(b"x", 1.0)
        assert isinstance(await outcome(waiting), Unavailable)
        log.flush()
        assert log.entries == []
        logged = log.ask(b"y", 1.0)
        await turns(1)
        log.flush()
        assert isinstance(await outcome(logged), Unknown)
        log.apply()
        assert (log.applied, loop.time()) == ([b"y"], 2.0)

    simulate(main)


async def test_another_masters_entry_in_its_place_is_certainly_not_done() -> None:
    log = Log()
    asked = log.ask(b"x")
    await turns(1)
    log.flush()
    log.lose()
    log.apply()
    assert isinstance(await outcome(asked), Unavailable)


async def test_what_waits_when_leadership_is_lost_is_certainly_not_done_and_what_is_logged_waits_on() -> None:
    log = Log()
    logged = log.ask(b"x")
    await turns(1)
    log.flush()
    waiting = log.ask(b"y")
    await turns(1)
    log.proposals.drop_queue("not the master", "no_master")
    error = await outcome(waiting)
    assert isinstance(error, Unavailable)
    assert error.code == "no_master"
    await turns(1)
    assert not logged.done()
    log.apply()
    assert (await logged).index == 1


async def test_what_is_logged_when_the_state_is_replaced_is_unknown() -> None:
    log = Log()
    asked = log.ask(b"x")
    await turns(1)
    log.flush()
    log.proposals.forget("a snapshot")
    assert isinstance(await outcome(asked), Unknown)
    assert log.proposals.idle(1)


async def test_an_own_entry_of_the_log_is_followed_to_its_end() -> None:
    log = Log()
    for lost in (False, True):
        index = log.append([])
        following = asyncio.ensure_future(log.proposals.follow(index, log.term, DEADLINE_S))
        await turns(1)
        assert not log.proposals.idle(log.term)
        if lost:
            log.lose()
        log.apply()
        if lost:
            with pytest.raises(Unavailable):
                await following
        else:
            await following


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.integers(0, 3)),
            st.tuples(st.sampled_from(["flush", "flush", "apply", "apply", "lose", "drop", "wait"]), st.just(0)),
            st.tuples(st.just("cancel"), st.integers(0, 5)),
        ),
        max_size=60,
    ),
    st.booleans(),
)
def test_every_proposal_is_answered_once_and_with_what_is_true(steps: list[tuple[str, int]], forget: bool) -> None:
    """Applied: it is applied, there. Unavailable: it never is. Unknown: either."""

    async def main(_loop: SimLoop) -> None:
        log = Log(Settings(group_bytes_max=40, queue_bytes_max=60))
        asked: dict[bytes, asyncio.Task[Applied]] = {}
        answered: dict[bytes, int] = {}
        for number, (step, argument) in enumerate(steps):
            await one(log, asked, step, argument, b"%03d" % number)
            for item, task in asked.items():
                if task.done() and item not in answered:
                    answered[item] = number
        log.proposals.drop_queue("the end")
        while log.applied_index < len(log.entries) and not forget:
            log.apply()
        log.proposals.forget("the end")
        ends: list[Any] = await asyncio.gather(*asked.values(), return_exceptions=True)
        for item, end in zip(asked, ends, strict=True):
            times = log.applied.count(item)
            assert times <= 1
            if isinstance(end, Applied):
                assert item in log.entries[end.index - 1][1]
                assert (times, end.result) == (1, f"did {item!r}")
            elif isinstance(end, Unavailable):
                assert times == 0
            else:
                assert isinstance(end, Unknown | asyncio.CancelledError)
        assert log.proposals.idle(log.term)
        assert log.proposals._queue_bytes == 0

    simulate(main)


async def one(log: Log, asked: dict[bytes, asyncio.Task[Applied]], step: str, argument: int, item: bytes) -> None:
    if step == "ask":
        asked[item] = log.ask(item, [0.0, 0.5, 2.0, DEADLINE_S][argument])
        await turns(1)
    elif step == "flush":
        log.flush()
    elif step == "apply":
        if log.applied_index < len(log.entries):
            log.apply()
    elif step == "lose":
        log.lose()
        log.proposals.drop_queue("lost")
    elif step == "drop":
        log.proposals.drop_queue("dropped")
    elif step == "wait":
        await asyncio.sleep(0.7)
    else:
        waiting = [task for task in asked.values() if not task.done()]
        if waiting:
            waiting[argument % len(waiting)].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await turns(2)
