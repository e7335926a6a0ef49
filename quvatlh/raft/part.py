"""What the parts of an engine share: its ports, who its members are, and what it knows of its connections.

An engine is one object in four pieces, because leadership is one state: following.py takes appends, leading.py sends
them, electing.py asks for votes and gives them, engine.py puts them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from quvatlh.raft import entries
from quvatlh.raft.lease import Lease, Promise
from quvatlh.raft.prevote import PreVote
from quvatlh.raft.progress import Progress
from quvatlh.raft.seams import LEADER, Seams

if TYPE_CHECKING:
    from quvatlh.ports import Clock, Entropy, Membership
    from quvatlh.raft.journal import Journal
    from quvatlh.raft.link import Link
    from quvatlh.raft.settings import Settings


class Host(Protocol):
    """What the engine needs of its owner."""

    def link(self, node_id: str) -> Link | None: ...

    def wake(self) -> None:
        """Tick soon."""
        ...

    def apply(self, first: int, last: int) -> int:
        """Apply entries from `first`, at most to `last` and for one slice; the last one applied."""
        ...

    def role_changed(self) -> None: ...

    def members_changed(self, membership: Membership) -> None: ...

    def behind(self, master: str, first_index: int) -> None:
        """The master's log begins after our end."""
        ...

    def note(self, event: str, **facts: object) -> None: ...


class Part(Seams):
    """State and small questions."""

    def __init__(
        self,
        own_id: str,
        journal: Journal,
        host: Host,
        clock: Clock,
        entropy: Entropy,
        settings: Settings,
        promise: Promise,
    ) -> None:
        self._own_id = own_id
        self._host = host
        self._settings = settings
        self._promise = promise
        self._lease = Lease(own_id, clock, settings, self._serial_of)
        self._prevote = PreVote()
        self._progress: dict[str, Progress] = {}
        """Of followers, by id; only a leader's count."""
        self._walls: dict[str, float] = {}
        """What to add to the own boot clock, in ms, to have another voter's wall clock."""
        self._voices: dict[str, int] = {}
        """The last term in which the vote of each was counted."""
        self._next_round_at = 0.0
        """No earlier is a majority asked again whether it would vote for this node."""
        self._campaigns = 0
        """Since a master was last heard, or this node was one."""
        self._excluded_at = 0
        self._know(entries.unpack_membership(journal.membership))
        super().__init__(own_id, journal, settings, clock, entropy)

    def leads(self) -> bool:
        return self.state() == LEADER

    def _take_membership(self) -> None:
        """The last one in the log, committed or not."""
        members = entries.unpack_membership(self._journal.membership)
        self._know(members)
        voters = {m.id for m in members.voters} - {self._own_id}
        self.set_members(voters, {m.id for m in members.learners} - {self._own_id})
        self._host.members_changed(members)

    def _know(self, members: Membership) -> None:
        self._membership = members
        self._is_only_voter = len(members.voters) == 1 and members.is_voter(self._own_id)

    def _alone(self) -> bool:
        return self._is_only_voter and not self.is_excluded()

    def _may_vote(self) -> bool:
        return self._membership.is_voter(self._own_id) and not self.is_excluded()

    def is_excluded(self) -> bool:
        """Others have said that this node is no member any more, and no later entry has taken it back."""
        return self._excluded_at > 0 and self._excluded_at > self._journal.membership_index

    def _serial_of(self, node_id: str) -> int | None:
        link = self._host.link(node_id)
        return None if link is None else link.serial

    def _current(self, link: Link) -> bool:
        return self._serial_of(link.node_id) == link.serial
