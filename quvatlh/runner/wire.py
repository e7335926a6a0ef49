"""What a daemon and its executor say to each other: msgpack, one message after the other, many in one write.

A message is a tuple that begins with its kind; actions and their ends stand in it as records, in bytes of their own. `hello`
and what answers it stay readable through all versions, so that a newer daemon can always end an older executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgpack
import msgspec
from msgspec.structs import replace

from quvatlh.config.environments import Environment
from quvatlh.ports import ActionFinished, ActionSpec, ActionStarted, Life

VERSION: Final = 3
HELD_MAX: Final = 20_000
"""Actions and ends that an executor keeps. Who does not fetch ends gets no more starts."""
ERROR_CHARS_MAX: Final = 500
"""Of a text that may name what somebody wanted to run, or say what was raised."""
HELD_BYTES_MAX: Final = 8 * 1024
"""Of one in the greeting: 4 KiB of outputs, and a few short words."""
RESULTS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of the results of ends that nobody has fetched; beyond it an executor takes no call."""
BUFFER_BYTES_MAX: Final = 512 * 1024 * 1024
"""Of one message and what came with it. The largest is a greeting that tells of all that is held."""
assert HELD_MAX * HELD_BYTES_MAX + RESULTS_BYTES_MAX <= BUFFER_BYTES_MAX
WRITE_BYTES_HIGH: Final = 1024 * 1024
"""Unsent bytes from which on a side holds back what can wait."""

Message = tuple[Any, ...]

_SPEC: Final = msgspec.msgpack.Decoder(ActionSpec)
_FINISHED: Final = msgspec.msgpack.Decoder(ActionFinished)
_LIFE: Final = msgspec.msgpack.Decoder(Life)
_ENCODE: Final = msgspec.msgpack.Encoder().encode


class Link(asyncio.Protocol):
    """One end of a connection. What is sent in one turn of the loop leaves in one write."""

    def __init__(self, heard: Callable[[Link, Message], None], lost: Callable[[Link], None]) -> None:
        self.heard = heard
        """May be changed while it is called."""
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._packer = msgpack.Packer()
        self._unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=BUFFER_BYTES_MAX)
        self._waiting: list[bytes] = []
        self.waiting_bytes = 0
        """Not yet given to the system."""
        self.is_slow = False
        """The other side does not read as fast as we write."""
        self.on_pace: Callable[[], None] = lambda: None
        """It does again."""
        self.on_read: Callable[[], None] = lambda: None
        """All that came in one read has been heard."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(WRITE_BYTES_HIGH)

    @property
    def socket(self) -> Any:
        """None once it is closed."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    def send(self, *message: Any) -> None:
        data = self._packer.pack(message)
        self._waiting.append(data)
        self.waiting_bytes += len(data)
        if len(self._waiting) == 1 and not self.is_slow:
            self._loop.call_soon(self.flush)

    @property
    def is_alone(self) -> bool:
        """One message waits to leave, and no more."""
        return len(self._waiting) == 1

    def close(self) -> None:
        """What was sent still leaves."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._unpacker.feed(data)
            for message in self._unpacker:
                self.heard(self, message)
        except (msgpack.UnpackException, msgpack.BufferFull, msgspec.MsgspecError, ValueError):
            self.cut()
        try:
            self.on_read()
        except Exception as error:  # noqa: BLE001 - nothing that came here: raised, it would end the connection
            words = "what came from the other side could not be begun together"
            self._loop.call_exception_handler({"message": words, "exception": error})

    def pause_writing(self) -> None:
        self.is_slow = True

    def resume_writing(self) -> None:
        self.is_slow = False
        self.flush()
        self.on_pace()

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._lost(self)

    def flush(self) -> None:
        """Without waiting for the end of this turn."""
        if self._waiting and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._waiting))
        self._waiting.clear()
        self.waiting_bytes = 0


def spec_out(spec: ActionSpec) -> Message:
    return (_ENCODE(spec),)


def spec_in(told: bytes) -> ActionSpec:
    return _SPEC.decode(told)


def environments_out(environments: tuple[Environment, ...]) -> Any:
    return msgspec.to_builtins(environments)


def environments_in(told: Any) -> tuple[Environment, ...]:
    return msgspec.convert(told, tuple[Environment, ...])


def started_out(event: ActionStarted) -> Message:
    return event.action_id, event.pid, event.started_at_ms


def finished_out(event: ActionFinished) -> Message:
    return (_ENCODE(_short(event)),)


def _short(event: ActionFinished) -> ActionFinished:
    error = event.error
    if error is None or len(error.text) <= ERROR_CHARS_MAX:
        return event
    return replace(event, error=replace(error, text=error.text[:ERROR_CHARS_MAX]))


def finished_in(told: bytes) -> ActionFinished:
    return _FINISHED.decode(told)


def life_out(life: Life) -> Message:
    held = tuple(each if each.finished is None else replace(each, finished=_short(each.finished)) for each in life.held)
    return (_ENCODE(replace(life, held=held)),)


def life_in(told: bytes, *, fresh: bool) -> Life:
    return replace(_LIFE.decode(told), fresh=fresh)
