"""Faults on purpose: each takes one remedy away, by name, so that the simulation can show that it would have seen it.

A fault is planted by replacing a method of the real code for the time of a run. What is planted is the defect that the
package's DESIGN.md names, not one made up to be found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from quvatlh.ports import Member, Membership
from quvatlh.raft import datadir, entries, founding, replay, snapshot
from quvatlh.raft.ballot import Ballot
from quvatlh.raft.engine import Engine
from quvatlh.raft.founding import Waiting, cluster_id
from quvatlh.raft.journal import Journal
from quvatlh.raft.log import RaftLog
from quvatlh.raft.prevote import PreVote
from quvatlh.raft.proposals import Proposals
from tests.sim.disk import SimFile

Planted = contextlib.AbstractContextManager[Any]
FAULTS: dict[str, Callable[[], Planted]] = {}


WORLD_OF: dict[str, str] = {}
"""Fault -> the world that shows it."""


def fault_of(world: str) -> Callable[[Callable[[], Planted]], Callable[[], Planted]]:
    def register(plant: Callable[[], Planted]) -> Callable[[], Planted]:
        name = plant.__name__.replace("_", "-")
        FAULTS[name], WORLD_OF[name] = plant, world
        return plant

    return register


fault = fault_of("log")


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Break what `name` says while the context lasts; nothing with None."""
    if name is None:
        yield
        return
    with FAULTS[name]():
        yield


@contextlib.contextmanager
def all_of(*plants: Planted) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


# --- the disk ---------------------------------------------------------------------------------------------------------


@fault
def no_sync_before_answers() -> Planted:
    """A follower answers what it has not synced."""
    return patch.object(Engine, "_answer", lambda _self, link, frame: link.send(frame))


@fault
def proposal_counted_before_its_own_sync() -> Planted:
    """The master counts itself for an entry that only its memory holds."""
    return patch.object(Engine, "committable", lambda _self, _index: True)


@fault
def applied_before_the_own_sync() -> Planted:
    """The state is ahead of the log."""

    def apply_committed(self: Engine) -> bool:
        with patch.object(self._journal, "durable_index", self._journal.last_index):
            return real(self)

    real = Engine.apply_committed
    return patch.object(Engine, "apply_committed", apply_committed)


@fault
def vote_not_persisted() -> Planted:
    """Term and vote are in memory only."""

    def keep(self: Ballot, term: int, voted_for: str | None) -> None:
        self._term, self._voted_for = term, voted_for

    return patch.object(Ballot, "set", keep)


@fault
def log_cleared_at_start() -> Planted:
    """What the state does not hold yet is dropped from the log when it is opened."""

    def open_(cls: type[Journal], /, *args: Any, applied_index: int, **kwargs: Any) -> Journal:
        journal = real(*args, applied_index=applied_index, **kwargs)
        if journal.last_index > applied_index:
            journal._cut(applied_index + 1)
        return journal

    real = Journal.open
    return patch.object(Journal, "open", classmethod(open_))


@fault
def snapshot_renamed_before_sync() -> Planted:
    """A received generation becomes current while its bytes are only in the page cache."""

    def sync(self: SimFile) -> None:
        if not syncing:
            real_sync(self)

    def publish(self: datadir.DataDir, path: str) -> None:
        with patch.object(self._disk, "sync_dir", lambda _path: None):
            name = path.rpartition("/")[2]
            datadir._write_current(self._disk, self.path, name)
            self._current = name
        self._disk.sync_dir(self.path)

    async def fetch(*args: Any) -> Any:
        syncing.append(True)
        try:
            return await real_fetch(*args)
        finally:
            syncing.clear()

    syncing: list[bool] = []
    real_sync, real_fetch = SimFile.sync, snapshot.fetch
    return all_of(
        patch.object(SimFile, "sync", sync),
        patch.object(snapshot, "fetch", fetch),
        patch.object(datadir.DataDir, "publish", publish),
    )


@fault
def page_cache_trusted_at_start() -> Planted:
    """What a killed process renamed is believed although its directory was never synced."""

    def open_(cls: type[datadir.DataDir], disk: Any, *args: Any, **kwargs: Any) -> datadir.DataDir:
        with patch.object(disk, "sync_dir", lambda _path: None):
            return real(disk, *args, **kwargs)

    real = datadir.DataDir.open
    return patch.object(datadir.DataDir, "open", classmethod(open_))


@fault
def failed_sync_believed_later() -> Planted:
    """What the page cache holds after a sync that failed is synced again at the next start, which writes nothing."""

    def rewrite(disk: Any, last: str) -> None:
        file = disk.append(last)
        file.sync()
        file.close()
        disk.sync_dir(last.rpartition("/")[0])

    return patch.object(replay, "_rewrite", rewrite)


# --- the log ----------------------------------------------------------------------------------------------------------


@fault
def cut_shown_at_once() -> Planted:
    """An append that matches cuts all that follows its first entry, and adds again what it brings."""

    def on_append(
        self: Engine, link: Any, term: int, sent: float, prev: int, prev_term: int, commit: int, rows: Any
    ) -> None:
        journal = self._journal
        if (
            term >= self.term()
            and journal.first_index <= prev < journal.last_index
            and journal.term_at(prev) == prev_term
        ):
            journal.guard_index = 0
            journal._cut(prev + 1)
        real(self, link, term, sent, prev, prev_term, commit, rows)

    real = Engine._on_append
    return patch.object(Engine, "_on_append", on_append)


@fault
def cut_ignored() -> Planted:
    """An entry that contradicts one that is there is taken for the same."""

    def add(self: Journal, command: bytes, idx: int, term: int) -> None:
        if idx > self.last_index:
            real(self, command, idx, max(term, self.last_term))

    real = Journal.add
    return patch.object(Journal, "add", add)


@fault
def commit_index_not_lowered() -> Planted:
    """A follower believes the master's commit index for entries that the master has not shown it."""

    def on_append(
        self: Engine, link: Any, term: int, sent: float, prev: int, prev_term: int, commit: int, rows: Any
    ) -> None:
        def deliver(node_id: str, message: Any) -> None:
            Engine.deliver(self, node_id, {**message, "commit_index": commit})

        with patch.object(self, "deliver", deliver):
            real(self, link, term, sent, prev, prev_term, commit, rows)

    real = Engine._on_append
    return patch.object(Engine, "_on_append", on_append)


@fault
def answers_without_term_or_connection() -> Planted:
    """An answer counts whatever leadership and whatever connection it was for."""

    def on_next(self: Engine, link: Any, _term: int, next_index: int, reset: bool, success: bool) -> None:
        with patch.object(self, "_current", lambda _link: True):
            real(self, link, self.term(), min(next_index, self._journal.last_index + 1), reset, success)

    real = Engine._on_next
    return patch.object(Engine, "_on_next", on_next)


class _AnyTerm:
    """The term of every master."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _head_of_any_term(command: bytes) -> entries.Head:
    found = _real_head(command)
    return entries.Head(found.kind, _AnyTerm(), found.time_ms)  # type: ignore[arg-type]


_real_head = entries.head


@fault
def entry_of_an_old_master_applied() -> Planted:
    """What waits at a lost leadership goes to the next master as it is, and counts there."""

    def drop_queue(self: Proposals, why: str, code: str = "no_master") -> None:
        items = [p.item for p in self._queue if p.item is not None and not p.withdrawn]
        node = self._wake.__self__  # type: ignore[attr-defined]
        if items and node._engine is not None:
            raw.setdefault(node, []).append(entries.pack_items(node._engine.term(), node._engine.log_time_ms(), items))
        real_drop(self, why, code)

    def tick(self: RaftLog) -> None:
        real_tick(self)
        leader = self.role.master
        link = self.link(leader) if leader is not None and leader != self.node_id else None
        if link is not None:
            for command in raw.pop(self, []):
                link.send(["raw", command])

    def received(self: RaftLog, link: Any, message: Any) -> None:
        if message[0] != "raw":
            real_received(self, link, message)
        elif self._engine is not None and self._engine.leads():
            self._engine.append(message[1])

    raw: dict[RaftLog, list[bytes]] = {}
    real_drop, real_tick, real_received = Proposals.drop_queue, RaftLog._tick, RaftLog._received
    return all_of(
        patch.object(RaftLog, "_tick", tick),
        patch.object(Proposals, "drop_queue", drop_queue),
        patch.object(RaftLog, "_received", received),
        patch.object(entries, "head", _head_of_any_term),
    )


# --- leadership -------------------------------------------------------------------------------------------------------


@fault
def lease_by_receipt_time() -> Planted:
    """An answer renews the lease from when it was read, not from when its question was sent."""
    real = Engine._on_echo
    return patch.object(
        Engine, "_on_echo", lambda self, link, term, _sent, wall: real(self, link, term, self._clock.boot(), wall)
    )


@fault
def campaign_without_pre_vote() -> Planted:
    """A node whose deadline is over campaigns as soon as it is connected to anyone."""

    def may_campaign(self: Engine) -> bool:
        if not self._may_vote():
            return False
        self._by_hand_over = self.transfer_asked()
        return self._alone() or any(self._host.link(m.id) is not None for m in self._membership.voters)

    return patch.object(Engine, "may_campaign", may_campaign)


@fault
def vote_request_let_through_to_a_master_with_the_lease() -> Planted:
    """A request of a higher term deposes a master that a majority still follows."""

    def refuses(self: Engine, candidate: str) -> bool:
        return False if self.leads() else self._promise.binds_against(candidate)

    # Who would ask such a master? A candidate that did not wait for the answers to its question.
    return all_of(patch.object(Engine, "_refuses", refuses), patch.object(PreVote, "_enough", lambda *_: True))


# --- membership -------------------------------------------------------------------------------------------------------


@fault
def founding_by_a_part_of_the_peers() -> Planted:
    """A majority of the peer list is taken for all of it."""

    def decide(own: Member, founders: tuple[str, ...], hellos: Any) -> Membership | Waiting:
        hellos = list(hellos)
        verdict = real(own, founders, hellos)
        empty = [h for h in hellos if not h.get("membership") and h["peer"] in founders]
        if isinstance(verdict, Waiting) and 2 * (len(empty) + 1) > len(founders) > 1 and len(empty) == len(hellos):
            members = [own, *(Member(h["id"], h["name"], h["peer"]) for h in empty)]
            return Membership(cluster_id(m.id for m in members), tuple(sorted(members, key=lambda m: m.id)))
        return verdict

    real = founding.decide
    return patch.object(founding, "decide", decide)


@fault
def two_membership_changes_at_once() -> Planted:
    """The next change does not wait until the one before is committed."""

    return patch.object(Engine, "membership_pending", lambda _self: False)


@fault
def empty_disk_that_votes() -> Planted:
    """The id belongs to the machine, not to the data: a node whose disk was replaced comes back as the one it was."""

    class _Named:
        def __init__(self, name: str) -> None:
            self._name = name

        def random(self) -> float:
            raise AssertionError

        def token(self, nbytes: int) -> bytes:
            return self._name.encode().ljust(nbytes, b"\0")[:nbytes]

    def found(disk: Any, path: str, _entropy: Any, machine_id: str, *rest: Any) -> None:
        real(disk, path, _Named(machine_id), machine_id, *rest)

    real = datadir._found
    return patch.object(datadir, "_found", found)
