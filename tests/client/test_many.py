"""Many tasks of one caller: sent as they are made, answered together, and what goes wrong in the middle is told."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from quvatlh import App, Handle
from quvatlh.client import Call, Rejected
from quvatlh.client.feed import EVENT_TASKS_MAX
from quvatlh.client.many import AHEAD_TASKS_MAX
from quvatlh.client.sides import Cluster
from tests.client.nodes import Node, answers, node, problem

PATIENCE_S = 30.0
REFUSAL = problem(400, "invalid", "no", [{"path": "tasks[0].queue", "message": "is no queue"}])


async def written(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    """Each under its number."""
    ids = [f"t{task['work']['args'][0]}" for task in json.loads(body)["tasks"]]
    return await answers({"ids": ids, "index": 7, "existing": {}}, 201)(request, body)


ANSWERS = [written] * 1000
"""More than are asked for: how many share an event is a matter of time."""


def number(value: int) -> None: ...


@asynccontextmanager
async def stage(*script: Any) -> AsyncIterator[tuple[Node, App, Any]]:
    async with node(*script) as one:
        app = App(one.url, token="t")
        try:
            yield one, app, app.task(number)
        finally:
            one.script.clear()
            await asyncio.to_thread(app.close)


async def enqueued(app: App, calls: Iterator[Call[Any]], *, is_async: bool) -> list[Handle[Any]]:
    if is_async:
        return await app.aenqueue_many(calls)
    return await asyncio.to_thread(app.enqueue_many, calls)


def numbers(one: Node) -> list[int]:
    return [task["work"]["args"][0] for asked in one.asked for task in json.loads(asked.body)["tasks"]]


both = pytest.mark.parametrize("is_async", [True, False])


@both
async def test_the_first_are_sent_while_later_ones_are_still_made(*, is_async: bool) -> None:
    async with stage(*ANSWERS) as (one, app, task):
        made_when_asked: list[int] = []

        def calls() -> Iterator[Call[Any]]:
            for made in range(5000):
                yield task.call(made)
                time.sleep(0.001)
                if one.asked:
                    made_when_asked.append(made)
                    return

        handles = await enqueued(app, calls(), is_async=is_async)
        assert len(made_when_asked) == 1
        assert [handle.id for handle in handles] == [f"t{made}" for made in range(made_when_asked[0] + 1)]
        assert numbers(one) == list(range(len(handles)))


@both
async def test_no_more_are_made_than_the_next_event_takes(*, is_async: bool) -> None:
    """Who makes them would keep the interpreter from who writes."""
    go, made = asyncio.Event(), [0]

    async def waits(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        await go.wait()
        return await written(request, body)

    async with stage(waits, *ANSWERS) as (_one, app, task):

        def calls() -> Iterator[Call[Any]]:
            for made[0] in range(5 * AHEAD_TASKS_MAX):
                yield task.call(made[0])

        side = app.side()
        assert isinstance(side, Cluster)
        running = asyncio.create_task(enqueued(app, calls(), is_async=is_async))
        async with asyncio.timeout(PATIENCE_S):
            while not side.motor.feed._queue:  # noqa: ASYNC110 - another thread's
                await asyncio.sleep(0.001)
        assert made[0] <= EVENT_TASKS_MAX + AHEAD_TASKS_MAX
        go.set()
        assert len(await running) == 5 * AHEAD_TASKS_MAX


async def test_other_coroutines_have_their_turns_while_calls_are_taken() -> None:
    async with stage(*ANSWERS) as (_one, app, task):
        had_turn = asyncio.Event()

        async def other() -> None:
            had_turn.set()

        def calls() -> Iterator[Call[Any]]:
            for made in range(5000):
                if had_turn.is_set():
                    return
                time.sleep(0.001)
                yield task.call(made)

        turn = asyncio.create_task(other())
        assert 0 < len(await app.aenqueue_many(calls())) < 5000
        await turn


@both
async def test_what_the_iterable_raises_comes_out_when_those_before_it_are_written(*, is_async: bool) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def waits(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        asked.set()
        await go.wait()
        return await written(request, body)

    async with stage(waits, *ANSWERS) as (one, app, task):

        def calls() -> Iterator[Call[Any]]:
            yield from map(task.call, range(3))
            raise LookupError("no more rows")

        running = asyncio.create_task(enqueued(app, calls(), is_async=is_async))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        assert not running.done()
        go.set()
        with pytest.raises(LookupError, match="no more rows") as caught:
            await running
        assert numbers(one) == [0, 1, 2]
        assert getattr(caught.value, "__notes__", []) == []


@both
async def test_what_was_refused_before_the_iterable_raised_is_noted(*, is_async: bool) -> None:
    async with stage(REFUSAL) as (_one, app, task):

        def calls() -> Iterator[Call[Any]]:
            yield task.call(0)
            raise LookupError("no more rows")

        with pytest.raises(LookupError) as caught:
            await enqueued(app, calls(), is_async=is_async)
        assert caught.value.__notes__ == ["of the 1 task(s) before it 1 failed, too: queue: is no queue"]


@both
async def test_the_first_refusal_is_raised_when_all_have_an_answer(*, is_async: bool) -> None:
    first = threading.Event()

    async def refuses(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        first.set()
        return await REFUSAL(request, body)

    async with stage(refuses, *ANSWERS) as (one, app, task):

        def calls() -> Iterator[Call[Any]]:
            for made in range(5000):
                yield task.call(made)
                time.sleep(0.001)
                if first.is_set():
                    break
            yield task.call(5000)

        with pytest.raises(Rejected, match="queue: is no queue"):
            await enqueued(app, calls(), is_async=is_async)
        assert numbers(one)[-1] == 5000


async def test_who_is_cancelled_takes_back_what_is_not_on_its_way() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def waits(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        asked.set()
        await go.wait()
        return await written(request, body)

    async with stage(waits, *ANSWERS) as (one, app, task):

        def calls() -> Iterator[Call[Any]]:
            for made in range(5000):
                yield task.call(made)
                time.sleep(0.001)

        running = asyncio.create_task(app.aenqueue_many(calls()))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        sent = len(numbers(one))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        go.set()
        assert (await task.aenqueue(-1)).id == "t-1"
        assert numbers(one) == [*range(sent), -1]
