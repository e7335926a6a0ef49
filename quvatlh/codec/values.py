"""Encoders and decoders, one pair a kind of value.

The first byte is the version of all that follows. A version is changed when a value of an older program would be read
wrongly; a field at the end of an array, or a field of a map, with a default, does not change it.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from quvatlh.core.commands import Item
from quvatlh.core.events import Event
from quvatlh.core.model import TaskSpec
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Answer

VERSION: Final = 1
_PREFIX: Final = bytes([VERSION])
ITEM_BYTES_MAX: Final = 6 * 1024 * 1024
"""Below the 8 MiB that an entry may have; above the 4 MiB of an event and what is decided for it."""

Kind = TypeVar("Kind")


class Unreadable(Struct, frozen=True):
    """Bytes that are no value of a known version, and why."""

    why: str


class _Pair(Generic[Kind]):
    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Kind] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder(decimal_format="string")

    def encode(self, value: Kind) -> bytes:
        return _PREFIX + self._encoder.encode(value)

    def decode(self, data: bytes) -> Kind | Unreadable:
        """Total: any bytes get an answer."""
        if not data:
            return Unreadable("no bytes")
        if data[0] != VERSION:
            return Unreadable(f"version {data[0]} is not known here, only {VERSION}")
        if len(data) > ITEM_BYTES_MAX:
            return Unreadable(f"{len(data)} bytes are more than {ITEM_BYTES_MAX}")
        try:
            return self._decoder.decode(memoryview(data)[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError, OverflowError) as error:
            return Unreadable(str(error))


class Values:
    """core.rules.Codec, and the same for events and specs on their way between nodes."""

    def __init__(self) -> None:
        self._items: _Pair[Item] = _Pair(Item)
        self._answers: _Pair[Answer] = _Pair(Answer)
        self._events: _Pair[tuple[Event, ...]] = _Pair(tuple[Event, ...])
        self._specs: _Pair[TaskSpec] = _Pair(TaskSpec)

    def encode_item(self, item: Item) -> bytes:
        return self._items.encode(item)

    def decode_item(self, data: bytes) -> Item | Rejection:
        return _or_rejection(self._items.decode(data))

    def encode_answer(self, answer: Answer) -> bytes:
        return self._answers.encode(answer)

    def decode_answer(self, data: bytes) -> Answer | Rejection:
        return _or_rejection(self._answers.decode(data))

    def encode_events(self, events: tuple[Event, ...]) -> bytes:
        return self._events.encode(events)

    def decode_events(self, data: bytes) -> tuple[Event, ...] | Unreadable:
        return self._events.decode(data)

    def encode_spec(self, spec: TaskSpec) -> bytes:
        return self._specs.encode(spec)

    def decode_spec(self, data: bytes) -> TaskSpec | Unreadable:
        return self._specs.decode(data)


def _or_rejection(value: Kind | Unreadable) -> Kind | Rejection:
    if isinstance(value, Unreadable):
        return Rejection("bad_request", value.why)
    return value
