"""What the bytes of a log file are: one header, then records whose indexes follow each other without a gap.

A file is only ever appended to, and never again once the next one is begun. So a bad record is either the tail that a
crash tore, which nobody was promised, or damage to what had been synced. The bytes tell the two apart: each record says
how far behind it the log was known durable when it was made, and a sound record that was made after the bad one had been
synced is proof of damage. Which files there are, and what follows from damage, is not known here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgpack

from quvatlh.raft.settings import FORMAT_VERSION

_FILE_MAGIC = b"QVATLHLG"
_FILE_HEAD = struct.Struct("<8sIII")
"""Magic, format version, length of the packed base, CRC32 over version, length and base."""

_RECORD_MAGIC = b"\xf1Qv\x1e"
_RECORD = struct.Struct("<4sIIQQI")
"""Magic, CRC32 over all that follows it, length of the payload, index, term, lag."""
_SUMMED_FROM = 8
"""Of a record, everything from here on is under the checksum."""

RECORD_BYTES = _RECORD.size
"""What a record takes beside its payload."""

LAG_MAX = 2**32 - 1
"""Further behind nothing is ever told: no file holds so many records, so it would prove nothing about its own."""


@dataclass(frozen=True, slots=True)
class Base:
    """What must be known of the log before the first entry of a file to go on from there."""

    index: int
    term: int
    time_ms: int
    """Log time at `index`."""
    membership: bytes
    """In force at `index`, as entries.pack_membership made it."""


@dataclass(frozen=True, slots=True)
class Record:
    index: int
    term: int
    offset: int
    """Of its first byte in the file."""
    length: int
    """Of its payload, which begins RECORD_BYTES after `offset`."""


@dataclass(frozen=True, slots=True)
class Torn:
    """The sound part of a file ends at `offset`, before its last byte, and nothing proves that more was synced."""

    offset: int


class Corrupt(Exception):
    """Bytes that had been synced are not what was written."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset
        self.why = why


def pack_header(base: Base) -> bytes:
    body = bytes(msgpack.packb([base.index, base.term, base.time_ms, base.membership]))
    return _FILE_HEAD.pack(_FILE_MAGIC, FORMAT_VERSION, len(body), _header_sum(FORMAT_VERSION, body)) + body


def unpack_header(data: bytes) -> tuple[Base, int] | None:
    """The base and where the records begin; None of a header that is short or bad. Corrupt if it is from the future."""
    if len(data) < _FILE_HEAD.size:
        return None
    magic, version, length, crc = _FILE_HEAD.unpack_from(data)
    end = _FILE_HEAD.size + length
    body = data[_FILE_HEAD.size : end]
    if magic != _FILE_MAGIC or len(body) != length or crc != _header_sum(version, body):
        return None
    if version != FORMAT_VERSION:
        raise Corrupt(0, f"its format is {version}, this program knows format {FORMAT_VERSION}")
    return Base(*msgpack.unpackb(body)), end


def pack_record(index: int, term: int, durable_index: int, payload: bytes) -> bytes:
    """The head of a record; the payload follows it. `durable_index` is what is known to be synced at this moment."""
    lag = min(index - durable_index, LAG_MAX)
    head = _RECORD.pack(_RECORD_MAGIC, 0, len(payload), index, term, lag)
    crc = zlib.crc32(payload, zlib.crc32(head[_SUMMED_FROM:]))
    return head[:4] + crc.to_bytes(4, "little") + head[_SUMMED_FROM:]


def unpack_record(data: bytes, offset: int, index: int, term: int) -> bytes | None:
    """The payload of the record at `offset`; None unless it is sound and the one that was asked for."""
    found = _sound(data, offset)
    if found is None or (found[0].index, found[0].term) != (index, term):
        return None
    start = offset + RECORD_BYTES
    return data[start : start + found[0].length]


def scan(data: bytes, offset: int, base: Base) -> Iterator[Record | Torn]:
    """The records from `offset` on; a Torn, if any, comes last. Raises Corrupt when the end is not a torn tail."""
    index = base.index
    while offset < len(data):
        found = _sound(data, offset)
        index += 1
        if found is None:
            _refuse_if_proven(data, offset, index)
            yield Torn(offset)
            return
        record, _lag = found
        if record.index != index:
            raise Corrupt(offset, f"entry {record.index} stands where entry {index} belongs")
        yield record
        offset += RECORD_BYTES + record.length


def holds_records(data: bytes) -> bool:
    """Whether there is a sound record anywhere: proof that the header before it had been synced."""
    return any(True for _found in _sound_from(data, 0))


def _refuse_if_proven(data: bytes, offset: int, index: int) -> None:
    """A torn write may leave later records whole; only one made after `index` was known durable proves anything."""
    for record, lag in _sound_from(data, offset + 1):
        possible = index < record.index <= index + (record.offset - offset) // RECORD_BYTES
        if possible and record.index - lag >= index:
            why = f"entry {index} is damaged; it had been synced, as entry {record.index} at {record.offset} proves"
            raise Corrupt(offset, why)


def _sound_from(data: bytes, offset: int) -> Iterator[tuple[Record, int]]:
    """Sound records at or after `offset`, wherever they begin."""
    while (offset := data.find(_RECORD_MAGIC, offset)) >= 0:
        found = _sound(data, offset)
        if found is not None:
            yield found
        offset += 1


def _sound(data: bytes, offset: int) -> tuple[Record, int] | None:
    """The whole and unharmed record at `offset`, with its lag."""
    start = offset + RECORD_BYTES
    if start > len(data):
        return None
    magic, crc, length, index, term, lag = _RECORD.unpack_from(data, offset)
    if magic != _RECORD_MAGIC or start + length > len(data):
        return None
    if zlib.crc32(memoryview(data)[offset + _SUMMED_FROM : start + length]) != crc:
        return None
    return Record(index, term, offset, length), lag


def _header_sum(version: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<II", version, len(body))))
