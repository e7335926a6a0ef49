"""ports.Log on the real thing: real disks, real sockets, real threads, one node and three of them in one process.

Clusters grow from one node, so that no port need be known before it is bound. Elections are slow here and leadership is
handed over instead: a busy machine must not depose anybody.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quvatlh.core.machine import Machine
from quvatlh.ports import STATE_FILE, Log, LogError, Member
from quvatlh.raft.datadir import DataDir
from quvatlh.raft.disk import RealDisk, ThreadLane
from quvatlh.raft.log import Options, RaftLog, World
from quvatlh.raft.network import TcpNetwork
from quvatlh.raft.settings import Settings
from quvatlh.system.clock import RealClock
from tests.contract_log import SOON_S, LogContract, Recorder
from tests.raft.live_parts import ANY_PORT
from tests.sim.clock import SimEntropy

PATIENCE_S = 90.0
SETTINGS = Settings(election_min_s=3.0, election_max_s=6.0, ping_s=0.2, silence_s=5.0, transfer_s=SOON_S)
SECRET = b"the secret of the tests"


class LiveNode:
    """A node as a daemon would run it, without the daemon."""

    def __init__(self, path: Path, name: str, *peers: str, listens: bool = True) -> None:
        self.path = path
        self.name = name
        self.fatal: list[BaseException] = []
        self.lanes = ThreadLane(f"sync-{name}"), ThreadLane(f"copy-{name}")
        disk = RealDisk()
        entropy = SimEntropy(name)
        self.data = DataDir.open(disk, str(path), entropy, "this machine")
        world = World(disk, TcpNetwork(settings=SETTINGS), RealClock(), entropy, *self.lanes)
        options = Options(name, ANY_PORT if listens else "", peers=peers, secret=SECRET if listens else b"")
        self.log = RaftLog(
            self.data,
            lambda directory: Machine(f"{directory}/{STATE_FILE}"),
            world,
            SETTINGS,
            options,
            note=lambda _event, **_facts: None,
            on_fatal=self.fatal.append,
        )
        self.address = ""

    async def start(self) -> LiveNode:
        self.address = await self.log.start()
        return self

    async def stop(self) -> None:
        await self.log.stop()
        for lane in self.lanes:
            lane.close()
        self.data.close()
        assert self.fatal == []

    @property
    def member(self) -> Member:
        return Member(self.log.node_id, self.name, self.address)

    async def acts(self) -> None:
        """Looked at after each tick."""
        await self.log._until(self.log.acts, PATIENCE_S, "it did not become master")


# --- one node ---------------------------------------------------------------------------------------------------------


class AloneRig:
    """It has nobody to lose leadership to; its engine is told to step down, and to stay down until it is wanted."""

    def __init__(self, node: LiveNode) -> None:
        self.node = node

    @property
    def log(self) -> Log:
        return self.node.log

    async def depose(self) -> None:
        engine = self.node.log._engine
        assert engine is not None
        engine.give_up()
        engine.set_election_deadline(float("inf"))

    async def elect(self) -> None:
        engine = self.node.log._engine
        assert engine is not None
        engine.set_election_deadline(0.0)
        self.node.log.wake()
        await self.node.acts()


class TestOneNode(LogContract):
    @pytest.fixture(params=[True, False], ids=["with a peer address", "without"])
    async def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AloneRig]:
        node = await LiveNode(tmp_path / "data", "one", listens=request.param).start()
        await node.acts()
        yield AloneRig(node)
        await node.stop()


# --- three nodes ------------------------------------------------------------------------------------------------------


class ThreeRig:
    """The first node, and two to which it hands over."""

    def __init__(self, nodes: list[LiveNode]) -> None:
        self.nodes = nodes

    @property
    def log(self) -> Log:
        return self.nodes[0].log

    async def depose(self) -> None:
        await self._hand_over(self.nodes[0], self.nodes[1])

    async def elect(self) -> None:
        await self._hand_over(self.nodes[1], self.nodes[0])

    async def _hand_over(self, giver: LiveNode, taker: LiveNode) -> None:
        await giver.log.transfer(taker.log.node_id, deadline=SOON_S)
        await taker.acts()


async def three(path: Path) -> list[LiveNode]:
    first = await LiveNode(path / "n1", "n1").start()
    await first.acts()
    nodes = [first]
    for name in ("n2", "n3"):
        node = await LiveNode(path / name, name, first.address).start()
        nodes.append(node)
        await first.log.add_member(node.member, deadline=PATIENCE_S)
    return nodes


class TestThreeNodes(LogContract):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[ThreeRig]:
        nodes = await three(tmp_path)
        yield ThreeRig(nodes)
        await asyncio.gather(*(node.stop() for node in nodes))


async def test_all_nodes_apply_the_same(tmp_path: Path) -> None:
    nodes = await three(tmp_path)
    heard = [Recorder() for _ in nodes]
    for node, recorder in zip(nodes, heard, strict=True):
        node.log.listen(recorder)
    items = [b"%d" % number for number in range(200)]
    await asyncio.gather(*(nodes[0].log.propose(item, deadline=PATIENCE_S) for item in items))
    index = await nodes[0].log.barrier(deadline=PATIENCE_S)
    await asyncio.gather(*(node.log.wait_applied(index, deadline=PATIENCE_S) for node in nodes))
    assert [recorder.items for recorder in heard] == [items] * 3
    digests = {machine_of(node).digest for node in nodes}
    assert len(digests) == 1
    await asyncio.gather(*(node.stop() for node in nodes))


def machine_of(node: LiveNode) -> Machine:
    assert node.log._generation is not None
    machine = node.log._generation.machine
    assert isinstance(machine, Machine)
    return machine


async def test_a_follower_refuses_writes_and_takes_requests_to_its_master(tmp_path: Path) -> None:
    nodes = await three(tmp_path)
    master, follower = nodes[0].log, nodes[1].log

    async def door(_asker: str, body: bytes) -> bytes:
        return b"%d" % (await master.propose(body, deadline=SOON_S)).index

    master.handle("door", door)
    with pytest.raises(LogError) as caught:
        await follower.propose(b"x", deadline=SOON_S)
    assert caught.value.code == "no_master"
    assert follower.role.master == master.node_id
    index = int(await follower.request(master.node_id, "door", b"x", deadline=PATIENCE_S))
    await follower.wait_applied(index, deadline=PATIENCE_S)
    await asyncio.gather(*(node.stop() for node in nodes))


async def test_a_node_comes_back_with_all_it_had(tmp_path: Path) -> None:
    node = await LiveNode(tmp_path / "data", "one", listens=False).start()
    await node.acts()
    answers = [await node.log.propose(b"%d" % number, deadline=SOON_S) for number in range(20)]
    digest, term, node_id = machine_of(node).digest, node.log.role.term, node.log.node_id
    await node.stop()
    again = LiveNode(tmp_path / "data", "one", listens=False)
    heard = Recorder()
    again.log.listen(heard)
    await again.start()
    await again.acts()
    assert again.log.node_id == node_id
    assert again.log.role.term > term
    assert (heard.entries[0].index, heard.items) == (answers[-1].index + 1, [])
    assert machine_of(again).applied_index == answers[-1].index + 1
    assert digest != machine_of(again).digest
    await again.stop()


async def test_nodes_that_stop_leave_no_task_thread_or_file_behind(tmp_path: Path) -> None:
    def left() -> tuple[list[str], int, int]:
        # The loop's own executor, which asks for addresses, stays with the loop.
        threads = [one.name for one in threading.enumerate() if not one.name.startswith("asyncio_")]
        return threads, len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())

    before = left()
    nodes = await three(tmp_path)
    await nodes[0].log.propose(b"x", deadline=SOON_S)
    await asyncio.gather(*(node.stop() for node in nodes))
    await asyncio.sleep(0)
    assert left() == before
