"""GET /v1/stream: what happens, as server-sent events, resumable by `id: <index>-<n>`.

One task takes events from the pool and puts frames into a bounded buffer; the handler writes what is there. So a slow
client never holds up the pool. When its buffer is full it is cut off: it is sent what is in the buffer, a last event
`stream.ended` that names why and the id to resume after, and if it does not even take that, its connection is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final

from aiohttp import web

from quvatlh.api.checks import Fault, Kind, duration, named, rejected
from quvatlh.api.exchange import Exchange
from quvatlh.api.formats import encode
from quvatlh.api.params import Param
from quvatlh.api.shapes import wire
from quvatlh.api.tasks import ID
from quvatlh.service.pool import N_MAX, Position, Problem, Rejected, StreamEvent, Unavailable
from quvatlh.service.summary import Summary

BUFFER_BYTES_MAX: Final = 256 * 1024
"""What a client may be behind in this process, beside what its socket holds."""
STREAMS_MAX: Final = 1000
FAREWELL_S: Final = 2.0
"""So long a client that is cut off may take for the last bytes."""
QUIET_S: Final = 15.0
"""After so long without an event a comment is sent, so that the ends and what is between know that both live."""
TYPE: Final = "text/event-stream"
LAST: Final = "stream.ended"
CHANGES: Final = "changes"
EVERY_MS_MIN: Final = 100
EVERY_MS_MAX: Final = 60_000
WATCHED_S: Final = 2.0
"""QUIET_S of who sums up: a person looks at it, and wants to know that what he sees is so."""

_POSITION = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?", re.ASCII)


def position(given: str) -> Position:
    """`index`, all of it, or `index-n`."""
    match = _POSITION.fullmatch(given)
    if match is None:
        raise ValueError("must be an index, or an id such as 1234-0")
    return Position(int(match[1]), N_MAX if match[2] is None else int(match[2]))


def _kinds(given: str) -> tuple[str, ...]:
    if not re.fullmatch(r"[a-z.*]+(,[a-z.*]+)*", given) or len(given) > 256:
        raise ValueError("must be kinds of events such as task.added,worker.*")
    return tuple(given.split(","))


PARAMS: Final[Mapping[str, Param]] = {
    "since": Param(Kind(position, {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"}), about="exclusive"),
    "event": Param(Kind(_kinds, {"type": "string"}), about="kinds, with commas; * stands for anything"),
    "queue": Param(named()),
    "group": Param(named()),
    "id": Param(ID),
    "every": Param(
        duration(EVERY_MS_MIN, EVERY_MS_MAX),
        "every_ms",
        "not each event, but at most so often a `changes` that sums them up; takes no filter",
    ),
}


class Streams:
    """All that are open: counted, and ended together when the server stops."""

    def __init__(self, buffer_bytes_max: int = BUFFER_BYTES_MAX, farewell_s: float = FAREWELL_S) -> None:
        self.buffer_bytes_max = buffer_bytes_max
        self.farewell_s = farewell_s
        self.open: set[Buffer] = set()

    def end_all(self) -> None:
        for buffer in list(self.open):
            buffer.end("stopping")


class Buffer:
    """Frames between the pool and one client."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._frames = bytearray()
        self._moved = asyncio.Event()
        self.ended = asyncio.Event()
        self.why = ""
        self.last_id = ""
        self.bytes_seen_max = 0

    def put(self, event_id: str, frame: bytes) -> None:
        if self.why:
            return
        if len(self._frames) + len(frame) > self._bytes_max:
            self.end("too_slow")
            return
        self._frames += frame
        self.bytes_seen_max = max(self.bytes_seen_max, len(self._frames))
        self.last_id = event_id
        self._moved.set()

    def end(self, why: str) -> None:
        self.why = self.why or why
        self.ended.set()
        self._moved.set()

    async def take(self, quiet_s: float) -> bytes:
        """What is there; a comment when nothing came for so long; empty at the end."""
        if not self._frames and not self.why:
            try:
                async with asyncio.timeout(quiet_s):
                    await self._moved.wait()
            except TimeoutError:
                return b":\n\n"
        frames = bytes(self._frames)
        self._frames.clear()
        self._moved.clear()
        return frames

    def farewell(self) -> bytes:
        return _frame(LAST, {"reason": self.why, "last": self.last_id or None})


async def stream(exchange: Exchange) -> web.StreamResponse:
    streams = exchange.shared.streams
    if len(streams.open) >= STREAMS_MAX:
        raise Unavailable("rate_limited", f"{STREAMS_MAX} streams are open at this node")
    frames = await _frames(exchange)
    buffer = Buffer(streams.buffer_bytes_max)
    streams.open.add(buffer)
    exchange.farewell = buffer.end
    pump = asyncio.create_task(_pump(exchange, frames, buffer))
    try:
        response = await exchange.start(TYPE)
        await _write(exchange, response, buffer)
    finally:
        streams.open.discard(buffer)
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
    return response


def _since(exchange: Exchange) -> Position | None:
    """Last-Event-ID wins: it is what the client has surely seen."""
    given = exchange.request.headers.get("Last-Event-ID")
    if given:
        try:
            return position(given)
        except ValueError as error:
            raise Rejected("bad_request", f"Last-Event-ID {error}") from None
    since: Position | None = exchange.query.get("since")
    return since


async def _frames(exchange: Exchange) -> AsyncGenerator[tuple[str, bytes]]:
    """Ids and frames, of what is wanted."""
    every_ms = exchange.query.get("every_ms")
    if every_ms is None:
        return _each(await exchange.pool.events(exchange.call(), _since(exchange)), exchange.query)
    unfit = [name for name in ("event", "queue", "group", "id") if name in exchange.query]
    if unfit:
        raise rejected([Fault(f".{name}", "does not go together with every") for name in unfit])
    return _sums(await exchange.pool.watching.summaries(exchange.call(), _since(exchange), every_ms))


async def _each(events: AsyncIterator[StreamEvent], wanted: Mapping[str, Any]) -> AsyncGenerator[tuple[str, bytes]]:
    try:
        async for event in events:
            event_id = f"{event.index}-{event.n}"
            yield event_id, _frame(event.kind, wire(event.data), event_id) if _passes(event, wanted) else b""
    finally:
        await _close(events)


async def _sums(summaries: AsyncIterator[Summary]) -> AsyncGenerator[tuple[str, bytes]]:
    try:
        async for one in summaries:
            data = {
                "kinds": one.kinds,
                "topics": sorted(one.topics),
                "queues": sorted(one.queues),
                "ids": None if one.ids is None else sorted(one.ids),
                "whole": one.whole,
            }
            yield str(one.index), _frame(CHANGES, data, str(one.index))
    finally:
        await _close(summaries)


async def _close(iterator: AsyncIterator[Any]) -> None:
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()


async def _pump(exchange: Exchange, frames: AsyncGenerator[tuple[str, bytes]], buffer: Buffer) -> None:
    try:
        async for event_id, frame in frames:
            if frame:
                buffer.put(event_id, frame)
            if buffer.why:
                return
        buffer.end("stopping")
    except Problem as problem:
        buffer.end(problem.code)
    except Exception as error:  # noqa: BLE001 - told to the daemon, which stops the node
        exchange.shared.broken(error)
        buffer.end("broken")
    finally:
        await frames.aclose()


async def _write(exchange: Exchange, response: web.StreamResponse, buffer: Buffer) -> None:
    """Until the end, or the client's; a client that no longer takes anything is not waited for."""
    writing = asyncio.create_task(_write_all(response, buffer, WATCHED_S if "every_ms" in exchange.query else QUIET_S))
    ended = asyncio.create_task(buffer.ended.wait())
    try:
        await asyncio.wait({writing, ended}, return_when=asyncio.FIRST_COMPLETED)
        if buffer.why == "too_slow":
            exchange.shared.meter.streams_cut_off += 1
        await asyncio.wait({writing}, timeout=exchange.shared.streams.farewell_s)
        if not writing.done():
            exchange.cut_off()
    finally:
        for task in (writing, ended):
            task.cancel()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await writing


async def _write_all(response: web.StreamResponse, buffer: Buffer, quiet_s: float) -> None:
    while frames := await buffer.take(quiet_s):
        await response.write(frames)
    await response.write(buffer.farewell())
    await response.write_eof()


def _passes(event: StreamEvent, wanted: Mapping[str, Any]) -> bool:
    kinds = wanted.get("event")
    if kinds and not any(fnmatch.fnmatchcase(event.kind, kind) for kind in kinds):
        return False
    return all(name not in wanted or event.data.get(name) == wanted[name] for name in ("queue", "group", "id"))


def _frame(kind: str, data: object, event_id: str = "") -> bytes:
    """JSON has no line ends of its own, so one data line is enough."""
    head = f"id: {event_id}\nevent: {kind}\n" if event_id else f"event: {kind}\n"
    return head.encode() + b"data: " + encode(data) + b"\n\n"
