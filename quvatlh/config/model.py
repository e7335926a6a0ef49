"""What a node can be told: one frozen value, complete and checked.

Only the shape and the defaults are here. Where values come from is in sources.py, what each must look like in
kinds.py, how they must stand to each other in relations.py; load.py puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LogFormat = Literal["auto", "people", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

PEER_LISTEN = "127.0.0.1:7421"
"""Loopback: nothing is open by default."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    data: str
    """Directory of identity, log and state. Belongs to one node; two nodes need two."""
    name: str | None = None
    """What people call the node. None: made once and kept in the data directory."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Paths of PEM files. All three or none: both ends of a peer link prove who they are."""

    cert: str
    key: str
    ca: str


@dataclass(frozen=True, slots=True)
class PeerConfig:
    listen: str = PEER_LISTEN
    """host:port that other nodes reach this one at. Port 0 takes any free one."""
    advertise: str | None = None
    """host:port told to the others. None: `listen`. Needed where `listen` is no address to dial, such as 0.0.0.0."""
    peers: tuple[str, ...] = ()
    """host:port of every founder, the same list on each; may name this node. Empty: a cluster of one."""
    secret_file: str | None = None
    """File with the secret that all nodes of the cluster share."""
    tls: TlsConfig | None = None
    insecure: bool = False
    """Allows addresses other than loopback without TLS: anyone on the way can then read and change what nodes say."""

    @property
    def advertised(self) -> str:
        return self.advertise or self.listen


@dataclass(frozen=True, slots=True)
class LogConfig:
    format: LogFormat = "auto"
    """auto: for people when standard error is a terminal, else JSON."""
    level: LogLevel = "info"


@dataclass(frozen=True, slots=True)
class Config:
    node: NodeConfig
    peer: PeerConfig = field(default_factory=PeerConfig)
    log: LogConfig = field(default_factory=LogConfig)
