"""An address taken before anybody is let in."""

from __future__ import annotations

import asyncio
import socket

import pytest

from quvatlh.api.place import ListenRefused, Place
from quvatlh.api.server import Options, Server
from tests.fakes.pool import FakePool


def url(place: Place) -> str:
    return "{}:{}".format(*place.bound)


async def say(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    try:
        return await reader.readuntil(b"\r\n")
    finally:
        writer.close()


async def test_a_place_is_known_and_ours_before_anybody_is_let_in() -> None:
    place = await Place.take("127.0.0.1:0")
    address = url(place)
    with pytest.raises(ConnectionRefusedError):
        await say(address)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(place.bound)
    server = Server(FakePool(), Options("127.0.0.1:0"))
    assert await server.start(place) == address
    assert await say(address) == b"HTTP/1.1 200 OK\r\n"
    await server.stop(grace_s=0.0)


async def test_a_place_that_was_never_opened_is_free_again() -> None:
    place = await Place.take("127.0.0.1:0")
    address = url(place)
    place.close()
    place.close()
    (await Place.take(address)).close()


async def test_of_two_that_took_one_place_the_later_one_is_refused() -> None:
    """Both may bind while nobody listens: so it is with two daemons that start at once."""
    first = await Place.take("127.0.0.1:0")
    address = url(first)
    second = await Place.take(address)
    server = Server(FakePool(), Options())
    await server.start(first)
    with pytest.raises(ListenRefused, match=rf"cannot listen at {address}: another process listens there; end it"):
        await second.open(asyncio.Protocol)
    second.close()
    assert await say(address) == b"HTTP/1.1 200 OK\r\n"
    await server.stop(grace_s=0.0)


async def test_connections_that_a_server_has_ended_hold_up_no_restart() -> None:
    server = Server(FakePool(), Options("127.0.0.1:0"))
    address = await server.start()
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n")
    await server.stop(grace_s=0.0)
    await reader.read()  # its end comes from the server, so that the port is left in TIME_WAIT
    writer.close()
    await writer.wait_closed()
    again = Server(FakePool(), Options("127.0.0.1:0"))
    assert await again.start(await Place.take(address)) == address
    await again.stop(grace_s=0.0)
