"""A client's connection to one node: a question a line, an answer a line."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

Answer = dict[str, Any]

LINE_BYTES_MAX = 64 * 1024 * 1024


class NotSent(Exception):
    """There is no connection: the node has certainly not been asked."""


class NoAnswer(Exception):
    """Asked, and the connection broke or the patience ended."""


class Line:
    """Opened when first used, and anew after each failure. One question at a time."""

    def __init__(self, address: str, new_socket: Callable[[], socket.socket] = socket.socket) -> None:
        """`new_socket` makes one in the network that the node is in."""
        self._address = address
        self._new_socket = new_socket
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        if self._streams is not None:
            return
        host, _, port = self._address.rpartition(":")
        made = self._new_socket()
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, (host, int(port)))
        except BaseException as error:
            made.close()
            if isinstance(error, OSError):
                raise NotSent(str(error)) from error
            raise
        self._streams = await asyncio.open_connection(sock=made, limit=LINE_BYTES_MAX)

    async def ask(self, request: dict[str, Any], patience_s: float) -> Answer:
        await self.open()
        assert self._streams is not None
        reader, writer = self._streams
        try:
            async with asyncio.timeout(patience_s):
                writer.write(json.dumps(request).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
        except (OSError, TimeoutError) as error:
            self.close()
            raise NoAnswer(repr(error)) from error
        except BaseException:
            self.close()
            raise
        if not line.endswith(b"\n"):
            self.close()
            raise NoAnswer("the connection was closed")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        """A question under way stays without answer."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
