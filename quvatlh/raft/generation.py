"""One generation of a node's data: a log and the state that it is applied to, in one directory.

A generation is made whole before it is made current (founding, adoption, a snapshot) and is only ever replaced as a whole.
The rule for how much log is kept stands here; the journal only knows how to let go of files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from quvatlh.raft import entries
from quvatlh.raft.journal import Journal
from quvatlh.raft.segment import Base
from quvatlh.raft.snapshot import Source

if TYPE_CHECKING:
    from quvatlh.ports import Machine, MachineFactory, Membership
    from quvatlh.raft.ballot import Ballot
    from quvatlh.raft.disk import Disk, Lane
    from quvatlh.raft.settings import Settings


class Generation:
    """Journal and machine, open together."""

    def __init__(self, journal: Journal, machine: Machine, disk: Disk, settings: Settings) -> None:
        self.journal = journal
        self.machine = machine
        self.copies = 0
        """Copies of the state that are being made or read."""
        self._disk = disk
        self._settings = settings
        self._pins: list[tuple[int, float]] = []
        self._checkpointed = machine.applied_index
        self._bytes_at_checkpoint = journal.appended_bytes

    @staticmethod
    def create(disk: Disk, path: str, membership: Membership) -> None:
        """An empty log that begins with this membership; the state file comes with the first open."""
        Journal.create(disk, f"{path}/log", Base(0, 0, 0, entries.pack_membership(membership)))
        disk.sync_dir(path)

    @classmethod
    async def open(
        cls, path: str, machines: MachineFactory, disk: Disk, lane: Lane, settings: Settings, ballot: Ballot
    ) -> Generation:
        machine = machines(path)
        try:
            journal = Journal.open(disk, f"{path}/log", lane, settings, ballot, applied_index=machine.applied_index)
        except BaseException:
            machine.close()
            raise
        return cls(journal, machine, disk, settings)

    async def close(self, lane: Lane) -> None:
        """Closing a state file may wait for the disk for as long as it is large."""
        await self.journal.close()
        await lane.run(self.machine.close)

    def anything_new(self) -> bool:
        """Something was applied since the last checkpoint."""
        return self.machine.applied_index > self._checkpointed

    def checkpoint_due(self) -> bool:
        grown = self.journal.appended_bytes - self._bytes_at_checkpoint
        return grown >= self._settings.checkpoint_bytes and self.anything_new()

    def compact(self, checkpointed: int, now: float) -> None:
        """The state is durable up to this index: keep the log from there, and before it what followers may still need."""
        self._checkpointed = checkpointed
        self._bytes_at_checkpoint = self.journal.appended_bytes
        self._pins = [(index, until) for index, until in self._pins if until > now]
        keep = min([checkpointed, *(index for index, _ in self._pins)])
        self.journal.compact(self._first_within(keep))

    def _first_within(self, keep: int) -> int:
        """The first index such that what stands between it and `keep` fits into keep_bytes."""
        journal = self.journal
        low, high = journal.first_index + 1, keep
        while low < high:
            middle = (low + high) // 2
            if journal.range_bytes(middle, keep) <= self._settings.keep_bytes:
                high = middle
            else:
                low = middle + 1
        return low

    def pin(self, index: int, until: float) -> None:
        """Keep the log from this index on, for a follower that will come for it."""
        self._pins.append((index, until))

    @asynccontextmanager
    async def copy(self, lane: Lane, path: str) -> AsyncIterator[Source]:
        """A copy of the state as it is now, gone afterwards. The log behind it stays while the copy is in use."""
        self.copies += 1
        first = (self.journal.first_index + 1, float("inf"))
        self._pins.append(first)
        try:
            index = await lane.run(lambda: self.machine.copy_to(path))
            yield Source(path, self.journal.base_at(index))
        finally:
            self.copies -= 1
            self._pins.remove(first)
            await lane.run(lambda: self._disk.remove(path))
