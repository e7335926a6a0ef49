"""Elections: nobody campaigns without a majority's word, and nobody helps to depose a master that it has just heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quvatlh.raft.part import Part
from quvatlh.raft.seams import FOLLOWER, LEADER

if TYPE_CHECKING:
    from quvatlh.raft.link import Link

BACKOFF_STEPS_MAX = 3
"""A candidate that failed so often rests up to 2^3 - 1 longest election times; more would delay what heals by itself."""


class Electing(Part):
    """As candidate and as voter."""

    def __init__(self, *arguments: Any) -> None:
        self._by_hand_over = False
        """The campaign under way was ordered by the master."""
        self._ordered_term = 0
        """In which the master of then told this node to take over."""
        super().__init__(*arguments)

    def may_campaign(self) -> bool:
        """Asked at each tick once the deadline is over: only with a majority's word, or when told to take over."""
        if not self._may_vote():
            return False
        self._by_hand_over = self.transfer_asked()
        if self._by_hand_over or self._alone():
            return True
        now = self._clock.boot()
        if self._prevote.take(self._membership.majority - 1, now):
            # Where answers take about as long as deadlines differ, candidates meet again and again: part them more and more.
            longest_s = self._settings.election_max_s * (2 ** min(self._campaigns, BACKOFF_STEPS_MAX) - 1)
            self._next_round_at = now + longest_s * self._entropy.random()
            self._campaigns += 1
            return True
        if now >= self._next_round_at:
            self._ask(now)
        return False

    def _ask(self, now: float) -> None:
        if self.leader_id() is not None:
            self._host.note("master silent", master=self.leader_id(), term=self.term())
            self.forget_leader()
            self._host.role_changed()
        length_s = self._settings.election_min_s / 2
        self._next_round_at = now + length_s * (0.5 + self._entropy.random())
        number = self._prevote.begin(now, length_s)
        for member in self._membership.voters:
            link = self._host.link(member.id)
            if link is not None:
                link.send(["canvass", self.term(), number, self._journal.last_index, self._journal.last_term])

    def _on_canvass(self, link: Link, term: int, number: int, last_index: int, last_term: int) -> None:
        fit = (last_term, last_index) >= (self._journal.last_term, self._journal.last_index)
        yes = term >= self.term() and fit and not self._refuses(link.node_id)
        link.send(["would", self.term(), number, yes])

    def _on_would(self, link: Link, term: int, number: int, yes: bool) -> None:  # noqa: FBT001
        if not self._membership.is_voter(link.node_id) or self.leads():
            return
        if term > self.term():
            if self.leader_id() is None:
                self.adopt_term(term)
                self._next_round_at = 0.0
        elif yes:
            self._prevote.grant(number, link.node_id)

    def _on_campaign(self, link: Link, term: int, last_index: int, last_term: int, by_hand_over: bool) -> None:  # noqa: FBT001
        if not by_hand_over and self._refuses(link.node_id):
            return
        known = (self.leader_id(), self.term())
        message = {"type": "request_vote", "term": term, "last_log_index": last_index, "last_log_term": last_term}
        self.deliver(link.node_id, message)
        if known != (self.leader_id(), self.term()):
            self._host.role_changed()

    def _on_vote(self, link: Link, term: int) -> None:
        """Once a term: who is candidate for long campaigns in many, and is voted for in each."""
        if self._membership.is_voter(link.node_id) and term == self.term() != self._voices.get(link.node_id):
            self._voices[link.node_id] = term
            self.deliver(link.node_id, {"type": "response_vote", "term": term})

    def _on_take_over(self, link: Link, term: int) -> None:
        if self._may_vote():
            self._ordered_term = term
            self.deliver(link.node_id, {"type": "timeout_now", "term": term})

    def _on_stale(self, link: Link, term: int) -> None:
        """A member's term ran ahead of ours: follow it there, or nobody could lead it."""
        if self._membership.get(link.node_id) is not None and term > self.term():
            self._host.note("term overtaken", own=self.term(), other=term, node=link.node_id)
            self.adopt_term(term)
            self.set_election_deadline(self._clock.boot())
            self._next_round_at = 0.0
            self._host.role_changed()

    def _refuses(self, candidate: str) -> bool:
        """The word that was given to a master, or that this node has as master."""
        if self.leads() and (self._alone() or self._lease.holds(self._membership)):
            return True
        return self._promise.binds_against(candidate)

    def state_changed(self, old: int, new: int) -> None:
        if new == LEADER:
            self._campaigns = 0
            self._lease.begin()
            self._progress.clear()
            self._walls.clear()
        if LEADER in (old, new) or new == FOLLOWER:
            self._host.role_changed()
