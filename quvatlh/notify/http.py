"""ports.Sender on aiohttp: one connection a request, no redirect followed, no cookie kept, no proxy of the environment."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from typing import Final

import aiohttp
from aiohttp import http_exceptions
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from quvatlh.notify.addresses import Allowed
from quvatlh.notify.signing import of_works, signed
from quvatlh.ports import Clock, Incoming, Outgoing, SendFault

BODY_BYTES_KEPT: Final = 64 * 1024
"""Of an answer: what says more is read no further."""
HEADER_BYTES_MAX: Final = 16 * 1024
CONNECT_S: Final = 10.0
_HEADERS: Final = {"user-agent": "quvatlh", "accept-encoding": "identity"}
"""Unless the request names them. Answers are kept as they come, so that what is packed would be read by nobody."""
_NO_URL: Final = "the URL must be http or https, with a host and a port that can be"
_METHOD: Final = re.compile(r"[A-Z]{1,16}")


class Forbidden(OSError):
    """A name that leads to no address that may be asked."""


class HttpSender:
    def __init__(self, clock: Clock, keys: Sequence[bytes] = (), allowed: Sequence[str] = ()) -> None:
        self._clock = clock
        self._keys = tuple(keys)
        self._keys_of_works = of_works(self._keys)
        self._allowed = Allowed(allowed)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Outgoing) -> Incoming:
        url = self._checked(request)
        named = {name.lower() for name in request.headers}
        headers = {name: value for name, value in _HEADERS.items() if name not in named} | dict(request.headers)
        if request.delivery is not None:
            keys = self._keys if request.is_end else self._keys_of_works
            headers |= signed(request.delivery, self._clock.wall_ms() // 1000, request.body, keys)
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._ask(request, url, headers)
        except TimeoutError:
            raise SendFault("timeout", f"no answer within {request.timeout_s:g} s") from None
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, Forbidden):
                raise SendFault("forbidden", str(error.os_error)) from None
            raise SendFault("unreachable", _words(error)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise SendFault("unreachable", _words(error)) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _checked(self, request: Outgoing) -> URL:
        """As it will be asked: a host that is written in other digits or dots is judged by what becomes of it."""
        try:
            url = URL(request.url)
        except ValueError:
            raise ValueError(_NO_URL) from None
        host = url.raw_host
        if url.scheme not in {"http", "https"} or not host:
            raise ValueError(_NO_URL)
        if _METHOD.fullmatch(request.method) is None:
            raise ValueError("the method must be a word in capital letters")
        # Names are judged when they are resolved; an address that stands in the URL is resolved by nobody.
        if _is_address(host) and not self._allowed.has(host):
            raise SendFault("forbidden", _not_allowed(host))
        return url

    async def _ask(self, request: Outgoing, url: URL, headers: dict[str, str]) -> Incoming:
        session = self._open()
        asked = session.request(request.method, url, data=request.body or None, headers=headers, allow_redirects=False)
        async with asked as response:
            limit = request.answer_bytes_max
            body = await _body(response, BODY_BYTES_KEPT if limit is None else limit + 1)
            if limit is not None and len(body) > limit:
                raise SendFault("too_large", f"status {response.status}, with more than {limit} bytes")
            found = {name.lower(): value for name, value in response.headers.items()}
            return Incoming(response.status, found, body, len(body))

    def _open(self) -> aiohttp.ClientSession:
        """One for all, made on the loop that uses it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=_Resolver(self._allowed), use_dns_cache=False, force_close=True, limit=0
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                trust_env=False,
                auto_decompress=False,
                max_line_size=HEADER_BYTES_MAX,
                max_field_size=HEADER_BYTES_MAX,
            )
        return self._session


class _Resolver(AbstractResolver):
    """The system's, of which only allowed addresses are told."""

    def __init__(self, allowed: Allowed) -> None:
        self._inner = aiohttp.ThreadedResolver()
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        kept = [each for each in found if self._allowed.has(each["host"])]
        if not kept:
            raise Forbidden(_not_allowed(f"{host} ({found[0]['host']})" if found else host))
        return kept

    async def close(self) -> None:
        await self._inner.close()


async def _body(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    body = bytearray()
    while len(body) < bytes_max and (piece := await response.content.read(bytes_max - len(body))):
        body += piece
    return bytes(body)


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _not_allowed(what: str) -> str:
    return f"{what} is no public address, and not allowed by notify.allow"


def _words(error: BaseException) -> str:
    """Of our own where aiohttp would show the URL, what came, or a status that nobody sent."""
    broken = _broken(error)
    if broken is not None:
        return _broken_words(broken)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it hung up before it had answered"
    if isinstance(error, aiohttp.InvalidURL):
        return _NO_URL
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    text = (inner.strerror if isinstance(inner, OSError) else None) or str(inner) or type(inner).__name__
    return text[:500]


def _broken(error: BaseException) -> http_exceptions.HttpProcessingError | None:
    """What the reader of the answer found fault with; the last of its causes."""
    found = None
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, http_exceptions.HttpProcessingError):
            found = cause
        cause = cause.__cause__
    return found


def _broken_words(broken: http_exceptions.HttpProcessingError) -> str:
    if isinstance(broken, http_exceptions.LineTooLong):
        return f"its answer has a line of more than {HEADER_BYTES_MAX} bytes"
    if isinstance(broken, http_exceptions.BadStatusLine):
        return "what it answered is no HTTP"
    if isinstance(broken, http_exceptions.ContentLengthError | http_exceptions.TransferEncodingError):
        return "its answer broke off before its end"
    why = broken.message.partition(":")[0].lower()
    return f"what it answered is no proper HTTP: {why or 'it cannot be read'}"
