"""The composition root: the one place that knows every part, read from top to bottom as the story of a start.

`run` starts a node and returns when it has stopped in order; parts stop in the reverse of the order they started in,
which the stack sees to. Nothing is decided here but that order. How a part works, and why, is said in its own package.
`restore` makes of a backup a data directory to start on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from quvatlh.api.server import Options as ServerOptions
from quvatlh.api.server import Server
from quvatlh.client import Client
from quvatlh.client import Options as ClientOptions
from quvatlh.client.line import Dialer
from quvatlh.codec import Values
from quvatlh.config import Config, ConfigError, Fault, address
from quvatlh.config.environments import Environment, with_default
from quvatlh.config.secret import read_secret
from quvatlh.core.model import Adapter, WorkerFacts
from quvatlh.core.statefile import StateRefused
from quvatlh.hosting import CLIENTS_NOES, NODES_NOES, Look, NodeTable, hosted
from quvatlh.notify.http import HttpSender
from quvatlh.notify.signing import keys_of
from quvatlh.observe import logs
from quvatlh.policy.judge import LuaJudge
from quvatlh.ports import Facts, LogError, MachineFactory, Member, fact_tags
from quvatlh.raft import backup
from quvatlh.raft.ballot import BallotCorrupt
from quvatlh.raft.datadir import CopiedDirectory, DataDir, DataDirDamaged
from quvatlh.raft.disk import DirectoryInUse, RealDisk, ThreadLane, replace_file
from quvatlh.raft.log import Options as LogOptions
from quvatlh.raft.log import RaftLog, World
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
from quvatlh.service.outpost import Outpost
from quvatlh.service.ownstate import load_of
from quvatlh.service.state import State
from quvatlh.service.status import LogFacts
from quvatlh.service.tokens import TokenUnusable, given_token, own_token
from quvatlh.service.workplace import Craft
from quvatlh.system import host, plugins
from quvatlh.system.clock import RealClock
from quvatlh.system.entropy import RealEntropy
from quvatlh.system.facts import RealHost
from quvatlh.system.signals import StopSignals

REFUSALS = (
    BallotCorrupt,
    backup.BackupDamaged,
    backup.NotEmpty,
    CopiedDirectory,
    DataDirDamaged,
    DirectoryInUse,
    LogCorrupt,
    NewerFormat,
    StateRefused,
    TokenUnusable,
    OSError,
)
"""What keeps a node from starting by no fault of the program: told in one line, not as a traceback."""

HAND_OVER_S = 2.0
"""A master that stops tries so long to hand over. Longer delays the stop; without it the others wait for an election."""

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


async def run(config: Config) -> None:
    """Start what the configuration asks for, and return when a signal has stopped it. StartRefused, or what broke it."""
    await (run_worker(config) if config.node.role == "worker" else run_node(config))


async def run_worker(config: Config) -> None:
    """A worker alone: no log, no replica, no door of its own; a connection to whichever node there is."""
    # 1. Lines for whoever watches, and the wish to stop.
    logs.set_up(config.log.format, config.log.level)
    note = logs.noter("quvatlh")
    async with contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_fatal(error: BaseException) -> None:
            if not broken.done():
                broken.set_exception(error)

        # 2. The data directory: whose it is, and the token that a person has put there.
        with _refusing():
            data = DataDir.open(
                RealDisk(), config.node.data, RealEntropy(), host.machine_id(), now_ms=RealClock().wall_ms()
            )
            stack.callback(data.close)
            name = _kept_name(config, data, RealDisk())
            token, _ = given_token(config.node.data, os.environ)
        # 3. Who runs actions and policies.
        machine = _machine(config)
        executor, judge = executor_of(config, name), LuaJudge(RealClock())
        stack.push_async_callback(judge.close)
        with _refusing():
            sender = sender_of(config)
        stack.push_async_callback(sender.close)
        # 4. The worker, and its connection.
        dialer = Dialer(token, config.node.server_ca)
        stack.push_async_callback(dialer.close)
        outpost = Outpost(
            dialer.dial,
            config.node.server,
            Craft(executor, judge, RealClock(), RealEntropy(), load_of(machine), logs.noter("quvatlh.worker"), sender),
            facts=_facts(config, name, await machine.facts()),
            directory=data.node_id,
            on_fatal=on_fatal,
        )
        outpost.start()
        stack.push_async_callback(outpost.stop)
        note("worker started", name=name, servers=list(config.node.server), data=config.node.data)
        # 5. Its app, if it was told of one: schedules go through a node, as far as the worker's token may put any.
        if config.worker.app is not None:
            nodes = ClientOptions(config.node.server, token, config.node.server_ca)
            client = await stack.enter_async_context(Client(nodes))
            look = Look(config.worker.app, _environments(config)[0], watch=config.worker.reload)
            await stack.enter_async_context(hosted(look, executor, client, CLIENTS_NOES, on_fatal))
        # 6. Until somebody wants it to end; then the work goes first.
        await _until_stopped(stop, broken, note, config.worker.drain_ms)
        await outpost.drain(config.worker.drain_ms / 1000)
        note("worker stops")


async def run_node(config: Config) -> None:
    """Start the node, and return when a signal has stopped it. StartRefused, or what broke it."""
    # 1. Lines for whoever watches.
    logs.set_up(config.log.format, config.log.level)
    note = logs.noter("quvatlh")
    async with contextlib.AsyncExitStack() as stack:
        # 2. The wish to stop, from here on heard at any point.
        stop = stack.enter_context(StopSignals())
        # 3. The data directory, locked; the log in it; the links to the peers.
        state = State(CODEC)
        running = await stack.enter_async_context(running_log(config, state.open))
        # 4. The machine, who runs the actions of this node, who its policies, and who asks the world outside; no process is
        #    started before it is needed.
        machine = _machine(config)
        known = await machine.facts()
        executor = executor_of(config, running.name)
        judge = LuaJudge(RealClock())
        stack.push_async_callback(judge.close)
        with _refusing():
            sender = sender_of(config)
        stack.push_async_callback(sender.close)
        # 5. The services on the log: from here on this node decides, works, and answers its peers.
        token, place = _token(config)
        craft = Craft(executor, judge, RealClock(), RealEntropy(), load_of(machine), sender=sender)
        node = _node(config, running, state, craft, known, token)
        node.start()
        stack.push_async_callback(node.stop)
        # 6. The door for people and programs.
        server = _server(config, node, running)
        with _refusing():
            url = _url(config, await server.start())
        stack.push_async_callback(server.stop)
        _welcome(note, config, running, url, place, server.link(token))
        # 7. The app, if it was told of one.
        if config.worker.app is not None:
            look = Look(config.worker.app, _environments(config)[0], watch=config.worker.reload)
            await stack.enter_async_context(hosted(look, executor, NodeTable(node.pool), NODES_NOES, running.on_fatal))
        # 8. What there is now stays to the end: the garbage collector need not stop the loop to look at it.
        gc.collect()
        gc.freeze()
        # 9. Until somebody wants it to end, or it cannot go on.
        await _until_stopped(stop, running.broken, note, config.worker.drain_ms)
        # 10. The others need not notice: leadership goes, then the work, and then the parts, in reverse.
        await _hand_over(running.log)
        await node.drain()
        note("node stops")


def restore(config: Config, path: str) -> int:
    """Make a backup the state of a new cluster, of this node alone, in an empty data directory; the index it goes on from.

    No daemon runs on the directory, or StartRefused: it is opened as a daemon would, under the same lock.
    """
    disk = RealDisk()
    with _refusing(), contextlib.ExitStack() as stack:
        open(path, "rb").close()  # so that a wrong name is told before anything is made
        data = _data_dir(config, disk)
        stack.callback(data.close)
        own = Member(data.node_id, _kept_name(config, data, disk), config.peer.advertised, config.http.advertised)
        return backup.restore(path, data, own, disk, DEFAULTS)


@contextlib.asynccontextmanager
async def running_log(
    config: Config, machines: MachineFactory, settings: Settings = DEFAULTS
) -> AsyncIterator[RunningLog]:
    """The log of `config`, over any machine, as long as it is entered."""
    wrong = settings.check()
    if wrong:
        raise StartRefused("; ".join(wrong))
    options, network = _peer_side(config, settings)
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_fatal(error: BaseException) -> None:
        if not broken.done():
            broken.set_exception(error)

    async with contextlib.AsyncExitStack() as stack:
        with _refusing():
            disk, clock, entropy = RealDisk(), RealClock(), RealEntropy()
            data = _data_dir(config, disk)
            stack.callback(data.close)
            lanes = ThreadLane("log-sync"), ThreadLane("state-copy")
            for lane in lanes:
                stack.callback(lane.close)
            name = _kept_name(config, data, disk)
            log = RaftLog(
                data,
                machines,
                World(disk, network, clock, entropy, *lanes),
                settings,
                options(name),
                note=logs.noter("quvatlh.raft"),
                on_fatal=on_fatal,
            )
            stack.push_async_callback(log.stop)
            peer = await log.start()
        yield RunningLog(log, peer, broken, name, on_fatal)


def executor_of(config: Config, worker: str) -> ProcessExecutor:
    data = config.node.data
    settings = RunnerSettings(f"{data}/{OUTPUTS_DIR}", f"{data}/{INPUTS_DIR}")
    return ProcessExecutor(
        ExecutorSettings(data, worker, settings, config.worker.executor, _environments(config)),
        RealClock(),
        logs.noter("quvatlh.executor", "warning"),
    )


def _environments(config: Config) -> tuple[Environment, ...]:
    return with_default(config.worker.environments, config.worker.app, os.getcwd())


def _token(config: Config) -> tuple[str, str]:
    """The admin token of this node, and where a person finds it."""
    with _refusing():
        return own_token(config.node.data, os.environ, RealEntropy())


def _machine(config: Config) -> RealHost:
    return RealHost(
        config.node.data, os.environ, config.worker.cloud_metadata, note=logs.noter("quvatlh.machine", "warning")
    )


def _node(config: Config, running: RunningLog, state: State, craft: Craft, known: Facts, token: str) -> Node:
    data, worker, log = config.node.data, config.worker, running.log

    def room() -> tuple[int, int]:
        usage = shutil.disk_usage(data)
        return usage.free, usage.total

    own = _facts(config, running.name, known)
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
        lambda: log.clocks_ms,
    )
    note = logs.noter("quvatlh.worker")
    world = NodeWorld(
        log, log, craft.executor, craft.judge, craft.clock, craft.entropy, room, facts, craft.load, note,
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


def _facts(config: Config, name: str, known: Facts) -> WorkerFacts:
    """What the worker says of itself, and of its machine."""
    worker = config.worker
    slots = (os.cpu_count() or 1) if worker.slots is None else worker.slots
    tags = tuple(dict.fromkeys((*worker.tags, *fact_tags(known))))
    adapters = ADAPTERS
    if any(each.command for each in worker.environments):
        adapters = (*adapters, "warm")
    return WorkerFacts(name, config.node.role, tags, adapters, slots, worker.queues, dict(known))


def _server(config: Config, node: Node, running: RunningLog) -> Server:
    http = config.http
    cert, key = (None, None) if http.tls is None else (http.tls.cert, http.tls.key)
    advertised = address.parse(http.advertised).host
    sessions = f"{config.node.data}/{SESSIONS_FILE}"
    options = ServerOptions(http.listen, cert, key, (*http.hosts, advertised), sessions)
    # A line costs a third of a request: none is made where nobody would see it.
    note = logs.noter("quvatlh.http", "debug") if config.log.level == "debug" else None
    return Server(node.pool, options, note=note, on_broken=running.on_fatal)


def _url(config: Config, bound: str) -> str:
    """An address that a person can open on this machine."""
    host, port = address.parse(bound)
    if address.is_wildcard(host):
        host = "[::1]" if ":" in host else "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return f"http{'s' if config.http.tls else ''}://{host}:{port}"


def _welcome(
    note: Callable[..., None], config: Config, running: RunningLog, url: str, token_place: str, link: str
) -> None:
    """What a person needs to go on goes to the log; standard output gets the way in, and nothing else."""
    peer = {"peer": running.peer} if running.peer else {}
    note("node started", node=running.log.node_id, name=running.name, data=config.node.data, **peer)
    note("listening", url=url, token=token_place)
    note("add a task with: quvatlh add -- echo hello; another link to the dashboard with: quvatlh open")
    print(f"{url}{link}", flush=True)  # noqa: T201 - DESIGN.md section 10: the one-time link, alone on its line


def _peer_side(config: Config, settings: Settings) -> tuple[Callable[[str], LogOptions], TcpNetwork]:
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
        raise StartRefused(f"peer.tls: cannot be used ({files}): {_words(error)}") from error
    return options, TcpNetwork(server, client, settings, notices)


def _data_dir(config: Config, disk: RealDisk) -> DataDir:
    return DataDir.open(disk, config.node.data, RealEntropy(), host.machine_id(), now_ms=RealClock().wall_ms())


def _kept_name(config: Config, data: DataDir, disk: RealDisk) -> str:
    """As configured; else made once, of host and id, and kept."""
    if config.node.name is not None:
        return config.node.name
    path = f"{data.path}/{NAME_FILE}"
    if not disk.exists(path):
        replace_file(disk, path, f"{host.host_name()}-{data.node_id[-NAME_ID_DIGITS:]}\n".encode())
    return disk.read(path).decode().strip()


async def _until_stopped(
    stop: StopSignals, broken: asyncio.Future[None], note: Callable[..., None], drain_ms: int
) -> None:
    wish = asyncio.create_task(stop.wait())
    try:
        either: set[asyncio.Future[Any]] = {wish, broken}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            broken.result()
        note(
            "asked to stop: what runs here may go on for a while; a second signal ends this at once",
            signal=wish.result().name,
            drain_s=drain_ms / 1000,
        )
    finally:
        wish.cancel()


async def _hand_over(log: RaftLog) -> None:
    """As well as it goes: who cannot take over now will be elected."""
    membership = log.membership
    if log.acts() and membership is not None and len(membership.voters) > 1:
        with contextlib.suppress(LogError):
            await log.transfer(deadline=HAND_OVER_S)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except REFUSALS as error:
        raise StartRefused(_words(error)) from error


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)
