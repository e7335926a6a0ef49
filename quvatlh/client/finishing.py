"""Tasks as they finish, from the cluster's stream, over nodes that are lost in the middle.

First a place in the stream, then what has finished already, then the stream from that place on: so nothing falls between.
The stream says only that a task has finished; what became of it is read then, several at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final

from quvatlh.client.calls import Client
from quvatlh.client.errors import Rejected
from quvatlh.client.handles import FINISHED
from quvatlh.client.outcomes import Finished, Wanted
from quvatlh.client.streams import Event
from quvatlh.client.taskoptions import Json

AT_ONCE: Final = 16
"""Tasks that are read at a time."""
KINDS: Final = "task.succeeded,task.failed,task.deleted"
STREAM_FILTERS: Final = ("queue", "group")
"""What the stream itself can be asked for; the rest is looked at here."""


async def finishing(client: Client, wanted: Wanted) -> AsyncGenerator[Finished, None]:
    """Of named tasks each once, until all have finished; else without end. Rejected(gone) where what comes after `since` is
    no longer kept, which named tasks need not: they are asked again."""
    if wanted.ids is None:
        async with aclosing(_read(client, _events(client, wanted, wanted.since), lambda _id: True)) as found:
            async for each in found:
                if _matches(each.task, wanted):
                    yield each
        return
    pending = dict.fromkeys(wanted.ids, True)
    while pending:
        async with aclosing(_pending(client, wanted, pending)) as found:
            async for each in found:
                if pending.pop(each.task["id"], False):
                    yield each
                if not pending:
                    return


async def _pending(client: Client, wanted: Wanted, pending: Mapping[str, bool]) -> AsyncGenerator[Finished, None]:
    """Ends early where the stream could not be followed any longer."""
    place = str((await client.cluster())["index"])
    async for task in _finished_already(client, list(pending)):
        yield Finished(task, place)
    try:
        async with aclosing(_read(client, _events(client, wanted, place), pending.__contains__)) as found:
            async for each in found:
                yield each
    except Rejected as problem:
        if problem.code != "gone":
            raise


async def _finished_already(client: Client, ids: list[str]) -> AsyncIterator[Json]:
    """Consistent: a node that is behind would tell of a task that runs, and another's stream not of its end any more."""
    for first in range(0, len(ids), AT_ONCE):
        some = ids[first : first + AT_ONCE]
        for task in await asyncio.gather(*(client.task(each, consistent=True) for each in some)):
            if task["state"] in FINISHED:
                yield task


def _events(client: Client, wanted: Wanted, since: str | None) -> AsyncIterator[Event]:
    only = {name: wanted.match[name] for name in STREAM_FILTERS if name in wanted.match}
    alone = {"id": wanted.ids[0]} if wanted.ids is not None and len(wanted.ids) == 1 else {}
    return client.events(since, event=KINDS, **only, **alone)


async def _read(
    client: Client, events: AsyncIterator[Event], wants: Callable[[object], bool]
) -> AsyncGenerator[Finished, None]:
    """In the order of the stream. A task that was taken off the list meanwhile is passed over, as is one that runs again."""
    reading: deque[tuple[Event, asyncio.Task[Json | None]]] = deque()
    coming = asyncio.ensure_future(anext(events))
    try:
        while True:
            waits = {coming, reading[0][1]} if reading else {coming}
            full = len(reading) >= AT_ONCE
            await asyncio.wait({reading[0][1]} if full else waits, return_when=asyncio.FIRST_COMPLETED)
            if coming.done() and not full:
                event = coming.result()
                if wants(event.data.get("id")):
                    reading.append((event, asyncio.ensure_future(_task(client, str(event.data["id"])))))
                coming = asyncio.ensure_future(anext(events))
            while reading and reading[0][1].done():
                event, read = reading.popleft()
                task = read.result()
                if task is not None:
                    yield Finished(task, event.id)
    finally:
        for each in (coming, *(read for _, read in reading)):
            each.cancel()
        await asyncio.gather(coming, *(read for _, read in reading), return_exceptions=True)
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def _task(client: Client, task_id: str) -> Json | None:
    """None: it runs again, or is not listed any more. Asked by another node than the stream's, it may be behind."""
    try:
        task = await client.task(task_id)
        if task["state"] not in FINISHED:
            task = await client.task(task_id, consistent=True)
    except Rejected as problem:
        if problem.code in {"gone", "not_found"}:
            return None
        raise
    return task if task["state"] in FINISHED else None


def _matches(task: Json, wanted: Wanted) -> bool:
    return all(task.get(name) == value for name, value in wanted.match.items())
