"""The network as the peer link sees it: byte streams, dialled and accepted.

`TcpNetwork` is asyncio's streams, with TLS where it is configured; the simulation brings one with delay, loss of
connections and partitions. Frames, authentication and meaning are not here: see wire.py and links.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol


class Writer(Protocol):
    """The part of asyncio.StreamWriter that the peer link uses."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None:
        """Close at once; what is unsent is dropped."""
        ...

    def pending(self) -> int:
        """Bytes written and not yet taken by the network."""
        ...

    def peername(self) -> str: ...


Accept = Callable[[asyncio.StreamReader, Writer], Awaitable[None]]


class Listener(Protocol):
    @property
    def address(self) -> str:
        """host:port, with the port that was really bound."""
        ...

    async def close(self) -> None: ...


class Network(Protocol):
    async def dial(self, address: str) -> tuple[asyncio.StreamReader, Writer]:
        """Connect to host:port or raise OSError."""
        ...

    async def listen(self, address: str, accept: Accept) -> Listener:
        """Serve host:port (port 0: any); `accept` runs as a task for each connection."""
        ...
