"""What a node can be told: one frozen value, complete and checked.

Only the shape and the defaults are here. Where values come from is in sources.py, what each must look like in
kinds.py, how they must stand to each other in relations.py; load.py puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from quvatlh.config.environments import Environment

LogFormat = Literal["auto", "people", "json"]
Strategy = Literal["spread", "pack", "hash"]
LogLevel = Literal["debug", "info", "warning", "error"]
NodeRole = Literal["node", "worker"]
Isolation = Literal["auto", "userns", "plain"]

PEER_LISTEN = "127.0.0.1:7421"
HTTP_LISTEN = "127.0.0.1:7420"
"""Loopback: nothing is open by default."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    data: str
    """Directory of identity, log and state. Belongs to one node; two nodes need two."""
    name: str | None = None
    """What people call the node. None: made once and kept in the data directory."""
    role: NodeRole = "node"
    """node: scheduler, worker and replica. worker: it only works, connected to any node of a cluster."""
    server: tuple[str, ...] = ()
    """URLs of nodes that a worker connects to; it learns of the others from them."""
    server_ca: str | None = None
    """PEM file of the authority that signed the nodes' certificates. None: those that the system trusts."""


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
class HttpTlsConfig:
    """Paths of PEM files, both or none: clients are known by their tokens."""

    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class HttpConfig:
    listen: str = HTTP_LISTEN
    """host:port of the interface for people and programs. Port 0 takes any free one."""
    advertise: str | None = None
    """host:port told to the other nodes and their clients. None: `listen`. Needed in a cluster where that is no address to
    dial, such as 0.0.0.0."""
    hosts: tuple[str, ...] = ()
    """Names under which this node is reached beside its addresses; a request that names another host is refused."""
    tls: HttpTlsConfig | None = None
    insecure: bool = False
    """Allows addresses other than loopback without TLS: tokens and work then cross the wire in clear."""

    @property
    def advertised(self) -> str:
        return self.advertise or self.listen


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    slots: int | None = None
    """How many actions run at once. None: the number of cores. 0: none, the node only decides and keeps."""
    tags: tuple[str, ...] = ()
    """What tasks may ask for: `gpu`, `zone=eu-1`."""
    queues: tuple[str, ...] = ("*",)
    """Patterns of the queues that it takes tasks from."""
    drain_ms: int = 30_000
    """How long actions may go on once the node is asked to stop. Too short kills work, too long holds up a restart."""
    executor: Isolation = "auto"
    """What keeps actions from outliving their executor. auto: as root a PID namespace, else a guard process. userns: that
    namespace without root, where set-uid programs such as sudo have no power. plain: the guard, root or not."""
    app: str | None = None
    """Module that the default environment loads before all else, and whose schedules are put."""
    reload: bool = False
    """For development: when a file of that module, or of what it loads, changes, everything is loaded anew. Elsewhere a
    deployment that is half done would be loaded."""
    environments: tuple[Environment, ...] = ()
    """Programs that stay loaded and take calls. There is always one more, `default`, unless it stands here."""
    cloud_metadata: str | None = None
    """URL that this cloud serves to its machines. None: nobody is asked. Wrong, and each start waits two seconds."""


@dataclass(frozen=True, slots=True)
class MarketConfig:
    """Of the node that is master: the same on each, or what holds changes with the master."""

    strategy: Strategy = "spread"
    """Who gets a task without a policy: the worker with most free slots, with fewest, or the key's own one."""
    balance: Literal["auto", "off"] = "off"
    """auto: loads of groups are evened when workers join or leave; that stops actions and starts them elsewhere."""


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """Of requests that this node makes: deliveries of `notify`, and `http` works."""

    secret_file: str | None = None
    """File with the keys that deliveries are signed with, the newest first. None: they are not signed."""
    allow: tuple[str, ...] = ()
    """Networks that may be asked beside the public internet. Too wide, and who may add tasks reaches what is behind them."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    format: LogFormat = "auto"
    """auto: for people when standard error is a terminal, else JSON."""
    level: LogLevel = "info"


@dataclass(frozen=True, slots=True)
class Config:
    node: NodeConfig
    peer: PeerConfig = field(default_factory=PeerConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    log: LogConfig = field(default_factory=LogConfig)
    market: MarketConfig = field(default_factory=MarketConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)
