"""Who may ask at all: the Host that was meant, the Origin a browser tells, the bearer of a token, a browser's session.

Host is checked because a name of an attacker's may be made to lead here (DNS rebinding); only names and addresses of this
node's own are answered to. Origin is checked on what changes something: a page of another site cannot make its reader's
browser do it. Addresses are compared as they are written; nothing is resolved.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from quvatlh.api.sessions import Sessions
from quvatlh.config import address
from quvatlh.service.pool import Pool, Principal, Rejected

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

SAFE: Final = frozenset({"GET", "HEAD"})
REMEMBERED: Final = 1024
TOKEN_CHARS_MAX: Final = 1024
ANYBODY: Final = Principal("", "")
"""Who asks for what needs no token."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9._~+/=-]+)", re.ASCII)


class Guard:
    def __init__(self, pool: Pool, hosts: Iterable[str], sessions: Sessions | None = None) -> None:
        self._pool = pool
        self._sessions = sessions or Sessions()
        self._hosts = frozenset(_plain(host) for host in hosts if not address.is_wildcard(host))
        self._is_own = lru_cache(REMEMBERED)(self._judge)

    def check_place(self, method: str, headers: CIMultiDictProxy[str], local: str) -> None:
        """`local` is the address that the client reached; Rejected when this is not the place he meant."""
        hosts = headers.getall("Host", [])
        if len(hosts) != 1:
            raise Rejected("bad_request", "a request needs exactly one Host header")
        if not self._is_own(hosts[0], local):
            raise Rejected("forbidden", f"Host {hosts[0][:100]!r} is not a name of this node; http.hosts adds names")
        if method not in SAFE:
            for origin in headers.getall("Origin", ()):
                self._check_origin(origin, hosts[0])

    def principal(self, method: str, headers: CIMultiDictProxy[str]) -> Principal:
        bearer = bearer_of(headers)
        if bearer is None:
            return self._of_session(method, headers)
        principal = self._pool.authenticate(bearer)
        if principal is None:
            raise Rejected("unauthorized", "the token is not known here, or was revoked")
        return principal

    def _of_session(self, method: str, headers: CIMultiDictProxy[str]) -> Principal:
        """A browser sends its cookie whoever made it ask: so it must say that a page of this node did, where something
        may change, and must not say anything else where nothing does. Ports of a host are one site to SameSite."""
        secret = cookie_of(headers, self._sessions.cookie)
        if not secret:
            raise Rejected("unauthorized", "a token is needed: Authorization: Bearer TOKEN, or a session")
        host, origins = headers.get("Host", ""), headers.getall("Origin", [])
        for origin in origins:
            self._check_origin(origin, host)
        if method not in SAFE and not origins:
            raise Rejected(
                "forbidden", "with a session, what changes something needs the Origin of this node's own page"
            )
        if headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
            raise Rejected("forbidden", "another place made the browser ask this")
        entry = self._sessions.find(secret)
        principal = None if entry is None else self._pool.watching.recall(entry.digest)
        if principal is None:
            raise Rejected("unauthorized", "the session is over: log in again, with the link of `quvatlh open`")
        return principal

    def _check_origin(self, origin: str, host: str) -> None:
        """A browser's page may only speak to the node that it came from."""
        scheme, _, place = origin.partition("://")
        if scheme not in {"http", "https"} or place.lower() != host.lower():
            raise Rejected("forbidden", f"Origin {origin[:100]!r} may not do this: it is not {host}")

    def _judge(self, given: str, local: str) -> bool:
        match = _HOST.fullmatch(given)
        if match is None:
            return False
        host = _plain(match[1])
        return (
            host in self._hosts or host == _plain(local) or (address.is_loopback(host) and address.is_loopback(local))
        )


def bearer_of(headers: CIMultiDictProxy[str]) -> str | None:
    """The token that is shown; None where there is no such header."""
    given = headers.getall("Authorization", [])
    if not given:
        return None
    match = _BEARER.fullmatch(given[0]) if len(given) == 1 and len(given[0]) <= TOKEN_CHARS_MAX else None
    if match is None:
        raise Rejected("unauthorized", "Authorization holds no token that can be read: it must be Bearer TOKEN")
    return match[1]


def cookie_of(headers: CIMultiDictProxy[str], name: str) -> str:
    """Empty where it is missing, or stands there twice: then somebody else has set one of them."""
    pairs = [pair.strip().partition("=") for line in headers.getall("Cookie", []) for pair in line.split(";")]
    found = [value for key, _, value in pairs if key == name]
    return found[0] if len(found) == 1 else ""


def _plain(host: str) -> str:
    """One way to write it, so that text can be compared."""
    bare = host.strip("[]").partition("%")[0].rstrip(".").lower()
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        return bare
    mapped = getattr(ip, "ipv4_mapped", None)
    return str(mapped or ip)
