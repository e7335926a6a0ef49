"""Frames and channels: what is taken, what is refused, and how a channel ends."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import tracemalloc
import zlib
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import HEAD_BYTES, READ_BYTES, Channel, FrameDecoder, How, Message, WireError, encode
from tests.raft.net_parts import End, MemNet, open_pair, simulate
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop

LIMIT = 1000


def frame(payload: bytes) -> bytes:
    return struct.pack(">II", len(payload), zlib.crc32(payload)) + payload


def refusal(data: bytes, limit: int = LIMIT) -> str:
    with pytest.raises(WireError) as caught:
        FrameDecoder(limit).feed(data)
    return caught.value.reason


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.lists(plain, max_size=4), max_size=6), st.lists(st.integers(1, 40)))
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(messages: list[Message], cuts: list[int]) -> None:
    stream = b"".join(encode(message) for message in messages)
    decoder = FrameDecoder(10_000)
    got = []
    at = 0
    for cut in [*cuts, len(stream)]:
        got += decoder.feed(stream[at : at + cut])
        at += cut
    assert got == messages
    assert decoder.held_bytes == 0


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_messages_or_a_wire_error_and_little_is_held(data: bytes, framed: bool) -> None:
    decoder = FrameDecoder(LIMIT)
    with contextlib.suppress(WireError):
        decoder.feed(frame(data) if framed else data)
    assert decoder.held_bytes <= HEAD_BYTES + max(len(data), LIMIT)


def test_a_length_over_the_limit_is_refused_by_its_head_alone() -> None:
    assert refusal(struct.pack(">II", LIMIT + 1, 0)) == "a frame of 1001 bytes, at most 1000 are taken"
    assert FrameDecoder(LIMIT).feed(struct.pack(">II", LIMIT, 0)) == []


def test_a_wrong_checksum_is_refused() -> None:
    good = encode(["ping", 1])
    assert refusal(good[:-1] + b"\x02") == "a frame whose checksum is wrong"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb([1]) + b"\x00",
        msgpack.packb([1, 2])[:-1],
        msgpack.packb([msgpack.Timestamp(1)]),
        msgpack.packb([msgpack.ExtType(5, b"")]),
        msgpack.packb([msgpack.ExtType(5, b"abc")]),
        msgpack.packb([{1: 2}]),
        b"\x91\xa2\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 900,
    ],
)
def test_what_is_not_plain_msgpack_is_refused(payload: bytes) -> None:
    assert refusal(frame(payload)).startswith("not decodable: ")


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", {"a": 1}])
def test_a_message_is_a_list(value: object) -> None:
    assert refusal(frame(msgpack.packb(value))) == "a frame that is not a list"


def test_nested_heads_of_great_arrays_do_not_multiply_in_memory() -> None:
    size = Settings().hello_bytes_max
    nested = b"\xdd" + struct.pack(">I", size - 1)
    payload = frame((nested * 1000).ljust(size, b"\0"))
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            FrameDecoder(size, 16).feed(payload)
        assert tracemalloc.get_traced_memory()[1] < 10 * size
    finally:
        tracemalloc.stop()


def test_arrays_and_maps_are_bounded_more_tightly_where_asked() -> None:
    for message in ([0] * 17, [dict.fromkeys("abcdefghijklmnopq")]):
        assert FrameDecoder(LIMIT).feed(encode(message)) == [message]
        with pytest.raises(WireError, match="exceeds"):
            FrameDecoder(LIMIT, 16).feed(encode(message))


def test_after_an_error_the_decoder_raises_it_again_and_holds_no_more_than_was_read() -> None:
    decoder = FrameDecoder(LIMIT)
    for _ in range(2):
        with pytest.raises(WireError, match="at most 1000"):
            decoder.feed(b"\xff" * HEAD_BYTES)
    assert decoder.held_bytes == 2 * HEAD_BYTES


def channel_of(loop: SimLoop, ends: tuple[asyncio.StreamReader, Any], settings: Settings | None = None) -> Channel:
    made = Channel(*ends, settings or Settings(), SimClock(loop))
    made.proved("link", {})
    return made


async def pair(loop: SimLoop, settings: Settings | None = None) -> tuple[Channel, Channel, End, End]:
    """Two proved channels on one connection, with the raw ends."""
    dialled, accepted = await open_pair(MemNet())
    assert isinstance(dialled[1], End)
    assert isinstance(accepted[1], End)
    return channel_of(loop, dialled, settings), channel_of(loop, accepted, settings), dialled[1], accepted[1]


def ignore(_message: Message) -> None:
    pass


def test_messages_are_delivered_in_order_and_then_the_end() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, _, _ = await pair(loop)
        sent: list[Message] = [["m", number, b"x" * number] for number in range(300)]
        assert all(here.send(message) for message in sent)
        here.close("enough")
        got: list[Message] = []
        end = await there.run(got.append)
        assert got == sent
        assert end.how is How.EOF
        assert here.end is not None
        assert (here.end.how, here.end.reason) == (How.CLOSED_BY_US, "enough")

    simulate(main)


def test_frames_that_came_together_with_the_handshake_are_delivered_before_any_read() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, _, _ = await pair(loop)
        there.decoder.push(encode(["early"]))
        got: list[Message] = []

        def last(message: Message) -> None:
            got.append(message)
            there.close("got it")

        await there.run(last)
        assert got == [["early"]]
        here.close("")

    simulate(main)


def test_closing_wakes_the_reader_even_when_the_other_side_takes_nothing() -> None:
    async def main(loop: SimLoop) -> None:
        here, _, raw, _ = await pair(loop)
        raw.stuck = True
        here.send(["never read"])
        running = asyncio.ensure_future(here.run(ignore))
        await asyncio.sleep(0.01)
        since_s = loop.time()
        here.close("no patience")
        end = await running
        assert (end.how, end.reason) == (How.CLOSED_BY_US, "no patience")
        assert loop.time() == since_s
        assert raw.held > 0
        await asyncio.sleep(Settings().silence_s + 0.1)
        assert raw.held == 0

    simulate(main)


def test_a_reader_that_is_cancelled_from_outside_stays_cancelled() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, _, _ = await pair(loop)
        running = asyncio.ensure_future(there.run(ignore))
        await asyncio.sleep(0.01)
        running.cancel()
        there.close("at the same moment")
        with pytest.raises(asyncio.CancelledError):
            await running
        here.close("")

    simulate(main)


def test_a_reset_is_told_from_an_end() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, _, _ = await pair(loop)
        here.abort("gone")
        assert (await there.run(ignore)).how is How.RESET

    simulate(main)


def test_an_end_within_a_frame_is_an_end_and_says_so() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, raw, _ = await pair(loop)
        raw.write(encode(["m"])[:5])
        raw.close()
        end = await there.run(ignore)
        assert end.how is How.EOF
        assert "in the middle of a frame" in end.reason
        here.close("")

    simulate(main)


def test_good_messages_before_a_bad_frame_are_delivered() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, raw, _ = await pair(loop)
        raw.write(encode(["good"]) + b"\xff" * 20)
        got: list[Message] = []
        end = await there.run(got.append)
        assert got == [["good"]]
        assert end.how is How.ERROR
        there.leave(["bye", end.reason], end.reason)
        told = await here.receive()
        assert told == ["bye", end.reason]
        here.close("")
        assert (await there.run(got.append)).how is How.CLOSED_BY_US
        assert got == [["good"]]

    simulate(main)


def test_a_message_that_makes_no_sense_to_the_owner_ends_the_run() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, _, _ = await pair(loop)
        here.send(["nonsense"])

        def refuse(message: Message) -> None:
            raise WireError(f"what is {message[0]}?")

        end = await there.run(refuse)
        assert (end.how, end.reason) == (How.ERROR, "what is nonsense?")
        there.close("")
        here.close("")

    simulate(main)


def test_a_peer_that_lets_too_much_pile_up_is_disconnected() -> None:
    async def main(loop: SimLoop) -> None:
        settings = replace(Settings(), link_buffer_bytes_max=10_000, frame_bytes_max=9_000)
        here, _, raw, _ = await pair(loop, settings)
        raw.stuck = True
        taken = 0
        while here.send(["m", b"x" * 1000]):
            taken += 1
            assert raw.held <= settings.link_buffer_bytes_max
        assert taken == 9
        assert here.end is not None
        assert here.end.how is How.CLOSED_BY_US
        assert "would wait to be sent" in here.end.reason
        assert not here.send(["m"])
        assert here.pending() == 0

    simulate(main)


def test_a_message_that_the_other_side_could_not_take_is_not_sent() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, raw, _ = await pair(loop, replace(Settings(), frame_bytes_max=1000))
        with pytest.raises(ValueError, match="at most 1000 can be sent"):
            here.send(["m", b"x" * 1000])
        assert raw.sent == b""
        here.close("")
        there.close("")

    simulate(main)


def test_frames_are_small_until_the_secret_is_proved() -> None:
    async def main(loop: SimLoop) -> None:
        dialled, accepted = await open_pair(MemNet())
        here, there = channel_of(loop, dialled), Channel(*accepted, Settings(), SimClock(loop))
        here.send(["m", b"x" * Settings().hello_bytes_max])
        with pytest.raises(WireError, match="at most 65536 are taken"):
            await there.receive()
        assert there.decoder.held_bytes <= 2 * HEAD_BYTES + Settings().hello_bytes_max
        here.close("")

    simulate(main)


def test_what_an_unproved_peer_sends_in_advance_is_not_taken_in_advance() -> None:
    async def main(loop: SimLoop) -> None:
        dialled, accepted = await open_pair(MemNet())
        there = Channel(*accepted, Settings(), SimClock(loop))
        dialled[1].write(encode(["early", bytes(60_000)]) * 10)
        await asyncio.sleep(1)
        assert await there.receive() is not None
        assert there.decoder.held_bytes <= HEAD_BYTES + Settings().hello_bytes_max
        there.close("")

    simulate(main)


def test_many_elements_are_taken_once_the_secret_is_proved() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, _, _ = await pair(loop)
        many: Message = ["many", *range(100_000)]
        here.send(many)
        assert await there.receive() == many
        here.close("")
        there.close("")

    simulate(main)


def test_a_puller_holds_no_more_than_a_frame_and_a_read() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, _, _ = await pair(loop)
        sent: list[Message] = [["chunk", bytes([number]) * 100_000] for number in range(50)]
        for chunk in sent:
            here.send(chunk)
        here.close("all sent")
        got: list[Message] = []
        most = 0
        while (message := await there.receive()) is not None:
            got.append(message)
            most = max(most, there.decoder.held_bytes)
        assert got == sent
        assert most <= READ_BYTES + 100_100
        assert there.end is not None
        assert there.end.how is How.EOF

    simulate(main)


def test_a_puller_is_told_of_a_bad_frame_and_the_channel_is_closed() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, raw, _ = await pair(loop)
        raw.write(b"\xff" * 20)
        with pytest.raises(WireError):
            await there.receive()
        assert there.end is not None
        assert there.end.how is How.ERROR
        assert await there.receive() is None
        assert (await here.run(ignore)).how is How.EOF

    simulate(main)


def test_who_leaves_waits_for_the_other_side_and_not_for_ever() -> None:
    async def main(loop: SimLoop) -> None:
        here, there, _, raw = await pair(loop)
        here.leave(["bye", "tired"], "tired")
        assert not here.send(["too late"])
        running = asyncio.ensure_future(here.run(ignore))
        assert await there.receive() == ["bye", "tired"]
        assert not raw.ended
        since_s = loop.time()
        end = await running
        assert (end.how, end.reason) == (How.CLOSED_BY_US, "tired")
        assert loop.time() - since_s <= Settings().ping_s
        there.close("")

    simulate(main)
