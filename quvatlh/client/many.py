"""Many tasks that one caller enqueues: each is offered as its call is made, and all are waited for together. How they become
events is the feed's matter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from quvatlh.client.feed import EVENT_TASKS_MAX
from quvatlh.client.handles import Handle
from quvatlh.client.sides import Taker
from quvatlh.client.tasks import Call
from quvatlh.client.ways import Way

R = TypeVar("R")
AHEAD_TASKS_MAX: Final = EVENT_TASKS_MAX
"""So many are made before those that are written: the next event. Making more would take the interpreter from the thread that
writes, which gets it back after 5 ms each time it needs it: the first event left 20 ms late."""
TURN_S: Final = 0.001
"""So long a coroutine takes calls before the others of its loop have their turn: they wait no longer than for other work, and
what giving way costs, some 10 us, is a hundredth."""


def enqueued(side: Taker, calls: Iterable[Call[R]]) -> list[Handle[R]]:
    """When all are written. Raises the first refusal, or what `calls` raised, when all that were taken have an answer."""
    ways: list[Way] = []
    handles: list[Handle[R]] = []
    try:
        for call in calls:
            try:
                way = side.put(call, ahead=AHEAD_TASKS_MAX)
            except AttributeError:
                _check(call)
                raise
            ways.append(way)
            handles.append(Handle(side, way, call.form))
    except Exception as error:
        _settled(ways)
        _add_refused(error, ways)
        raise
    _settled(ways)
    _raise_refused(ways)
    return handles


async def aenqueued(side: Taker, calls: Iterable[Call[R]]) -> list[Handle[R]]:
    """The same for a coroutine. Who is cancelled takes back what is not on its way yet."""
    ways: list[Way] = []
    handles: list[Handle[R]] = []
    ends = time.monotonic() + TURN_S
    try:
        try:
            for call in calls:
                try:
                    way = await side.aput(call, ahead=AHEAD_TASKS_MAX)
                except AttributeError:
                    _check(call)
                    raise
                ways.append(way)
                handles.append(Handle(side, way, call.form))
                if time.monotonic() >= ends:
                    await asyncio.sleep(0)
                    ends = time.monotonic() + TURN_S
        except Exception as error:
            await _asettled(ways)
            _add_refused(error, ways)
            raise
        await _asettled(ways)
    except asyncio.CancelledError:
        for way in ways:
            way.cancel()
        raise
    _raise_refused(ways)
    return handles


def _check(call: object) -> None:
    """When it could not be taken: a look at each would cost all."""
    if not isinstance(call, Call):
        raise TypeError(f"enqueue_many takes calls, as add.call(1, 2) makes them, not {call!r:.100}")


def _settled(ways: Sequence[Way]) -> None:
    """They are answered in order, mostly: so the last one is waited for, and this thread is not woken for each of them."""
    for way in reversed(ways):
        way.exception()


async def _asettled(ways: Sequence[Way]) -> None:
    for way in reversed(ways):
        if not way.done():
            await asyncio.gather(asyncio.wrap_future(way.future), return_exceptions=True)


def _raise_refused(ways: Sequence[Way]) -> None:
    for way in ways:
        way.result()


def _add_refused(error: BaseException, ways: Sequence[Way]) -> None:
    """What else went wrong, of which nobody would hear."""
    failures = [found for way in ways if (found := way.exception()) is not None and found is not error]
    if failures:
        error.add_note(f"of the {len(ways)} task(s) before it {len(failures)} failed, too: {failures[0]}")
