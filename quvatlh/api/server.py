"""The HTTP server: connections by aiohttp (but for what straight.py knows), everything else by our own table.

A request passes the guard, then the table, then its handler; what it raises becomes a problem of one of the four kinds.
Anything else that a handler raises is a bug: the client is told an id, the log the story, and the daemon decides to stop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from quvatlh.api import access, events, openapi, pages, problems, straight
from quvatlh.api.exchange import Asked, Exchange, Route, Shared
from quvatlh.api.formats import encode
from quvatlh.api.guard import ANYBODY, Guard
from quvatlh.api.meter import Meter
from quvatlh.api.params import decoded, parse
from quvatlh.api.place import Place
from quvatlh.api.routes import Table
from quvatlh.api.sessions import FIRST_LINK_S, Sessions
from quvatlh.api.stream import Streams
from quvatlh.config import address
from quvatlh.service.pool import Broken, Pool, Problem, Rejected, Unavailable
from quvatlh.service.tokens import hash_of

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

Note = Callable[..., None]
"""note("request", path="/v1/tasks", ...), as observe.logs.noter makes it."""

LOGGER: Final = logging.getLogger(__name__)
HEAD_BYTES_MAX: Final = 16 * 1024
"""Of a request line, and of each header."""
KEEPALIVE_S: Final = 75.0
LINGER_S: Final = 2.0
"""So long the rest of a refused body is read, so that the client sees the answer and not a reset."""
STOP_S: Final = 5.0
JUDGED_EACH_S: Final = 0.5
"""So long at most a token that was revoked, or narrowed, goes on where it had begun."""
NOWHERE: Final = "(none)"
"""The route, in numbers, of what leads nowhere."""


@dataclass(frozen=True, slots=True)
class Options:
    listen: str = "127.0.0.1:7420"
    """host:port. Port 0 takes any free one."""
    cert: str | None = None
    key: str | None = None
    """Paths of PEM files: both or none."""
    hosts: tuple[str, ...] = ()
    """Names, beside its addresses, under which this node is reached."""
    sessions: str | None = None
    """Path of the file that keeps sessions of browsers over a restart."""


class Server:
    """One listening socket and what is asked through it."""

    def __init__(
        self,
        pool: Pool,
        options: Options,
        *,
        note: Note | None = None,
        on_broken: Callable[[BaseException], None] = lambda _: None,
        streams: Streams | None = None,
        judged_each_s: float = JUDGED_EACH_S,
    ) -> None:
        self._options = options
        self._table = Table()
        self.sessions = Sessions(options.sessions)
        self._guard = Guard(pool, (*options.hosts, address.parse(options.listen).host), self.sessions)
        self._note = note
        self._on_broken = on_broken
        self.streams = streams or Streams()
        self.shared = Shared(pool, Meter(), self.streams, self._broken, self.sessions)
        self.shared.documents["openapi"] = encode(openapi.document())
        pages.assets()
        self._web: _WebServer | None = None
        self._lines: straight.Lines | None = None
        self._place: Place | None = None
        self._stopping = False
        self._under_way: set[_Answering] = set()
        self._judged_each_s = judged_each_s
        self._judging: asyncio.Task[None] | None = None

    async def start(self, place: Place | None = None) -> str:
        """Let people in, at the place that was taken for it or else at that of the options; the bound host:port.

        ListenRefused when that cannot be.
        """
        options = self._options
        self._place = place or await Place.take(options.listen, options.cert, options.key)
        self._web = _WebServer(self._handle, handler_cancellation=True, **_LIMITS)
        self._lines = straight.Lines(self._ask, self._web, KEEPALIVE_S)
        await self._place.open(self._web if self._place.is_secure else self._lines)
        self._judging = asyncio.get_running_loop().create_task(self._judge_again())
        host, port = self._place.bound
        self.sessions.placed(port, secure=self._place.is_secure)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def link(self, token: str) -> str:
        """The path that begins a session of this token in a browser, once, for whoever reads where the node starts."""
        return self.sessions.link(hash_of(token), FIRST_LINK_S)

    async def stop(self, grace_s: float = STOP_S) -> None:
        """Nothing new; streams end; what is under way may finish for so long."""
        self._stopping = True
        if self._place is not None:
            self._place.close()
        self.streams.end_all()
        if self._web is not None and self._lines is not None:
            self._lines.pre_shutdown()
            self._web.pre_shutdown()
            await asyncio.gather(self._lines.shutdown(grace_s), self._web.shutdown(grace_s))
        if self._judging is not None:
            self._judging.cancel()
            await asyncio.gather(self._judging, return_exceptions=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """As aiohttp asks."""
        answering = _Answering(request)
        answer = self._answer(answering, request)
        response = await self._carry(answering, answer, partial(self._problem, answering, request))
        if request.method == "GET" and not response.prepared:
            response.headers["Server-Timing"] = f"node;dur={answering.took_s * 1000:.1f}"
        return response

    def _ask(self, head: straight.Head, body: bytes) -> straight.Answer | None:
        """As a Line asks. What is to be refused is left to aiohttp's way, which comes by the same and says so."""
        route, headers = straight.ROUTE, head.headers
        try:
            self._guard.check_place(head.method, headers, head.local)
            principal = self._guard.principal(head.method, headers)
            access.check(route, principal, {})
        except Exception:  # noqa: BLE001 - a bug, too, is met there again, and told
            return None
        answering = _Answering(head)
        answering.route, answering.principal = route, principal
        answering.asked = asked = Asked(headers, route, self.shared, principal, query=head.query)
        return partial(self._answer_straight, answering, asked, body)

    async def _answer_straight(self, answering: _Answering, asked: Asked, body: bytes) -> straight.Reply:
        answering.task = asyncio.current_task()
        self._under_way.add(answering)
        return await self._carry(answering, self._event(asked, body), straight.refused)

    async def _event(self, asked: Asked, body: bytes) -> straight.Reply:
        return straight.told(*await events.of_json(asked, body))

    async def _carry(self, answering: _Answering, answer: Awaitable[_T], refused: Callable[[Problem], _T]) -> _T:
        """To its end, whichever that is."""
        try:
            told = await answer
        except Problem as problem:
            told = refused(problem)
        except (ConnectionError, asyncio.CancelledError):
            if answering.no_more is None:
                self._count(answering, 499)
                raise
            answering.uncancel()
            told = refused(answering.no_more)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the node stops
            told = refused(Broken(self._broken(error)))
        finally:
            self._under_way.discard(answering)
        self._count(answering, told.status)
        return told

    async def _answer(self, answering: _Answering, request: web.BaseRequest) -> web.StreamResponse:
        method, (path, _, query) = request.method, request.raw_path.partition("?")
        local = request.transport.get_extra_info("sockname") if request.transport else None
        self._guard.check_place(method, request.headers, local[0] if isinstance(local, tuple) else "")
        routes, parts = self._table.find(path, method)
        route = answering.route = routes.get(method)
        if route is None or not route.open:
            answering.principal = self._guard.principal(method, request.headers)
        if route is None:
            raise self._nowhere(answering, path, routes.keys())
        access.check(route, answering.principal, parts)
        given = parse(query, self._table.params[route.method, route.path]) if query else {}
        answering.asked = exchange = Exchange(
            request.headers, route, self.shared, answering.principal, parts, given, request=request
        )
        if not route.open:
            self._under_way.add(answering)
        return await route.handler(exchange)

    async def _judge_again(self) -> None:
        """What lasts (streams, waits, workers' lines) ends soon after its token, or after what that token may."""
        while True:
            await asyncio.sleep(self._judged_each_s)
            for answering in list(self._under_way):
                try:
                    principal = self._guard.principal(answering.request.method, answering.request.headers)
                except Unavailable:  # this node cannot say: what was judged before stands
                    continue
                except Rejected as problem:
                    answering.end(problem)
                    continue
                if principal != answering.principal:
                    words = f"what token {principal.name} may do was changed meanwhile: ask again"
                    answering.end(Rejected("forbidden", words))

    def _nowhere(self, answering: _Answering, path: str, methods: Any) -> Rejected:
        """The closed list has no code for a wrong method; `Allow` tells it from a wrong path."""
        what = decoded(path)[:100]
        if not methods:
            return Rejected("not_found", f"there is nothing at {what!r}; see /openapi.json")
        answering.allow = ", ".join(sorted(methods))
        return Rejected("not_found", f"{what!r} takes {answering.allow}, not {answering.request.method[:20]}")

    def _problem(self, answering: _Answering, request: web.BaseRequest, problem: Problem) -> web.StreamResponse:
        if request.writer.output_size:  # the head is out already: only the end of the connection can tell
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(problem.detail)
        return problems.response(problem, **({"Allow": answering.allow} if answering.allow else {}))

    def _broken(self, error: BaseException) -> str:
        """To the log with its story; to the client only where it stands there."""
        incident = secrets.token_hex(8)
        LOGGER.error("bug in the HTTP interface, incident %s", incident, exc_info=error)
        self._on_broken(error)
        return f"a bug of this node; its log has the story as incident {incident}"

    def _count(self, answering: _Answering, status: int) -> None:
        answering.took_s = seconds = asyncio.get_running_loop().time() - answering.began_s
        route = answering.route
        method = route.method if route else "*"
        self.shared.meter.observe(method, route.path if route else NOWHERE, status, seconds)
        if self._note is not None:
            request = answering.request
            self._note(
                "request",
                method=request.method,
                path=request.raw_path.partition("?")[0],
                status=status,
                ms=round(seconds * 1000, 3),
                client=request.remote,
                token=answering.principal.name,
            )


class _Request(Protocol):
    """What is known of it, whichever way it came."""

    @property
    def method(self) -> str: ...
    @property
    def raw_path(self) -> str: ...
    @property
    def headers(self) -> CIMultiDictProxy[str]: ...
    @property
    def remote(self) -> str | None: ...


class _Told(Protocol):
    @property
    def status(self) -> int: ...


_T = TypeVar("_T", bound=_Told)


class _Answering:
    """What becomes known of a request on its way, for the numbers and the log."""

    __slots__ = ("allow", "asked", "began_s", "no_more", "principal", "request", "route", "task", "took_s")

    def __init__(self, request: _Request) -> None:
        self.request = request
        self.route: Route | None = None
        self.principal = ANYBODY
        self.allow = ""
        self.asked: Asked | None = None
        self.no_more: Problem | None = None
        """Why it was ended before it had its answer."""
        self.task = asyncio.current_task()
        self.began_s = asyncio.get_running_loop().time()
        self.took_s = 0.0

    def end(self, why: Problem) -> None:
        if self.no_more is not None or self.asked is None or self.task is None:
            return
        if self.asked.farewell is not None:
            self.asked.farewell(why.code)
            return
        self.no_more = why
        self.task.cancel()

    def uncancel(self) -> None:
        if self.task is not None:
            self.task.uncancel()


_LIMITS: Final[dict[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": KEEPALIVE_S,
    "lingering_time": LINGER_S,
    "max_line_size": HEAD_BYTES_MAX,
    "max_field_size": HEAD_BYTES_MAX,
    "logger": logging.getLogger("quvatlh.http"),
}


class _WebServer(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    """Speaks problem+json also where the bytes are no HTTP at all."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 - as inherited
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way already")
        if status < 500:
            words = (message or "").strip().splitlines()
            response = problems.response(
                Rejected("bad_request", f"this is not HTTP/1.1: {words[0] if words else status}")
            )
        else:
            response = problems.response(Broken("a bug of this node"))
        response.force_close()
        return response
