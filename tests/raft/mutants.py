"""Remedies taken away one by one, beside those of tests.sim.planted: what a simulation would not single out, a test does.

A mutant replaces a method of the real code for the time of a test; see teeth.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from pysyncobj import SyncObj

from quvatlh.ports import Member, Membership
from quvatlh.raft import entries, founding, journal, members
from quvatlh.raft.applier import Applier
from quvatlh.raft.engine import Engine
from quvatlh.raft.journal import Journal, LogCorrupt
from quvatlh.raft.lease import Lease, Promise
from quvatlh.raft.log import RaftLog
from quvatlh.raft.progress import Progress
from quvatlh.raft.proposals import Proposals
from quvatlh.raft.replay import replay as original_replay
from quvatlh.raft.seams import Seams

Mutant = AbstractContextManager[Any]
MUTANTS: dict[str, Callable[[], Mutant]] = {}


def mutant(make: Callable[[], Mutant]) -> Callable[[], Mutant]:
    MUTANTS[make.__name__.replace("_", "-")] = make
    return make


@contextlib.contextmanager
def _all(*plants: Mutant) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


# --- log and state ----------------------------------------------------------------------------------------------------


@mutant
def state_and_log_not_compared() -> Mutant:
    """A log opens whatever the state has applied."""

    def replay(disk: Any, directory: str, applied_index: int) -> Any:
        for guess in (applied_index, *range(1000)):
            try:
                return real(disk, directory, guess)
            except LogCorrupt:
                continue
        raise AssertionError

    real = original_replay
    return patch.object(journal, "replay", replay)


@mutant
def failed_disk_ignored() -> Mutant:
    return patch.object(Journal, "_fail", lambda _self, _error: None)


@mutant
def clear_clears() -> Mutant:
    return patch.object(Journal, "clear", lambda self: self._cut(self.first_index + 1))


@mutant
def cut_by_pysyncobj() -> Mutant:
    """It sees all that follows the entry before an append, deletes it, and adds what the append brings."""
    name = "_SyncObj__getEntries"
    return _all(
        patch.object(Seams, name, getattr(SyncObj, name)),
        patch.object(Journal, "deleteEntriesFrom", lambda self, diff: self._cut(self.first_index + diff)),
    )


@mutant
def committed_entries_may_be_cut() -> Mutant:
    return patch.object(Journal, "_refuse_cut", lambda _self, _index, _term: None)


@mutant
def commit_index_is_what_an_append_proves() -> Mutant:
    """What the master said beyond that is forgotten."""
    return patch.object(Engine, "master_commit", lambda self: self.commit_index())


@mutant
def appends_by_pysyncobj() -> Mutant:
    """Its own loop sends them: in parts, without a window, with pickles."""
    name = "_SyncObj__sendAppendEntries"
    return patch.object(Seams, name, getattr(SyncObj, name))


@mutant
def behind_repeated_at_every_answer() -> Mutant:
    """A follower's answer to what it cannot match is answered at once, and so on for ever."""

    def on_next(self: Engine, link: Any, term: int, next_index: int, reset: bool, success: bool) -> None:
        real(self, link, term, next_index, reset, success)
        if reset:
            self._send_append(link.node_id)

    real = Engine._on_next
    return patch.object(Engine, "_on_next", on_next)


# --- elections and lease ----------------------------------------------------------------------------------------------


@mutant
def lower_term_not_answered() -> Mutant:
    def on_append(self: Engine, link: Any, term: int, *rest: Any) -> None:
        if term >= self.term():
            real(self, link, term, *rest)

    real = Engine._on_append
    return patch.object(Engine, "_on_append", on_append)


@mutant
def no_promise() -> Mutant:
    return patch.object(Promise, "binds_against", lambda _self, _candidate: False)


@mutant
def no_promise_at_the_start() -> Mutant:
    real = Promise.__init__

    def init(self: Promise, clock: Any, settings: Any) -> None:
        real(self, clock, settings)
        self._started = float("-inf")

    return patch.object(Promise, "__init__", init)


@mutant
def hand_over_refused_as_any_other() -> Mutant:
    def on_campaign(self: Engine, link: Any, term: int, last_index: int, last_term: int, _by_hand_over: bool) -> None:
        real(self, link, term, last_index, last_term, False)

    real = Engine._on_campaign
    return patch.object(Engine, "_on_campaign", on_campaign)


@mutant
def hand_over_keeps_the_lease() -> Mutant:
    return patch.object(Engine, "hand_over", Seams.hand_over)


@mutant
def hand_over_without_draining() -> Mutant:
    return patch.object(Engine, "caught_up", lambda _self, _node_id: True)


@mutant
def master_without_majority_stays() -> Mutant:
    return patch.object(Lease, "silent_since", lambda _self, _members: 0.0)


@mutant
def lease_of_an_older_connection() -> Mutant:
    """An answer counts after the connection it came over has been replaced."""
    real = Lease.__init__

    def init(self: Lease, own_id: str, clock: Any, settings: Any, serial_of: Any) -> None:
        real(self, own_id, clock, settings, lambda node_id: self._answers.get(node_id, (0.0, None))[1])

    return patch.object(Lease, "__init__", init)


@mutant
def echo_waits_for_the_sync() -> Mutant:
    """A slow disk ends the lease."""

    class _Held:
        def __init__(self, link: Any) -> None:
            self.node_id, self.serial, self._link = link.node_id, link.serial, link
            self.echoes: list[Any] = []

        def send(self, frame: Any) -> bool:
            if frame[0] == "echo":
                self.echoes.append(frame)
                return True
            sent: bool = self._link.send(frame)
            return sent

    def on_append(self: Engine, link: Any, *rest: Any) -> None:
        held = _Held(link)
        real(self, held, *rest)  # type: ignore[arg-type]
        for frame in held.echoes:
            self._answer(link, frame)

    real = Engine._on_append
    return patch.object(Engine, "_on_append", on_append)


@mutant
def acts_before_its_no_op() -> Mutant:
    return patch.object(Engine, "acting", lambda self: self.leads())


@mutant
def masters_death_not_noticed() -> Mutant:
    return patch.object(Engine, "gone", lambda _self, _node_id: None)


# --- replication ------------------------------------------------------------------------------------------------------


@mutant
def next_index_rewinds() -> Mutant:
    """What is under way is sent again at every answer."""

    def on_next(self: Engine, link: Any, term: int, next_index: int, reset: bool, success: bool) -> None:
        streamed_to = self.next_index(link.node_id)

        def keep(node_id: str, index: int) -> None:
            if index != streamed_to:
                Engine.set_next_index(self, node_id, index)

        with patch.object(self, "set_next_index", keep):
            real(self, link, term, next_index, reset, success)

    real = Engine._on_next
    return patch.object(Engine, "_on_next", on_next)


@mutant
def stale_reset_believed() -> Mutant:
    real = Engine._on_next

    def on_next(self: Engine, link: Any, *rest: Any) -> None:
        with patch.object(self, "match_index", lambda _node_id: 0):
            real(self, link, *rest)

    return patch.object(Engine, "_on_next", on_next)


@mutant
def no_window() -> Mutant:
    return patch.object(Progress, "may_send", lambda _self, _window: True)


@mutant
def commands_forwarded() -> Mutant:
    def send(self: Engine, node_id: str, message: Any) -> None:
        link = self._host.link(node_id)
        if message["type"] == "apply_command" and link is not None:
            link.send(["apply", message["command"]])
        real(self, node_id, message)

    real = Engine.send
    return patch.object(Engine, "send", send)


@mutant
def queue_kept_at_lost_leadership() -> Mutant:
    return patch.object(Proposals, "drop_queue", lambda _self, _why, _code="": None)


@mutant
def backlog_in_one_go() -> Mutant:
    def apply(self: Applier, first: int, last: int) -> int:
        self._slice_s = 1e9
        return real(self, first, last)

    real = Applier.apply
    return patch.object(Applier, "apply", apply)


@mutant
def answer_whatever_stands_there() -> Mutant:
    """A proposal is answered by what another master put in its place."""

    def applied(self: Proposals, entry: Any, results: Any) -> None:
        waiting = self._logged.get(entry.index)
        if waiting is not None:
            self._logged[entry.index] = (entry.term, waiting[1])
        real(self, entry, list(results) + [None] * 10)

    real = Proposals.applied
    return patch.object(Proposals, "applied", applied)


@mutant
def bugs_are_survived() -> Mutant:
    return patch.object(RaftLog, "_broken", lambda _self, _error: None)


# --- membership -------------------------------------------------------------------------------------------------------


@mutant
def voter_at_once() -> Mutant:
    def with_learner(now: Membership, member: Member, settings: Any) -> Membership:
        return members.with_voter(real(now, member, settings), member.id, settings)

    real = members.with_learner
    return patch.object(members, "with_learner", with_learner)


@mutant
def membership_not_from_append() -> Mutant:
    return patch.object(Engine, "_appended", lambda _self, _index, _command: None)


@mutant
def membership_not_undone() -> Mutant:
    return patch.object(Engine, "_cut", lambda _self, _index: None)


@mutant
def membership_forgotten_at_restart() -> Mutant:
    return patch.object(Journal, "membership", property(lambda self: self._runs.memberships[0][1]))


@mutant
def master_removes_itself() -> Mutant:
    async def remove_member(self: RaftLog, node_id: str, *, deadline: float) -> Membership:
        await self._change(members.without(self._member_view(), node_id), deadline)
        return self._member_view()

    return patch.object(RaftLog, "remove_member", remove_member)


@mutant
def other_clusters_admitted() -> Mutant:
    return patch.object(founding, "refuses", lambda _own, _hello: None)


@mutant
def strangers_answers_passed_on() -> Mutant:
    """Whoever answers is taken for a member."""
    real = Engine._on_next

    def on_next(self: Engine, link: Any, *rest: Any) -> None:
        with patch.object(Membership, "get", lambda _self, node_id: Member(node_id, "", "")):
            real(self, link, *rest)

    return patch.object(Engine, "_on_next", on_next)


@mutant
def strangers_may_vote() -> Mutant:
    real = Engine._on_vote

    def on_vote(self: Engine, link: Any, term: int) -> None:
        with patch.object(Membership, "is_voter", lambda _self, _node_id: True):
            real(self, link, term)

    return patch.object(Engine, "_on_vote", on_vote)


@mutant
def a_voice_counts_twice() -> Mutant:
    real = Engine._on_vote

    def on_vote(self: Engine, link: Any, term: int) -> None:
        self._voices.pop(link.node_id, None)
        real(self, link, term)

    return patch.object(Engine, "_on_vote", on_vote)


@mutant
def a_voice_counts_once_a_candidacy() -> Mutant:
    real = Engine._on_vote

    def on_vote(self: Engine, link: Any, term: int) -> None:
        if link.node_id not in self._voices:
            real(self, link, term)

    return patch.object(Engine, "_on_vote", on_vote)


# --- entries ----------------------------------------------------------------------------------------------------------


@mutant
def items_of_any_size() -> Mutant:
    async def submit(self: Proposals, item: bytes | None, deadline_s: float) -> Any:
        with patch.object(type(self._settings), "item_bytes_max", 1 << 40):
            return await real(self, item, deadline_s)

    real = Proposals.submit
    return patch.object(Proposals, "submit", submit)


@mutant
def log_time_of_the_own_clock() -> Mutant:
    return patch.object(Engine, "log_time_ms", lambda self: self._clock.wall_ms())


@mutant
def groups_of_one() -> Mutant:
    """Each proposal is an entry of its own."""

    def next_group(self: Proposals) -> list[Any]:
        with patch.object(type(self._settings), "group_bytes_max", 0):
            group: list[Any] = real(self)
        return group

    real = Proposals._next_group
    return patch.object(Proposals, "_next_group", next_group)


@mutant
def term_of_an_entry_not_looked_at() -> Mutant:
    """An entry that another master made counts."""

    def head(command: bytes) -> entries.Head:
        found = real(command)
        return entries.Head(found.kind, _AnyTerm(), found.time_ms)  # type: ignore[arg-type]

    real = entries.head
    return patch.object(entries, "head", head)


class _AnyTerm:
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]
