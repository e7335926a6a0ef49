"""What is enqueued together goes out together: bounded, in order, and what is wrong is told to its author alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from quvatlh.client import feed as feeds
from quvatlh.client.errors import Fault, Rejected, Unavailable
from quvatlh.client.feed import Feed, Item
from quvatlh.client.ways import Way, Written


class Wire:
    """Takes events; refuses what holds `bad`."""

    def __init__(self, *, names_it: bool = True) -> None:
        self.events: list[list[bytes]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.names_it = names_it
        self.feed = Feed(self.send, self.wake)
        self.runs: list[asyncio.Task[None]] = []

    def wake(self) -> None:
        self.runs.append(asyncio.get_running_loop().create_task(self.feed.run()))

    async def send(self, bodies: Sequence[bytes]) -> Sequence[Written]:
        self.events.append(list(bodies))
        await self.open.wait()
        bad = [number for number, body in enumerate(bodies) if body == b"bad"]
        if bad:
            faults = [Fault(f"tasks[{number}].timeout", "is no time") for number in bad]
            raise Rejected("invalid", "no", faults if self.names_it else ())
        return [Written(body.decode(), existing=False) for body in bodies]

    def offer(self, *bodies: bytes) -> list[Item]:
        items = [Item(body) for body in bodies]
        assert [self.feed.offer(item) for item in items] == [None] * len(items)
        return items

    async def idle(self) -> None:
        await asyncio.gather(*self.runs)


async def test_what_comes_while_a_write_is_under_way_is_the_next_write_in_order() -> None:
    wire = Wire()
    wire.open.clear()
    first = wire.offer(b"0")
    await asyncio.sleep(0)
    rest = wire.offer(b"1", b"2", b"3")
    wire.open.set()
    await wire.idle()
    assert wire.events == [[b"0"], [b"1", b"2", b"3"]]
    assert [item.done.result().id for item in first + rest] == ["0", "1", "2", "3"]


async def test_an_event_has_so_many_tasks_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "EVENT_TASKS_MAX", 3)
    monkeypatch.setattr(feeds, "EVENT_BYTES_MAX", 10)
    wire = Wire()
    wire.offer(b"1", b"2", b"3", b"4", b"long" * 2, b"too long" * 9, b"5")
    await wire.idle()
    assert wire.events == [[b"1", b"2", b"3"], [b"4", b"long" * 2], [b"too long" * 9], [b"5"]]


@pytest.mark.parametrize("names_it", [True, False])
async def test_what_a_node_refuses_fails_alone(*, names_it: bool) -> None:
    wire = Wire(names_it=names_it)
    items = wire.offer(b"1", b"bad", b"2", b"3", b"bad")
    await wire.idle()
    assert [item.done.result().id for item in items if item.body != b"bad"] == ["1", "2", "3"]
    for item in (items[1], items[4]):
        error = item.done.exception()
        assert isinstance(error, Rejected)
        assert str(error) == ("timeout: is no time" if names_it else "no")


async def test_where_there_is_no_room_one_waits_until_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "WAITING_TASKS_MAX", 2)
    wire = Wire()
    wire.open.clear()
    wire.offer(b"1", b"2")
    turns = [wire.feed.offer(Item(b"3")) for _ in range(3)]
    assert all(turn is not None and not turn.done() for turn in turns)
    assert turns[0] is not None
    turns[0].cancel()
    wire.open.set()
    await wire.idle()
    assert [turn is not None and turn.done() for turn in turns] == [True, True, True]
    assert wire.feed.offer(Item(b"3")) is None
    await wire.idle()


async def test_one_that_is_larger_than_all_room_waits_only_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "WAITING_BYTES_MAX", 3)
    wire = Wire()
    wire.offer(b"larger")
    assert wire.feed.offer(Item(b"1")) is not None
    await wire.idle()
    assert wire.events == [[b"larger"]]


async def test_who_says_so_waits_while_others_have_room() -> None:
    wire = Wire()
    wire.offer(b"1", b"2")
    turn = wire.feed.offer(Item(b"3"), ahead=2)
    assert turn is not None
    assert wire.feed.offer(Item(b"3"), ahead=3) is None
    await wire.idle()
    assert turn.done()
    assert wire.events == [[b"1", b"2", b"3"]]


async def test_what_is_cancelled_before_its_write_is_not_written() -> None:
    wire = Wire()
    items = wire.offer(b"1", b"2")
    items[0].done.cancel()
    await wire.idle()
    assert wire.events == [[b"2"]]


async def test_settled_is_what_was_offered_until_now_and_lost_what_nobody_watched() -> None:
    wire = Wire()
    assert wire.feed.all_settled().done()
    assert wire.feed.offer(Item(b"bad", unwatched=True)) is None
    wire.offer(b"bad", b"1")
    settled = wire.feed.all_settled()
    assert not settled.done()
    await wire.idle()
    assert settled.done()
    error, count = wire.feed.take_lost()
    assert (str(error), count) == ("timeout: is no time", 1)
    assert wire.feed.take_lost() == (None, 0)


async def test_what_is_abandoned_fails() -> None:
    wire = Wire()
    items = wire.offer(b"1", b"2")
    settled = wire.feed.all_settled()
    wire.feed.abandon(Unavailable("stopping", "closed"))
    assert [str(item.done.exception()) for item in items] == ["closed", "closed"]
    assert settled.done()
    await wire.idle()
    with pytest.raises(Unavailable, match="closed"):
        wire.feed.offer(Item(b"3"))
    assert wire.events == []


async def test_where_nobody_is_left_to_write_that_is_told_and_nothing_waits() -> None:
    def wake() -> None:
        raise RuntimeError("Event loop is closed")

    feed = Feed(Wire().send, wake)
    item = Item(b"1", unwatched=True)
    assert feed.offer(item) is None
    words = "nobody is left to write it: Event loop is closed"
    assert str(item.done.exception()) == words
    assert feed.all_settled().done()
    with pytest.raises(Unavailable, match=words):
        feed.offer(Item(b"2"))
    error, count = feed.take_lost()
    assert (str(error), count) == (words, 1)


async def test_an_answer_of_another_length_fails_its_tasks_and_the_next_go_on() -> None:
    wire = Wire()
    wire.feed = Feed(lambda _bodies: wire.send([b"1"]), wire.wake)
    items = wire.offer(b"1", b"2")
    await wire.idle()
    assert all(isinstance(item.done.exception(), ValueError) for item in items)
    [later] = wire.offer(b"1")
    await wire.idle()
    assert later.done.result().id == "1"


async def test_a_way_tells_whoever_asks_before_and_after_its_end_and_is_cancelled_only_before_its_write() -> None:
    early, late, lost, cancelled = Way(), Way(), Way(), Way()
    asked, end = early.future, Written("1", existing=False)
    assert (early.begin(), late.begin(), lost.begin()) == (True, True, True)
    assert (asked.cancel(), late.cancel()) == (False, False)
    early.settle(end)
    late.settle(end)
    lost.fail(ValueError("no"))
    assert (asked.result(), late.future.result(), late.result()) == (end, end, end)
    assert str(lost.exception()) == "no"
    with pytest.raises(ValueError, match="no"):
        lost.result()
    assert (cancelled.cancel(), cancelled.begin(), cancelled.done(), cancelled.is_settled) == (True, False, True, False)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_who_enqueues_one_is_told_of_its_end_as_thread_and_as_coroutine(when: str) -> None:
    written, end = [Way(), Way()], Written("1", existing=False)
    lost = [Way(), Way()]

    def settle() -> None:
        for way in written:
            way.settle(end)
        for way in lost:
            way.fail(ValueError("no"))

    if when == "before":
        settle()
    waiting = [asyncio.create_task(asyncio.to_thread(ways[0].waited)) for ways in (written, lost)]
    waiting += [asyncio.create_task(ways[1].awaited()) for ways in (written, lost)]
    if when == "after":
        await wait_until_all_wait([*written, *lost])
        assert not any(each.done() for each in waiting)
        settle()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [found[0], found[2], str(found[1]), str(found[3])] == [end, end, "no", "no"]
    assert [way._wake for way in written + lost] == [None] * 4  # a handle holds no loop


async def wait_until_all_wait(ways: Sequence[Way]) -> None:
    async with asyncio.timeout(30):
        while any(way._wake is None for way in ways):  # noqa: ASYNC110 - threads tell no loop
            await asyncio.sleep(0.001)


async def test_a_coroutine_that_is_cancelled_takes_back_what_is_not_on_its_way() -> None:
    waiting, begun = Way(), Way()
    begun.begin()
    running = [asyncio.create_task(way.awaited()) for way in (waiting, begun)]
    await asyncio.sleep(0)
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert all(each.cancelled() for each in running)
    assert (waiting.begin(), begun.done()) == (False, False)


def test_one_whose_loop_has_ended_meanwhile_holds_up_nobody() -> None:
    way = Way()
    loop = asyncio.new_event_loop()
    waiting = way.awaited()
    running = loop.create_task(waiting)
    loop.run_until_complete(asyncio.sleep(0))
    running.cancel()
    loop.close()
    way.settle(Written("1", existing=False))
    assert way.result().id == "1"


async def test_who_is_interrupted_while_he_begins_to_write_keeps_nobody_else_from_it() -> None:
    def interrupted(_body: bytes) -> None:
        raise KeyboardInterrupt

    wire = Wire()
    wire.feed._begin = interrupted
    with pytest.raises(KeyboardInterrupt):
        wire.offer(b"0")
    wire.feed._begin = lambda _body: None
    wire.offer(b"1")
    await wire.idle()
    assert wire.events == [[b"1"]]
    assert wire.feed.unsettled == 0
