"""The follower's side of replication: appends are taken, answered at once where that promises nothing, else when synced."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from quvatlh.raft.frames import MalformedMessage, are_entries
from quvatlh.raft.part import Part

if TYPE_CHECKING:
    from quvatlh.raft.link import Link


class Following(Part):
    """Of a master, whoever that is."""

    def __init__(self, *arguments: Any) -> None:
        self._held_answers: deque[tuple[int, Link, list[Any]]] = deque()
        """(ticket of the journal, link, frame): they wait for the sync that covers what they claim."""
        self._echoed: tuple[int, int, float] = (0, 0, 0.0)
        """Link, term and time of the last append that was echoed."""
        self._master_commit = 0
        super().__init__(*arguments)

    def _on_append(
        self, link: Link, term: int, sent: float, prev_index: int, prev_term: int, commit: int, rows: list[Any]
    ) -> None:
        if not are_entries(rows, prev_index):
            raise MalformedMessage("append")
        if term < self.term():
            link.send(["stale", self.term()])
            return
        self._promise.heard(link.node_id)
        if self._echoed[:2] != (link.serial, term) or sent - self._echoed[2] >= self._settings.heartbeat_s / 4:
            self._echoed = (link.serial, term, sent)
            link.send(["echo", term, sent, self._clock.wall_ms()])
        self._master_commit = max(self._master_commit, commit)
        known = (self.leader_id(), self.term())
        self.deliver(
            link.node_id,
            {
                "type": "append_entries",
                "term": term,
                # What stands beyond this append may be of an older master: it proves nothing about it.
                "commit_index": min(commit, prev_index + len(rows)),
                "entries": rows,
                "prevLogIdx": prev_index,
                "prevLogTerm": prev_term,
            },
        )
        if known != (self.leader_id(), self.term()):
            self._prevote.cancel()
            self._campaigns = 0
            self._host.role_changed()

    def _on_behind(self, link: Link, term: int, first_index: int) -> None:
        if term == self.term() and self.leader_id() == link.node_id:
            self._host.behind(link.node_id, first_index)

    def _answer(self, link: Link, frame: list[Any]) -> None:
        """What claims entries waits until they are synced."""
        ticket = self._journal.ticket()
        if frame[-1] and ticket > self._journal.synced_ticket:
            self._held_answers.append((ticket, link, frame))
        else:
            link.send(frame)

    def send_held_answers(self) -> None:
        """Those whose sync is done."""
        held = self._held_answers
        while held and held[0][0] <= self._journal.synced_ticket:
            _, link, message = held.popleft()
            link.send(message)
