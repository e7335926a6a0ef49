"""Answers that come piece by piece, and how each goes on when its node is lost in the middle.

Events go on after the last id; a log goes on at the byte that comes next, of the same action, or behind a gap; a backup
starts over, for another node's is another file.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from quvatlh.client import errors
from quvatlh.client.errors import OutputLost, Rejected, Unavailable
from quvatlh.client.failures import why
from quvatlh.client.http import Http, Request
from quvatlh.client.sse import Frame, Parser

SILENCE_S = 45.0
"""A node comments on a quiet stream every 15 s: three missed are no accident."""
RESUMES_MAX = 5
"""In a row, without anything new: then it is not the node."""
RESUME_REST_S = 0.1
ENDED = "stream.ended"
Report = Callable[[int, int | None], None]
"""report(bytes so far, bytes in all, where the node says how many)"""
BROKEN = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    """A place in the stream: `events(since=id)` goes on after it."""
    kind: str
    data: dict[str, Any]


async def events(
    http: Http, cluster: Callable[[], Awaitable[dict[str, Any]]], since: str | None, query: dict[str, str]
) -> AsyncIterator[Event]:
    """Without end. Rejected(gone) when what comes next is no longer kept."""
    if since is None:  # a place to go on from, should the first node be lost before the first event
        since = str((await cluster())["index"])
    patience = _Patience(http)
    while True:
        request = Request("GET", "/v1/stream", query, headers={"Last-Event-ID": since}, silence_s=SILENCE_S)
        try:
            async with http.opened(request) as (response, url):
                patience.url = url
                parser = Parser()
                async for chunk in response.content.iter_any():
                    for frame in _frames(parser, chunk, url):
                        if frame.kind == ENDED:
                            _end(frame, url)
                            continue
                        since = frame.id or since
                        patience.renew()
                        yield Event(frame.id, frame.kind, _data(frame, url))
        except BROKEN as error:
            await patience.lose(why(error).words)
        else:
            await patience.lose("the stream ended")


class Log:
    """The output of one action. What it says of itself is known once iterating has begun."""

    def __init__(self, http: Http, request: Request, offset: int = 0) -> None:
        self._http = http
        self._request = request
        self._next = offset
        """The byte that comes next, in all that the action wrote."""
        self._is_begun = False
        self.action = request.query.get("action")
        """Whose it is; None as long as nothing has run."""
        self.begins = offset
        """Beyond what was asked for: what stood before it is no longer kept."""
        self.tail_only = False
        """This is the end of it, which travelled with the finish, and there is no more."""
        self.is_worker_there = True
        """Where only the tail is left: its worker could be asked, and keeps no more."""
        self.gaps: list[tuple[int, int]] = []
        """From and to, as they are passed: what was written between is not kept."""
        self._bytes_all: int | None = None
        """Known once the action has ended."""
        self._is_tail = False
        """What is read now, beyond a gap perhaps."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """An answer ends where something is not kept, too: so it is asked on until nothing is left."""
        patience = _Patience(self._http)
        is_asked_on = False
        while True:
            try:
                async with self._http.opened(self._asked()) as (response, url):
                    patience.url = url
                    if not self._begin(response, url, is_asked_on=is_asked_on):
                        return
                    first = self._next
                    async for chunk in response.content.iter_any():
                        self._next += len(chunk)
                        patience.renew()
                        yield chunk
                if self._is_over(first):
                    return
                is_asked_on = True
            except BROKEN as error:
                is_asked_on = False
                await patience.lose(why(error).words)

    def _is_over(self, first: int) -> bool:
        """After an answer that was whole and began at `first`."""
        if self.action is None or self._is_tail or self._next == first:
            return True
        return self._bytes_all is not None and self._next >= self._bytes_all

    def _asked(self) -> Request:
        query = dict(self._request.query)
        query |= {} if self.action is None else {"action": self.action}
        query |= {"offset": str(self._next)} if self._next else {}
        return dataclasses.replace(self._request, query=query)

    def _begin(self, response: aiohttp.ClientResponse, url: str, *, is_asked_on: bool) -> bool:
        """Whether there is more. `is_asked_on`: the last answer was whole, and this one may have nothing to add."""
        at = _number(response, "Quvatlh-Offset", url) or 0
        self._bytes_all = _number(response, "Quvatlh-Bytes", url)
        kept = response.headers.get("Quvatlh-Log")
        self._is_tail = kept is not None
        if not self._is_begun:
            self._is_begun = True
            self.action = response.headers.get("Quvatlh-Action", self.action)
            self.tail_only, self.is_worker_there = kept is not None, kept != "tail"
            self.begins = self._next = at
        elif at > self._next and kept != "tail":
            self.gaps.append((self._next, at))
            self._next = at
        elif is_asked_on and self._bytes_all is None and at <= self._next and (self._is_tail or not self._is_followed):
            return False  # of one that writes on, the end is where it stood
        elif at != self._next:
            lost = "its worker was lost" if kept == "tail" else "it was cut short"
            raise OutputLost("", f"{lost} while its output was read; what came next is not kept", url=url)
        return True

    @property
    def _is_followed(self) -> bool:
        return "follow" in self._request.query


class Download:
    """An answer that becomes a file: whole, or not there at all."""

    def __init__(self, http: Http, request: Request) -> None:
        self._http = http
        self._request = request

    async def to(self, path: str, on_progress: Report = lambda _bytes, _total: None) -> int:
        """Written beside it, synced, renamed; the bytes of it. Only its owner may read it: a backup has payloads and hashes of
        tokens. OSError when the file cannot be written."""
        partial = f"{path}.partial"
        patience = _Patience(self._http)
        while True:
            try:
                # No disk is so slow that a thread would help: the next piece comes after this one is written.
                with open(partial, "wb", opener=_private) as file:
                    size = await self._fetch(file, patience, on_progress)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, path)
                return size
            except aiohttp.ClientError as error:
                await patience.lose(why(error).words)
            except TimeoutError:
                await patience.lose("no answer in time")
            finally:
                if os.path.exists(partial):
                    os.unlink(partial)

    async def _fetch(self, file: Any, patience: _Patience, on_progress: Report) -> int:
        size = 0
        async with self._http.opened(self._request) as (response, patience.url):
            async for chunk in response.content.iter_any():
                file.write(chunk)
                size += len(chunk)
                on_progress(size, response.content_length)
        return size


def _private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)  # of one that was left there, too
    return descriptor


class _Patience:
    """A stream that breaks again and again without anything new in between is given up."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._lost = 0
        self.url = ""
        """Of the node that is read from."""

    def renew(self) -> None:
        self._lost = 0

    async def lose(self, words: str) -> None:
        self._lost += 1
        self._http.leave(self.url)
        if self._lost > RESUMES_MAX:
            raise Unavailable("", f"the answer broke off {self._lost} times: {words}")
        await asyncio.sleep(RESUME_REST_S * (self._lost - 1))


def _number(response: aiohttp.ClientResponse, name: str, url: str) -> int | None:
    text = response.headers.get(name)
    if text is not None and not (text.isascii() and text.isdigit()):
        errors.not_ours(url, "an offset that is none")
    return None if text is None else int(text)


def _frames(parser: Parser, chunk: bytes, url: str) -> list[Frame]:
    try:
        return parser.feed(chunk)
    except ValueError as error:
        errors.not_ours(url, str(error))


def _data(frame: Frame, url: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(frame.data, type=dict[str, Any])
    except msgspec.MsgspecError:
        errors.not_ours(url, "an event without JSON")


def _end(frame: Frame, url: str) -> None:
    """A node says why it ends a stream: most reasons are mended by another node."""
    if _data(frame, url).get("reason") == "gone":
        raise Rejected("gone", "what happened next is no longer kept: begin anew from now", url=url)
