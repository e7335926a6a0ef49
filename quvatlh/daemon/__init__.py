"""The composition root: the one place that knows every part, read from top to bottom as the story of a start.

`run` starts a node and returns when it has stopped in order; parts stop in the reverse of the order they started in,
which the stack sees to. Nothing is decided here but that order: what a part is made of stands in `parts`. How it works, and
why, is said in its own package.
`restore` makes of a backup a data directory to start on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shlex
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any, Final

from quvatlh.client import Client
from quvatlh.client import Options as ClientOptions
from quvatlh.client.line import Dialer
from quvatlh.client.places import URL_DEFAULT
from quvatlh.config import Config, address
from quvatlh.config.defaults import SYSTEM_DATA, data_directory
from quvatlh.core.schema import refuse_newer
from quvatlh.daemon.parts import (
    CODEC,
    DEFAULTS,
    RunningLog,
    StartRefused,
    check_token,
    copies_of,
    data_dir_of,
    environments_of,
    executor_of,
    facts_of,
    kept_name,
    machine_of,
    node_of,
    peer_side,
    place_of,
    refusing,
    sender_of,
    server_of,
    token_of,
)
from quvatlh.hosting import CLIENTS_NOES, NODES_NOES, Look, NodeTable, hosted
from quvatlh.observe import logs
from quvatlh.policy.judge import LuaJudge
from quvatlh.ports import LogError, MachineFactory, Member, Membership
from quvatlh.raft import backup
from quvatlh.raft.disk import RealDisk, ThreadLane
from quvatlh.raft.log import RaftLog, World
from quvatlh.raft.settings import Settings
from quvatlh.service.outpost import Outpost
from quvatlh.service.ownstate import load_of
from quvatlh.service.state import State
from quvatlh.service.tokens import given_token
from quvatlh.service.workplace import Craft
from quvatlh.system.clock import RealClock
from quvatlh.system.entropy import RealEntropy
from quvatlh.system.signals import StopSignals

__all__ = ["RunningLog", "StartRefused", "restore", "run", "run_node", "run_worker", "running_log"]

GARBAGE: Final = (10_000, 20, 20)
"""What tasks leave behind goes by itself, nearly all of it: to look through it every 700 objects took a thirtieth of the time."""
HAND_OVER_S = 2.0
"""A master that stops tries so long to hand over. Longer delays the stop; without it the others wait for an election."""


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
        with refusing():
            data = data_dir_of(config, RealDisk(), "worker")
            stack.callback(data.close)
            name = kept_name(config, data, RealDisk())
            token, _ = given_token(config.node.data, os.environ)
        # 3. Who runs actions and policies.
        machine = machine_of(config)
        executor, judge = executor_of(config, name), LuaJudge(RealClock())
        stack.push_async_callback(judge.close)
        with refusing():
            sender = sender_of(config)
        stack.push_async_callback(sender.close)
        # 4. The worker, and its connection.
        dialer = Dialer(token, config.node.server_ca)
        stack.push_async_callback(dialer.close)
        outpost = Outpost(
            dialer.dial,
            config.node.server,
            Craft(executor, judge, RealClock(), RealEntropy(), load_of(machine), logs.noter("quvatlh.worker"), sender),
            facts=facts_of(config, name, await machine.facts()),
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
            look = Look(config.worker.app, environments_of(config)[0], watch=config.worker.reload)
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
        # 3. What is taken or read, and may be refused, while nothing has changed yet: the address of the door with its TLS
        #    files, the token, the keys of the requests to the world outside.
        place = await place_of(config)
        stack.callback(place.close)
        check_token(config)
        with refusing():
            sender = sender_of(config)
        stack.push_async_callback(sender.close)
        # 4. The data directory, locked; the log in it; the links to the peers.
        state = State(CODEC)
        running = await stack.enter_async_context(running_log(config, state.open))
        # 5. The machine, who runs the actions of this node, and who its policies; no process is started before it is needed.
        machine = machine_of(config)
        known = await machine.facts()
        executor = executor_of(config, running.name)
        judge = LuaJudge(RealClock())
        stack.push_async_callback(judge.close)
        # 6. The services on the log: from here on this node decides, works, and answers its peers.
        token, token_place = token_of(config)
        craft = Craft(executor, judge, RealClock(), RealEntropy(), load_of(machine), sender=sender)
        node = node_of(config, running, state, craft, known, token)
        node.start()
        stack.push_async_callback(node.stop)
        # 7. The door for people and programs opens.
        server = server_of(config, node, running)
        with refusing():
            url = _url(config, await server.start(place))
        stack.push_async_callback(server.stop)
        _welcome(note, config, running, url, token_place, server.link(token))
        # 8. The app, if it was told of one.
        if config.worker.app is not None:
            look = Look(config.worker.app, environments_of(config)[0], watch=config.worker.reload)
            await stack.enter_async_context(hosted(look, executor, NodeTable(node.pool), NODES_NOES, running.on_fatal))
        # 9. What there is now stays to the end: the garbage collector need not stop the loop to look at it.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        # 10. Until somebody wants it to end, or it cannot go on.
        await _until_stopped(stop, running.broken, note, config.worker.drain_ms)
        # 11. The others need not notice: leadership goes, then the work, and then the parts, in reverse.
        await _hand_over(running.log)
        await node.drain()
        note("node stops")


@contextlib.contextmanager
def _taken_away(disk: RealDisk, directory: str, stood: Collection[str] | None) -> Iterator[None]:
    """What was made in a directory where `stood` had been, if it comes to nothing; with the directory, where there was none."""
    try:
        yield
    except BaseException:
        if stood is None:
            disk.remove(directory)
        for name in disk.listdir(directory):
            if name not in (stood or ()):
                disk.remove(f"{directory}/{name}")
        raise


def restore(config: Config, path: str) -> int:
    """Make a backup the state of a new cluster, of this node alone, in an empty data directory; the index it goes on from.

    No daemon runs on the directory, or StartRefused: it is opened as a daemon would, under the same lock. What fails leaves
    nothing behind: on half of a directory `run` would found an empty cluster.
    """
    disk = RealDisk()
    with refusing(), contextlib.ExitStack() as stack:
        open(path, "rb").close()  # so that a wrong name is told before anything is made
        stood = os.listdir(config.node.data) if os.path.isdir(config.node.data) else None
        data = data_dir_of(config, disk)
        stack.callback(data.close)
        stack.enter_context(_taken_away(disk, data.path, stood))
        own = Member(data.node_id, kept_name(config, data, disk), config.peer.advertised, config.http.advertised)
        return backup.restore(path, data, own, disk, DEFAULTS, lambda state: refuse_newer(state, path))


@contextlib.asynccontextmanager
async def running_log(
    config: Config, machines: MachineFactory, settings: Settings = DEFAULTS
) -> AsyncIterator[RunningLog]:
    """The log of `config`, over any machine, as long as it is entered."""
    wrong = settings.check()
    if wrong:
        raise StartRefused("; ".join(wrong))
    options, network = peer_side(config, settings)
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_fatal(error: BaseException) -> None:
        if not broken.done():
            broken.set_exception(error)

    async with contextlib.AsyncExitStack() as stack:
        with refusing():
            disk, clock, entropy = RealDisk(), RealClock(), RealEntropy()
            data = data_dir_of(config, disk)
            stack.callback(data.close)
            lanes = ThreadLane("log-sync"), ThreadLane("state-copy")
            for lane in lanes:
                stack.callback(lane.close)
            name = kept_name(config, data, disk)
            log = RaftLog(
                data,
                machines,
                World(disk, network, clock, entropy, *lanes, lambda: copies_of(config)),
                settings,
                options(name),
                note=logs.noter("quvatlh.raft"),
                on_fatal=on_fatal,
            )
            stack.push_async_callback(log.stop)
            peer = await log.start()
        yield RunningLog(log, peer, broken, name, on_fatal)


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
    strangers = _strangers(config, running.log.membership)
    if strangers:
        note(
            "the data directory is of a cluster that has none of the peers in it, and stays in that one: to found or join "
            "theirs, start with an empty directory",
            peers=strangers,
        )
    note("listening", url=url, token=token_place)
    options = _asking(config, url)
    note(
        f"add a task with: quvatlh add{options} -- echo hello; another link to the dashboard with: quvatlh open{options}"
    )
    print(f"{url}{link}", flush=True)  # noqa: T201 - DESIGN.md section 10: the one-time link, alone on its line


def _asking(config: Config, url: str) -> str:
    """What commands do not find by themselves: a node elsewhere than where they look, its token in another directory."""
    usual = (data_directory(os.environ, is_root=os.geteuid() == 0), SYSTEM_DATA)
    data = f" --data {shlex.quote(config.node.data)}" if config.node.data not in usual else ""
    return (f" --url {url}" if url != URL_DEFAULT else "") + data


def _strangers(config: Config, membership: Membership | None) -> list[str]:
    """All the peers of the configuration but this node itself, where the directory knows a cluster and none of them."""
    if membership is None:
        return []
    others = [peer for peer in config.peer.peers if peer != config.peer.advertised]
    known = {member.peer for member in (*membership.voters, *membership.learners)}
    return [] if known.intersection(others) else others


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
