"""The table of keys: every path that may be given, and its kind. What is not in it is refused with the nearest that is."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from quvatlh.config import environments, kinds
from quvatlh.config.model import Isolation, LogFormat, LogLevel, NodeRole, Strategy

KEYS: Mapping[str, kinds.Kind] = MappingProxyType(
    {
        "node.name": kinds.name,
        "node.data": kinds.path,
        "node.role": kinds.choice(*get_args(NodeRole)),
        "node.server": kinds.urls,
        "node.server_ca": kinds.path,
        "peer.listen": kinds.listen_address,
        "peer.advertise": kinds.peer_address,
        "peer.peers": kinds.peer_addresses,
        "peer.secret_file": kinds.path,
        "peer.tls.cert": kinds.path,
        "peer.tls.key": kinds.path,
        "peer.tls.ca": kinds.path,
        "peer.insecure": kinds.boolean,
        "http.listen": kinds.listen_address,
        "http.advertise": kinds.peer_address,
        "http.hosts": kinds.names,
        "http.tls.cert": kinds.path,
        "http.tls.key": kinds.path,
        "http.insecure": kinds.boolean,
        "worker.slots": kinds.count,
        "worker.tags": kinds.tags,
        "worker.queues": kinds.patterns,
        "worker.drain_ms": kinds.milliseconds,
        "worker.executor": kinds.choice(*get_args(Isolation)),
        "worker.app": environments.module,
        "worker.reload": kinds.boolean,
        "worker.environments": environments.environments,
        "worker.cloud_metadata": kinds.url,
        "market.strategy": kinds.choice(*get_args(Strategy)),
        "market.balance": kinds.balance,
        "notify.secret_file": kinds.path,
        "notify.allow": kinds.networks,
        "log.format": kinds.choice(*get_args(LogFormat)),
        "log.level": kinds.choice(*get_args(LogLevel)),
    }
)

SECTIONS = frozenset(
    path.rsplit(".", depth)[0] for path in KEYS for depth in range(1, path.count(".") + 1)
)  # every proper prefix: node, peer, peer.tls, http, http.tls, worker, market, notify, log
TOP_SECTIONS = frozenset(path.split(".", 1)[0] for path in KEYS)


def unknown(path: str) -> str:
    """The words for a path that is no key."""
    nearest = difflib.get_close_matches(path, sorted(KEYS.keys() | SECTIONS), n=1, cutoff=0.6)
    return f"is not a key; did you mean {nearest[0]}?" if nearest else "is not a key"


def env_name(path: str) -> str:
    return "QUVATLH_" + path.upper().replace(".", "_")
