"""What the configuration asks for, made: each part of a daemon by itself, and how any of them refuses to start.

In which order, and how long they live, is the story (`__init__`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quvatlh.api.place import ListenRefused, Place
from quvatlh.api.server import Options as ServerOptions
from quvatlh.api.server import Server
from quvatlh.codec import Values
from quvatlh.config import Config, ConfigError, Fault, address
from quvatlh.config.environments import Environment, with_default
from quvatlh.config.model import NodeRole
from quvatlh.config.secret import read_secret
from quvatlh.core.model import Adapter, WorkerFacts
from quvatlh.core.statefile import StateRefused
from quvatlh.notify.http import HttpSender
from quvatlh.notify.signing import keys_of
from quvatlh.observe import logs
from quvatlh.ports import Facts, fact_tags
from quvatlh.raft import backup
from quvatlh.raft.ballot import BallotCorrupt
from quvatlh.raft.datadir import CopiedDirectory, DataDir, DataDirDamaged, OtherRole
from quvatlh.raft.disk import DirectoryInUse, RealDisk, refuse_held, replace_file
from quvatlh.raft.log import Options as LogOptions
from quvatlh.raft.log import RaftLog
from quvatlh.raft.network import TcpNetwork, tls_contexts
from quvatlh.raft.notices import Notices
from quvatlh.raft.replay import LogCorrupt
from quvatlh.raft.sealed import NewerFormat
from quvatlh.raft.settings import Settings
from quvatlh.runner.connect import ProcessExecutor
from quvatlh.runner.hatch import ExecutorSettings
from quvatlh.runner.settings import RunnerSettings
from quvatlh.service.node import Node, Options
from quvatlh.service.node import World as NodeWorld
from quvatlh.service.reserve import reserve_of
from quvatlh.service.state import State
from quvatlh.service.status import LogFacts
from quvatlh.service.tokens import TokenMissing, TokenUnusable, given_token, own_token
from quvatlh.service.workplace import Craft
from quvatlh.system import host, plugins
from quvatlh.system.clock import RealClock
from quvatlh.system.entropy import RealEntropy
from quvatlh.system.facts import RealHost

REFUSALS = (
    BallotCorrupt,
    backup.BackupDamaged,
    backup.NotEmpty,
    CopiedDirectory,
    DataDirDamaged,
    DirectoryInUse,
    LogCorrupt,
    NewerFormat,
    OtherRole,
    StateRefused,
    TokenUnusable,
    OSError,
)
"""What keeps a node from starting by no fault of the program: told in one line, not as a traceback."""

DEFAULTS = Settings()

CODEC = Values()

ADAPTERS: tuple[Adapter, ...] = ("command", "python", "http")
"""What the worker of a daemon carries out."""

NOTIFY_SECRET = "notify.secret_file"  # noqa: S105 - the name of a key
NAME_FILE = "name"
SESSIONS_FILE = "sessions"
OUTPUTS_DIR = "outputs"
INPUTS_DIR = "inputs"
NAME_ID_DIGITS = 6


class StartRefused(Exception):
    """The node did not start; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class RunningLog:
    """The replicated log of this node, and how it ends by itself."""

    log: RaftLog
    peer: str
    """The bound address of the peer link; empty where there is none."""
    broken: asyncio.Future[None]
    """Gets an exception when the node cannot go on."""
    name: str
    """What people call this node."""
    on_fatal: Callable[[BaseException], None]
    """Tells that it cannot go on, and why."""


def executor_of(config: Config, worker: str) -> ProcessExecutor:
    data = config.node.data
    settings = RunnerSettings(f"{data}/{OUTPUTS_DIR}", f"{data}/{INPUTS_DIR}")
    return ProcessExecutor(
        ExecutorSettings(data, worker, settings, config.worker.executor, environments_of(config)),
        RealClock(),
        logs.noter("quvatlh.executor", "warning"),
    )


def environments_of(config: Config) -> tuple[Environment, ...]:
    return with_default(config.worker.environments, config.worker.app, os.getcwd())


def token_of(config: Config) -> tuple[str, str]:
    """The admin token of this node, and where a person finds it."""
    with refusing():
        return own_token(config.node.data, os.environ, RealEntropy())


def check_token(config: Config) -> None:
    """Refuse one that no client could send, before anything has begun that it would end."""
    with refusing(), contextlib.suppress(TokenMissing):
        given_token(config.node.data, os.environ)


def machine_of(config: Config) -> RealHost:
    return RealHost(
        config.node.data, os.environ, config.worker.cloud_metadata, note=logs.noter("quvatlh.machine", "warning")
    )


def room_of(config: Config) -> tuple[int, int]:
    """Free and total bytes of the disk with the data directory."""
    usage = shutil.disk_usage(config.node.data)
    return usage.free, usage.total


def copies_of(config: Config) -> int:
    """Bytes that copies of the state may take on it."""
    free, total = room_of(config)
    return free - reserve_of(total)


def node_of(config: Config, running: RunningLog, state: State, craft: Craft, known: Facts, token: str) -> Node:
    data, worker, log = config.node.data, config.worker, running.log

    own = facts_of(config, running.name, known)
    options = Options(
        name=running.name,
        scratch=data,
        slots=own.slots,
        adapters=own.adapters,
        tags=own.tags,
        queues=own.queues,
        machine=own.facts,
        drain_s=worker.drain_ms / 1000,
        token=token,
        strategy=config.market.strategy,
        balance=config.market.balance == "auto",
        disciplines=plugins.disciplines(logs.noter("quvatlh.plugins", "warning")),
    )
    facts = LogFacts(
        lambda: log.committed_index,
        lambda: log.waiting_for,
        log.progress,
        lambda: log.log_span()[2],
        lambda: log.own_entry,
        lambda: log.clocks_ms,
    )
    note = logs.noter("quvatlh.worker")
    world = NodeWorld(
        log, log, craft.executor, craft.judge, craft.clock, craft.entropy, lambda: room_of(config), facts, craft.load, note,
        sender=craft.sender,
    )  # fmt: skip
    return Node(options, world, state, CODEC, on_fatal=running.on_fatal)


def sender_of(config: Config) -> HttpSender:
    """With the keys of the configuration, which must be some where a file is named."""
    path = config.notify.secret_file
    keys: tuple[bytes, ...] = ()
    if path is not None:
        secret, warnings = read_secret(path, NOTIFY_SECRET)
        for warning in warnings:
            logs.noter("quvatlh.notify", "warning")(warning, file=path)
        try:
            keys = keys_of(secret.decode())
        except ValueError as error:
            words = "is not text" if isinstance(error, UnicodeDecodeError) else str(error)
            raise ConfigError([Fault(NOTIFY_SECRET, words, path)]) from None
    return HttpSender(RealClock(), keys, config.notify.allow)


def facts_of(config: Config, name: str, known: Facts) -> WorkerFacts:
    """What the worker says of itself, and of its machine."""
    worker = config.worker
    slots = (os.cpu_count() or 1) if worker.slots is None else worker.slots
    tags = tuple(dict.fromkeys((*worker.tags, *fact_tags(known))))
    adapters = ADAPTERS
    if any(each.command for each in worker.environments):
        adapters = (*adapters, "warm")
    return WorkerFacts(name, config.node.role, tags, adapters, slots, worker.queues, dict(known))


async def place_of(config: Config) -> Place:
    """Where the door will be, with nobody let in yet. Who starts one node twice is told that, and not of its port."""
    http = config.http
    cert, key = (None, None) if http.tls is None else (http.tls.cert, http.tls.key)
    with refusing():
        try:
            return await Place.take(http.listen, cert, key)
        except ListenRefused:
            refuse_held(config.node.data)
            raise


def server_of(config: Config, node: Node, running: RunningLog) -> Server:
    http = config.http
    advertised = address.parse(http.advertised).host
    sessions = f"{config.node.data}/{SESSIONS_FILE}"
    options = ServerOptions(http.listen, hosts=(*http.hosts, advertised), sessions=sessions)
    # A line costs a third of a request: none is made where nobody would see it.
    note = logs.noter("quvatlh.http", "debug") if config.log.level == "debug" else None
    return Server(node.pool, options, note=note, on_broken=running.on_fatal)


def peer_side(config: Config, settings: Settings) -> tuple[Callable[[str], LogOptions], TcpNetwork]:
    """What the peers see of this node, and how it reaches them."""
    peer = config.peer
    note = logs.noter("quvatlh.peer", "warning")  # nothing but trouble is told of it
    secret = b""
    if peer.secret_file is not None:
        secret, warnings = read_secret(peer.secret_file)
        for warning in warnings:
            note(warning, file=peer.secret_file)

    def options(name: str) -> LogOptions:
        return LogOptions(name, peer.listen, peer.advertise or "", config.http.advertised, peer.peers, secret)

    notices = Notices(lambda kind, fields: note(kind.replace("_", " "), **fields), RealClock())
    if peer.tls is None:
        return options, TcpNetwork(settings=settings, note=notices)
    try:
        server, client = tls_contexts(peer.tls.cert, peer.tls.key, peer.tls.ca)
    except OSError as error:
        files = f"{peer.tls.cert}, {peer.tls.key}, {peer.tls.ca}"
        raise StartRefused(f"peer.tls: cannot be used ({files}): {words_of(error)}") from error
    return options, TcpNetwork(server, client, settings, notices)


def data_dir_of(config: Config, disk: RealDisk, role: NodeRole = "node") -> DataDir:
    now_ms = RealClock().wall_ms()
    return DataDir.open(disk, config.node.data, RealEntropy(), host.machine_id(), role=role, now_ms=now_ms)


def kept_name(config: Config, data: DataDir, disk: RealDisk) -> str:
    """As configured; else made once, of host and id, and kept."""
    if config.node.name is not None:
        return config.node.name
    path = f"{data.path}/{NAME_FILE}"
    if not disk.exists(path):
        replace_file(disk, path, f"{host.host_name()}-{data.node_id[-NAME_ID_DIGITS:]}\n".encode())
    return disk.read(path).decode().strip()


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    try:
        yield
    except REFUSALS as error:
        raise StartRefused(words_of(error)) from error


def words_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)
