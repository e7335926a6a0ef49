"""Where the HTTP server is to be found: the address taken and the TLS files read, before anybody is let in.

A daemon takes its place before it changes anything, so that a wrong port or certificate leaves no trace. Whoever comes
before the door is open is refused by the kernel, as if nothing were there, and may ask another node at once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Callable
from typing import Final

from quvatlh.config import address

BACKLOG: Final = 1024
"""Connections that the kernel keeps for us. Too few, and a burst of clients is refused."""


class ListenRefused(OSError):
    """The address or the TLS files cannot be used; the message says which, and why."""


class Place:
    """An address that is ours, with nobody let in yet. `close` ends it at any point."""

    def __init__(self, listen: str, *, is_secure: bool) -> None:
        self._listen = listen
        self._factory: Callable[[], asyncio.Protocol] | None = None
        self._sockets: asyncio.Server | None = None
        self.is_secure = is_secure
        """Whether it speaks TLS, and nothing else."""

    @classmethod
    async def take(cls, listen: str, cert: str | None = None, key: str | None = None) -> Place:
        """Port 0 takes any free one. ListenRefused when that cannot be."""
        host, port = address.parse(listen)
        context = tls_context(cert, key)
        place = cls(listen, is_secure=context is not None)
        try:
            # asyncio binds with SO_REUSEADDR: what an earlier daemon has left in TIME_WAIT holds nobody up.
            place._sockets = await asyncio.get_running_loop().create_server(
                place._connection, host, port, ssl=context, backlog=BACKLOG, start_serving=False
            )
        except OSError as error:
            raise place._refused(error) from None
        return place

    @property
    def bound(self) -> tuple[str, int]:
        """Host and port; the first of them, where a name has several addresses."""
        assert self._sockets is not None
        host, port = self._sockets.sockets[0].getsockname()[:2]
        return host, port

    async def open(self, factory: Callable[[], asyncio.Protocol]) -> None:
        """Let people in, each with a connection of its own. ListenRefused where another was quicker."""
        assert self._sockets is not None
        self._factory = factory
        try:
            await self._sockets.start_serving()
        except OSError as error:
            raise self._refused(error) from None

    def close(self) -> None:
        if self._sockets is not None:
            self._sockets.close()

    def _connection(self) -> asyncio.Protocol:
        assert self._factory is not None
        return self._factory()

    def _refused(self, error: OSError) -> ListenRefused:
        return ListenRefused(f"http.listen: cannot listen at {self._listen}: {_why_not(error)}")


def tls_context(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if cert is None or key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError too
        raise ListenRefused(f"http.tls: cannot use {cert} with {key}: {error.strerror or error}") from None
    return context


def _why_not(error: OSError) -> str:
    """In words, in place of asyncio's tuples, and with what to do about what happens most."""
    if error.errno == errno.EADDRINUSE:
        return "another process listens there; end it, or give another address"
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error.strerror or error)
