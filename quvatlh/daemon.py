"""The composition root: the one place that knows every part, read from top to bottom as the story of a start.

`run` starts a node and returns when it has stopped in order; parts stop in the reverse of the order they started in,
which the stack sees to. Nothing is decided here but that order. How a part works, and why, is said in its own package.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from quvatlh.config import Config
from quvatlh.config.secret import read_secret
from quvatlh.core.machine import Machine
from quvatlh.core.statefile import StateRefused
from quvatlh.observe import logs
from quvatlh.ports import STATE_FILE, LogError, MachineFactory
from quvatlh.raft.ballot import BallotCorrupt
from quvatlh.raft.datadir import CopiedDirectory, DataDir, DataDirDamaged
from quvatlh.raft.disk import DirectoryInUse, RealDisk, ThreadLane, replace_file
from quvatlh.raft.log import Options, RaftLog, World
from quvatlh.raft.network import TcpNetwork, tls_contexts
from quvatlh.raft.notices import Notices
from quvatlh.raft.replay import LogCorrupt
from quvatlh.raft.sealed import NewerFormat
from quvatlh.raft.settings import Settings
from quvatlh.system import host
from quvatlh.system.clock import RealClock
from quvatlh.system.entropy import RealEntropy
from quvatlh.system.signals import StopSignals

REFUSALS = (
    BallotCorrupt,
    CopiedDirectory,
    DataDirDamaged,
    DirectoryInUse,
    LogCorrupt,
    NewerFormat,
    StateRefused,
    OSError,
)
"""What keeps a node from starting by no fault of the program: told in one line, not as a traceback."""

HAND_OVER_S = 2.0
"""A master that stops tries so long to hand over. Longer delays the stop; without it the others wait for an election."""

DEFAULTS = Settings()

NAME_FILE = "name"
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


async def run(config: Config) -> None:
    """Start the node, and return when a signal has stopped it. StartRefused, or what broke it."""
    # 1. Lines for whoever watches.
    logs.set_up(config.log.format, config.log.level)
    note = logs.noter("quvatlh")
    async with contextlib.AsyncExitStack() as stack:
        # 2. The wish to stop, from here on heard at any point.
        stop = stack.enter_context(StopSignals())
        # 3. The data directory, locked; the log in it; the links to the peers.
        running = await stack.enter_async_context(running_log(config, machine_in))
        note("node started", node=running.log.node_id, data=config.node.data, peer=running.peer)
        # 4. Until somebody wants it to end, or it cannot go on.
        await _until_stopped(stop, running, note)
        # 5. The others need not notice: leadership goes before the parts do.
        await _hand_over(running.log)
        note("node stops")


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
            data = DataDir.open(disk, config.node.data, entropy, host.machine_id(), now_ms=clock.wall_ms())
            stack.callback(data.close)
            lanes = ThreadLane("log-sync"), ThreadLane("state-copy")
            for lane in lanes:
                stack.callback(lane.close)
            log = RaftLog(
                data,
                machines,
                World(disk, network, clock, entropy, *lanes),
                settings,
                options(_kept_name(config, data, disk)),
                note=logs.noter("quvatlh.raft"),
                on_fatal=on_fatal,
            )
            stack.push_async_callback(log.stop)
            peer = await log.start()
        yield RunningLog(log, peer, broken)


def machine_in(directory: str) -> Machine:
    """A ports.MachineFactory."""
    return Machine(os.path.join(directory, STATE_FILE))


def _peer_side(config: Config, settings: Settings) -> tuple[Callable[[str], Options], TcpNetwork]:
    """What the peers see of this node, and how it reaches them."""
    peer = config.peer
    note = logs.noter("quvatlh.peer")
    secret = b""
    if peer.secret_file is not None:
        secret, warnings = read_secret(peer.secret_file)
        for warning in warnings:
            note(warning, file=peer.secret_file)

    def options(name: str) -> Options:
        return Options(name, peer.listen, peer.advertise or "", "", peer.peers, secret)

    notices = Notices(lambda kind, fields: note(kind.replace("_", " "), **fields), RealClock())
    if peer.tls is None:
        return options, TcpNetwork(settings=settings, note=notices)
    with _refusing():
        server, client = tls_contexts(peer.tls.cert, peer.tls.key, peer.tls.ca)
    return options, TcpNetwork(server, client, settings, notices)


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
        raise StartRefused(str(error)) from error
