"""Frames on a byte stream, and the channel that carries them.

A frame is length and CRC32 of its payload, big-endian, and the payload: one msgpack list. The CRC finds accidents; who
the other side is, the handshake found out (handshake.py), and that nobody changes bytes on the way is TLS's to promise.
What the lists mean is not known here. Nothing that arrives makes more than one frame and one read be held.
"""

from __future__ import annotations

import asyncio
import enum
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import msgpack

from quvatlh.ports import Clock
from quvatlh.raft.network import Writer
from quvatlh.raft.settings import Settings

Message = list[Any]

_HEAD = struct.Struct(">II")
HEAD_BYTES = _HEAD.size
READ_BYTES = 256 * 1024
"""Taken from the stream at a time."""
ITEMS_MAX = 131_072
"""Elements of one array or map. An array is allocated as its head is read, so nested heads multiply: bytes of the frame
alone are no bound."""
HELLO_ITEMS_MAX = 16
"""The same before the secret is proved, when the frames have at most four elements."""


class WireError(Exception):
    """The other side sent what it must not. `code` is one short word out of few, `reason` is for people."""

    def __init__(self, reason: str, code: str = "frame") -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


def _no_ext(_code: int, _data: bytes) -> NoReturn:
    raise ValueError("msgpack extension types are not taken")


def unpack(payload: bytes | bytearray, items_max: int = ITEMS_MAX) -> object:
    """Decode plain msgpack: no extension types, keys of maps are text or bytes, all lengths bounded by the payload."""
    size = len(payload)
    try:
        return msgpack.unpackb(
            payload,
            ext_hook=_no_ext,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=min(size, items_max),
            max_map_len=min(size, items_max),
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise WireError(f"not decodable: {error}") from error


_pack: Callable[[object], bytes] = msgpack.Packer().pack
"""One packer for all: it is used on the loop only, and to make one costs more than most messages."""


def pack(value: object) -> bytes:
    return _pack(value)


def encode(message: Message) -> bytes:
    payload = _pack(message)
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


class FrameDecoder:
    """Bytes in, messages out. After a WireError it stays where it was and raises the same again."""

    def __init__(self, limit: int, items_max: int = ITEMS_MAX) -> None:
        self.limit = limit
        """Greatest payload. May be changed between frames."""
        self.items_max = items_max
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> list[Message]:
        """All messages that `data` completes."""
        self.push(data)
        messages = []
        while (message := self.take()) is not None:
            messages.append(message)
        return messages

    def push(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> Message | None:
        """The next message; None while it is not complete."""
        buffer, start = self._buffer, self._at + HEAD_BYTES
        if len(buffer) < start:
            self._forget_taken()
            return None
        length, crc = _HEAD.unpack_from(buffer, self._at)
        if length > self.limit:
            raise WireError(f"a frame of {length} bytes, at most {self.limit} are taken")
        end = start + length
        if len(buffer) < end:
            self._forget_taken()
            return None
        payload = buffer[start:end]
        if zlib.crc32(payload) != crc:
            raise WireError("a frame whose checksum is wrong")
        message = unpack(payload, self.items_max)
        if not isinstance(message, list):
            raise WireError("a frame that is not a list")
        self._at = end
        return message

    def head(self) -> bytes:
        """The first bytes not yet taken: what a stranger opened with."""
        return bytes(self._buffer[self._at : self._at + 2 * HEAD_BYTES])

    @property
    def held_bytes(self) -> int:
        """Received and not yet taken."""
        return len(self._buffer) - self._at

    def _forget_taken(self) -> None:
        """Once a read, not once a frame."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0


class How(enum.Enum):
    CLOSED_BY_US = "closed by us"
    EOF = "eof"
    RESET = "reset"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class End:
    """How a channel ended."""

    how: How
    reason: str


class Channel:
    """Messages over one connection. Until `proved` it takes only small ones.

    One task reads, with `run` or with `receive`. Whoever closes wakes it, though unsent bytes may hold up the socket.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: Writer, settings: Settings, clock: Clock) -> None:
        self.kind = ""
        """What it is for; empty until proved."""
        self.peer_doc: dict[str, Any] = {}
        """The other side's hello document; empty until proved."""
        self.address = writer.peername()
        self.end: End | None = None
        """Set once, by the first that ended it."""
        self.heard_s = self.sent_s = clock.boot()
        """When bytes last came and a message last went, by the boot clock."""
        self.decoder = FrameDecoder(settings.hello_bytes_max, HELLO_ITEMS_MAX)
        self._reader = reader
        self._writer = writer
        self._settings = settings
        self._clock = clock
        self._read_bytes = HEAD_BYTES + settings.hello_bytes_max
        self._reading: asyncio.Task[Any] | None = None
        self._woken = False
        self._leaving: str | None = None
        self._broken = False
        """A message made no sense: the rest is read and dropped."""

    def proved(self, kind: str, peer_doc: dict[str, Any]) -> None:
        """The handshake is done: take frames of full size from here on."""
        self.kind = kind
        self.peer_doc = peer_doc
        self.decoder.limit = self._settings.frame_bytes_max
        self.decoder.items_max = ITEMS_MAX
        self._read_bytes = READ_BYTES

    def send(self, message: Message) -> bool:
        """Hand `message` to the network. False: it was not, and never will be, since the channel is closed.

        ValueError when it is too large for the other side to take: a bug of the caller.
        """
        if self.end is not None or self._leaving is not None:
            return False
        frame = encode(message)
        if len(frame) - HEAD_BYTES > self._settings.frame_bytes_max:
            raise ValueError(f"a message of {len(frame)} bytes, at most {self._settings.frame_bytes_max} can be sent")
        pending = self._writer.pending() + len(frame)
        if pending > self._settings.link_buffer_bytes_max:
            self.abort(f"{pending} bytes would wait to be sent, at most {self._settings.link_buffer_bytes_max} may")
            return False
        self._writer.write(frame)
        self.sent_s = self._clock.boot()
        return True

    def pending(self) -> int:
        """Bytes not yet taken by the network."""
        return self._writer.pending()

    async def drain(self) -> None:
        """Wait until little is pending. The end of the channel ends it too, within silence_s."""
        try:
            await self._writer.drain()
        except ConnectionError as error:
            self._finish(End(How.RESET, str(error)))
        except OSError as error:
            self._finish(End(How.ERROR, str(error)))

    async def run(self, on_message: Callable[[Message], None]) -> End:
        """Deliver messages until the end. `on_message` may raise WireError for one that makes no sense.

        After an end of the kind ERROR that a message caused, the socket is still open for a last word: `leave` and run
        again, which then only waits; or `close`.
        """
        while True:
            try:
                self._deliver(on_message)
            except WireError as error:
                self._broken = True
                return self._end() or End(How.ERROR, error.reason)
            data = await self._read()
            end = self._end()
            if end is not None:
                return end
            if not self._broken:
                self.decoder.push(data)

    def _deliver(self, on_message: Callable[[Message], None]) -> None:
        while not self._broken and self._end() is None and (message := self.decoder.take()) is not None:
            on_message(message)

    async def receive(self) -> Message | None:
        """The next message when it is there; None at the end (see `end`). WireError closes the channel first."""
        while self.end is None:
            try:
                message = self.decoder.take()
            except WireError as error:
                self._finish(End(How.ERROR, error.reason))
                raise
            if message is not None:
                return message
            self.decoder.push(await self._read())
        return None

    def leave(self, last: Message, reason: str) -> None:
        """Say `last` and close when the other side has closed, or after ping_s.

        A socket closed with unread bytes in it is reset, and a reset may overtake the last word.
        """
        if self._leaving is None and self.send(last):
            self._leaving = reason
            asyncio.get_running_loop().call_later(self._settings.ping_s, self.close, reason)

    def close(self, reason: str) -> None:
        """What was sent still goes out, unless the other side takes nothing for silence_s."""
        if self.end is not None:
            return
        self._finish(End(How.CLOSED_BY_US, reason))

    def abort(self, reason: str) -> None:
        """Close at once; what is unsent is dropped."""
        self._writer.abort()
        self._finish(End(How.CLOSED_BY_US, reason))

    async def _read(self) -> bytes:
        """Bytes that came; none when the channel is at its end."""
        if self.end is not None:
            return b""
        task = asyncio.current_task()
        assert task is not None
        asked_before = task.cancelling()
        self._reading = task
        fault: End | None = None
        data = b""
        try:
            data = await self._reader.read(self._read_bytes)
        except asyncio.CancelledError:
            if not self._woken or task.uncancel() > asked_before:
                raise
            return b""
        except ConnectionError as error:
            fault = End(How.RESET, str(error))
        except OSError as error:
            fault = End(How.ERROR, str(error))
        finally:
            self._reading = None
        if fault is not None:
            self._finish(fault)
        elif data:
            self.heard_s = self._clock.boot()
        else:
            torn = " in the middle of a frame" if self.decoder.held_bytes else ""
            self._finish(End(How.EOF, f"closed by the other side{torn}"))
        return data

    def _end(self) -> End | None:
        """`end`, asked again: anything awaited or called may have set it."""
        return self.end

    def _finish(self, end: End) -> None:
        if self.end is not None:
            return
        if self._leaving is not None:
            end = End(How.CLOSED_BY_US, self._leaving)
        self.end = end
        self._writer.close()
        if self._writer.pending():
            asyncio.get_running_loop().call_later(self._settings.silence_s, self._writer.abort)
        if self._reading is not None:
            # Its read would end only once the socket has: cancelled here, taken back in _read.
            self._woken = True
            self._reading.cancel()
