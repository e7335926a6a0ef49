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
from quvatlh.codec import Values
from quvatlh.config import Config, address
from quvatlh.config.secret import read_secret
from quvatlh.core.statefile import StateRefused
from quvatlh.observe import logs
from quvatlh.ports import LogError, MachineFactory, Member
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
from quvatlh.runner.native import NativeRunner
from quvatlh.runner.settings import RunnerSettings
from quvatlh.service.node import Node, Options
from quvatlh.service.node import World as NodeWorld
from quvatlh.service.state import State
from quvatlh.service.status import LogFacts
from quvatlh.service.tokens import TokenUnusable, own_token
from quvatlh.system import host
from quvatlh.system.clock import RealClock
from quvatlh.system.entropy import RealEntropy
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

NAME_FILE = "name"
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
        # 4. What runs the actions of this node.
        runner = _runner(config)
        stack.push_async_callback(runner.close, 0)
        # 5. The services on the log: from here on this node decides, works, and answers its peers.
        token, place = _token(config)
        node = _node(config, running, state, runner, token)
        node.start()
        stack.push_async_callback(node.stop)
        # 6. The door for people and programs.
        server = _server(config, node, running)
        with _refusing():
            url = _url(config, await server.start())
        stack.push_async_callback(server.stop)
        _welcome(note, config, running, url, place)
        # 7. What there is now stays to the end: the garbage collector need not stop the loop to look at it.
        gc.collect()
        gc.freeze()
        # 8. Until somebody wants it to end, or it cannot go on.
        await _until_stopped(stop, running, note)
        # 9. The others need not notice: leadership goes, then the work, and then the parts, in reverse.
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


def _runner(config: Config) -> NativeRunner:
    data = config.node.data
    return NativeRunner(RunnerSettings(f"{data}/{OUTPUTS_DIR}", f"{data}/{INPUTS_DIR}"), RealClock())


def _token(config: Config) -> tuple[str, str]:
    """The admin token of this node, and where a person finds it."""
    with _refusing():
        return own_token(config.node.data, os.environ, RealEntropy())


def _node(config: Config, running: RunningLog, state: State, runner: NativeRunner, token: str) -> Node:
    data, worker, log = config.node.data, config.worker, running.log

    def room() -> tuple[int, int]:
        usage = shutil.disk_usage(data)
        return usage.free, usage.total

    options = Options(
        name=running.name,
        scratch=data,
        slots=(os.cpu_count() or 1) if worker.slots is None else worker.slots,
        tags=worker.tags,
        queues=worker.queues,
        drain_s=worker.drain_ms / 1000,
        token=token,
    )
    facts = LogFacts(lambda: log.committed_index, lambda: log.waiting_for, log.progress)
    world = NodeWorld(log, log, runner, RealClock(), RealEntropy(), room, facts)
    return Node(options, world, state, CODEC, on_fatal=running.on_fatal)


def _server(config: Config, node: Node, running: RunningLog) -> Server:
    http = config.http
    cert, key = (None, None) if http.tls is None else (http.tls.cert, http.tls.key)
    advertised = address.parse(http.advertised).host
    options = ServerOptions(http.listen, cert, key, (*http.hosts, advertised))
    return Server(node.pool, options, on_broken=running.on_fatal)


def _url(config: Config, bound: str) -> str:
    """An address that a person can open on this machine."""
    host, port = address.parse(bound)
    if address.is_wildcard(host):
        host = "[::1]" if ":" in host else "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return f"http{'s' if config.http.tls else ''}://{host}:{port}"


def _welcome(note: Callable[..., None], config: Config, running: RunningLog, url: str, token_place: str) -> None:
    """What a person needs to go on goes to the log; standard output gets the address, for programs."""
    peer = {"peer": running.peer} if running.peer else {}
    note("node started", node=running.log.node_id, name=running.name, data=config.node.data, **peer)
    note("listening", url=url, token=token_place)
    note("add a task with: quvatlh add -- echo hello")
    print(f"{url}/", flush=True)  # noqa: T201 - DESIGN.md section 10: the first URL, alone on its line


def _peer_side(config: Config, settings: Settings) -> tuple[Callable[[str], LogOptions], TcpNetwork]:
    """What the peers see of this node, and how it reaches them."""
    peer = config.peer
    note = logs.noter("quvatlh.peer")
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


async def _until_stopped(stop: StopSignals, running: RunningLog, note: Callable[..., None]) -> None:
    wish = asyncio.create_task(stop.wait())
    try:
        either: set[asyncio.Future[Any]] = {wish, running.broken}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if running.broken.done():
            running.broken.result()
        note("asked to stop", signal=wish.result().name)
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
