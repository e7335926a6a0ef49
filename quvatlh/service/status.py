"""pool.Pool's reads of the node and the cluster: who is there, how it is, a backup."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from quvatlh import ports
from quvatlh.core import queries
from quvatlh.core.limits import SECOND_MS
from quvatlh.ports import Entropy, Log, Member
from quvatlh.service.answers import problem
from quvatlh.service.pool import Backup, Call, Json, Metric, Readiness
from quvatlh.service.reads import Reads
from quvatlh.service.reserve import Reserves
from quvatlh.service.session import Session
from quvatlh.service.sizes import Sizes
from quvatlh.service.state import State

CHUNK_BYTES: Final = 256 * 1024
NAME_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What the real log knows beyond its port."""

    committed: Callable[[], int] = lambda: 0
    """The greatest commit index heard of."""
    waiting_for: Callable[[], str] = lambda: ""
    """Why this node is in no cluster yet."""
    progress: Callable[[], Mapping[str, int]] = dict
    """As master: how far each other member is."""
    log_bytes: Callable[[], int] = lambda: 0
    """On this node's disk."""
    own_entry: Callable[[], Member | None] = lambda: None
    """This node as the cluster should know it; None where it does."""
    clocks_ms: Callable[[], int] | None = None
    """As master: what the voters' clocks show, taken together; else this node's own. None: as log time has it."""


class Status:
    def __init__(
        self,
        log: Log,
        state: State,
        reads: Reads,
        session: Session,
        reserves: Reserves,
        entropy: Entropy,
        *,
        name: str,
        facts: LogFacts,
        sizes: Sizes,
        scratch: str,
        works: bool,
    ) -> None:
        """`scratch` is a directory for backups on their way; `works`: this node has a worker that must be up."""
        self._log = log
        self._state = state
        self._reads = reads
        self._session = session
        self._reserves = reserves
        self._entropy = entropy
        self._name = name
        self._facts = facts
        self._sizes = sizes
        self._scratch = scratch
        self._works = works
        self.stopping = False
        self.token_waits = False
        """This node's own token is not in the table yet: whoever has it would be refused."""

    def readiness(self) -> Readiness:
        """A full disk is told, and does not make the node less ready: everything but an ADD goes through it."""
        if self.stopping:
            return Readiness(ready=False, code="stopping", detail="the node is stopping")
        behind = self.behind()
        if behind:
            return Readiness(ready=False, detail=behind)
        if self._works and not self._session.is_open:
            why = f": {self._session.refusal}" if self._session.refusal else ""
            return Readiness(ready=False, detail=f"the worker of this node has no session yet{why}")
        if not self._reserves.own.has_room():
            return Readiness(ready=True, code="disk_full", detail="the disk of this node is full: no ADD is taken here")
        return Readiness(ready=True)

    def behind(self) -> str:
        """Why the cluster may know what this node does not; empty: as far as this node has heard, it is one with it."""
        if self._log.role.master is None:
            return self._facts.waiting_for() or "no master is known"
        entries = self._facts.committed() - self._log.applied_index
        if entries > 0 or not self._state.is_open:
            return f"{max(entries, 1)} entries are not applied here yet"
        return "the token of this node is not known to the cluster yet" if self.token_waits else ""

    def metrics(self) -> Sequence[Metric]:
        own = self._reserves.own
        found = [
            Metric("applied_index", "gauge", "Last entry applied here", [({}, self._log.applied_index)]),
            Metric("term", "gauge", "Term of the log", [({}, self._log.role.term)]),
            Metric("master", "gauge", "1 where this node acts as master", [({}, int(self._log.acts()))]),
            Metric(
                "clock_behind_seconds",
                "gauge",
                "Log time less the clocks; nothing becomes due on a master where they are behind",
                [({}, self._behind_ms() / 1000)],
            ),
            Metric("disk_has_room", "gauge", "0 where ADDs are refused", [({}, int(own.has_room()))]),
            Metric("disk_free_bytes", "gauge", "Free on the disk of the data directory", [({}, own.free_bytes)]),
            Metric("disk_reserve_bytes", "gauge", "ADDs are refused below it", [({}, own.reserve_bytes)]),
        ]
        found += self._reads.forecast.metrics()
        if self._state.is_open:
            sql = "SELECT b, sum(n) FROM tally WHERE scope = 'state' GROUP BY b"
            rows = self._state.db.execute(sql).fetchall()
            found.append(Metric("tasks", "gauge", "Tasks by state", [({"state": state}, n) for state, n in rows]))
        return found

    async def cluster(self, call: Call, *, without: str | None = None) -> Json:
        """`without` a member that was removed: if it was this node, it is told of it later than who wished it."""
        views = await self._reads.read(call, queries.workers)
        of_nodes = [view for view in views if view.facts.role == "node"]
        lost = {view.facts.facts.get("node_id") for view in of_nodes if view.state == "lost"}
        # A node that was given another name has a worker of each, and lives as long as one of them does.
        lost -= {view.facts.facts.get("node_id") for view in of_nodes if view.state != "lost"}
        role, membership = self._log.role, self._log.membership
        if membership is not None and without is not None:
            voters, learners = (
                tuple(each for each in some if each.id != without) for some in (membership.voters, membership.learners)
            )
            membership = replace(membership, voters=voters, learners=learners)
        progress = self._facts.progress()
        index = self._log.applied_index
        members = () if membership is None else (*membership.voters, *membership.learners)
        told = await self._sizes.told([member.id for member in members])
        nodes = []
        for member in members:
            assert membership is not None
            state = "up" if membership.is_voter(member.id) else "learner"
            if member.id in lost and member.id != self._log.node_id:
                state = "lost"
            elif self._reserves.is_full(member.id):
                state = "disk_full"
            lag = max(0, index - progress[member.id]) if member.id in progress else None
            nodes.append(_node(member, state, lag) | told[member.id])
        master = None if membership is None or role.master is None else membership.get(role.master)
        return {
            "master": None if master is None else master.name,
            "term": role.term,
            "index": index,
            "node": self._name,
            "nodes": nodes,
            "clock": await self._time(),
            "warning": None if membership is None else membership.warning,
        }

    async def _time(self) -> Json:
        """Of the log; and when it was moved last, if ever."""
        jump = await self._reads.read(None, queries.clock_jump)
        told = None
        if jump is not None:
            way = "ahead" if jump.by_ms > 0 else "back"
            told = {"at_ms": jump.at, "way": way, "by_ms": abs(jump.by_ms), "seen_by": jump.node}
        return {"at_ms": self._log.time_ms, "behind_ms": self._behind_ms(), "jumped": told}

    def _behind_ms(self) -> int:
        """How far clocks are behind log time: the voters' taken together on the master, else this node's own. Less than
        a second is what any two clocks differ in."""
        clocks_ms = self._facts.clocks_ms
        behind_ms = 0 if clocks_ms is None else self._log.time_ms - clocks_ms()
        return max(0, behind_ms // SECOND_MS * SECOND_MS)

    async def backup(self, _call: Call) -> Backup:
        path = os.path.join(self._scratch, f"backup-{self._entropy.token(NAME_BYTES).hex()}")
        try:
            index = await self._log.backup(path)
            file = _Passing(path)
        except ports.LogError as error:
            raise problem(error) from error
        except OSError as error:
            raise problem(ports.Unavailable(f"the backup cannot be read here: {error}")) from error
        return Backup(index, file, file.size_bytes)


def _node(member: Member, state: str, lag: int | None) -> Json:
    return {
        "name": member.name, "id": member.id, "peer": member.peer, "http": member.http, "state": state, "lag": lag,
    }  # fmt: skip


class _Passing:
    """A file's bytes. Its name is gone from the beginning, so that the disk has the room again whoever ends first, and
    however."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed by `aclose`
        os.unlink(path)
        self.size_bytes = os.fstat(self._file.fileno()).st_size

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        data = await asyncio.to_thread(self._file.read, CHUNK_BYTES)
        if not data:
            await self.aclose()
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Whether or not it was read. In a thread: the blocks of a large file are given back here."""
        await asyncio.to_thread(self._file.close)
