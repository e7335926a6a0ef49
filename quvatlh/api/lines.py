"""POST /v1/events with NDJSON: any number of tasks, added cut by cut while they come in.

Three activities share the work: one reads and cuts, one waits for the pool's answers in order, one writes them. The
reader waits only for the pool, never for the client: what the client does not take is spooled. Memory is bounded by
CUTS_IN_FLIGHT cuts, one cut and one line in the cutter, and the spool's share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from quvatlh.api import problems, tasks
from quvatlh.api.checks import Fault, Faults, rejected
from quvatlh.api.exchange import NDJSON, Exchange
from quvatlh.api.formats import decode, encode
from quvatlh.api.ndjson import LINE_BYTES_MAX, Cut, Cutter
from quvatlh.api.spool import Spool
from quvatlh.service.pool import Broken, NewTask, Problem

CUTS_IN_FLIGHT: Final = 2
"""As the log has at most two entries in flight, more would only wait in memory."""
PIECE_BYTES: Final = 64 * 1024
"""Of what has arrived, cut without a pause."""


async def add_lines(exchange: Exchange) -> web.StreamResponse:
    activities = _Lines(exchange, Spool())
    exchange.enter_body()
    try:
        return await activities.run()
    finally:
        exchange.leave_body()


class _Lines:
    def __init__(self, exchange: Exchange, spool: Spool) -> None:
        self._exchange = exchange
        self._spool = spool
        self._asked: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(CUTS_IN_FLIGHT)
        self._turn = asyncio.Lock()
        """Of the cuts: those in flight are added in their order."""
        self._with_ids = exchange.query.get("ids", True)
        self._is_remembered = exchange.key(b"") is not None  # a malformed one is refused before anything is read

    async def run(self) -> web.StreamResponse:
        self._exchange.invite()  # before the head of the answer is out
        response = await self._exchange.start(NDJSON)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(group))
                group.create_task(self._settle())
                group.create_task(self._write(response))
        except* OSError:  # the client is gone, or there is no room for answers that he does not read
            self._exchange.cut_off()
        finally:
            self._spool.close()
        return response

    async def _read(self, group: asyncio.TaskGroup) -> None:
        """Cuts are checked here, one after the other, and so reach the pool in their order, and the log by their turn."""
        cutter = Cutter()
        content = self._exchange.request.content
        while data := await content.readany():
            for start in range(0, len(data), PIECE_BYTES):
                await self._ask(group, cutter.feed(data[start : start + PIECE_BYTES]))
        await self._ask(group, cutter.finish())
        await self._asked.put(None)

    async def _ask(self, group: asyncio.TaskGroup, cuts: Sequence[Cut]) -> None:
        for cut in cuts:
            made: Sequence[NewTask] | Problem
            try:
                made = await checked_lines(cut)
            except Problem as problem:
                made = problem
            await self._asked.put(group.create_task(self._answer(cut, made)))

    async def _settle(self) -> None:
        while (task := await self._asked.get()) is not None:
            await self._spool.put(await task)
        self._spool.end()

    async def _write(self, response: web.StreamResponse) -> None:
        while data := await self._spool.get():
            await response.write(data)
        await response.write_eof()

    async def _answer(self, cut: Cut, made: Sequence[NewTask] | Problem) -> bytes:
        """One line."""
        place = {"from": cut.first, "to": cut.end}
        try:
            answer = await self._added(cut, made)
        except Problem as problem:
            answer = {"problem": problems.document(problem)}
        except Exception as error:  # noqa: BLE001 - told to the daemon, which stops the node
            answer = {"problem": problems.document(Broken(self._exchange.shared.broken(error)))}
        return encode(place | answer) + b"\n"

    async def _added(self, cut: Cut, made: Sequence[NewTask] | Problem) -> dict[str, Any]:
        if isinstance(made, Problem):
            raise made
        key = self._exchange.key(b"\n".join(cut.lines), f"/{cut.first}") if self._is_remembered else None
        added = await self._exchange.pool.add(self._exchange.call(key, self._turn), made)
        existing = {str(position): why for position, why in added.existing.items()}
        ids = {"ids": added.ids} if self._with_ids else {}
        return ids | {"index": added.index, "existing": existing}


async def checked_lines(cut: Cut) -> Sequence[NewTask]:
    """The tasks of a cut; Rejected names every line at fault."""
    if cut.too_long:
        raise rejected([Fault(f"lines[{cut.first}]", f"is longer than {LINE_BYTES_MAX} bytes", "too_large")])
    return await tasks.check_each(cut.lines, _task, "lines", cut.first)


def _task(line: bytes) -> NewTask:
    try:
        value = decode(line)
    except ValueError as error:
        raise Faults(Fault("", str(error), "bad_request")) from None
    return tasks.check(value)
