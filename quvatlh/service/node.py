"""All services of one node, put together: over any log, peers, runner and clocks that keep their ports' promises.

`NodePool` is what the doors see of it. `start` and `stop` are the order of things: the worker is the last to come and the
first to go, the door answers until the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quvatlh.codec import Values
from quvatlh.core.model import WorkerFacts
from quvatlh.ports import Clock, Entropy, Log, Peers, Runner
from quvatlh.service import tokens
from quvatlh.service.auction import Auction
from quvatlh.service.bulks import Bulks
from quvatlh.service.chores import Chores
from quvatlh.service.door import Door
from quvatlh.service.feed import EVENTS_MAX, Feed
from quvatlh.service.outputs import Outputs
from quvatlh.service.pool import Principal
from quvatlh.service.presence import Presence
from quvatlh.service.readers import Readers, Reading
from quvatlh.service.reads import Reads
from quvatlh.service.reports import Reports
from quvatlh.service.reserve import Reserve, Room
from quvatlh.service.session import Session
from quvatlh.service.state import State
from quvatlh.service.status import LogFacts, Status
from quvatlh.service.tree import Tree
from quvatlh.service.worker import Worker
from quvatlh.service.writes import Writes

STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    name: str
    """Of node and worker."""
    scratch: str
    """A directory on the data's disk, for what is on its way."""
    slots: int = 1
    tags: tuple[str, ...] = ()
    queues: tuple[str, ...] = ("*",)
    drain_s: float = 30.0
    token: str = ""
    """The admin token whose hash joins the table; empty: none."""
    events_max: int = EVENTS_MAX


@dataclass(frozen=True, slots=True)
class World:
    """The adapters that the services stand on."""

    log: Log
    peers: Peers
    runner: Runner
    clock: Clock
    entropy: Entropy
    room: Room
    facts: LogFacts = field(default_factory=LogFacts)
    readers: Callable[[State], Reading] = Readers


class NodePool:
    """pool.Pool, by the parts that keep its promises."""

    def __init__(self, reads: Reads, writes: Writes, status: Status, known: tokens.Tokens) -> None:
        self.authenticate: Callable[[str], Principal | None] = known.authenticate
        self.readiness, self.metrics = status.readiness, status.metrics
        self.cluster, self.backup = status.cluster, status.backup
        self.tokens, self.token = status.tokens, status.token
        self.add, self.act, self.bulk = writes.add, writes.act, writes.bulk
        self.add_member, self.remove_member = writes.add_member, writes.remove_member
        self.tasks, self.groups, self.task, self.actions = reads.tasks, reads.groups, reads.task, reads.actions
        self.result, self.log, self.events = reads.result, reads.log, reads.events


class Node:
    def __init__(
        self,
        options: Options,
        world: World,
        state: State,
        codec: Values,
        *,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        log, peers, clock, entropy = world.log, world.peers, world.clock, world.entropy
        self._options = options
        self._log = log
        self._state = state
        self.tree = Tree(on_fatal)
        self._readers = world.readers(state)
        reserve = Reserve(world.room, clock)
        self.door = Door(
            log,
            peers,
            codec,
            clock,
            entropy,
            log_time_ms=lambda: state.time_ms,
            may_add=reserve.has_room,
        )
        self.presence = Presence(log, peers, self.door, state, clock)
        self.door.is_silent = self.presence.is_silent
        facts = WorkerFacts(
            options.name, "node", options.tags, ("command",), options.slots, options.queues, {"node_id": log.node_id}
        )
        self.session = Session(log, peers, self.door, self.presence, clock, entropy, worker=options.name, facts=facts)
        self._reports = Reports(self.door, entropy, lambda: self.session.id)
        self.worker = Worker(self.session, self._reports, world.runner, state, clock)
        outputs = Outputs(world.runner, peers, log.node_id)
        self.feed = Feed(options.events_max, on_fatal)
        reads = Reads(log, self.door, state, self._readers, self.feed, outputs, clock)
        self.feed.groups = reads.groups_of
        self._status = Status(
            log,
            state,
            reads,
            self.session,
            reserve,
            entropy,
            name=options.name,
            facts=world.facts,
            scratch=options.scratch,
            works=options.slots > 0,
        )
        known = tokens.Tokens(state)
        self.auction = Auction(log, self.door, state, self.presence, clock)
        self._chores = Chores(self.door, state, clock, options.name)
        bulks = Bulks(self.door, reads, self.tree, entropy)
        self.pool = NodePool(reads, Writes(self.door, reads, self._status, bulks), self._status, known)
        self._hearers = (known, self.presence, self.worker, self.auction, self._chores, self.tree)

    def start(self) -> None:
        """From here on it follows the log. The log may be running or about to."""
        for hearer in self._hearers:
            self.feed.tell(hearer)
        self.feed.on_role = (self.door.role_changed, self.session.role_changed)
        if self._state.is_open:
            self.feed.start(self._state.applied_index)
        self._log.listen(self.feed)
        self.tree.duty("presence", self.presence.run)
        self.tree.duty("chores", self._chores.run)
        self.tree.duty("auction", self.auction.run)
        if self._options.token:
            self._status.token_waits = True
            self.tree.grow("token", self._introduce)
        if self._options.slots > 0:
            self.tree.grow("reports", self._reports.run)
            self.tree.grow("session", self.session.run)
        self.feed.role_changed(self._log.role)

    async def drain(self) -> None:
        """No new work; what runs may go on for a while, then it is stopped and goes to others."""
        self._status.stopping = True
        await self.session.leave(STOP_S)
        await self.worker.drain(self._options.drain_s)

    async def stop(self) -> None:
        self._status.stopping = True
        await self.tree.stop("session")
        await self.worker.close()
        self.door.stop()
        self.feed.end()
        await self.tree.stop()
        self._readers.close()

    async def _introduce(self) -> None:
        await tokens.introduce(self.door, self._state, self._options.token, self._options.name)
        self._status.token_waits = False
