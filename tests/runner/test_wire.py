"""A connection between daemon and executor, on a transport that remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import pytest

from quvatlh.runner import wire
from quvatlh.runner.pools.runner import PoolRunner


class Pool:
    def __init__(self, hand_out: Callable[[], None]) -> None:
        self.hand_out = hand_out


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[Any]] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        unpacker = msgpack.Unpacker(use_list=False)
        unpacker.feed(data)
        self.writes.append(list(unpacker))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False


def connected() -> tuple[wire.Link, Transport, list[Any]]:
    heard: list[Any] = []
    link, transport = wire.Link(lambda _link, message: heard.append(message), lambda _link: None), Transport()
    link.connection_made(transport)
    link.on_read = lambda: heard.append("read")
    return link, transport, heard


async def test_what_is_sent_in_one_turn_leaves_in_one_write() -> None:
    link, transport, _ = connected()
    link.send("one", 1)
    assert link.is_alone
    link.send("two", 2)
    assert (link.is_alone, transport.writes) == (False, [])
    await asyncio.sleep(0)
    assert transport.writes == [[("one", 1), ("two", 2)]]


async def test_what_is_flushed_leaves_at_once_and_what_follows_in_the_next_write() -> None:
    link, transport, _ = connected()
    link.send("one", 1)
    link.flush()
    assert (transport.writes, link.waiting_bytes) == ([[("one", 1)]], 0)
    link.send("two", 2)
    await asyncio.sleep(0)
    link.flush()
    assert transport.writes == [[("one", 1)], [("two", 2)]]


async def test_the_end_of_a_read_is_told_once_after_all_that_came_in_it() -> None:
    link, _, heard = connected()
    data = b"".join(msgpack.packb(message) for message in (("one", 1), ("two", 2), ("three", 3)))
    link.data_received(data[:-2])
    link.data_received(data[-2:])
    assert heard == [("one", 1), ("two", 2), "read", ("three", 3), "read"]


@pytest.mark.parametrize("error", [OSError("too many references"), ValueError("of a call")])
async def test_what_cannot_be_begun_ends_no_connection(error: Exception) -> None:
    """With it all actions of the worker would end, not that one call."""
    link, _, heard = connected()
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))

    def begin() -> None:
        raise error

    link.on_read = begin
    link.data_received(msgpack.packb(("one", 1)))
    assert (heard, told) == ([("one", 1)], [error])


def test_the_tick_goes_on_where_a_pool_cannot_hand_out() -> None:
    def hand_out() -> None:
        raise OSError("full")

    armed: list[bool] = []
    runner = SimpleNamespace(_dirty={Pool(hand_out): None}, _arm=lambda: armed.append(True))
    with pytest.raises(OSError, match="full"):
        PoolRunner.hand_out(cast("PoolRunner", runner))
    assert armed
