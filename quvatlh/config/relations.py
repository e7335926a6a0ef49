"""How the values must stand to each other. What one value must look like by itself is in kinds.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from quvatlh.config import address
from quvatlh.config.faults import Fault
from quvatlh.config.model import Config, HttpConfig, PeerConfig


class Broken(NamedTuple):
    fault: Fault
    hangs_on: frozenset[str]
    """Keys and sections that the relation looks at: while one of them is itself at fault, nothing can be said."""


_RELOAD = frozenset({"worker.reload", "worker.app"})


def broken(config: Config) -> Iterator[Broken]:
    yield from _secret(config.peer)
    yield from _reachable(config.peer)
    yield from _http_reachable(config)
    yield from _open(config.peer)
    yield from _http_open(config.http)
    yield from _role(config)
    if config.worker.reload and config.worker.app is None:
        yield Broken(Fault("worker.reload", "goes with worker.app: nothing else is watched"), _RELOAD)


def _secret(peer: PeerConfig) -> Iterator[Broken]:
    if peer.peers and peer.secret_file is None:
        text = "must be given with peers: nodes prove to each other that they know the secret"
        yield Broken(Fault("peer.secret_file", text), frozenset({"peer.secret_file"}))


def _reachable(peer: PeerConfig) -> Iterator[Broken]:
    host, _ = address.parse(peer.listen)
    if peer.peers and peer.advertise is None and address.is_wildcard(host):
        text = f"must be given: other nodes cannot dial {peer.listen}"
        yield Broken(Fault("peer.advertise", text), frozenset({"peer.advertise"}))


def _http_reachable(config: Config) -> Iterator[Broken]:
    """The membership tells every node and its clients where this one answers."""
    http, path = config.http, "http.advertise"
    host, _ = address.parse(http.advertised)
    if config.peer.peers and address.is_wildcard(host):
        text = f"must be given with peers, as an address to dial: nobody can dial {http.advertised}"
        yield Broken(Fault(path, text), frozenset({path, "http.listen", "peer.peers"}))


def _open(peer: PeerConfig) -> Iterator[Broken]:
    """Any address but loopback goes over wires that others may hold."""
    if peer.tls is not None or peer.insecure:
        return
    given = [("peer.listen", peer.listen), ("peer.advertise", peer.advertise)]
    given += [("peer.peers", each) for each in peer.peers]
    for path, value in given:
        if value is not None and not address.is_loopback(address.parse(value).host):
            text = f"{value} is not loopback: give peer.tls, or say peer.insecure: true"
            yield Broken(Fault(path, text), frozenset({path, "peer.tls", "peer.insecure"}))


def _http_open(http: HttpConfig) -> Iterator[Broken]:
    """Tokens cross the wire with every request."""
    if http.tls is None and not http.insecure and not address.is_loopback(address.parse(http.listen).host):
        text = f"{http.listen} is not loopback: give http.tls, or say http.insecure: true"
        yield Broken(Fault("http.listen", text), frozenset({"http.listen", "http.tls", "http.insecure"}))


def _role(config: Config) -> Iterator[Broken]:
    """A worker has nothing of a node but its connection to one."""
    node = config.node
    if node.role == "node":
        if node.server:
            text = "goes with node.role: worker; a node of a cluster has peer.peers"
            yield Broken(Fault("node.server", text), frozenset({"node.server", "node.role"}))
        return
    if not node.server:
        text = "must be given with node.role: worker: URLs of nodes such as http://127.0.0.1:7420"
        yield Broken(Fault("node.server", text), frozenset({"node.server"}))
    if config.peer.peers:
        text = "does not go with node.role: worker: it has no vote and no replica"
        yield Broken(Fault("peer.peers", text), frozenset({"peer.peers", "node.role"}))
    for url in node.server:
        scheme, _, place = url.partition("://")
        host = place.rpartition(":")[0] or place
        if scheme == "http" and not config.http.insecure and not address.is_loopback(host.strip("[]")):
            text = f"{url} is neither loopback nor https: give an https URL, or say http.insecure: true"
            yield Broken(Fault("node.server", text), frozenset({"node.server", "http.insecure"}))
