"""Ports that stay ours: a node that is killed finds its own again, and nobody else is given it meanwhile."""

from __future__ import annotations

import socket


class Reserved:
    """A free port of the loopback. The socket is bound and never listens: with SO_REUSEADDR on both sides another one
    may bind beside it and listen, while the kernel gives the number to nobody who asks for any free port."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._socket.getsockname()[1]  # noqa: UP031

    def release(self) -> None:
        self._socket.close()
