"""One request to whichever node answers it, within a deadline: the only place that dials.

A request keeps its bytes and its Idempotency-Key over all tries, so that a write that came through twice counts once and
a failover is latency. What an answer means beyond yes and no is not known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from quvatlh.client import errors
from quvatlh.client.errors import Problem
from quvatlh.client.failures import why
from quvatlh.client.places import URL_DEFAULT
from quvatlh.client.tries import Tries

MSGPACK: Final = "application/msgpack"
EVENTS: Final = "/v1/events"

T = TypeVar("T")

DEADLINE_S = 10.0
TRY_S = 2.0
"""So long one of several nodes may take before another is asked: above every failover of section 8."""
TRY_ALONE_S = 5.0
"""The same where there is no other: the door's own default."""
GRACE_S = 0.5
"""For the way there and back, over what a node was told to take."""
CONNECT_S = 1.0
CONNECT_ALONE_S = 5.0
KEEPALIVE_S = 60.0
"""Below the server's 75 s: the client closes first, so that no request meets a connection that has just been closed."""
ERROR_BYTES_MAX = 1024 * 1024
"""Of a problem: above what a hundred faults take."""


@dataclass(frozen=True, slots=True)
class Options:
    urls: tuple[str, ...] = (URL_DEFAULT,)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    """PEM file of the authority that signed the nodes' certificates. None: those that the system trusts."""
    deadline_s: float = DEADLINE_S
    """So long a call asks around before it gives up."""
    patient: bool = True
    """False: when nobody listens at any address, nor has since the beginning, that is told at once, not at the deadline."""
    try_s: float | None = None
    """So long one node may take before another is asked. None: TRY_S, or TRY_ALONE_S."""

    @property
    def one_try_s(self) -> float:
        return self.try_s or (TRY_ALONE_S if len(self.urls) == 1 else TRY_S)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """Encoded; behind the address of the node."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    """Idempotency-Key; every write has one."""
    wait_s: float = 0.0
    """So long the node was asked to wait before it answers."""
    silence_s: float | None = None
    """Of a stream: after so long without a byte the node counts as lost. None: never."""
    deadline_s: float | None = None
    is_question: bool = False
    """A POST that changes nothing."""

    @property
    def is_write(self) -> bool:
        return self.method != "GET" and not self.is_question


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str

    def value(self) -> Any:
        """By its Content-Type."""
        if self.headers.get("Content-Type") != MSGPACK:
            return self.json()
        try:
            return msgspec.msgpack.decode(self.body)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            errors.not_ours(self.url, "no msgpack")

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            errors.not_ours(self.url, "no JSON")


class Begun(Protocol):
    """A request that has left for a node in another way."""

    @property
    def url(self) -> str: ...

    @property
    def request(self) -> Request: ...

    async def answer(self) -> Answer:
        """Raises what a lost connection raises, also where it cannot be read."""
        ...


class Http:
    """Connections to the nodes. Entered, used by any number of coroutines, left."""

    def __init__(
        self,
        options: Options,
        *,
        clock: Callable[[], float] | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.options = options
        self._clock = clock
        self._pause = pause
        self._try_s = options.one_try_s
        self._connect_s = CONNECT_ALONE_S if len(options.urls) == 1 else CONNECT_S
        self._preferred = 0
        """The node that answered last."""
        self._has_met = False
        """A node was there: it may come back."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context = _tls(self.options.ca) if any(url.startswith("https:") for url in self.options.urls) else None
        connector = aiohttp.TCPConnector(ssl=context or True, limit=0, keepalive_timeout=KEEPALIVE_S)
        headers = {"User-Agent": "quvatlh"}
        if self.options.token:
            headers["Authorization"] = f"Bearer {self.options.token}"
        self._session = aiohttp.ClientSession(
            connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    @property
    def url(self) -> str:
        """Of the node that answered last."""
        return self.options.urls[self._preferred]

    async def ask(self, request: Request, judge: Callable[[Answer], T], begun: Begun | None = None) -> T:
        """What `judge` makes of the whole answer; a Problem that it raises is treated as if the node had said it. `begun`: the
        first try of it is under way."""
        first = begun

        async def once(url: str, left_s: float) -> T:
            nonlocal first
            if first is not None:
                waited, first = first, None
                answer = await waited.answer()
                if not _is_yes(answer.status):
                    raise errors.from_answer(answer.status, answer.headers, answer.body, url)
                return judge(answer)
            try_s = min(left_s, self._try_s)
            target = _target(request, f"{max(int(try_s * 1000), 1)}ms")
            over_s = request.wait_s + GRACE_S
            async with self._begun(request, url + target, left_s + over_s, try_s + over_s) as response:
                await _must_be_yes(response, url)
                return judge(Answer(response.status, response.headers, await response.read(), url))

        return await self._persist(request, once, None if begun is None else begun.url)

    @contextlib.asynccontextmanager
    async def opened(self, request: Request) -> AsyncIterator[tuple[aiohttp.ClientResponse, str]]:
        """An answer to be read piece by piece, and the node it comes from. What breaks later is the reader's to mend."""
        async with contextlib.AsyncExitStack() as stack:

            async def once(url: str, _left_s: float) -> tuple[aiohttp.ClientResponse, str]:
                begun = self._begun(request, url + _target(request), None, request.silence_s)
                response = await stack.enter_async_context(begun)
                await _must_be_yes(response, url)
                return response, url

            yield await self._persist(request, once)

    def leave(self, url: str) -> None:
        """A stream of this node broke: the next is asked before it."""
        if self.options.urls[self._preferred] == url:
            self._preferred = (self._preferred + 1) % len(self.options.urls)

    async def _persist(
        self, request: Request, once: Callable[[str, float], Awaitable[T]], first: str | None = None
    ) -> T:
        now = self._clock or asyncio.get_running_loop().time
        deadline = now() + (self.options.deadline_s if request.deadline_s is None else request.deadline_s)
        urls = self.options.urls
        preferred = self._preferred if first is None else urls.index(first)
        patient = self.options.patient or self._has_met
        tries = Tries(urls, preferred, deadline, patient=patient, is_write=request.is_write)
        while True:
            node, wait_s = tries.next(now())
            if wait_s > 0:
                await self._pause(wait_s)
            try:
                answer = await once(urls[node], max(deadline - now(), 0.0))
            except Problem as problem:
                self._has_met = True
                tries.refused(node, now(), problem)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failure = why(error)
                if failure.sent:
                    self._has_met = tries.is_patient = True
                    tries.lost(node, now(), failure.words)
                else:
                    tries.not_sent(node, now(), failure.words, hopeless=failure.hopeless)
            else:
                self._preferred, self._has_met = node, True
                return answer

    def _begun(
        self, request: Request, url: str, total_s: float | None, silence_s: float | None
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The head of the answer."""
        assert self._session is not None, "entered first"
        return self._session.request(
            request.method,
            URL(url, encoded=True),
            data=request.body,
            headers=_headers(request),
            timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=self._connect_s, sock_read=silence_s),
            allow_redirects=False,
        )


def new_key() -> str:
    """An Idempotency-Key that nobody else has."""
    return secrets.token_hex(16)


def _target(request: Request, deadline: str = "") -> str:
    query = urlencode(request.query) if request.query else ""
    if deadline:
        query += f"&deadline={deadline}" if query else f"deadline={deadline}"
    return f"{request.path}?{query}" if query else request.path


def _headers(request: Request) -> dict[str, str]:
    sent = dict(request.headers)
    if request.body is not None:
        sent["Content-Type"] = request.content_type
    if request.key is not None:
        sent["Idempotency-Key"] = request.key
    return sent


def _is_yes(status: int) -> bool:
    return 200 <= status < 300


async def _must_be_yes(response: aiohttp.ClientResponse, url: str) -> None:
    if not _is_yes(response.status):
        async with response:  # its connection is let go of now, whoever else holds it
            raise errors.from_answer(response.status, response.headers, await _bounded(response), url)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > ERROR_BYTES_MAX:
            break
    return bytes(body)


def _tls(ca: str | None) -> ssl.SSLContext:
    """OSError, with its name, when the file cannot be used."""
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError too, and neither names the file
        words = error.strerror if isinstance(error, FileNotFoundError) else "holds no certificates in PEM"
        raise OSError(error.errno, words, ca) from None
