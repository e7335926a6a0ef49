"""A node at work on its loop: when it looks, what waits for what, and how it ends.

Everything here runs on one asyncio loop. What raises in it is a bug or a broken disk: this node then decides nothing any
more, and its owner is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quvatlh.ports import LogListener, Member, Membership, RequestHandler, Role, Unavailable
from quvatlh.raft import entries
from quvatlh.raft.proposals import Proposals

if TYPE_CHECKING:
    from quvatlh.ports import Clock, Entropy, MachineFactory
    from quvatlh.raft.applier import Applier
    from quvatlh.raft.datadir import DataDir
    from quvatlh.raft.disk import Disk, Lane
    from quvatlh.raft.engine import Engine
    from quvatlh.raft.generation import Generation
    from quvatlh.raft.lease import Promise
    from quvatlh.raft.link import Link
    from quvatlh.raft.links import Links
    from quvatlh.raft.network import Network
    from quvatlh.raft.settings import Settings


ENDLESS_BYTES: Final = 2**63
REST_S: Final = 0.005
"""Without a proposal."""


@dataclass(frozen=True, slots=True)
class World:
    """The adapters that a node stands on."""

    disk: Disk
    network: Network
    clock: Clock
    entropy: Entropy
    sync_lane: Lane
    copy_lane: Lane
    room: Callable[[], int] = lambda: ENDLESS_BYTES
    """How many bytes copies of the state may take: what is free but for the disk's reserve."""


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


class Running:
    """State of a node, its ticks and its tasks."""

    _loop: asyncio.AbstractEventLoop
    _promise: Promise
    """Both are set at the start."""

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
        self._proposals = Proposals(settings, self._wake_to_write)
        self._listeners: list[LogListener] = []
        self._handlers: dict[str, RequestHandler] = {}
        self._role = Role(0, None, acting=False)
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = False
        self._woken_to_write = False
        self._proposed_s = 0.0
        """When something was proposed last."""
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._dead: BaseException | None = None
        self._fetching = False
        self._waiting_why = ""
        self._incarnations: dict[str, str] = {}
        self._last_membership: Membership | None = None
        """Outlives the engine while a snapshot takes its place: this node never seems empty again."""

    @property
    def node_id(self) -> str:
        return self._own.id

    @property
    def role(self) -> Role:
        """Who was removed has no master: what it hears is of before, and nothing that it knows is brought up to date."""
        engine = self._engine
        if engine is None:
            return Role(0, None, acting=False)
        if engine.is_excluded():
            return Role(engine.term(), None, acting=False)
        return Role(engine.term(), engine.leader_id(), acting=engine.acting())

    def acts(self) -> bool:
        return self._dead is None and not self._stopping and self._engine is not None and self._engine.acts()

    # --- ticks ------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Tick in this turn of the loop."""
        if not self._woken and self._dead is None:
            self._woken = True
            self._loop.call_soon(self._tick)

    def _wake_to_write(self) -> None:
        """A proposal waits, and nothing else has changed: in this turn of the loop it is written, without a tick. After a rest
        at once: it is alone, most likely, and who comes with it is in the next entry."""
        if self._woken or self._woken_to_write or self._dead is not None:
            return
        now = self._loop.time()
        rested_s, self._proposed_s = now - self._proposed_s, now
        if rested_s >= REST_S and self._proposals.none_logged:
            self._write()
        else:
            self._woken_to_write = True
            self._loop.call_soon(self._write)

    def _tick(self) -> None:
        self._woken = False
        self._guarded(self._look)

    def _write(self) -> None:
        self._woken_to_write = False
        if self._dead is None:
            self._guarded(self._write_waiting)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a bug, and the node ends by it
            self._broken(error)

    def _look(self) -> None:
        engine = self._engine
        if engine is not None and self._dead is None:
            # What waits is on its way to the disk while all else is looked at.
            if self._proposals.are_waiting and engine.acts():
                self._flush(engine)
            engine.tick()
            self._write_waiting()
            self._arm(engine.next_tick_at() - self._world.clock.boot())
        self._announce_role()
        self._answer_waiters()

    def _write_waiting(self) -> None:
        engine = self._engine
        if not self._proposals.are_waiting:
            return
        if engine is not None and engine.acts():
            self._flush(engine)
        else:
            self._proposals.drop_queue("this node is not the master")

    def _flush(self, engine: Engine) -> None:
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
        """What is on the disk is applied at once, not in the next turn of the loop."""
        if self._engine is not None:
            self._engine.synced()
            if not self._woken:
                self._tick()

    def _broken(self, error: BaseException) -> None:
        """A bug or a broken disk: this node decides nothing any more."""
        if self._dead is None:
            self._dead = error
            self._proposals.broke("the node broke")
            self._on_fatal(error)

    # --- tasks and waiting ------------------------------------------------------------------------------------------

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
            before, self._role = self._role, role
            if role.master is not None and (role.master, role.term) != (before.master, before.term):
                master = self._engine.membership.get(role.master) if self._engine is not None else None
                self._note("master", name=master.name if master is not None else role.master, term=role.term)
            for listener in self._listeners:
                listener.role_changed(role)

    # --- the others -------------------------------------------------------------------------------------------------

    def link(self, node_id: str) -> Link | None:
        return self._links.get(node_id) if self._links is not None else None

    def _is_linked(self, node_id: str) -> bool:
        return self.link(node_id) is not None

    def _founders(self) -> tuple[str, ...]:
        return tuple(sorted({*self._options.peers, self._own.peer}))

    def _others(self) -> set[str]:
        return set(self._options.peers) - {self._own.peer}

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

    def _broadcast_membership(self, index: int, membership: Membership) -> None:
        """Tell everybody connected, those above all who are not in any cluster yet, or not any more."""
        if self._links is not None:
            for link in self._links.all:
                link.send(["members", index, entries.pack_membership(membership)])

    def role_changed(self) -> None:
        self.wake()

    def members_changed(self, membership: Membership) -> None:
        before, self._last_membership = self._last_membership, membership
        if membership.warning and (before is None or len(before.voters) != len(membership.voters)):
            self._note("even number of voters", warning=membership.warning)
        self._dial(membership)

    def note(self, event: str, **facts: object) -> None:
        self._note(event, **facts)
