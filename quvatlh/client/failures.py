"""Why a try got no answer, in words for people, and what is certain about it: whether the node may have seen it."""

from __future__ import annotations

import errno
from typing import NamedTuple

import aiohttp

_WORDS = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "the network cannot be reached",
    errno.ETIMEDOUT: "no connection in time",
    errno.ECONNRESET: "the connection was reset",
    errno.EPIPE: "the connection was closed",
}


class Failure(NamedTuple):
    sent: bool
    """False: the node has certainly not seen the request."""
    words: str
    hopeless: bool = False
    """Asking again would fail in the same way."""


def why(error: Exception) -> Failure:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return Failure(sent=False, words=f"its certificate is not trusted: {_tls_words(error)}", hopeless=True)
        case aiohttp.ClientConnectorSSLError():
            return Failure(sent=False, words=f"no TLS connection: {_tls_words(error)}", hopeless=True)
        case aiohttp.ClientConnectorDNSError():
            return Failure(sent=False, words=f"the name {error.host} is not known")
        case aiohttp.ClientConnectorError():
            return Failure(sent=False, words=_os_words(error.os_error))
        case aiohttp.ConnectionTimeoutError():
            return Failure(sent=False, words="no connection in time")
    return Failure(sent=True, words=_lost_words(error))


def _lost_words(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ClientPayloadError():
            return "the connection ended in the middle of the answer"
        case aiohttp.ServerDisconnectedError():
            return "the connection ended without an answer"
        case OSError():
            return _os_words(error)
    return str(error) or type(error).__name__


def _os_words(error: OSError) -> str:
    return _WORDS.get(error.errno or 0) or (error.strerror or str(error)).lower()


def _tls_words(error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError) -> str:
    inner = error.__cause__ or error.__context__ or error
    return str(getattr(inner, "verify_message", "") or getattr(inner, "reason", "") or inner)
