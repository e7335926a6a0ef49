"""The replicated log as the services see it: ports.Log and ports.Peers.

A node is one object in four pieces: running.py has its loop, keeping.py its data, peering.py its peers, and this module
what may be asked of it, with the order of start and stop. Rules of leadership are the engine's, files the generation's
and the journal's, connections the links'. What blocks runs on two lanes: one syncs the log, one copies and checkpoints.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Final

from quvatlh.ports import Applied, LogListener, Member, Membership, Refused, RequestHandler, Unavailable, Unknown
from quvatlh.raft import backup, entries, founding, members
from quvatlh.raft.lease import Promise
from quvatlh.raft.peering import Peering
from quvatlh.raft.running import Options, World

if TYPE_CHECKING:
    from quvatlh.raft.engine import Engine

__all__ = ["Options", "RaftLog", "World"]


NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RaftLog(Peering):
    """One node of the replicated log."""

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

    # --- what it is now ---------------------------------------------------------------------------------------------

    @property
    def applied_index(self) -> int:
        return self._generation.machine.applied_index if self._generation is not None else 0

    @property
    def time_ms(self) -> int:
        return self._engine.log_time_ms() if self._engine is not None else 0

    @property
    def clocks_ms(self) -> int:
        """What the voters' clocks show, taken together: `time_ms`, unless they are behind it."""
        return self._engine.clocks_ms() if self._engine is not None else 0

    @property
    def committed_index(self) -> int:
        """The greatest commit index heard of."""
        return self._engine.master_commit() if self._engine is not None else 0

    @property
    def membership(self) -> Membership | None:
        return self._engine.membership if self._engine is not None else None

    @property
    def own_entry(self) -> Member | None:
        """This node as the cluster should know it; None where it does, or has no word for it."""
        membership = self.membership
        return None if membership is None else members.renewed(membership, self._own, self._options.peers)

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

    # --- what may be asked ------------------------------------------------------------------------------------------

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
        if self._member_view().is_voter(member.id):
            return self._member_view()

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
        self._note("handed over", to=target, term=engine.term())
        return str(engine.leader_id())

    async def backup(self, path: str) -> int:
        generation = self._generation
        if generation is None:
            raise Unavailable("this node is in no cluster yet")
        disk, lane = self._world.disk, self._world.copy_lane
        if disk.exists(path):
            raise Refused(f"{path} exists already")
        self._check_room(2)  # the copy, and the file that is made of it
        try:
            async with generation.copy(lane, self._data.scratch(self._world.entropy)) as source:
                await lane.run(lambda: backup.write(source, path, disk, self._settings))
                return source.base.index
        except OSError as error:
            code = "disk_full" if error.errno in NO_SPACE else "no_master"
            raise Unavailable(f"the backup could not be written here: {error}", code) from error
        except asyncio.CancelledError:
            lane.give(lambda: backup.remove(path, disk), lambda _failure: None)  # after what goes on there
            raise

    async def request(self, node_id: str, kind: str, body: bytes, *, deadline: float) -> bytes:
        if self._links is None:
            raise Unavailable("this node has no peers")
        return await self._links.request(node_id, kind, body, deadline=deadline)

    def handle(self, kind: str, handler: RequestHandler) -> None:
        self._handlers[kind] = served = self._of_members(handler)
        if self._links is not None:
            self._links.handle(kind, served)

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
