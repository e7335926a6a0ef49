"""The rules of leadership, on top of pysyncobj: who may campaign, vote, lead, count and answer.

Events in (a message of a peer, a tick, a sync that finished), messages out; no sockets, no files, no tasks of its own.
The engine is built anew on each generation of the data directory; what must outlive it (the promise of a voter) is
given to it. Frames between engines are lists, see frames.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quvatlh.raft import entries, frames
from quvatlh.raft.electing import Electing
from quvatlh.raft.following import Following
from quvatlh.raft.frames import MalformedMessage
from quvatlh.raft.leading import Leading
from quvatlh.raft.part import Host
from quvatlh.raft.seams import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from quvatlh.ports import Clock, Entropy, Membership
    from quvatlh.raft.journal import Journal
    from quvatlh.raft.lease import Promise
    from quvatlh.raft.link import Link
    from quvatlh.raft.settings import Settings

__all__ = ["Engine", "Host", "MalformedMessage"]


class Engine(Following, Leading, Electing):
    """One node's part in the election and replication of one generation of the log."""

    def __init__(
        self,
        own_id: str,
        journal: Journal,
        applied_index: int,
        host: Host,
        clock: Clock,
        entropy: Entropy,
        settings: Settings,
        promise: Promise,
    ) -> None:
        self._acting_term = 0
        """The last term whose no-op was applied here as leader."""
        self._surrendered_term = 0
        """The last term in which a hand-over was ordered: never acted in again."""
        self._paused_term = 0
        super().__init__(own_id, journal, host, clock, entropy, settings, promise)
        self.start_from(applied_index)
        self._master_commit = applied_index
        journal.guard_index = applied_index
        journal.on_append = self._appended
        journal.on_cut = self._cut
        self._take_membership()
        if self._alone():
            self.set_election_deadline(0.0)

    # --- what the owner asks ----------------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        """In force from append."""
        return self._membership

    def membership_index(self) -> int:
        """Of the entry that put it in force."""
        return self._journal.membership_index

    def membership_pending(self) -> bool:
        """The membership in force is not applied, so perhaps not committed."""
        return self._journal.membership_index > self.last_applied()

    def acting(self) -> bool:
        """Leads, and has applied the no-op of its term."""
        return self.leads() and self._acting_term == self.term()

    def acts(self) -> bool:
        """May act as master at this instant."""
        term = self.term()
        return (
            self.acting()
            and term not in {self._paused_term, self._surrendered_term}
            and (self._alone() or self._lease.holds(self._membership))
        )

    def master_commit(self) -> int:
        """The greatest commit index heard of; an append lowers pysyncobj's own to what it proves."""
        return max(self._master_commit, self.commit_index())

    def log_time_ms(self) -> int:
        """The time that an entry made now is stamped with: the voters' clocks, never going back."""
        return max(self.clocks_ms(), self._journal.last_time_ms)

    def clocks_ms(self) -> int:
        """The lower median of the voters' clocks, as far as this node hears of them."""
        own = self._clock.wall_ms()
        if not self._walls:
            return own
        now = self._clock.boot()
        walls = [own]
        walls += [
            int(self._walls[m.id] + now * 1000)
            for m in self._membership.voters
            if m.id in self._walls and m.id != self._own_id
        ]
        walls.sort()
        return walls[(len(walls) - 1) // 2]

    def pause(self) -> None:
        """Take nothing new in this term, while what is under way is finished before a hand-over."""
        self._paused_term = self.term()

    def unpause(self) -> None:
        self._paused_term = 0

    def hand_over(self, node_id: str) -> None:
        """Tell a voter to campaign at once. Its request passes all promises, so this node never acts again in this term."""
        self._surrendered_term = self.term()
        super().hand_over(node_id)

    def excluded(self, index: int) -> bool:
        """Others have committed, at `index`, a membership without this node; whether that is news."""
        if index <= max(self._excluded_at, self._journal.membership_index):
            return False
        self._excluded_at = index
        return True

    def kick(self) -> None:
        self._journal.kick()

    def give_up(self) -> None:
        """Stop leading; the next leadership, whosever it is, has a higher term."""
        if self.leads():
            self.resign()
            self.set_election_deadline(self._clock.boot() + self.random_timeout())

    def caught_up(self, node_id: str) -> bool:
        return self.match_index(node_id) == self._journal.last_index

    # --- events -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look at the clock, commit, apply, send; meanwhile the disk has what came before."""
        self._journal.kick()
        if (
            self.leads()
            and not self._alone()
            and self._lease.silent_since(self._membership) > self._settings.election_max_s
        ):
            self._host.note("majority lost", term=self.term())
            self.give_up()
        if self.transfer_asked() and self._ordered_term != self.term():
            self.forget_transfer()  # it passes the promises to the master of that term, and to no later one
        self.look()
        self._journal.guard_index = max(self._journal.guard_index, self.commit_index())
        self._journal.kick()

    def next_tick_at(self) -> float:
        """When a tick is due even if nothing happens, by our clock."""
        if self.leads():
            return self.heartbeat_due()
        return max(self.election_deadline(), self._next_round_at)

    def synced(self) -> None:
        """The journal has synced more: answers that waited for it go out, and the next tick may commit and apply."""
        self.send_held_answers()

    def link_up(self, link: Link) -> None:
        self._progress.pop(link.node_id, None)
        self._walls.pop(link.node_id, None)
        if self.leads() and (self._membership.get(link.node_id) is not None):
            self._send_append(link.node_id)

    def link_down(self, link: Link) -> None:
        self._progress.pop(link.node_id, None)
        self._walls.pop(link.node_id, None)

    def gone(self, node_id: str) -> None:
        """The process of this node is no more: nothing is owed to it, and if it was master, another is wanted at once."""
        self._promise.released(node_id)
        if self.leader_id() == node_id and self._may_vote():
            others = sorted(m.id for m in self._membership.voters if m.id != node_id)
            rank = others.index(self._own_id)
            self.set_election_deadline(self._clock.boot() + rank * self._settings.rank_step_s)
            self._next_round_at = 0.0
            self._host.wake()

    def receive(self, link: Link, message: list[Any]) -> None:
        """A frame of a peer of the same cluster. MalformedMessage for what is none."""
        kind, fields = frames.check(message)
        handler: Callable[..., None] = getattr(self, "_on_" + kind.replace("-", "_"))
        handler(link, *fields)
        self._host.wake()  # the tick has all synced at once that came in one read

    def send(self, node_id: str, message: Message) -> None:
        """pysyncobj's messages, put into frames; those that it should not send are dropped here."""
        link = self._host.link(node_id)
        if link is None:
            return
        kind = message["type"]
        if kind == "next_node_idx":
            self._answer(link, ["next", self.term(), message["next_node_idx"], message["reset"], message["success"]])
        elif kind == "request_vote":
            frame = [
                "campaign",
                message["term"],
                message["last_log_index"],
                message["last_log_term"],
                self._by_hand_over,
            ]
            link.send(frame)
        elif kind == "response_vote":
            link.send(["vote", message["term"]])
        elif kind == "timeout_now":
            link.send(["take-over", message["term"]])

    # --- applying ---------------------------------------------------------------------------------------------------

    def apply_committed(self) -> bool:
        """A slice of what is committed and synced here."""
        first, last = self.last_applied() + 1, min(self.commit_index(), self._journal.durable_index)
        if first > last:
            return False
        done = self._host.apply(first, last)
        self.set_last_applied(done)
        if self.leads() and self._acting_term != self.term() and done >= self.no_op_index() > 0:
            self._acting_term = self.term()
            self._host.role_changed()
        if done < last:
            self._host.wake()
        return True

    # --- membership -------------------------------------------------------------------------------------------------

    def _appended(self, _index: int, command: bytes) -> None:
        if command[0] == entries.MEMBERSHIP:
            self._take_membership()

    def _cut(self, _index: int) -> None:
        self._take_membership()
