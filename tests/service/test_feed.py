from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quvatlh.core.events import Event
from quvatlh.core.results import Diverged, Ok, Outcome
from quvatlh.ports import Entry
from quvatlh.service.feed import Feed, StateDiverged
from quvatlh.service.pool import N_MAX, Position, Rejected, StreamEvent
from tests.service.stand import asked, one


def entry(index: int) -> Entry:
    return Entry(index, 1, 1, (b"",))


def tell(feed: Feed, index: int, *kinds: str, task: str = "t") -> None:
    events = tuple(Event(n, kind, task, "pending", 1) for n, kind in enumerate(kinds))
    feed.applied(entry(index), [Outcome(Ok(), events)])


async def some(events: AsyncIterator[StreamEvent], count: int) -> list[tuple[int, int, str]]:
    found = []
    async with asyncio.timeout(5):
        async for event in events:
            found.append((event.index, event.n, event.kind))
            if len(found) == count:
                break
    return found


async def test_a_reader_gets_what_happens_after_its_place_in_order() -> None:
    feed = Feed()
    feed.start(4)
    tell(feed, 5, "task.added", "task.added")
    tell(feed, 6, "task.claimed")
    reader = feed.follow(Position(5, 0))
    assert await some(reader, 2) == [(5, 1, "task.added"), (6, 0, "task.claimed")]
    tell(feed, 7)
    tell(feed, 8, "task.started")
    assert await some(feed.follow(Position(6, N_MAX)), 1) == [(8, 0, "task.started")]


async def test_without_a_place_a_reader_gets_what_happens_from_now_on() -> None:
    feed = Feed()
    feed.start(0)
    tell(feed, 1, "task.added")
    reader = feed.follow(None)
    tell(feed, 2, "task.claimed")
    assert await some(reader, 1) == [(2, 0, "task.claimed")]


async def test_internal_events_go_no_further() -> None:
    feed = Feed()
    feed.start(0)
    reader = feed.follow(None)
    tell(feed, 1, "task.ready", "task.added", "session.opened")
    tell(feed, 2, "task.claimed")
    assert await some(reader, 2) == [(1, 1, "task.added"), (2, 0, "task.claimed")]


async def test_what_is_no_longer_kept_is_gone() -> None:
    feed = Feed(events_max=3)
    feed.start(9)
    for index in range(10, 16):
        tell(feed, index, "task.added")
    assert await some(feed.follow(Position(12, N_MAX)), 3) == [(index, 0, "task.added") for index in (13, 14, 15)]
    for since in (Position(12, 0), Position(3, N_MAX)):
        with pytest.raises(Rejected) as caught:
            feed.follow(since)
        assert caught.value.code == "gone"


async def test_before_the_start_nothing_is_kept() -> None:
    feed = Feed()
    feed.start(7)
    feed.follow(Position(7, N_MAX))
    with pytest.raises(Rejected):
        feed.follow(Position(6, N_MAX))


async def test_a_reader_that_falls_behind_is_told_and_holds_nobody_up() -> None:
    feed = Feed(events_max=3)
    feed.start(0)
    reader = feed.follow(None)
    for index in range(1, 10):
        tell(feed, index, "task.added")
    with pytest.raises(Rejected) as caught:
        await some(reader, 1)
    assert caught.value.code == "gone"


async def test_after_a_snapshot_readers_are_told_and_waiters_look_again() -> None:
    feed = Feed()
    feed.start(0)
    reader = feed.follow(None)
    watch = feed.watch("t")
    waiting = asyncio.create_task(watch.wait(5))
    await asyncio.sleep(0)
    feed.reset(100)
    assert await waiting
    with pytest.raises(Rejected):
        await some(reader, 1)
    tell(feed, 101, "task.added")
    assert await some(feed.follow(Position(100, N_MAX)), 1) == [(101, 0, "task.added")]
    watch.close()


async def test_a_watch_hears_what_came_before_it_waits() -> None:
    feed = Feed()
    watch = feed.watch("t")
    tell(feed, 1, "task.added", task="other")
    assert not await watch.wait(0)
    tell(feed, 2, "task.added")
    assert await watch.wait(0)
    assert not await watch.wait(0)
    watch.close()
    assert feed._changes == {}


async def test_tables_that_differ_end_the_node() -> None:
    fatal: list[BaseException] = []
    feed = Feed(on_fatal=fatal.append)
    feed.applied(entry(1), [Outcome(Diverged(1, b"mine", b"theirs"))])
    assert [type(error) for error in fatal] == [StateDiverged]


async def test_readers_end_with_the_node() -> None:
    feed = Feed()
    feed.start(0)
    reader = feed.follow(None)
    ending = asyncio.create_task(some(reader, 1))
    await asyncio.sleep(0)
    feed.end()
    assert await ending == []


async def test_the_stream_tells_a_task_with_its_queue_and_group(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        events = await stand.pool.events(asked(), None)
        task = await stand.add(group="g", queue="q")
        async with asyncio.timeout(5):
            async for event in events:
                if event.kind == "task.added":
                    assert event.data == {"id": task, "state": "pending", "queue": "q", "group": "g"}
                    break
