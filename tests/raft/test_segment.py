"""The bytes of a log file: what reads back, what is torn, what is damage."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.raft.segment import (
    LAG_MAX,
    RECORD_BYTES,
    Base,
    Corrupt,
    Record,
    Torn,
    holds_records,
    pack_header,
    pack_record,
    scan,
    unpack_header,
    unpack_record,
)

BASE = Base(7, 3, 1_700_000_000_000, b"members")
HEADER = pack_header(BASE)


def written(*payloads: bytes, durable: list[int] | None = None) -> bytes:
    """A file of entries 8, 9, ...; the n-th made when durable[n] was known to be synced, by default all before it."""
    data = HEADER
    for number, payload in enumerate(payloads):
        index = BASE.index + 1 + number
        data += pack_record(index, 3, index - 1 if durable is None else durable[number], payload) + payload
    return data


def found_in(data: bytes) -> list[Record | Torn]:
    return list(scan(data, len(HEADER), BASE))


def starts(data: bytes) -> list[int]:
    return [found.offset for found in found_in(data)]


def test_a_record_has_32_bytes_beside_its_payload() -> None:
    assert len(pack_record(1, 1, 0, b"x")) == RECORD_BYTES == 32


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**63), st.binary(max_size=200))
def test_a_header_reads_back(index: int, term: int, time_ms: int, members: bytes) -> None:
    base = Base(index, term, time_ms, members)
    header = pack_header(base)
    assert unpack_header(header + b"more") == (base, len(header))


@given(st.lists(st.binary(max_size=100), max_size=8))
def test_records_read_back_in_order(payloads: list[bytes]) -> None:
    data = written(*payloads)
    found = found_in(data)
    read = [unpack_record(data, r.offset, 8 + n, 3) for n, r in enumerate(found)]
    assert read == payloads
    assert [(r.index, r.length) for r in found if isinstance(r, Record)] == [
        (8 + n, len(payload)) for n, payload in enumerate(payloads)
    ]


@pytest.mark.parametrize(("index", "term"), [(9, 3), (8, 4)])
def test_a_record_is_not_taken_for_another_one(index: int, term: int) -> None:
    data = written(b"one")
    assert unpack_record(data, len(HEADER), 8, 3) == b"one"
    assert unpack_record(data, len(HEADER), index, term) is None


@pytest.mark.parametrize("size", range(len(HEADER)))
def test_a_short_header_is_none(size: int) -> None:
    assert unpack_header(HEADER[:size]) is None


@pytest.mark.parametrize("offset", range(len(HEADER)))
def test_no_byte_of_a_header_may_change(offset: int) -> None:
    damaged = bytearray(HEADER)
    damaged[offset] ^= 1
    assert unpack_header(bytes(damaged)) is None


def test_a_header_of_a_later_format_is_refused_not_taken_for_torn() -> None:
    body = b"whatever it will be"
    crc = zlib.crc32(body, zlib.crc32(struct.pack("<II", 2, len(body))))
    with pytest.raises(Corrupt, match="its format is 2"):
        unpack_header(struct.pack("<8sIII", b"QVATLHLG", 2, len(body), crc) + body)


def test_a_file_cut_anywhere_holds_the_records_before_the_cut_and_is_torn_there() -> None:
    data = written(b"one", b"", b"three")
    ends = [*starts(data), len(data)]
    for size in range(len(HEADER), len(data) + 1):
        whole = sum(end <= size for end in ends[1:])
        found = found_in(data[:size])
        assert len([r for r in found if isinstance(r, Record)]) == whole
        torn = [] if size == ends[whole] else [Torn(ends[whole])]
        assert [r for r in found if isinstance(r, Torn)] == torn


def test_a_changed_byte_is_damage_if_a_later_record_was_made_after_the_sync() -> None:
    data = written(b"one", b"two", b"three")
    last = starts(data)[-1]
    for offset in range(len(HEADER), last):
        damaged = bytearray(data)
        damaged[offset] ^= 0x10
        with pytest.raises(Corrupt) as caught:
            found_in(bytes(damaged))
        assert caught.value.offset == max(start for start in starts(data) if start <= offset)


def test_a_changed_byte_is_a_torn_tail_if_nothing_says_that_it_was_synced() -> None:
    data = written(b"one", b"two", b"three", durable=[7, 7, 7])
    for offset in range(len(HEADER), len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 0x10
        assert found_in(bytes(damaged))[-1] == Torn(max(start for start in starts(data) if start <= offset))


def test_a_sound_record_proves_only_what_it_was_made_after() -> None:
    data = written(b"one", b"two", b"three", durable=[7, 7, 8])
    first, second, _third = starts(data)
    for offset, is_damage in ((first, True), (second, False)):
        damaged = bytearray(data)
        damaged[offset] ^= 0x10
        if is_damage:
            with pytest.raises(Corrupt):
                found_in(bytes(damaged))
        else:
            assert found_in(bytes(damaged))[-1] == Torn(second)


def test_a_lag_too_great_to_be_told_proves_nothing() -> None:
    base = Base(2**40, 3, 0, b"")
    data = pack_record(2**40 + 1, 3, 0, b"x") + b"x" + pack_record(2**40 + 2, 3, 0, b"y") + b"y"
    assert struct.unpack_from("<I", data, 28)[0] == LAG_MAX
    assert list(scan(b"?" + data[1:], 0, base)) == [Torn(0)]


def test_an_entry_out_of_its_place_is_damage() -> None:
    data = written(b"one") + pack_record(10, 3, 8, b"x") + b"x"
    with pytest.raises(Corrupt, match="entry 10 stands where entry 9 belongs"):
        found_in(data)


def test_the_image_of_an_older_record_in_a_torn_payload_proves_nothing() -> None:
    image = written(b"one", b"two")[len(HEADER) :]
    data = written(b"one", b"two", image + b"rest of it", durable=[7, 8, 9])
    assert found_in(data[:-1])[-1] == Torn(starts(data)[2])


def test_the_image_of_a_record_that_cannot_stand_there_proves_nothing() -> None:
    image = pack_record(1000, 3, 999, b"x") + b"x"
    data = written(b"one", image + b"rest of it", durable=[7, 8])
    assert found_in(data[:-1])[-1] == Torn(starts(data)[1])


def test_zeros_at_the_end_are_a_torn_tail() -> None:
    data = written(b"one")
    assert found_in(data + bytes(5000))[-1] == Torn(len(data))


def test_records_after_a_bad_header_are_found() -> None:
    assert holds_records(b"?" + written(b"one")[1:])
    assert not holds_records(HEADER + bytes(100))
