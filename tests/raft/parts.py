"""What the tests of the log on disk share: a machine whose power can fail, lanes in the test's hand, small entries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar, cast

from quvatlh.ports import Member, Membership
from quvatlh.raft import entries
from quvatlh.raft.ballot import Ballot
from quvatlh.raft.disk import Disk, Lane, run_on
from quvatlh.raft.journal import Journal
from quvatlh.raft.segment import Base
from quvatlh.raft.settings import Settings
from tests.sim.disk import DiskView, SimDisk
from tests.sim.lane import Pace
from tests.sim.process import Process

T = TypeVar("T")

HOME = "/data"
LOG = "/data/log"


def membership(*ids: str) -> bytes:
    return entries.pack_membership(Membership("c1", tuple(Member(i, i, f"{i}:1") for i in sorted(ids))))


def membership_entry(term: int, time_ms: int, *ids: str) -> bytes:
    voters = tuple(Member(i, i, f"{i}:1") for i in sorted(ids))
    return entries.pack_membership_entry(term, time_ms, Membership("c1", voters))


def item(term: int, time_ms: int, text: str = "") -> bytes:
    return entries.pack_items(term, time_ms, [text.encode()])


NO_OP = bytes([entries.NO_OP])
BASE = Base(0, 0, 0, membership("a"))


SMALL = Settings(segment_bytes=200, cache_bytes=400, append_bytes_max=128)
"""A file holds three or four entries, the cache two or three."""


class PoweredMachine:
    """A simulated disk and the process on it; `restart` is a new process, on what the old one has left."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = SimDisk(random.Random(seed), Pace(inline=False))
        self.view = self.restart()

    def restart(self) -> DiskView:
        # Nothing here runs on the simulation's loop.
        self.view = self.disk.attach(Process("node", cast("Any", None)))
        return self.view

    def power_fail(self) -> DiskView:
        self.view.process.crash()
        self.disk.power_fail()
        return self.restart()


class InlineLane:
    """Does the job where it is asked for."""

    def give(self, job: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        failure: BaseException | None = None
        try:
            job()
        except Exception as error:  # noqa: BLE001 - it is the giver's
            failure = error
        asyncio.get_running_loop().call_soon(then, failure)

    async def run(self, job: Callable[[], T]) -> T:
        return job()

    def close(self) -> None:
        pass


class HeldLane:
    """Jobs wait until the test lets one go; what they do is done then."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def give(self, job: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        self._waiting.append((job, then))

    async def run(self, job: Callable[[], T]) -> T:
        return await run_on(self, job)

    async def until_waiting(self) -> None:
        while not self._waiting:
            await turns(1)

    async def let_go(self) -> None:
        """One job, and what follows from it on the loop."""
        await self.until_waiting()
        job, then = self._waiting.pop(0)
        job()
        then(None)
        await turns()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        pass


async def turns(count: int = 10) -> None:
    """Let everything that is ready on the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)


def new_log(disk: Disk, base: Base = BASE) -> None:
    disk.mkdir(HOME)
    disk.sync_dir("/")
    Journal.create(disk, LOG, base)
    disk.sync_dir(HOME)


def open_log(
    disk: Disk, lane: Lane | None = None, *, applied_index: int = 0, settings: Settings | None = None
) -> Journal:
    ballot = Ballot.open(disk, HOME)
    return Journal.open(disk, LOG, lane or InlineLane(), settings or Settings(), ballot, applied_index=applied_index)


def rows(journal: Journal) -> list[tuple[bytes, int, int]]:
    """All entries but the base."""
    return list(journal[1:])


async def synced(journal: Journal) -> None:
    """Everything that was added is durable."""
    journal.kick()
    ticket = journal.ticket()
    while journal.synced_ticket < ticket:
        await turns(1)


def log_files(disk: Disk) -> list[str]:
    return [f"{LOG}/{name}" for name in disk.listdir(LOG)]


def filled(journal: Journal, count: int, term: int = 1) -> list[tuple[bytes, int, int]]:
    first = journal.last_index + 1
    added = [(item(term, index * 10, f"e{index}"), index, term) for index in range(first, first + count)]
    for entry in added:
        journal.add(*entry)
    return added
