"""`peer.tls` as a person configures it: nodes find each other over TLS, and nobody else is let in."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

from tests.cluster.daemons import daemons
from tests.cluster.node import Node, until
from tests.raft.live_parts import PATIENCE_S
from tests.support.certificates import Authority


async def spoken(node: Node, authority: Authority) -> str | None:
    """The protocol at its peer address, for one who has a certificate of this authority."""
    context = ssl.create_default_context(cafile=authority.ca)
    context.check_hostname = False
    context.load_cert_chain(*authority.issue("visitor"))
    host, _, port = node.place.peer.rpartition(":")
    async with asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    version: str | None = writer.get_extra_info("ssl_object").version()
    writer.transport.abort()
    return version


async def test_a_cluster_speaks_tls_and_leaves_out_who_has_no_certificate_of_its_authority(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "cluster"), Authority(tmp_path, "stranger")
    cert, key = authority.issue("node")
    tls = {"QUVATLH_PEER_TLS_CERT": cert, "QUVATLH_PEER_TLS_KEY": key, "QUVATLH_PEER_TLS_CA": authority.ca}
    async with daemons(tmp_path, 3, gauged=False, **tls) as nodes:
        master = await nodes.master()
        assert {await spoken(node, authority) for node in nodes.nodes} == {"TLSv1.3"}
        out, other = nodes.others(master)
        assert await out.stop() == 0
        good = out.place
        cert, key = stranger.issue("node")
        tls = {"QUVATLH_PEER_TLS_CERT": cert, "QUVATLH_PEER_TLS_KEY": key, "QUVATLH_PEER_TLS_CA": stranger.ca}
        out.place = replace(good, environ={**good.environ, **tls})
        before = len(master.heard("tls refused"))
        await out.start()
        await until(lambda: len(master.heard("tls refused")) > before, lambda: "its certificate is refused")
        assert await nodes.master([master, other]) in [master, other]
        assert (await out.status())["master"] is None
        assert await out.stop() == 0
        out.place = good
        await out.start()
        await nodes.caught_up(out)
