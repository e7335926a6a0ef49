"""The executor's socket: who connects says what it wants, and the newest daemon of its own worker and version is served."""

from __future__ import annotations

import asyncio
import os
import socket
import struct

from quvatlh.runner import wire
from quvatlh.runner.executor.keeper import Keeper

BACKLOG = 8


class Door:
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._server: asyncio.Server | None = None
        self._links: set[wire.Link] = set()
        self.empty = asyncio.Event()
        """Once it is closed: every connection is."""

    async def open(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._answer, sock=listening, backlog=BACKLOG)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None
        for link in list(self._links):
            link.close()
        self._look()

    def _answer(self) -> wire.Link:
        link = wire.Link(self._greeted, self._lost)
        self._links.add(link)
        return link

    def _greeted(self, link: wire.Link, message: wire.Message) -> None:
        """Its first message, and all from whoever has not been taken."""
        if not _is_ours(link) or len(message) < 4 or message[0] != "hello":
            link.cut()
            return
        _, version, worker, wish = message[:4]
        if wish == "end":
            self._keeper.end(0)
        elif version != wire.VERSION:
            link.send("version", wire.VERSION)
        elif worker != self._keeper.worker:
            link.send("worker", self._keeper.worker)
        else:
            link.heard, link.on_read = self._keeper.heard, self._keeper.on_read
            self._keeper.take(link)

    def _lost(self, link: wire.Link) -> None:
        self._links.discard(link)
        self._keeper.let_go(link)
        self._look()

    def _look(self) -> None:
        if self._server is None and not self._links:
            self.empty.set()


def listen(directory_fd: int, name: str) -> socket.socket:
    """A socket in that directory, however long its path is. Whoever holds the lock is alone, so an older one is a rest."""
    path = f"/proc/self/fd/{directory_fd}/{name}"
    if os.path.lexists(path):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listening.bind(path)
    finally:
        os.umask(before)
    return listening


def _is_ours(link: wire.Link) -> bool:
    """The file is our user's alone; so is who comes through it."""
    peer = link.socket
    if peer is None:
        return False
    _pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in {0, os.geteuid()}
