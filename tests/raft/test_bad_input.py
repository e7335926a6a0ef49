"""Whatever is sent to a live listener: it says why it closed, holds little, and the next good peer gets in."""

from __future__ import annotations

import asyncio
import pickle
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from quvatlh.raft import handshake
from quvatlh.raft.handshake import Ours
from quvatlh.raft.network import TcpNetwork, Writer
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import HEAD_BYTES, Channel, FrameDecoder, encode
from quvatlh.system.clock import RealClock
from tests.raft.live_parts import PATIENCE_S, LiveNode, live
from tests.raft.net_parts import SECRET

HASTY = replace(Settings(), handshake_s=0.3)
BadPeer = Callable[[LiveNode], Awaitable[None]]


def sends(data: bytes, *, ends: bool = False) -> BadPeer:
    """Send it, then wait for the other side to close, unless this one ends first."""

    async def act(node: LiveNode) -> None:
        reader, writer = await TcpNetwork().dial(node.address)
        writer.write(data)
        if ends:
            writer.close()
        await until_closed(reader, writer)

    return act


async def until_closed(reader: asyncio.StreamReader, writer: Writer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
    writer.close()


async def slow_loris(node: LiveNode) -> None:
    """One byte at a time, as long as it is let."""
    reader, writer = await TcpNetwork().dial(node.address)
    closed = asyncio.ensure_future(until_closed(reader, writer))
    for byte in encode(["QVTL", 1, bytes(32), "link"]):
        writer.write(bytes([byte]))
        await asyncio.wait([closed], timeout=0.05)
        if closed.done():
            break
    await closed


async def wrong_secret(node: LiveNode) -> None:
    async with live("a", node.address, secret=b"guessed") as peer:
        await peer.until(lambda: peer.noted("dial_failed"))
        assert "another cluster secret" in peer.noted("dial_failed")[0]
        assert peer.links.all == ()


async def replay(node: LiveNode) -> None:
    """Record a good peer's bytes through a proxy, and send them again."""
    recorded = bytearray()

    async def proxy(reader: asyncio.StreamReader, writer: Writer) -> None:
        far_reader, far_writer = await TcpNetwork().dial(node.address)

        async def back() -> None:
            while data := await far_reader.read(1 << 16):
                writer.write(data)
            writer.close()

        task = asyncio.ensure_future(back())
        while data := await reader.read(1 << 16):
            recorded.extend(data)
            far_writer.write(data)
        far_writer.close()
        await task

    listener = await TcpNetwork().listen("127.0.0.1:0", proxy)
    async with live("recorded", listener.address) as peer:
        await peer.linked("b")
    await listener.close()
    await node.until(lambda: node.downs)
    await sends(bytes(recorded))(node)


def tls_hello() -> bytes:
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="x").do_handshake()
    return out.read()


CORPUS: dict[str, tuple[BadPeer, str, str]] = {
    "wrong secret": (wrong_secret, "refused_secret", "it did not prove the cluster secret"),
    "replay": (replay, "refused_secret", "it did not prove the cluster secret"),
    "garbage": (sends(bytes(range(255, 0, -1)) * 50), "refused_stranger", "it sent something else"),
    "short garbage": (sends(b"\0\0\0\5garbage and more"), "refused_stranger", "it sent something else"),
    "great length": (sends(struct.pack(">II", 2**32 - 1, 0)), "refused_stranger", "it sent something else"),
    "half a frame": (sends(encode(["QVTL", 1])[:-2], ends=True), "refused_closed", "before the handshake was done"),
    "nothing": (sends(b"", ends=True), "refused_closed", "before the handshake was done"),
    "half a handshake": (
        sends(encode(["QVTL", 1, bytes(32), "link"]), ends=True), "refused_closed", "before it proved the secret",
    ),
    "silence": (sends(b""), "refused_timeout", "was not proved within 0.3 s"),
    "pickle": (sends(pickle.dumps({"a": [1, 2]})), "refused_stranger", "it sent a pickle"),
    "tls": (sends(tls_hello()), "refused_stranger", "it sent a TLS handshake"),
    "http": (sends(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "refused_stranger", "it sent an HTTP request"),
    "version": (sends(encode(["QVTL", 2, bytes(32), "link"])), "refused_version", "it speaks version 2"),
    "kind": (sends(encode(["QVTL", 1, bytes(32), "gossip"])), "refused_handshake", "unknown kind"),
    "nonce": (sends(encode(["QVTL", 1, b"", "link"])), "refused_handshake", "wrong shape"),
    "slow loris": (slow_loris, "refused_timeout", "was not proved within 0.3 s"),
}  # fmt: skip


@pytest.mark.parametrize("name", CORPUS)
async def test_a_bad_peer_is_named_and_a_good_one_still_gets_in(name: str) -> None:
    act, kind, reason = CORPUS[name]
    async with live("b", settings=HASTY) as node:
        await act(node)
        await node.until(lambda: node.noted(kind))
        assert [name for name, _ in node.notes if name.startswith("refused")] == [kind]
        assert reason in node.noted(kind)[0]
        assert node.links._unproved == 0
        async with live("good", node.address) as good:
            await good.linked("b")
            assert (await node.linked("good")).send(["welcome"])
            await good.until(lambda: good.messages)


async def test_garbage_after_a_good_handshake_ends_that_link_and_says_why() -> None:
    async with live("b") as node:
        reader, writer = await TcpNetwork().dial(node.address)
        channel = Channel(reader, writer, Settings(), RealClock())
        doc = {"id": "x", "incarnation": "1", "seq": 1}
        await handshake.dial(channel, Ours(SECRET, bytes(32), lambda: doc), "link", Settings())
        await node.linked("x")
        writer.write(b"\xff" * 100)
        await node.until(lambda: node.downs)
        assert node.downs[0].how == "error"
        assert node.noted("link_error") == ["a frame of 4294967295 bytes, at most 16777216 are taken"]
        assert await channel.receive() == ["bye", node.downs[0].reason]
        channel.close("")
        async with live("good", node.address) as good:
            await good.linked("b")


async def test_a_flood_before_the_proof_is_not_held() -> None:
    most = 0
    plain_push = FrameDecoder.push

    def push(decoder: FrameDecoder, data: bytes) -> None:
        nonlocal most
        plain_push(decoder, data)
        most = max(most, decoder.held_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FrameDecoder, "push", push)
        async with live("b") as node:
            flood = struct.pack(">II", Settings().hello_bytes_max, 0) + bytes(5_000_000)
            await sends(flood)(node)
            await node.until(lambda: node.noted("refused_stranger"))
    assert 0 < most <= 2 * (HEAD_BYTES + Settings().hello_bytes_max)


async def test_many_bad_peers_are_one_line_a_second_with_a_count() -> None:
    async with live("b") as node:
        for _ in range(50):
            await sends(b"GET / HTTP/1.1\r\n\r\n")(node)
        assert len(node.noted("refused_stranger")) <= 2
        await node.until(lambda: sum(1 + fields.get("suppressed", 0) for _, fields in node.notes) == 50)
        assert len(node.notes) <= 4
