"""Real sockets on loopback, with TLS and without."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quvatlh.raft.network import TcpNetwork, TcpWriter, Writer, join_address, split_address, tls_contexts
from quvatlh.raft.notices import Note, no_note
from quvatlh.raft.settings import Settings
from tests.raft.live_parts import ANY_PORT, PATIENCE_S, live
from tests.support.certificates import Authority

Streams = tuple[asyncio.StreamReader, Writer]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "cluster")


def tls_network(
    authority: Authority, name: str, ca: str | None = None, settings: Settings | None = None, note: Note = no_note
) -> TcpNetwork:
    return TcpNetwork(*tls_contexts(*authority.issue(name), ca or authority.ca), settings, note)


class Accepted:
    """What a listener accepted, kept open until the test is over."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[Streams] = asyncio.Queue()

    async def __call__(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        await self.streams.put((reader, writer))

    async def next(self) -> Streams:
        async with asyncio.timeout(PATIENCE_S):
            return await self.streams.get()


async def read_all(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.read(-1)


async def nothing_comes(reader: asyncio.StreamReader) -> bool:
    """A refused certificate shows to its owner as the end of the connection: TLS 1.3 has no earlier place for it."""
    try:
        return await read_all(reader) == b""
    except OSError:
        return True


def test_addresses_are_split_and_joined() -> None:
    for address, parts in (("h:1", ("h", 1)), ("[::1]:7421", ("::1", 7421)), (":5", ("", 5))):
        assert split_address(address) == parts
        assert join_address(*parts) == address


@pytest.mark.parametrize("bad", ["", "h", "h:", "h:x", "h:65536", "h:-1", "h:٣", "h: 1"])
def test_what_is_no_address_is_an_os_error(bad: str) -> None:
    with pytest.raises(OSError, match="not an address"):
        split_address(bad)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
async def test_bytes_go_both_ways_and_the_bound_port_is_told(host: str) -> None:
    accepted = Accepted()
    listener = await TcpNetwork().listen(f"{host}:0", accepted)
    port = split_address(listener.address)[1]
    assert port != 0
    reader, writer = await TcpNetwork().dial(f"127.0.0.1:{port}")
    far_reader, far_writer = await accepted.next()
    writer.write(b"there")
    assert await far_reader.readexactly(5) == b"there"
    far_writer.write(b"and back")
    far_writer.close()
    assert await read_all(reader) == b"and back"
    assert writer.peername() == f"127.0.0.1:{port}"
    writer.close()
    await listener.close()


async def test_closing_the_listener_keeps_what_was_accepted_and_takes_no_more() -> None:
    accepted = Accepted()
    listener = await TcpNetwork().listen(ANY_PORT, accepted)
    _, writer = await TcpNetwork().dial(listener.address)
    far_reader, far_writer = await accepted.next()
    await listener.close()
    writer.write(b"still here")
    writer.close()
    assert await read_all(far_reader) == b"still here"
    far_writer.close()
    with pytest.raises(OSError):
        await TcpNetwork().dial(listener.address)


async def test_a_port_that_is_taken_is_an_os_error() -> None:
    listener = await TcpNetwork().listen(ANY_PORT, Accepted())
    with pytest.raises(OSError, match="in use"):
        await TcpNetwork().listen(listener.address, Accepted())
    await listener.close()


async def test_a_host_that_is_none_is_an_os_error() -> None:
    for bad in ("a..b:1", "x" * 70 + ":1", "no port"):
        with pytest.raises(OSError):
            await TcpNetwork().dial(bad)


async def test_small_writes_are_sent_at_once_on_both_sides() -> None:
    accepted = Accepted()
    listener = await TcpNetwork().listen(ANY_PORT, accepted)
    _, writer = await TcpNetwork().dial(listener.address)
    _, far_writer = await accepted.next()
    for one in (writer, far_writer):
        assert isinstance(one, TcpWriter)
        connection = one.stream.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        one.close()
    await listener.close()


async def test_what_the_other_side_does_not_take_is_pending_and_holds_up_drain() -> None:
    settings = replace(Settings(), append_bytes_max=100_000)
    accepted = Accepted()
    listener = await TcpNetwork(settings=settings).listen(ANY_PORT, accepted)
    reader, writer = await TcpNetwork(settings=settings).dial(listener.address)
    _, far_writer = await accepted.next()
    total = 64 * 1024 * 1024
    far_writer.write(bytes(total))
    assert far_writer.pending() > settings.append_bytes_max
    draining = asyncio.ensure_future(far_writer.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    got = 0
    while not draining.done():
        got += len(await reader.read(1 << 20))
    assert far_writer.pending() <= settings.append_bytes_max
    far_writer.close()
    assert got + len(await read_all(reader)) == total
    writer.close()
    await listener.close()


async def test_drain_does_not_wait_while_less_is_pending_than_may_be() -> None:
    settings = replace(Settings(), append_bytes_max=64 * 1024 * 1024)
    accepted = Accepted()
    listener = await TcpNetwork().listen(ANY_PORT, accepted)
    _, writer = await TcpNetwork(settings=settings).dial(listener.address)
    _, far_writer = await accepted.next()
    writer.write(bytes(32 * 1024 * 1024))
    assert writer.pending() > Settings().append_bytes_max
    async with asyncio.timeout(PATIENCE_S):
        await writer.drain()
    writer.abort()
    far_writer.close()
    await listener.close()


async def test_a_burst_of_connections_is_accepted() -> None:
    accepted = Accepted()
    listener = await TcpNetwork(settings=replace(Settings(), handshakes_max=1)).listen(ANY_PORT, accepted)
    dialled = await asyncio.gather(*[TcpNetwork().dial(listener.address) for _ in range(50)])
    for _, writer in dialled:
        (await accepted.next())[1].close()
        writer.close()
    await listener.close()


async def test_an_abort_drops_what_is_pending_and_writing_after_it_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    accepted = Accepted()
    listener = await TcpNetwork().listen(ANY_PORT, accepted)
    reader, writer = await TcpNetwork().dial(listener.address)
    _, far_writer = await accepted.next()
    far_writer.write(bytes(64 * 1024 * 1024))
    far_writer.abort()
    for _ in range(20):
        far_writer.write(b"nobody hears this")
    assert far_writer.pending() == 0
    assert caplog.records == []
    assert len(await read_all(reader)) < 64 * 1024 * 1024
    writer.close()
    await listener.close()


async def test_nodes_link_over_mutual_tls(authority: Authority) -> None:
    async with (
        live("b", network=tls_network(authority, "b")) as b,
        live("a", b.address, network=tls_network(authority, "a")) as a,
    ):
        link = await a.linked("b")
        context = link._channel._writer.stream.get_extra_info("ssl_object")  # type: ignore[attr-defined]
        assert context.version() == "TLSv1.3"
        large = ["m", bytes(5_000_000)]
        assert link.send(large)
        await b.until(lambda: b.messages)
        assert b.messages == [large]


async def test_a_peer_that_is_killed_is_a_reset_over_tls_too(authority: Authority) -> None:
    async with (
        live("b", network=tls_network(authority, "b")) as b,
        live("a", b.address, network=tls_network(authority, "a")) as a,
    ):
        await a.linked("b")
        b.links.set_addresses([])
        (await b.linked("a"))._channel._writer.abort()
        await a.until(lambda: a.downs)
        assert a.downs[0].reset


async def test_a_goodbye_is_heard_over_tls_too(authority: Authority) -> None:
    async with live("a", network=tls_network(authority, "a")) as a:
        async with live("b", a.address, network=tls_network(authority, "b")) as b:
            await b.linked("a")
            await a.linked("b")
        await a.until(lambda: a.downs)
        assert a.downs[0].how == "bye"


@pytest.mark.parametrize("who", ["dialer", "acceptor"])
async def test_a_certificate_of_another_authority_is_refused(authority: Authority, tmp_path: Path, who: str) -> None:
    notes: list[tuple[str, dict[str, Any]]] = []
    heard = asyncio.Event()

    def note(kind: str, fields: dict[str, Any]) -> None:
        notes.append((kind, fields))
        heard.set()

    other = Authority(tmp_path, "other")
    good = tls_network(authority, "good", note=note)
    bad = tls_network(other, "bad", authority.ca, note=note)
    accepted = Accepted()
    listener = await (good if who == "dialer" else bad).listen(ANY_PORT, accepted)
    if who == "dialer":
        reader, writer = await bad.dial(listener.address)
        assert await nothing_comes(reader)
        writer.close()
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            await good.dial(listener.address)
    async with asyncio.timeout(PATIENCE_S):
        await heard.wait()
    assert [kind for kind, _ in notes] == ["tls_refused"]
    assert "no TLS connection" in notes[0][1]["reason"]
    assert accepted.streams.empty()
    if who == "dialer":
        assert "certificate" in notes[0][1]["reason"].lower()
        _, writer = await tls_network(authority, "welcome").dial(listener.address)
        (await accepted.next())[1].close()
        writer.close()
    await listener.close()


async def test_a_peer_without_certificate_is_refused_where_a_ca_is_given(authority: Authority) -> None:
    accepted = Accepted()
    listener = await tls_network(authority, "b").listen(ANY_PORT, accepted)
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(authority.ca)
    bare.check_hostname = False
    reader, writer = await TcpNetwork(None, bare).dial(listener.address)
    assert await nothing_comes(reader)
    assert accepted.streams.empty()
    writer.close()
    await listener.close()


async def test_without_a_ca_tls_only_hides(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    accepted = Accepted()
    listener = await TcpNetwork(*tls_contexts(*authority.issue("b"))).listen(ANY_PORT, accepted)
    reader, writer = await TcpNetwork(*tls_contexts(*other.issue("a"))).dial(listener.address)
    _, far_writer = await accepted.next()
    far_writer.write(b"hidden")
    far_writer.close()
    assert await read_all(reader) == b"hidden"
    writer.close()
    await listener.close()


async def test_plain_bytes_to_a_tls_listener_are_refused_and_noted(authority: Authority) -> None:
    async with live("b") as plain:
        network = tls_network(authority, "b", note=plain._note)
        listener = await network.listen(ANY_PORT, Accepted())
        plain.links.set_addresses([listener.address])
        await plain.until(lambda: plain.noted("tls_refused") and plain.noted("dial_failed"))
        await listener.close()


async def test_tls_handshakes_are_bounded_and_closing_the_listener_ends_them(authority: Authority) -> None:
    notes: list[tuple[str, dict[str, Any]]] = []
    settings = replace(Settings(), handshakes_max=3, handshake_s=60.0)
    network = tls_network(authority, "b", settings=settings, note=lambda kind, fields: notes.append((kind, fields)))
    listener = await network.listen(ANY_PORT, Accepted())
    strangers = [await TcpNetwork().dial(listener.address) for _ in range(10)]
    refused = 0
    for reader, _ in strangers[3:]:
        refused += await read_all(reader) == b""
    assert refused == 7
    assert notes[0] == ("tls_refused", {"address": notes[0][1]["address"], "reason": "3 TLS handshakes are under way"})
    async with asyncio.timeout(PATIENCE_S):
        await listener.close()
    for reader, writer in strangers[:3]:
        assert await read_all(reader) == b""
        writer.close()
    for _, writer in strangers[3:]:
        writer.close()


async def test_a_tls_writer_may_be_closed_twice_and_still_says_what_is_pending(authority: Authority) -> None:
    """asyncio's own transport then forgets its protocol; the other side's end has often closed it once already."""
    accepted: asyncio.Future[Writer] = asyncio.get_running_loop().create_future()

    async def accept(_reader: asyncio.StreamReader, writer: Writer) -> None:
        accepted.set_result(writer)

    listener = await tls_network(authority, "b").listen("127.0.0.1:0", accept)
    _, writer = await tls_network(authority, "a").dial(listener.address)
    for one in (writer, await accepted):
        one.close()
        one.close()
        assert one.pending() >= 0
        one.abort()
    await listener.close()


async def test_where_nobody_listens_that_is_said_in_words() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port meanwhile
        with pytest.raises(ConnectionRefusedError, match="connection refused: nobody"):
            await TcpNetwork().dial(f"127.0.0.1:{closed.getsockname()[1]}")
