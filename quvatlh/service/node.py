"""All services of one node, put together: over any log, peers, runner and clocks that keep their ports' promises.

`NodePool` is what the doors see of it. `start` and `stop` are the order of things: the worker is the last to come and the
first to go, the door answers until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quvatlh.codec import Values
from quvatlh.core.disciplines import Discipline
from quvatlh.core.model import Adapter, WorkerFacts
from quvatlh.ports import Clock, Entropy, Executor, Judge, Log, Peers, Sender
from quvatlh.service import tokens
from quvatlh.service.balancing import Balancing
from quvatlh.service.bulks import Bulks
from quvatlh.service.crew import Crew
from quvatlh.service.door import Door
from quvatlh.service.duties import Duties
from quvatlh.service.explain import Explain
from quvatlh.service.feed import EVENTS_MAX, Feed, Hearer
from quvatlh.service.fleet import Fleet
from quvatlh.service.history import History
from quvatlh.service.hostloads import HostLoads
from quvatlh.service.keys import Keys
from quvatlh.service.largeresults import LargeResults
from quvatlh.service.outputs import Outputs
from quvatlh.service.ownentry import OwnEntry
from quvatlh.service.ownstate import MachineLoad
from quvatlh.service.placer import told_of
from quvatlh.service.placing import Strategy
from quvatlh.service.pool import Principal
from quvatlh.service.presence import Presence
from quvatlh.service.pulling import Pulling
from quvatlh.service.queueing import Queueing
from quvatlh.service.queues import Queues
from quvatlh.service.readers import Readers, Reading
from quvatlh.service.reads import Reads
from quvatlh.service.reception import Reception
from quvatlh.service.reloading import Reloading
from quvatlh.service.reserve import Reserve, Reserves, Room
from quvatlh.service.schedules import Schedules
from quvatlh.service.seats import Seats
from quvatlh.service.sizes import Sizes
from quvatlh.service.sources import Sources
from quvatlh.service.stamps import Stamps
from quvatlh.service.state import State
from quvatlh.service.status import LogFacts, Status
from quvatlh.service.tasklogs import TaskLogs
from quvatlh.service.traffic import Traffic
from quvatlh.service.tree import Tree
from quvatlh.service.trials import Trials
from quvatlh.service.watching import NodeWatching, Watching
from quvatlh.service.workplace import Craft, Workplace
from quvatlh.service.writes import Writes

STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    name: str
    """Of node and worker."""
    scratch: str
    """A directory on the data's disk, for what is on its way."""
    slots: int = 1
    adapters: tuple[Adapter, ...] = ("command",)
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Facts that a worker tells of where it runs."""
    tags: tuple[str, ...] = ()
    queues: tuple[str, ...] = ("*",)
    drain_s: float = 30.0
    token: str = ""
    """The admin token whose hash joins the table; empty: none."""
    events_max: int = EVENTS_MAX
    strategy: Strategy = "spread"
    """Who gets a task without a policy, of those that may have it."""
    balance: bool = False
    """Loads are evened by themselves when workers join or leave."""
    ahead: bool = True
    """Short tasks are claimed a little before there is a slot for them."""
    disciplines: Mapping[str, Discipline] = field(default_factory=dict)
    """Plug-ins, by name."""


@dataclass(frozen=True, slots=True)
class World:
    """The adapters that the services stand on."""

    log: Log
    peers: Peers
    executor: Executor
    judge: Judge
    clock: Clock
    entropy: Entropy
    room: Room
    facts: LogFacts = field(default_factory=LogFacts)
    load: MachineLoad = dict
    """Of the machine, as policies see it."""
    note: Callable[..., None] = lambda *_, **__: None
    """What people should know, with its fields."""
    readers: Callable[[State], Reading] = Readers
    sender: Sender | None = None
    """For requests to the world outside; None: this node makes none."""


class NodePool:
    """pool.Pool, by the parts that keep its promises."""

    watching: Watching

    def __init__(
        self,
        reads: Reads,
        logs: TaskLogs,
        writes: Writes,
        status: Status,
        known: tokens.Tokens,
        reception: Reception,
        fleet: Fleet,
        trials: Trials,
        explain: Explain,
        balancing: Balancing,
        queues: Queues,
        schedules: Schedules,
        pulling: Pulling,
        reloading: Reloading,
        keys: Keys,
    ) -> None:
        self.queueing: Queueing = queues
        self.claim, self.give_back, self.report = pulling.claim, pulling.give_back, pulling.report
        self.connect = reception.connect
        self.authenticate: Callable[[str], Principal | None] = known.authenticate
        self.readiness, self.metrics = status.readiness, status.metrics
        self.cluster, self.backup = status.cluster, status.backup
        self.tokens, self.token = keys.tokens, keys.token
        self.add_token, self.revoke_token = keys.add_token, keys.revoke_token
        self.add, self.act, self.bulk = writes.add, writes.act, writes.bulk
        self.add_member, self.remove_member = writes.add_member, writes.remove_member
        self.tasks, self.groups, self.task, self.actions = reads.tasks, reads.groups, reads.task, reads.actions
        self.result, self.log, self.events = reads.result, logs.log, reads.events
        self.workers, self.worker, self.patch_worker = fleet.workers, fleet.worker, fleet.patch_worker
        self.worker_load = fleet.worker_load
        self.announcements, self.owned, self.count_owned = fleet.announcements, fleet.owned, fleet.count_owned
        self.policies, self.policy, self.test_policy = fleet.policies, fleet.policy, trials.test_policy
        self.put_policy, self.delete_policy = fleet.put_policy, fleet.delete_policy
        self.explain, self.balance = explain.explain, balancing.balance
        self.schedules, self.schedule, self.ledger = schedules.schedules, schedules.schedule, schedules.ledger
        self.put_schedule, self.delete_schedule = schedules.put_schedule, schedules.delete_schedule
        self.pause_schedule, self.run_schedule = schedules.pause_schedule, schedules.run_schedule
        self.reload_worker = reloading.reload_worker


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
        self.reserves = Reserves(Reserve(world.room, clock), log, peers, clock)
        self.door = Door(
            log,
            peers,
            codec,
            clock,
            entropy,
            log_time_ms=lambda: log.time_ms,
            may_add=self.reserves.may_add,
        )
        self._now_ms: Callable[[], int] = lambda: max(clock.wall_ms(), state.time_ms)
        """What tokens expire by: a clock that is behind, or was set back, makes none of them last beyond log time."""
        self.presence = Presence(log, peers, self.door, state, clock)
        self._loads = HostLoads(log, peers, clock)
        self.presence.on_beat = self._loads.heard
        self.door.is_silent = self.presence.is_silent
        self.door.is_ended_with = self.presence.is_ended_with
        self.seats = Seats(log, peers, self.door, self.presence, state, clock)
        self.crew = Crew(peers, options.name)
        self._own_entry = OwnEntry(self.door, world.facts.own_entry, world.note)
        self.workplace = self._make_workplace(world)
        self.crew.join(options.name, self.workplace)
        self.session, self.worker = self.workplace.session, self.workplace.worker
        self.feed = Feed(options.events_max, on_fatal)
        large = LargeResults(self.crew, peers, log.node_id)
        reads = Reads(log, self.door, state, self._readers, self.feed, large, clock)
        self.feed.places = reads.places_of
        self._status = self._make_status(world, reads)
        known = tokens.Tokens(state, self._status.behind, self._now_ms)
        history = History(state, clock)
        duties = Duties(
            options, world, state, codec,
            door=self.door, presence=self.presence, seats=self.seats, crew=self.crew, reads=reads,
            readers=self._readers, reserves=self.reserves,
        )  # fmt: skip
        self.duties = duties
        self.pace, self.book, self.jury, self.pulls = duties.pace, duties.book, duties.jury, duties.pulls
        self.auction, self.balancer, self.cron = duties.auction, duties.balancer, duties.cron
        self.timekeeper, self._pulling = duties.timekeeper, duties.pulling
        traffic = Traffic(clock, lambda: state.time_ms)
        self._reception = Reception(log, self.door, state, self.seats, self.crew, options.name)
        self.pool = self._make_pool(world, reads, known, traffic)
        self.pool.watching = NodeWatching(known.recall, reads, history)
        self._hearers: tuple[Hearer, ...] = (
            self.seats,  # what was awarded here starts before all others are told
            self.presence,
            known,
            history,
            *duties.hearers,
            reads.forecast,
            self.tree,
            traffic,
        )

    def _make_status(self, world: World, reads: Reads) -> Status:
        return Status(
            world.log,
            self._state,
            reads,
            self.session,
            self.reserves,
            world.entropy,
            name=self._options.name,
            facts=world.facts,
            sizes=Sizes(world.log, world.peers, self._state, world.facts.log_bytes),
            scratch=self._options.scratch,
            works=self._options.slots > 0,
        )

    def _make_workplace(self, world: World) -> Workplace:
        options, directory = self._options, world.log.node_id
        machine = {**options.machine, "node_id": directory, **told_of(options.disciplines)}
        facts = WorkerFacts(
            options.name, "node", options.tags, options.adapters, options.slots, options.queues, machine
        )
        craft = Craft(world.executor, world.judge, world.clock, world.entropy, world.load, world.note, world.sender)
        return Workplace(self.seats.take(options.name), craft, worker=options.name, directory=directory, facts=facts)

    def _make_pool(self, world: World, reads: Reads, known: tokens.Tokens, traffic: Traffic) -> NodePool:
        log, peers, state, clock, duties = world.log, world.peers, self._state, world.clock, self.duties
        bulks = Bulks(log, peers, self.door, reads, self.tree, world.entropy)
        sources = Sources(world.judge)
        writes = Writes(self.door, reads, self._status, self.reserves.own, bulks, sources)
        fleet = Fleet(reads, writes, sources, self._loads)
        explain = Explain(log, peers, state, reads, self.presence, duties.book, clock)
        explain.claims = duties.pulls.offered
        return NodePool(
            reads,
            TaskLogs(reads, self.feed, Outputs(self.crew, peers, log.node_id)),
            writes,
            self._status,
            known,
            self._reception,
            fleet,
            Trials(reads, fleet, sources, duties.jury, Stamps(clock, world.entropy), self._now_ms),
            explain,
            Balancing(log, peers, duties.balancer),
            Queues(reads, writes, traffic, state, clock),
            Schedules(log, reads, writes, sources),
            duties.pulling,
            Reloading(peers, log.node_id, self.crew, reads),
            Keys(reads, writes, world.entropy, self._now_ms),
        )

    def start(self) -> None:
        """From here on it follows the log. The log may be running or about to."""
        for hearer in self._hearers:
            self.feed.tell(hearer)
        self.feed.on_role = (self.door.role_changed, self._own_entry.role_changed)
        if self._state.is_open:
            self.feed.start(self._state.applied_index)
        self._log.listen(self.feed)
        self.tree.duty("presence", self.presence.run)
        self.duties.start(self.tree)
        self.tree.grow("reserve", self.reserves.run)
        self.tree.grow("own entry", self._own_entry.run)
        if self._options.token:
            self._status.token_waits = True
            self.tree.grow("token", self._introduce)
        self.workplace.start(self.tree)
        self.feed.role_changed(self._log.role)

    async def drain(self) -> None:
        """No new work; what runs may go on for a while, then it is stopped and goes to others."""
        self._status.stopping = True
        self._reception.close()
        await self.workplace.drain(self._options.drain_s)

    async def stop(self) -> None:
        """Without a drain before it, what runs is left to the next daemon."""
        self._status.stopping = True
        self._reception.close()
        await self.workplace.stop(self.tree)
        self.door.stop()
        self._pulling.stop()
        self.feed.end()
        await self.tree.stop()
        await self._pulling.end()
        self._readers.close()

    async def _introduce(self) -> None:
        await tokens.introduce(self.door, self._state, self._options.token, self._options.name)
        self._status.token_waits = False
