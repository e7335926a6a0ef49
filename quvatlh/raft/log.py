"""The replicated log as the services see it: ports.Log and ports.Peers over links, engine and generation.

This module owns the order of things (start, tick, apply, stop) and nothing else: rules of leadership are the engine's,
files are the generation's and the journal's, connections are the links'. Everything here runs on one asyncio loop; what
blocks runs on two lanes, one that syncs the log and one that copies and checkpoints state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from quvatlh.ports import (
    Applied,
    LogListener,
    Member,
    Membership,
    Refused,
    RequestHandler,
    Role,
    Unavailable,
    Unknown,
)
from quvatlh.raft import backup, entries, founding, members, snapshot
from quvatlh.raft.applier import Applier
from quvatlh.raft.engine import Engine, MalformedMessage
from quvatlh.raft.generation import Generation
from quvatlh.raft.lease import Promise
from quvatlh.raft.links import Links
from quvatlh.raft.proposals import Proposals

if TYPE_CHECKING:
    from quvatlh.ports import Clock, Entropy, MachineFactory
    from quvatlh.raft.datadir import DataDir
    from quvatlh.raft.disk import Disk, Lane
    from quvatlh.raft.link import Down, Link
    from quvatlh.raft.network import Network
    from quvatlh.raft.settings import Settings
    from quvatlh.raft.wire import Channel

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class World:
    """The adapters that a node stands on."""

    disk: Disk
    network: Network
    clock: Clock
    entropy: Entropy
    sync_lane: Lane
    copy_lane: Lane


@dataclass(frozen=True, slots=True)
class Options:
    """Who this node is among its peers."""

    name: str
    listen: str = ""
    """host:port of the peer link; empty for a node that is alone and stays so."""
    advertise: str = ""
    """As others reach it; the listening address where empty."""
    http: str = ""
    peers: tuple[str, ...] = ()
    """The same list on every node; the own address may be in it."""
    secret: bytes = b""


Note = Callable[..., None]


class RaftLog:
    """One node of the replicated log."""

    def __init__(
        self,
        data: DataDir,
        machines: MachineFactory,
        world: World,
        settings: Settings,
        options: Options,
        *,
        note: Note,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._data = data
        self._machines = machines
        self._world = world
        self._settings = settings
        self._options = options
        self._note = note
        self._on_fatal = on_fatal
        self._own = Member(data.node_id, options.name, options.advertise or options.listen, options.http)
        self._links: Links | None = None
        self._generation: Generation | None = None
        self._engine: Engine | None = None
        self._applier: Applier | None = None
        self._proposals = Proposals(settings, self.wake)
        self._listeners: list[LogListener] = []
        self._handlers: dict[str, RequestHandler] = {}
        self._role = Role(0, None, acting=False)
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._dead: BaseException | None = None
        self._fetching = False
        self._waiting_why = ""
        self._incarnations: dict[str, str] = {}
        self._last_membership: Membership | None = None
        """Outlives the engine while a snapshot takes its place: this node never seems empty again."""

    # --- start and stop ---------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Open what there is, or begin to found or join; the bound peer address, empty where there is none."""
        self._loop = asyncio.get_running_loop()
        self._promise = Promise(self._world.clock, self._settings)
        if not self._data.is_empty:
            await self._open(self._data.generation_path())
        bound = await self._start_links()
        if self._engine is None and not self._others():
            await self._begin(founding.found_alone(self._own))
        else:
            self._consider_founding()
        self._dial()
        self.wake()
        return bound

    async def _start_links(self) -> str:
        options = self._options
        if not options.secret or not options.listen:
            return ""
        links = self._links = Links(
            self._world.network,
            self._world.clock,
            self._world.entropy,
            self._settings,
            options.secret,
            self._own.id,
            self._describe,
            lambda hello: founding.refuses(self._cluster(), hello),
            lambda event, facts: self._note(event.replace("_", " "), **facts),
        )
        links.on_up, links.on_down, links.on_message = self._link_up, self._link_down, self._received
        links.on_snapshot = self._serve_snapshot
        links.on_hello = self._hello
        for kind, handler in self._handlers.items():
            links.handle(kind, handler)
        bound = await links.start(options.listen)
        if not options.advertise:
            self._own = replace(self._own, peer=bound)
        return bound

    async def stop(self) -> None:
        """In order: nothing new is taken, what waits is answered, connections and files are closed."""
        self._stopping = True
        self._proposals.drop_queue("the node is stopping", "stopping")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        if self._links is not None:
            await self._links.stop()
        await self._close()
        self._proposals.forget("the node stopped")
        self._answer_waiters()

    async def _open(self, path: str) -> None:
        world = self._world
        generation = await Generation.open(
            path, self._machines, world.disk, world.sync_lane, self._settings, self._data.ballot
        )
        for line in generation.journal.recovered:
            self._note("log recovered", what=line)
        self._generation = generation
        self._applier = Applier(generation, self._proposals, self._listeners, world.clock, self._settings)
        self._applier.on_membership = self._broadcast_membership
        generation.journal.on_synced = self._synced
        generation.journal.on_failure = self._broken
        self._engine = Engine(
            self._own.id,
            generation.journal,
            generation.machine.applied_index,
            self,
            world.clock,
            world.entropy,
            self._settings,
            self._promise,
        )
        self._spawn(lambda: self._keep(generation))
        self.wake()

    async def _close(self) -> None:
        self._engine = None
        self._applier = None
        generation, self._generation = self._generation, None
        if generation is not None:
            await generation.close()

    async def _begin(self, membership: Membership) -> None:
        """Write the first generation of this node and open it."""
        path = self._data.new_generation()
        Generation.create(self._world.disk, path, membership)
        self._data.publish(path)
        self._note("membership written", cluster=membership.cluster, voters=[m.name for m in membership.voters])
        await self._open(path)
        self._broadcast_membership(0, membership)

    # --- the port: what it is now -----------------------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        return self._own.id

    @property
    def role(self) -> Role:
        engine = self._engine
        if engine is None:
            return Role(0, None, acting=False)
        return Role(engine.term(), engine.leader_id(), acting=engine.acting())

    @property
    def applied_index(self) -> int:
        return self._generation.machine.applied_index if self._generation is not None else 0

    @property
    def committed_index(self) -> int:
        """The greatest commit index heard of."""
        return self._engine.master_commit() if self._engine is not None else 0

    @property
    def membership(self) -> Membership | None:
        return self._engine.membership if self._engine is not None else None

    @property
    def waiting_for(self) -> str:
        """Why this node is in no cluster yet; empty when it is."""
        return "" if self._engine is not None else self._waiting_why

    def acts(self) -> bool:
        return self._dead is None and not self._stopping and self._engine is not None and self._engine.acts()

    def progress(self) -> dict[str, int]:
        """As leader: the last index that each other member is known to hold."""
        engine = self._engine
        if engine is None or not engine.leads():
            return {}
        known = (*engine.membership.voters, *engine.membership.learners)
        return {m.id: engine.match_index(m.id) for m in known if m.id != self._own.id}

    def log_span(self) -> tuple[int, int, int]:
        """First and last index and bytes of the log on disk."""
        if self._generation is None:
            return 0, 0, 0
        journal = self._generation.journal
        return journal.first_index, journal.last_index, journal.size_bytes

    def listen(self, listener: LogListener) -> None:
        self._listeners.append(listener)

    # --- the port: what may be asked --------------------------------------------------------------------------------

    async def propose(self, item: bytes, *, deadline: float) -> Applied:
        self._must_act()
        return await self._proposals.submit(item, deadline)

    async def barrier(self, *, deadline: float) -> int:
        self._must_act()
        return (await self._proposals.submit(None, deadline)).index

    async def wait_applied(self, index: int, *, deadline: float) -> None:
        await self._until(
            lambda: self.applied_index >= index, deadline, f"entry {index} has not been applied here in time"
        )

    async def add_member(self, member: Member, *, deadline: float) -> Membership:
        self._must_act()
        ends = self._loop.time() + deadline
        await self._change(members.with_learner(self._member_view(), member, self._settings), deadline)

        def caught_up() -> bool:
            engine = self._must_act()
            matched = engine.match_index(member.id)
            near = matched > 0 and engine.commit_index() - matched <= self._settings.learner_lag_entries
            return engine.membership.get(member.id) is None or (near and self._is_linked(member.id))

        why = f"{member.id} is a learner now, and has not caught up yet; ask again to make it a voter"
        try:
            await self._until(caught_up, ends - self._loop.time(), why)
        except Unavailable as error:
            raise Unknown(error.detail) from None
        await self._change(members.with_voter(self._member_view(), member.id, self._settings), ends - self._loop.time())
        return self._member_view()

    async def remove_member(self, node_id: str, *, deadline: float) -> Membership:
        self._must_act()
        if node_id == self._own.id:
            raise Refused("this node is the master; hand over first, and ask the next one")
        await self._change(members.without(self._member_view(), node_id), deadline)
        return self._member_view()

    async def transfer(self, to: str | None = None, *, deadline: float) -> str:
        engine = self._must_act()
        target = members.heir(engine.membership, self._own.id, to, self.progress(), self._is_linked)
        term = engine.term()
        self._proposals.drop_queue("the master is handing over")
        engine.pause()

        def drained() -> bool:
            return not engine.acting() or (self._proposals.idle(term) and engine.caught_up(target))

        try:
            await self._until(drained, deadline / 2, f"{target} did not catch up in time; nothing was handed over")
        except Unavailable:
            engine.unpause()
            raise
        if not engine.acting() or engine.term() != term:
            raise Unknown("this node ceased to be master on the way")
        engine.hand_over(target)
        try:
            limit_s = min(deadline / 2, self._settings.transfer_s)
            await self._until(lambda: engine.term() > term and engine.leader_id() is not None, limit_s, "")
        except Unavailable:
            engine.give_up()
            raise Unknown(f"{target} did not take over in time") from None
        return str(engine.leader_id())

    async def backup(self, path: str) -> int:
        generation = self._generation
        if generation is None:
            raise Unavailable("this node is in no cluster yet")
        if self._world.disk.exists(path):
            raise Refused(f"{path} exists already")
        async with generation.copy(self._world.copy_lane, self._data.scratch(self._world.entropy)) as source:
            await self._world.copy_lane.run(lambda: backup.write(source, path, self._world.disk, self._settings))
            return source.base.index

    async def request(self, node_id: str, kind: str, body: bytes, *, deadline: float) -> bytes:
        if self._links is None:
            raise Unavailable("this node has no peers")
        return await self._links.request(node_id, kind, body, deadline=deadline)

    def handle(self, kind: str, handler: RequestHandler) -> None:
        self._handlers[kind] = handler
        if self._links is not None:
            self._links.handle(kind, handler)

    def _must_act(self) -> Engine:
        if self._stopping:
            raise Unavailable("the node is stopping", "stopping")
        if self._engine is None or not self.acts():
            raise Unavailable("this node is not the master")
        return self._engine

    def _member_view(self) -> Membership:
        return self._must_act().membership

    async def _change(self, wanted: Membership, deadline: float) -> None:
        """Make it the membership, as one entry, after the change before it is committed."""
        engine = self._must_act()
        if wanted == engine.membership:
            return
        if engine.membership_pending():
            raise Refused("another change of the membership is under way")
        term = engine.term()
        command = entries.pack_membership_entry(term, engine.log_time_ms(), wanted)
        index = engine.append(command)
        self.wake()
        await self._proposals.follow(index, term, deadline)

    # --- events -----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Tick in this turn of the loop."""
        if not self._woken and self._dead is None:
            self._woken = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._woken = False
        try:
            self._look()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a bug, and the node ends by it
            self._broken(error)

    def _look(self) -> None:
        engine = self._engine
        if engine is not None and self._dead is None:
            engine.tick()
            self._flush(engine)
            self._arm(engine.next_tick_at() - self._world.clock.boot())
        self._announce_role()
        self._answer_waiters()

    def _flush(self, engine: Engine) -> None:
        if not engine.acts():
            self._proposals.drop_queue("this node is not the master")
            return
        term = engine.term()
        self._proposals.flush(term, lambda items: engine.append(entries.pack_items(term, engine.log_time_ms(), items)))
        engine.kick()

    def _arm(self, delay_s: float) -> None:
        """Have a tick no later than that; a timer that fires too early looks and arms itself again."""
        at = self._loop.time() + min(max(delay_s, 0.001), self._settings.tick_max_s)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    def _synced(self) -> None:
        if self._engine is not None:
            self._engine.synced()

    def _broken(self, error: BaseException) -> None:
        """A bug or a broken disk: this node decides nothing any more."""
        if self._dead is None:
            self._dead = error
            self._proposals.drop_queue("the node broke", "stopping")
            self._proposals.forget("the node broke")
            self._on_fatal(error)

    def _spawn(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(self._guard(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await job()
        except Exception as error:  # noqa: BLE001  # as in _tick
            self._broken(error)

    async def _until(self, holds: Callable[[], bool], deadline: float, why: str) -> None:
        """Wait until it holds, looked at after each tick."""
        if holds():
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((holds, future))
        try:
            async with asyncio.timeout(deadline):
                await future
        except TimeoutError:
            raise Unavailable(why) from None
        finally:
            self._waiters = [w for w in self._waiters if w[1] is not future]

    def _answer_waiters(self) -> None:
        for holds, future in self._waiters:
            if future.done():
                continue
            if self._stopping:
                future.set_exception(Unavailable("the node is stopping", "stopping"))
                continue
            try:
                if holds():
                    future.set_result(None)
            except Unavailable as error:
                future.set_exception(error)

    def _announce_role(self) -> None:
        role = self.role
        if role != self._role:
            self._role = role
            for listener in self._listeners:
                listener.role_changed(role)

    # --- what the engine asks (engine.Host) -------------------------------------------------------------------------

    def link(self, node_id: str) -> Link | None:
        return self._links.get(node_id) if self._links is not None else None

    def apply(self, first: int, last: int) -> int:
        assert self._applier is not None  # the engine is open, so is its generation
        return self._applier.apply(first, last)

    def role_changed(self) -> None:
        self.wake()

    def members_changed(self, membership: Membership) -> None:
        self._last_membership = membership
        self._dial(membership)

    def behind(self, master: str, first_index: int) -> None:
        generation = self._generation
        link = self.link(master)
        if (
            not self._fetching
            and link is not None
            and generation is not None
            and generation.journal.last_index < first_index
        ):
            self._fetching = True
            self._spawn(lambda: self._fetch_snapshot(master))

    def note(self, event: str, **facts: object) -> None:
        self._note(event, **facts)

    # --- links ------------------------------------------------------------------------------------------------------

    def _describe(self) -> dict[str, Any]:
        membership = self._last_membership
        return {
            "id": self._own.id,
            "name": self._own.name,
            "peer": self._own.peer,
            "http": self._own.http,
            "cluster": self._cluster(),
            "membership": entries.pack_membership(membership) if membership is not None else b"",
            "founders": list(self._founders()),
        }

    def _cluster(self) -> str | None:
        return self._last_membership.cluster if self._last_membership is not None else None

    def _founders(self) -> tuple[str, ...]:
        return tuple(sorted({*self._options.peers, self._own.peer}))

    def _others(self) -> set[str]:
        return set(self._options.peers) - {self._own.peer}

    def _is_linked(self, node_id: str) -> bool:
        return self.link(node_id) is not None

    def _dial(self, membership: Membership | None = None) -> None:
        if self._links is None:
            return
        if membership is None and self._engine is not None:
            membership = self._engine.membership
        known = (
            {m.peer for m in (*membership.voters, *membership.learners) if m.id != self._own.id}
            if membership
            else set()
        )
        self._links.set_addresses(sorted((known | self._others()) - {self._own.peer, ""}))

    def _link_up(self, link: Link) -> None:
        incarnation = str(link.doc["incarnation"])
        known = self._incarnations.get(link.node_id, incarnation)
        self._incarnations[link.node_id] = incarnation
        if self._engine is not None:
            if known != incarnation:
                self._engine.gone(link.node_id)
            self._engine.link_up(link)
        else:
            self._consider_founding()
        self.wake()

    def _link_down(self, link: Link, how: Down) -> None:
        engine = self._engine
        if engine is not None:
            engine.link_down(link)
            if how.reset and engine.leader_id() == link.node_id:
                self._spawn(lambda: self._look_after(link))
        self.wake()

    async def _look_after(self, link: Link) -> None:
        """The master's connection was reset. Where its process ended, nothing listens any more; then nobody need wait for
        its lease. A connection that was merely cut on the way must not count as an end."""
        for pause_s in self._settings.look_after_s:
            await asyncio.sleep(pause_s)
            if self._engine is None or self.link(link.node_id) is not None:
                return
            try:
                async with asyncio.timeout(self._settings.dial_s):
                    _, writer = await self._world.network.dial(str(link.doc["peer"]))
            except ConnectionRefusedError:
                self._engine.gone(link.node_id)
                return
            except (OSError, TimeoutError):
                return
            writer.abort()

    def _received(self, link: Link, message: list[Any]) -> None:
        if self._dead is not None:
            return
        if message[0] == "members":
            self._hear_membership(link, message)
            return
        engine = self._engine
        if engine is None:
            return
        try:
            engine.receive(link, message)
        except MalformedMessage:
            raise
        except Exception as error:  # noqa: BLE001  # as in _tick
            self._broken(error)

    def _broadcast_membership(self, index: int, membership: Membership) -> None:
        """Tell everybody connected, those above all who are not in any cluster yet, or not any more."""
        if self._links is not None:
            for link in self._links.all:
                link.send(["members", index, entries.pack_membership(membership)])

    def _hear_membership(self, link: Link, message: list[Any]) -> None:
        match message:
            case [_, int(index), bytes(packed)]:
                try:
                    membership = entries.unpack_membership(packed)
                except entries.BadEntry:
                    raise MalformedMessage("members") from None
            case _:
                raise MalformedMessage("members")
        link.doc["membership"] = packed
        link.doc["cluster"] = membership.cluster
        if self._engine is None:
            self._consider_founding()
        elif membership.get(self._own.id) is None and self._engine.excluded(index):
            self._note("removed from the cluster", cluster=membership.cluster, index=index)

    def _hello(self, hello: dict[str, Any], address: str) -> None:
        """One of the peers' addresses may lead back here: that is how the others know this node."""
        if (
            hello["id"] == self._own.id
            and self._engine is None
            and address != self._own.peer
            and self._links is not None
        ):
            self._note("own address found in the peer list", address=address)
            self._own = replace(self._own, peer=address)
            for link in self._links.all:
                link.close("the own address is known now")

    def _consider_founding(self) -> None:
        if self._engine is not None or self._links is None or self._fetching:
            return
        verdict = founding.decide(self._own, self._founders(), [link.doc for link in self._links.all])
        if isinstance(verdict, Membership):
            self._fetching = True
            self._spawn(lambda: self._found(verdict))
        elif verdict.why != self._waiting_why:
            self._waiting_why = verdict.why
            self._note("not in a cluster yet", why=verdict.why)

    async def _found(self, membership: Membership) -> None:
        try:
            await self._begin(membership)
        finally:
            self._fetching = False

    # --- snapshots, checkpoints -------------------------------------------------------------------------------------

    async def _serve_snapshot(self, channel: Channel) -> None:
        generation = self._generation
        if generation is None or generation.copies >= 2:  # one for each of two followers of three nodes
            channel.send(["busy", "no snapshot can be had here now"])
            channel.close("busy")
            return
        try:
            async with generation.copy(self._world.copy_lane, self._data.scratch(self._world.entropy)) as source:
                generation.pin(source.base.index, self._world.clock.boot() + self._settings.pin_s)
                self._note("snapshot goes out", to=channel.peer_doc.get("name"), index=source.base.index)
                await snapshot.serve(channel, source, self._world.disk, self._world.copy_lane, self._settings)
        except snapshot.FAILURES as error:
            self._note("snapshot not sent", why=str(error) or type(error).__name__)
        finally:
            channel.close("done")

    async def _fetch_snapshot(self, master: str) -> None:
        """Receive a whole new generation and go on with it, unless the log has caught up meanwhile."""
        try:
            link = self.link(master)
            if link is None or self._links is None:
                return
            path = await self._world.copy_lane.run(self._data.new_generation)
            channel = await self._links.open_snapshot(str(link.doc["peer"]))
            try:
                base = await snapshot.fetch(channel, path, self._world.disk, self._world.copy_lane, self._settings)
            finally:
                channel.close("done")
            await self._switch(path, base.index, base.term)
        except snapshot.FAILURES as error:
            self._note("snapshot not received", why=str(error) or type(error).__name__)
            # The master goes on saying that there is one to be had.
            await asyncio.sleep(self._settings.redial_max_s)
        finally:
            self._fetching = False

    async def _switch(self, path: str, index: int, term: int) -> None:
        generation = self._generation
        if generation is None:
            return
        journal = generation.journal
        if index <= journal.last_index and (index < journal.first_index or journal.term_at(index) == term):
            # What this log holds beyond the snapshot may have been answered: it must not be thrown away.
            self._note("snapshot not needed any more", index=index)
            return
        self._proposals.forget("the state was replaced by a snapshot")
        await self._close()
        await self._world.copy_lane.run(lambda: self._data.publish(path))
        await self._open(path)
        self._note("snapshot in force", index=index, term=term)
        await self._world.copy_lane.run(self._data.sweep)
        for listener in self._listeners:
            listener.reset(index)

    async def _keep(self, generation: Generation) -> None:
        """Checkpoint the state and let go of the log behind it, as long as this generation is the current one."""
        clock, settings = self._world.clock, self._settings
        while self._generation is generation:
            try:
                await self._until(
                    lambda: self._generation is not generation or generation.checkpoint_due(), settings.checkpoint_s, ""
                )
            except Unavailable:
                if self._stopping:
                    return
            if self._generation is not generation or not generation.anything_new():
                continue
            index = await self._world.copy_lane.run(generation.machine.checkpoint)
            if self._generation is generation:
                generation.compact(index, clock.boot())
