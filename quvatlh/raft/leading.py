"""The master's side of replication: what is sent to whom, and what answers mean.

pysyncobj keeps next and matched index and counts; windows, probing and followers behind the log are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quvatlh.raft.frames import MalformedMessage
from quvatlh.raft.part import Part
from quvatlh.raft.progress import Progress

if TYPE_CHECKING:
    from quvatlh.raft.link import Link


class Leading(Part):
    """While this node is leader."""

    def committable(self, index: int) -> bool:
        """The master counts itself only for what it has synced."""
        return index <= self._journal.durable_index

    def send_appends(self) -> None:
        for member in (*self._membership.voters, *self._membership.learners):
            if member.id != self._own_id:
                self._send_append(member.id)

    def _send_append(self, node_id: str, *, only_entries: bool = False) -> None:
        """What the window allows; without entries a heartbeat, unless only entries are wanted."""
        link = self._host.link(node_id)
        if link is None:
            return
        progress = self._progress_of(node_id, link)
        journal, settings = self._journal, self._settings
        next_index = self.next_index(node_id)
        if next_index <= journal.first_index:
            # Every heartbeat is answered: to answer that again would go on without end.
            if not only_entries:
                self._send_behind(link, progress)
            return
        sent = False
        while next_index <= journal.last_index and progress.may_send(settings.append_window_bytes):
            rows, nbytes = self._rows(next_index)
            self._send_rows(link, next_index, rows)
            next_index += len(rows)
            self.set_next_index(node_id, next_index)
            progress.sent(next_index - 1, nbytes)
            sent = True
        if not sent and not only_entries:
            self._send_rows(link, next_index, [])

    def _rows(self, first: int) -> tuple[list[Any], int]:
        rows: list[Any] = []
        nbytes = 0
        for index in range(first, self._journal.last_index + 1):
            entry = self._journal.entry(index)
            nbytes += len(entry[0])
            if rows and (nbytes > self._settings.append_bytes_max or len(rows) == self._settings.append_entries_max):
                return rows, nbytes - len(entry[0])
            rows.append(entry)
        return rows, nbytes

    def _send_rows(self, link: Link, next_index: int, rows: list[Any]) -> None:
        prev = next_index - 1
        link.send(
            ["append", self.term(), self._clock.boot(), prev, self._journal.term_at(prev), self.commit_index(), rows]
        )

    def _send_behind(self, link: Link, progress: Progress) -> None:
        """A heartbeat that the follower cannot match, which renews its promise, and word of the snapshot."""
        self._send_rows(link, self._journal.first_index + 1, [])
        if not progress.behind:
            progress.behind = True
            self._host.note("follower behind the log", node=link.node_id, first=self._journal.first_index)
        link.send(["behind", self.term(), self._journal.first_index])

    def _on_echo(self, link: Link, term: int, sent: float, wall_ms: int) -> None:
        if term == self.term() and self.leads() and sent <= self._clock.boot():
            self._lease.answered(link.node_id, sent, link.serial)
            self._walls[link.node_id] = wall_ms - self._clock.boot() * 1000

    def _on_next(self, link: Link, term: int, next_index: int, reset: bool, success: bool) -> None:  # noqa: FBT001
        node_id = link.node_id
        if term != self.term() or not self.leads() or self._membership.get(node_id) is None or not self._current(link):
            return
        journal = self._journal
        if next_index > journal.last_index + 1:
            if success:
                raise MalformedMessage("next")
            next_index = journal.last_index + 1
        if reset and next_index <= self.match_index(node_id):
            # What was matched is synced there: this is an answer from before that.
            return
        progress = self._progress_of(node_id, link)
        streamed_to = self.next_index(node_id)
        if reset:
            progress.rejected()
        self.deliver(
            node_id, {"type": "next_node_idx", "next_node_idx": next_index, "reset": reset, "success": success}
        )
        if success:
            if not progress.probing:
                self.set_next_index(node_id, max(streamed_to, self.next_index(node_id)))
            progress.accepted(next_index - 1)
        if self.next_index(node_id) <= journal.last_index:
            self._send_append(node_id, only_entries=True)

    def _progress_of(self, node_id: str, link: Link) -> Progress:
        progress = self._progress.get(node_id)
        if progress is None or progress.serial != link.serial:
            progress = self._progress[node_id] = Progress(link.serial, self._settings.append_window_messages)
            # What was under way on an older connection may never have arrived.
            matched = self.match_index(node_id)
            if matched:
                self.set_next_index(node_id, matched + 1)
        return progress
