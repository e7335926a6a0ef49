from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from quvatlh.core.events import Event
from quvatlh.core.results import Outcome
from quvatlh.ports import Entry
from quvatlh.service.feed import Feed
from quvatlh.service.pool import N_MAX, Position, Rejected
from quvatlh.service.summary import EVENTS_MAX, IDS_MAX, Summary, summed


def event(n: int, kind: str, name: str = "", **more: object) -> Event:
    return Event(n, kind, name, seq=n + 1 if kind.startswith("task.") else 0, **more)  # type: ignore[arg-type]


def happened(feed: Feed, index: int, events: Sequence[Event]) -> None:
    feed.applied(Entry(index, 1, 0, ()), [Outcome(None, tuple(events))])  # type: ignore[arg-type]


async def following(summaries: AsyncIterator[Summary]) -> Summary:
    async with asyncio.timeout(5):
        return await anext(summaries)


def test_a_summary_names_what_changed_and_counts_what_is_public() -> None:
    found = summed(
        7,
        [
            event(0, "task.added", "a", queue="q"),
            event(1, "task.added", "b", queue="r"),
            event(2, "task.updated", "a", queue="q"),
            event(3, "policy.changed", "p"),
            event(4, "queue.changed", "s"),
            event(5, "session.opened", "w"),
        ],
    )
    assert (found.index, found.kinds) == (7, {"task.added": 2, "queue.changed": 1})
    assert found.topics == {"task", "policy", "queue", "worker"}
    assert (found.queues, found.ids) == ({"q", "r", "s"}, {"a", "b"})


def test_many_tasks_are_not_named_one_by_one() -> None:
    assert summed(1, [event(n, "task.added", str(n)) for n in range(IDS_MAX + 1)]).ids is None


async def test_what_happened_meanwhile_is_one_summary() -> None:
    feed = Feed()
    feed.start(0)
    summaries = feed.summaries(None, 0.01)
    happened(feed, 1, [event(0, "task.added", "a")])
    assert (await following(summaries)).index == 1
    happened(feed, 2, [event(0, "task.claimed", "a")])
    happened(feed, 3, [event(0, "task.succeeded", "a")])
    found = await following(summaries)
    assert (found.index, found.kinds) == (3, {"task.claimed": 1, "task.succeeded": 1})
    feed.end()


async def test_it_goes_on_after_the_last_one_that_was_told() -> None:
    feed = Feed()
    feed.start(0)
    happened(feed, 1, [event(0, "task.added", "a"), event(1, "task.added", "b")])
    assert (await following(feed.summaries(Position(1, 0), 0.01))).ids == {"b"}
    happened(feed, 2, [event(0, "task.added", "c")])
    assert (await following(feed.summaries(Position(1, 5), 0.01))).ids == {"c"}


async def test_who_is_far_behind_is_told_that_anything_may_have_changed() -> None:
    feed = Feed()
    feed.start(0)
    for index in range(1, 4):
        happened(feed, index, [event(n, "task.added", str(n)) for n in range(EVENTS_MAX // 2)])
    found = await following(feed.summaries(Position(0, N_MAX), 0.01))
    assert (found.index, found.whole, found.kinds) == (3, True, {})


async def test_what_is_no_longer_kept_is_refused() -> None:
    feed = Feed(events_max=2)
    feed.start(0)
    for index in range(1, 5):
        happened(feed, index, [event(0, "task.added", str(index))])
    with pytest.raises(Rejected, match="no longer kept"):
        feed.summaries(Position(1, 0), 0.01)
