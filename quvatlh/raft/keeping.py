"""What a node keeps: its current generation, the snapshots that replace it, the checkpoints that let the log go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quvatlh.ports import STATE_FILE, Membership, Unavailable
from quvatlh.raft import snapshot
from quvatlh.raft.applier import Applier
from quvatlh.raft.engine import Engine
from quvatlh.raft.generation import Generation
from quvatlh.raft.running import Running

if TYPE_CHECKING:
    from quvatlh.raft.wire import Channel


class Keeping(Running):
    """Opens, replaces and closes generations."""

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
            await generation.close(self._world.copy_lane)

    async def _begin(self, membership: Membership) -> None:
        """Write the first generation of this node and open it."""
        path = self._data.new_generation()
        Generation.create(self._world.disk, path, membership)
        self._data.publish(path)
        self._note("membership written", cluster=membership.cluster, voters=[m.name for m in membership.voters])
        await self._open(path)
        self._broadcast_membership(0, membership)

    def apply(self, first: int, last: int) -> int:
        assert self._applier is not None  # the engine is open, so is its generation
        return self._applier.apply(first, last)

    # --- snapshots --------------------------------------------------------------------------------------------------

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

    async def _serve_snapshot(self, channel: Channel) -> None:
        generation = self._generation
        if generation is None or generation.copies >= 2:  # one for each of two followers of three nodes
            channel.send(["busy", "no snapshot can be had here now"])
            channel.close("busy")
            return
        try:
            self._check_room(1)
        except Unavailable as error:
            self._note("snapshot not sent", why=error.detail)
            channel.send(["busy", error.detail])
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

    def _check_room(self, copies: int) -> None:
        """For so many copies of the state at a time; the disk's last room is for the log."""
        disk, path = self._world.disk, self._data.generation_path()
        size = sum(disk.size(f"{path}/{name}") for name in disk.listdir(path) if name.startswith(STATE_FILE))
        wanted, room = copies * size, self._world.room()
        if wanted > room:
            raise Unavailable(
                f"a copy of the state takes {wanted} bytes for a while, and the disk of this node has {max(0, room)} "
                "beyond its reserve: make room on it, or ask another node",
                "disk_full",
            )

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
            except snapshot.FAILURES:
                await self._world.copy_lane.run(lambda: self._world.disk.remove(path))  # what there is fills the disk
                raise
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
        # A state that closes first moves what waits in its write-ahead file: here, so that the loop need not wait for it.
        await self._world.copy_lane.run(generation.machine.checkpoint)
        journal = generation.journal
        if index <= journal.last_index and (index < journal.first_index or journal.term_at(index) == term):
            # What this log holds beyond the snapshot may have been answered: it must not be thrown away.
            self._note("snapshot not needed any more", index=index)
            return
        self._proposals.forget("the state was replaced by a snapshot")
        await self._close()
        await self._world.copy_lane.run(lambda: self._data.publish(path))
        await self._open(path)
        for listener in self._listeners:  # in this turn: the next one may apply what follows
            listener.reset(index)
        self._note("snapshot in force", index=index, term=term)
        await self._world.copy_lane.run(self._data.sweep)

    # --- checkpoints ------------------------------------------------------------------------------------------------

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
