"""A network of its own for a test: a namespace a node, all on one bridge in another, none of it seen from outside.

Frames are lost one way at a time: each node knows the others' hardware addresses by heart, and a cut gives it a wrong
one. The bridge floods such a frame and nobody takes it, so that it is gone without a word, as on a real wire.
Clients reach a node through its own loopback: their sockets are made inside its namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, secret_in
from tests.cluster.node import Node, Place

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count()

PEER_PORT, CLIENT_PORT = 7421, 7400
NOWHERE = "02:00:00:00:00:00"


def needs_namespaces() -> None:
    """Skip, saying why, where there are none to be had."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("no `ip` here: iproute2 is not installed")
    probe = f"qvprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    _ip("netns", "del", probe)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@dataclass(frozen=True, slots=True)
class Net:
    """Nodes by number, from 0."""

    prefix: str
    count: int

    def namespace(self, number: int) -> str:
        return f"{self.prefix}-{number}"

    def address(self, number: int) -> str:
        return f"10.77.0.{number + 1}"

    def _mac(self, number: int) -> str:
        return f"02:51:76:61:00:{number + 1:02x}"

    def make(self) -> None:
        switch = f"{self.prefix}-sw"
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number in range(self.count):
            node = self.namespace(number)
            _ip("netns", "add", node)
            _ip("-n", node, "link", "set", "lo", "up")
            _ip("-n", switch, "link", "add", f"port{number}", "type", "veth", "peer", "name", "peer0", "netns", node)
            _ip("-n", switch, "link", "set", f"port{number}", "master", "br0", "up")
            _ip("-n", node, "link", "set", "peer0", "address", self._mac(number))
            _ip("-n", node, "addr", "add", f"{self.address(number)}/24", "dev", "peer0")
            _ip("-n", node, "link", "set", "peer0", "up")
        self.heal()

    def remove(self) -> None:
        for name in [f"{self.prefix}-sw", *map(self.namespace, range(self.count))]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def cut_way(self, sender: int, receiver: int) -> None:
        """What this one sends to that one is lost from now on; not the other way round."""
        self._knows(sender, receiver, NOWHERE)

    def cut(self, one: Iterable[int], other: Iterable[int]) -> None:
        """Nothing passes between the two sides."""
        for a, b in itertools.product(list(one), list(other)):
            self.cut_way(a, b)
            self.cut_way(b, a)

    def heal(self) -> None:
        for a, b in itertools.permutations(range(self.count), 2):
            self._knows(a, b, self._mac(b))

    def socket(self, number: int) -> socket.socket:
        """One that is in the namespace of that node. Only this thread goes there, and comes back."""
        with (
            Path("/proc/thread-self/ns/net").open("rb") as here,
            Path(f"/run/netns/{self.namespace(number)}").open("rb") as there,
        ):
            _enter(there.fileno())
            try:
                return socket.socket()
            finally:
                _enter(here.fileno())

    def _knows(self, number: int, other: int, mac: str) -> None:
        words = ("neigh", "replace", self.address(other), "lladdr", mac, "nud", "permanent", "dev", "peer0")
        _ip("-n", self.namespace(number), *words)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


@contextlib.contextmanager
def network(count: int) -> Iterator[Net]:
    net = Net(f"qv{os.getpid()}-{next(_numbers)}", count)
    try:
        net.make()
        yield net
    finally:
        net.remove()


def nodes_in(net: Net, directory: Path, settings: str = "", count: int | None = None) -> Cluster:
    """A node in each namespace, or in the first few, not started yet."""
    numbers = range(net.count if count is None else count)

    def place(number: int) -> Place:
        return Place(
            name=f"n{number}",
            directory=directory / f"n{number}",
            peer=f"{net.address(number)}:{PEER_PORT}",
            client=f"127.0.0.1:{CLIENT_PORT}",
            peers=tuple(f"{net.address(each)}:{PEER_PORT}" for each in numbers),
            secret_file=secret_in(directory),
            settings=settings,
            insecure=True,
            # `ip netns exec` becomes the command that it is given: the process is the node.
            prefix=("ip", "netns", "exec", net.namespace(number)),
            new_socket=lambda: net.socket(number),
        )

    return Cluster([Node(place(number)) for number in numbers])
