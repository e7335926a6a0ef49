"""HTTP over one connection that stays open, as cheap as Python makes it: for load, and for clients that must see everything.

No redirects, no pool, no tries: a request goes out as bytes; its answer comes back as a status and a body, or the
connection broke. One request at a time.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final, NamedTuple

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Reply(NamedTuple):
    status: int
    body: bytes


class Broken(Exception):
    """The connection ended before the answer was whole."""


def head(address: str, token: str, path: str, *, length: int = 0, kind: str = JSON, key: str = "") -> bytes:
    """GET without a body, else POST; what follows are `length` bytes."""
    lines = [
        f"{'POST' if length else 'GET'} {path} HTTP/1.1",
        f"Host: {address}",
        f"Authorization: Bearer {token}",
    ]
    if length:
        lines += [f"Content-Type: {kind}", f"Content-Length: {length}"]
    if key:
        lines.append(f"Idempotency-Key: {key}")
    return "\r\n".join([*lines, "", ""]).encode()


class Wire(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Reply] | None = None
        self._forget()

    @classmethod
    async def open(cls, address: str, made: socket.socket | None = None) -> Wire:
        """OSError when nobody listens. `made` is a socket of another network, not connected yet."""
        loop = asyncio.get_running_loop()
        host, _, port = address.rpartition(":")
        sock = made or socket.socket()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, (host, int(port)))
            return (await loop.create_connection(cls, sock=sock))[1]
        except BaseException:
            sock.close()
            raise

    async def ask(self, request: bytes) -> Reply:
        """Broken when the connection ends first. Given up half way, it is closed: a later answer would be another's."""
        if self._transport is None or self._transport.is_closing():
            raise Broken("it was closed")
        self._waiting = self._loop.create_future()
        self._transport.write(request)
        try:
            return await self._waiting
        except BaseException:
            self.close()
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if not self._body_at and not self._read_head():
            return
        if self._length < 0:
            if self._seen.endswith(_LAST_CHUNK):
                self._answer(_joined(bytes(self._seen[self._body_at :])))
        elif len(self._seen) >= self._body_at + self._length:
            self._answer(bytes(self._seen[self._body_at :]))

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Broken(str(error or "closed by the node")))

    def _read_head(self) -> bool:
        end = self._seen.find(b"\r\n\r\n")
        if end < 0:
            return False
        self._body_at = end + 4
        head_text = bytes(self._seen[:end]).lower()
        at = head_text.find(b"\r\ncontent-length:")
        self._length = -1 if at < 0 else int(head_text[at + 17 :].split(b"\r\n", 1)[0])
        return True

    def _answer(self, body: bytes) -> None:
        status = int(self._seen[9:12])
        self._forget()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(Reply(status, body))

    def _forget(self) -> None:
        self._seen = bytearray()
        self._body_at = 0
        """Where the body begins in what was seen; 0: the head is not whole."""
        self._length = 0
        """Of the body; -1: it comes in chunks."""


def _joined(chunks: bytes) -> bytes:
    body = bytearray()
    while True:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return bytes(body)
        body += rest[:length]
        chunks = rest[length + 2 :]
