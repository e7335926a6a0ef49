"""The network as the peer link sees it: byte streams, dialled and accepted.

`TcpNetwork` is asyncio's streams, with TLS where it is configured; the simulation brings one with delay, loss of
connections and partitions. Frames, authentication and meaning are not here: see wire.py and links.py.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from quvatlh.raft.notices import Note, no_note
from quvatlh.raft.settings import Settings

READ_LIMIT_BYTES = 256 * 1024
"""A stream that holds twice this unread stops reading the socket: what one sender can make us hold."""
BACKLOG = 128
"""Connections the kernel holds for us until they are accepted."""
PORT_MAX = 65_535


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


def split_address(address: str) -> tuple[str, int]:
    """host:port, the host in brackets where it holds colons; OSError when it is neither."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise OSError(f"not an address (host:port): {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tls_contexts(cert: str, key: str, ca: str | None = None) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The two sides of TLS between peers: (for those who dial us, for those we dial).

    With `ca` both sides must show a certificate of it: nobody else gets as far as the handshake of the secret. Without,
    TLS hides what is said from those who listen, not from one who stands in between. Host names are not compared:
    addresses are data, and who a node is, its own handshake says.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(cert, key)
        if ca is None:
            context.verify_mode = ssl.CERT_NONE
        else:
            context.load_verify_locations(ca)
            context.verify_mode = ssl.CERT_REQUIRED
    return server, client


class TcpWriter:
    """Writer over an asyncio stream. Writing to a closed one is silent, as the end is told to the reader."""

    def __init__(self, stream: asyncio.StreamWriter, drain_bytes: int) -> None:
        self.stream = stream
        self._transport = stream.transport
        self._transport.set_write_buffer_limits(high=drain_bytes)
        connection = stream.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peername = _peername(connection)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self.stream.write(data)

    async def drain(self) -> None:
        await self.stream.drain()

    def close(self) -> None:
        # Closed a second time, asyncio's TLS transport forgets what `pending` asks.
        if not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pending(self) -> int:
        return self._transport.get_write_buffer_size()

    def peername(self) -> str:
        return self._peername


class TcpNetwork:
    """Network on real sockets. TLS handshakes are bounded here, since `accept` hears only of connections that passed.

    `note` is told of those that do not pass; strangers cause it, so it is a `Notices`.
    """

    def __init__(
        self,
        ssl_server: ssl.SSLContext | None = None,
        ssl_client: ssl.SSLContext | None = None,
        settings: Settings | None = None,
        note: Note = no_note,
    ) -> None:
        self._ssl_server = ssl_server
        self._ssl_client = ssl_client
        self._settings = settings or Settings()
        self._note = note

    async def dial(self, address: str) -> tuple[asyncio.StreamReader, Writer]:
        host, port = split_address(address)
        try:
            reader, stream = await asyncio.open_connection(
                host,
                port,
                limit=READ_LIMIT_BYTES,
                ssl=self._ssl_client,
                ssl_handshake_timeout=self._settings.handshake_s if self._ssl_client else None,
            )
        except UnicodeError as error:
            raise OSError(f"not a host name: {host!r}") from error
        except ConnectionRefusedError as error:  # in words, in place of Python's tuples
            raise ConnectionRefusedError("connection refused: nobody listens there") from error
        return reader, TcpWriter(stream, self._settings.append_bytes_max)

    async def listen(self, address: str, accept: Accept) -> Listener:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            sockets = _bind([(family, sockaddr) for family, _, _, _, sockaddr in found])
        except OSError as error:
            raise OSError(error.errno, f"cannot listen at {address}: {error.strerror or error}") from error
        return _TcpListener(sockets, self, accept)

    async def _receive(self, connection: socket.socket) -> tuple[asyncio.StreamReader, Writer]:
        """Streams over an accepted socket, once TLS is agreed where it is asked for."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_LIMIT_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._ssl_server,
            ssl_handshake_timeout=self._settings.handshake_s if self._ssl_server else None,
        )
        stream = asyncio.StreamWriter(transport, protocol, reader, loop)
        return reader, TcpWriter(stream, self._settings.append_bytes_max)

    def _full(self, arriving: int, address: str) -> bool:
        """Whether so many connections that have not passed TLS are enough."""
        if self._ssl_server is None or arriving < self._settings.handshakes_max:
            return False
        self._note("tls_refused", {"address": address, "reason": f"{arriving} TLS handshakes are under way"})
        return True

    def _failed(self, address: str, error: OSError) -> None:
        self._note("tls_refused", {"address": address, "reason": f"no TLS connection: {error}"})

    @property
    def _pause_s(self) -> float:
        """Rest after a failed accept (no file descriptors left), which would otherwise fail again at once."""
        return self._settings.redial_max_s


class _TcpListener:
    """One accept loop for each bound socket. Closing it leaves alone what was accepted."""

    def __init__(self, sockets: list[socket.socket], network: TcpNetwork, accept: Accept) -> None:
        self._sockets = sockets
        self._network = network
        self._accept = accept
        self._arriving: dict[asyncio.Task[None], None] = {}
        self._accepted: dict[asyncio.Task[None], None] = {}
        host, port = sockets[0].getsockname()[:2]
        self._address = join_address(host, port)
        self._loops = [asyncio.create_task(self._serve(one)) for one in sockets]

    @property
    def address(self) -> str:
        return self._address

    async def close(self) -> None:
        ending = [*self._loops, *self._arriving]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        for one in self._sockets:
            one.close()

    async def _serve(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError:
                await asyncio.sleep(self._network._pause_s)
                continue
            if self._network._full(len(self._arriving), _peername(connection)):
                connection.close()
                continue
            task = asyncio.create_task(self._arrive(connection))
            self._arriving[task] = None
            task.add_done_callback(lambda done: self._arriving.pop(done, None))
            # An accept that need not wait does not let others run either.
            await asyncio.sleep(0)

    async def _arrive(self, connection: socket.socket) -> None:
        address = _peername(connection)
        try:
            reader, writer = await self._network._receive(connection)
        except OSError as error:
            self._network._failed(address, error)
            connection.close()
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        task = asyncio.ensure_future(self._accept(reader, writer))
        self._accepted[task] = None
        task.add_done_callback(lambda done: self._accepted.pop(done, None))


def _peername(connection: socket.socket) -> str:
    try:
        host, port = connection.getpeername()[:2]
    except OSError:
        return "gone"
    return join_address(host, port)


def _bind(places: list[tuple[int, Any]]) -> list[socket.socket]:
    """A listening socket for each place, all on one port. A family this machine does not have is left out."""
    bound: list[socket.socket] = []
    port = 0
    fault: OSError | None = None
    for family, sockaddr in dict.fromkeys(places):
        try:
            made = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            fault = error
            continue
        try:
            made.setblocking(False)  # noqa: FBT003
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((sockaddr[0], sockaddr[1] or port, *sockaddr[2:]))
            made.listen(BACKLOG)
        except OSError as error:
            made.close()
            fault = error
            if error.errno == errno.EADDRNOTAVAIL:
                continue
            for one in bound:
                one.close()
            raise
        port = made.getsockname()[1]
        bound.append(made)
    if not bound:
        raise fault or OSError("no address to listen on")
    return bound
