"""The dashboard's files, and the way into it: the page, what it loads, sessions of browsers, the last hour for its charts.

Files are under an address with the digest of all of them, so a browser may keep them for ever and never mixes versions; the
page itself is asked for each time. They are read when a server starts: what is installed over them later is another version's,
and halfway there. Text is compressed once, when it is first asked for.
"""

from __future__ import annotations

import functools
import gzip
import os
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from quvatlh.api.access import allowed
from quvatlh.api.checks import matching
from quvatlh.api.exchange import HEADERS, Exchange
from quvatlh.api.formats import time_text
from quvatlh.api.guard import bearer_of, cookie_of
from quvatlh.api.params import Param
from quvatlh.api.sessions import SESSION_S
from quvatlh.service.pool import Json, Rejected
from quvatlh.service.tokens import hash_of
from quvatlh.web import TYPES, Files, files

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE_HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
HTML: Final = TYPES[".html"]
FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
EACH_TIME: Final = {"Cache-Control": "no-cache"}
SHELL: Final = "index.html"
TO_PAGE: Final = {"Content-Type": HTML, "Referrer-Policy": "no-referrer"}
PLACE: Final = "{base}"
"""In the shell, where the address of the files belongs."""
ONCE: Final = {"once": Param(matching(r"[A-Za-z0-9_-]{1,128}", "what follows `once=` in a link", 128))}


@functools.cache
def assets() -> Files:
    """Asked for by each server as it starts."""
    return files()


@functools.cache
def _page() -> bytes:
    """It names its modules, so that a browser asks for all of them at once instead of one after the other."""
    digest, by_path = assets()
    base = f"/web/{digest}"
    modules = sorted(path for path in by_path if path.endswith(".js"))
    preloads = "\n".join(f'<link rel="modulepreload" href="{base}/{path}">' for path in modules)
    return by_path[SHELL].replace(b"<!-- modules -->", preloads.encode()).replace(PLACE.encode(), base.encode())


@functools.cache
def _packed(path: str) -> bytes:
    return gzip.compress(_page() if path == SHELL else assets().by_path[path], mtime=0)


async def shell(exchange: Exchange) -> web.StreamResponse:
    return _file(exchange, SHELL, EACH_TIME)


async def asset(exchange: Exchange) -> web.StreamResponse:
    path = "/".join(exchange.path[part] for part in ("folder", "file") if part in exchange.path)
    if exchange.path["digest"] != assets().digest or path not in assets().by_path or path == SHELL:
        raise Rejected("not_found", "there is no such file of the dashboard: load the page anew")
    return _file(exchange, path, FOR_EVER)


def _file(exchange: Exchange, path: str, caching: Mapping[str, str]) -> web.Response:
    headers = {**PAGE_HEADERS, **caching, "ETag": f'"{assets().digest}"', "Vary": "Accept-Encoding"}
    asked = exchange.request.headers
    if headers["ETag"] in asked.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = TYPES[os.path.splitext(path)[1]]
    if "gzip" in asked.get("Accept-Encoding", ""):
        return web.Response(body=_packed(path), headers=headers | {"Content-Encoding": "gzip"})
    return web.Response(body=_page() if path == SHELL else assets().by_path[path], headers=headers)


# --- sessions ---


async def login(exchange: Exchange) -> web.StreamResponse:
    """A link is used up by this, whoever follows it; a second time it leads to the page, which says what to do."""
    sessions = exchange.shared.sessions
    digest = sessions.redeem(exchange.query.get("once", ""))
    if digest is None:
        return _to("/#/login?link=used")
    return _with_cookie(exchange, _to("/"), sessions.begin(digest), SESSION_S)


async def post_link(exchange: Exchange) -> web.StreamResponse:
    """A link for another browser, of the same token."""
    return exchange.answer({"url": exchange.shared.sessions.link(_digest(exchange))}, 201)


async def get_session(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(_told(exchange))


async def post_session(exchange: Exchange) -> web.StreamResponse:
    secret = exchange.shared.sessions.begin(_digest(exchange))
    return _with_cookie(exchange, exchange.answer(_told(exchange), 201), secret, SESSION_S)


async def delete_session(exchange: Exchange) -> web.StreamResponse:
    secret = _cookie(exchange)
    if secret:
        exchange.shared.sessions.end(secret)
    return _with_cookie(exchange, exchange.answer({"name": exchange.principal.name}), "", 0)


def _told(exchange: Exchange) -> Json:
    who = exchange.principal
    entry = exchange.shared.sessions.find(_cookie(exchange))
    ends = [at for at in (entry and int(entry.until * 1000), who.expires_at_ms) if at is not None]
    until = time_text(min(ends)) if ends else None
    scope: dict[str, Any] = {"queues": list(who.queues), "groups": list(who.groups)}
    return {"name": who.name, "role": who.role, **scope, "until": until, "web": assets().digest, "may": allowed(who)}


def _digest(exchange: Exchange) -> bytes:
    """Of the token that this request shows, itself or by its session."""
    bearer = bearer_of(exchange.request.headers)
    if bearer is not None:
        return hash_of(bearer)
    entry = exchange.shared.sessions.find(_cookie(exchange))
    assert entry is not None, "the guard let it pass"
    return entry.digest


def _cookie(exchange: Exchange) -> str:
    return cookie_of(exchange.request.headers, exchange.shared.sessions.cookie)


def _to(place: str) -> web.Response:
    return web.Response(status=303, headers={**HEADERS, **TO_PAGE, "Location": place})


def _with_cookie(exchange: Exchange, response: web.Response, secret: str, age_s: int) -> web.Response:
    sessions = exchange.shared.sessions
    secure = "; Secure" if sessions.secure else ""
    told = f"{sessions.cookie}={secret}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"
    response.headers["Set-Cookie"] = told
    return response


# --- charts ---


async def get_history(exchange: Exchange) -> web.StreamResponse:
    """Waits are numbers of milliseconds, as their names say: they are drawn, not read."""
    told = exchange.pool.watching.history()
    head = {"step": f"{told.pop('step_ms') // 1000}s", "from": time_text(told.pop("from_ms"))}
    return exchange.answer(head | told)
