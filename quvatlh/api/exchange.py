"""One request being answered: what a handler knows of it, and the bounded ways to read and answer."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import StreamReader, web

from quvatlh.api.checks import Kind, faults_of, rejected
from quvatlh.api.formats import decode, encode
from quvatlh.api.params import Param
from quvatlh.service.pool import DEADLINE_MS, Call, Pool, Principal, Rejected, RequestKey, Unavailable

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

    from quvatlh.api.meter import Meter
    from quvatlh.api.sessions import Sessions
    from quvatlh.api.stream import Streams

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one event, and of every other body but NDJSON."""
BODY_S_MAX: Final = 60.0
"""In which a body has to arrive: who sends more slowly holds up nobody but himself, and not for ever."""
BODIES_MAX: Final = 64
"""NDJSON bodies at once: each may hold some megabytes of memory."""
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
YAML: Final = "application/yaml"
LUA: Final = "text/x-lua"
MSGPACK: Final = "application/msgpack"
ALIASES: Final[Mapping[str, str]] = {
    "application/ndjson": NDJSON,
    "application/jsonl": NDJSON,
    "application/x-yaml": YAML,
    "text/yaml": YAML,
    "text/x-yaml": YAML,
    "text/lua": LUA,
    "application/x-lua": LUA,
}
"""Other names of content types, as programs write them."""
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
JSON_HEADERS: Final = {"Content-Type": JSON, **HEADERS}
DIGEST_BYTES: Final = 16
NAME_CHARS_SHOWN: Final = 200
"""Of a token's name, among the answers that are kept for it; who it is, its mark says."""

_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Shared:
    """What all exchanges of a server have in common."""

    def __init__(
        self,
        pool: Pool,
        meter: Meter,
        streams: Streams,
        broken: Callable[[BaseException], str],
        sessions: Sessions,
    ) -> None:
        self.sessions = sessions
        self.pool = pool
        self.meter = meter
        self.streams = streams
        self.broken = broken
        """Tells the log and the daemon of a bug; the words for the client."""
        self.documents: dict[str, bytes] = {}
        self.bodies = 0
        """NDJSON bodies under way."""


Handler = Callable[["Exchange"], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    method: str
    path: str
    """With `{names}` for parts that vary."""
    handler: Handler
    about: str
    answers: Mapping[int, str]
    """Status -> name of a schema in openapi.py, or a content type."""
    params: Mapping[str, Param] = {}
    body: Kind | None = None
    may_be_empty: bool = False
    """The body may be left out."""
    open: bool = False
    """No token needed."""
    also: Mapping[str, str] = {}
    """Content types that it takes beside JSON, and what stands in them."""
    headers: Mapping[str, str] = {}
    """Of a 2xx answer: what each says."""
    remembered: bool = False
    """Takes an Idempotency-Key."""
    streams: bool = False
    """Answered piece by piece: then there is no HEAD of it."""


@dataclass(slots=True)
class Asked:
    """What is asked, whichever way it came (server.py, straight.py)."""

    headers: CIMultiDictProxy[str]
    route: Route
    shared: Shared
    principal: Principal
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    farewell: Callable[[str], None] | None = None
    """How an answer without end is ended, with a code that says why; None: it is cut off."""

    @property
    def pool(self) -> Pool:
        return self.shared.pool

    def call(self, key: RequestKey | None = None, turn: asyncio.Lock | None = None) -> Call:
        query = self.query
        if not query:
            return Call(self.principal, key=key, turn=turn)
        return Call(self.principal, query.get("deadline_ms", DEADLINE_MS), query.get("consistent", False), key, turn)

    def key(self, body: bytes = b"", part: str = "") -> RequestKey | None:
        """By the client's Idempotency-Key; None when he sent none. What the address names is part of what was asked."""
        given = self.headers.get("Idempotency-Key")
        if given is None:
            return None
        if _KEY.fullmatch(given) is None:
            raise Rejected("bad_request", "Idempotency-Key must be 1 to 128 visible ASCII characters")
        asked = "\0".join((*self.path.values(), "")).encode() + body
        digest = hashlib.blake2b(asked, digest_size=DIGEST_BYTES).digest()
        whose = f"{self.principal.name[:NAME_CHARS_SHOWN]}:{self.principal.mark}"
        return RequestKey(whose, f"{self.route.method} {self.route.path}", f"{given}{part}", digest)

    def read(self, raw: bytes) -> tuple[Any, RequestKey | None]:
        """The checked body, and the name under which the write is remembered."""
        try:
            value = decode(raw)
        except ValueError as error:
            raise Rejected("bad_request", f"the body {error}") from None
        assert self.route.body is not None
        return checked(self.route.body, value), self.key(raw)


@dataclass(slots=True)
class Exchange(Asked):
    request: web.BaseRequest = field(kw_only=True)

    def content_type(self) -> str:
        """Of the body; Rejected when the route does not take it."""
        headers = self.headers
        given = headers.get("Content-Type", "")
        name, _, rest = given.partition(";")
        name = name.strip().lower()
        name = ALIASES.get(name, name)
        taken = (JSON, *self.route.also)
        if name not in taken or (rest.strip() and "utf-8" not in rest.lower()):
            what = " or ".join(taken)
            raise Rejected("bad_request", f"Content-Type must be {what} in UTF-8, not {given[:100] or 'missing'}")
        if headers.get("Content-Encoding", "identity") != "identity":
            raise Rejected("bad_request", "compressed bodies are not taken: send it without Content-Encoding")
        return name

    async def json(self) -> tuple[Any, RequestKey | None]:
        """As `read`, of a body that is still to come."""
        self.content_type()
        return self.read(await self.body())

    async def json_or(self, default: Any) -> tuple[Any, RequestKey | None]:
        """As `json`, where a body may be left out."""
        if not self.request.can_read_body:
            return default, self.key()
        return await self.json()

    async def body(self) -> bytes:
        """All of it, bounded."""
        if (self.request.content_length or 0) > BODY_BYTES_MAX:
            raise _body_too_large()
        content = self.invite()
        if content.is_eof():
            raw = content.read_nowait(-1)
            if len(raw) > BODY_BYTES_MAX:
                raise _body_too_large()
            return raw
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_S_MAX):
                while part := await content.readany():
                    size += len(part)
                    if size > BODY_BYTES_MAX:
                        raise _body_too_large()
                    parts.append(part)
        except TimeoutError:
            raise Rejected("bad_request", f"the body did not arrive within {BODY_S_MAX:g} s") from None
        return b"".join(parts)

    def invite(self) -> StreamReader:
        """The body, to be read; a client that asks first is told to go on."""
        request = self.request
        if self.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return request.content

    def answer(self, value: object, status: int = 200) -> web.Response:
        return web.Response(body=encode(value), status=status, headers=JSON_HEADERS)

    async def start(
        self, content_type: str, headers: Mapping[str, str] = {}, size_bytes: int | None = None
    ) -> web.StreamResponse:
        """An answer whose body comes piece by piece. From here on a problem can only end the connection."""
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": content_type} | dict(headers))
        response.content_length = size_bytes
        await response.prepare(self.request)
        return response

    def cut_off(self) -> None:
        """End the connection so that the client sees that the body is not whole."""
        if self.request.transport is not None:
            self.request.transport.abort()

    def enter_body(self) -> None:
        if self.shared.bodies >= BODIES_MAX:
            raise Unavailable("rate_limited", f"{BODIES_MAX} NDJSON bodies are under way at this node")
        self.shared.bodies += 1

    def leave_body(self) -> None:
        self.shared.bodies -= 1


def checked(kind: Kind, value: object) -> Any:
    try:
        return kind.check(value)
    except ValueError as error:
        raise rejected(list(faults_of(error, ""))) from None


def _body_too_large() -> Rejected:
    return Rejected("too_large", f"the body is over {BODY_BYTES_MAX} bytes; NDJSON may be of any length")
