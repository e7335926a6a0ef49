"""What the process of the policies tells, as the node takes it: of this shape, or the process is not to be trusted."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from quvatlh.policy import frames
from quvatlh.policy.bounds import TOLD_MAX

Said = Literal["bid", "no_bid", "failed", "overran", "marked", "made", "fit", "unfit"]
"""`marked` is the node's own word."""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """Of a policy a verdict; of an announcement `made` with its JSON; of a source `fit`, or `unfit` with the place."""

    word: Said
    score: float = 0.0
    text: str = ""
    line: int = 0
    column: int = 0


class Told(msgspec.Struct, frozen=True, array_like=True):
    """Answers to the frame of that number; number 0: a cell is born."""

    number: int
    first: int
    answers: list[Answer]
    is_all: bool
    ended_by: int = 0
    ran_number: int = 0
    ran_place: int = 0


class Line(asyncio.Protocol):
    """What it tells, frame by frame. `over` once there will be no more."""

    def __init__(self) -> None:
        self.over = False
        self.last_words = ""
        """Of a process that could not begin."""
        self._buffer = bytearray()
        self._told: list[Told] = []
        self._decoder = msgspec.msgpack.Decoder(Told)
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def has_more(self) -> bool:
        return bool(self._told) or self.over

    async def next(self) -> Told | None:
        """None at the end."""
        while not self._told:
            if self.over:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._told.pop(0)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.over:
            self._transport.write(data)

    def close(self) -> None:
        self.over = True
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._cut()
        except (frames.BadFrame, msgspec.MsgspecError):
            if self._buffer[:1] == b"!":
                self.last_words = self._buffer[1:].decode(errors="replace")
            self.close()
        self._wake()

    def connection_lost(self, _error: Exception | None) -> None:
        self.over = True
        self._wake()

    def _cut(self) -> None:
        head = frames.LENGTH.size
        while len(self._buffer) >= head:
            end = head + frames.length_of(bytes(self._buffer[:head]))
            if len(self._buffer) < end:
                return
            if len(self._told) >= TOLD_MAX:
                raise frames.BadFrame("more than was asked")
            self._told.append(self._decoder.decode(self._buffer[head:end]))
            del self._buffer[:end]

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
