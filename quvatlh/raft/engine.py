"""The rules of leadership, on top of pysyncobj: who may campaign, vote, lead, count and answer.

Events in (a message of a peer, a tick, a sync that finished), messages out; no sockets, no files, no tasks of its own.
The engine is built anew on each generation of the data directory; what must outlive it (the promise of a voter) is
given to it. Frames between engines are lists, see `_SHAPES`; each names the term of its sender.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from quvatlh.raft import entries
from quvatlh.raft.lease import Lease, Promise
from quvatlh.raft.prevote import PreVote
from quvatlh.raft.progress import Progress
from quvatlh.raft.seams import CANDIDATE, FOLLOWER, LEADER, Message, Seams
from quvatlh.raft.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from quvatlh.ports import Clock, Entropy, Membership
    from quvatlh.raft.journal import Journal
    from quvatlh.raft.link import Link
    from quvatlh.raft.settings import Settings

_NUMBER = (int, float)
_NUMBERS_END = 2**63
_SHAPES: dict[str, tuple[Any, ...]] = {
    "append": (int, _NUMBER, int, int, int, list),  # term, sent, previous index, its term, commit index, entries
    "echo": (int, _NUMBER, int),  # term, sent (as in the append), wall clock in ms
    "next": (int, int, bool, bool),  # term, next index wanted, start again there, everything before it is held
    "canvass": (int, int, int, int),  # own term, round, last index, last term: would you vote for me?
    "would": (int, int, bool),  # own term, round, yes
    "campaign": (int, int, int, bool),  # term, last index, last term, by hand-over
    "vote": (int,),  # term
    "take-over": (int,),  # term: campaign now
    "stale": (int,),  # own term, which is above that of the message it answers
    "behind": (int, int),  # term, first index of the master's log: fetch a snapshot
}


class MalformedMessage(WireError):
    """A peer sent a frame that is none of ours: its link ends."""

    def __init__(self, kind: object) -> None:
        super().__init__(f"a malformed message of kind {str(kind)[:40]!r}", "message")


def _are_entries(rows: list[Any], prev_index: int) -> bool:
    """Whether these are entries that follow each other and the one before."""
    for index, row in enumerate(rows, prev_index + 1):
        match row:
            case [bytes(command), int(at), int(term)] if _is_number(at) and _is_number(term) and at == index:
                try:
                    entries.check(command)
                except entries.BadEntry:
                    return False
            case _:
                return False
    return True


def _is_number(value: Any) -> bool:
    """Whether it may be a term, an index or a time: no bool, and with room for one more in 64 bits."""
    return type(value) is int and 0 <= value < _NUMBERS_END


def _fits(value: object, wanted: Any) -> bool:
    return _is_number(value) if wanted is int else isinstance(value, wanted)


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


class Engine(Seams):
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
        self._own_id = own_id
        self._host = host
        self._settings = settings
        self._promise = promise
        self._lease = Lease(own_id, clock, settings, self._serial_of)
        self._prevote = PreVote()
        self._progress: dict[str, Progress] = {}
        self._walls: dict[str, float] = {}
        self._votes: set[str] = set()
        self._held_answers: deque[tuple[int, Link, list[Any]]] = deque()
        self._echoed: tuple[int, int, float] = (0, 0, 0.0)
        self._by_hand_over = False
        self._next_round_at = 0.0
        self._acting_term = 0
        self._surrendered_term = 0
        self._paused_term = 0
        self._excluded_at = 0
        self._master_commit = applied_index
        self._membership = entries.unpack_membership(journal.membership)
        super().__init__(own_id, journal, settings, clock, entropy)
        self.start_from(applied_index)
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

    def membership_pending(self) -> bool:
        """The membership in force is not applied, so perhaps not committed."""
        return self._journal.membership_index > self.last_applied()

    def leads(self) -> bool:
        return self.state() == LEADER

    def acting(self) -> bool:
        """Leads, and has applied the no-op of its term."""
        return self.leads() and self._acting_term == self.term()

    def acts(self) -> bool:
        """May act as master at this instant."""
        return (
            self.acting()
            and self._paused_term != self.term()
            and self._surrendered_term != self.term()
            and (self._alone() or self._lease.holds(self._membership))
        )

    def master_commit(self) -> int:
        """The greatest commit index heard of; an append lowers pysyncobj's own to what it proves."""
        return max(self._master_commit, self.commit_index())

    def log_time_ms(self) -> int:
        """The time that an entry made now is stamped with: the lower median of the voters' clocks, never going back."""
        now = self._clock.boot()
        walls = [self._clock.wall_ms()]
        walls += [
            int(self._walls[m.id] + now * 1000) for m in self._membership.voters if m.id in self._walls and m.id != self._own_id
        ]
        walls.sort()
        return max(walls[(len(walls) - 1) // 2], self._journal.last_time_ms)

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
        """Look at the clock, commit, apply, send."""
        if self.leads() and not self._alone() and self._lease.silent_since(self._membership) > self._settings.election_max_s:
            self._host.note("majority lost", term=self.term())
            self.give_up()
        self.look()
        self._journal.guard_index = max(self._journal.guard_index, self.commit_index())
        self._journal.kick()

    def next_tick_at(self) -> float:
        """When a tick is due even if nothing happens, by our clock."""
        if self.leads():
            return self.heartbeat_due()
        return max(self.election_deadline(), self._next_round_at)

    def synced(self) -> None:
        """The journal has synced more: answers that waited for it go out, and entries may be committed or applied."""
        held = self._held_answers
        while held and held[0][0] <= self._journal.synced_ticket:
            _, link, message = held.popleft()
            link.send(message)
        self._host.wake()

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
        kind, *fields = message
        shape = _SHAPES.get(kind)
        if shape is None or len(fields) != len(shape):
            raise MalformedMessage(kind)
        if not all(map(_fits, fields, shape)):
            raise MalformedMessage(kind)
        handler: Callable[..., None] = getattr(self, "_on_" + kind.replace("-", "_"))
        handler(link, *fields)
        self._journal.kick()
        self._host.wake()

    # --- replication, follower's side -------------------------------------------------------------------------------

    def _on_append(self, link: Link, term: int, sent: float, prev_index: int, prev_term: int, commit: int, rows: list[Any]) -> None:
        if not _are_entries(rows, prev_index):
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
            self._host.role_changed()

    def _on_behind(self, link: Link, term: int, first_index: int) -> None:
        if term == self.term() and self.leader_id() == link.node_id:
            self._host.behind(link.node_id, first_index)

    def send(self, node_id: str, message: Message) -> None:
        """pysyncobj's messages, put into frames; those that it should not send are dropped here."""
        link = self._host.link(node_id)
        if link is None:
            return
        kind = message["type"]
        if kind == "next_node_idx":
            self._answer(link, ["next", self.term(), message["next_node_idx"], message["reset"], message["success"]])
        elif kind == "request_vote":
            frame = ["campaign", message["term"], message["last_log_index"], message["last_log_term"], self._by_hand_over]
            link.send(frame)
        elif kind == "response_vote":
            link.send(["vote", message["term"]])
        elif kind == "timeout_now":
            link.send(["take-over", message["term"]])

    def _answer(self, link: Link, frame: list[Any]) -> None:
        """What claims entries waits until they are synced."""
        ticket = self._journal.ticket()
        if frame[-1] and ticket > self._journal.synced_ticket:
            self._held_answers.append((ticket, link, frame))
        else:
            link.send(frame)

    # --- replication, master's side ---------------------------------------------------------------------------------

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
            if rows and nbytes > self._settings.append_bytes_max:
                return rows, nbytes - len(entry[0])
            rows.append(entry)
        return rows, nbytes

    def _send_rows(self, link: Link, next_index: int, rows: list[Any]) -> None:
        prev = next_index - 1
        link.send(["append", self.term(), self._clock.boot(), prev, self._journal.term_at(prev), self.commit_index(), rows])

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
        self.deliver(node_id, {"type": "next_node_idx", "next_node_idx": next_index, "reset": reset, "success": success})
        if success:
            if not progress.probing:
                self.set_next_index(node_id, max(streamed_to, self.next_index(node_id)))
            progress.accepted(next_index - 1)
        if self.next_index(node_id) <= journal.last_index:
            self._send_append(node_id, only_entries=True)

    def _progress_of(self, node_id: str, link: Link) -> Progress:
        progress = self._progress.get(node_id)
        if progress is None or progress.serial != link.serial:
            progress = self._progress[node_id] = Progress(link.serial)
            # What was under way on an older connection may never have arrived.
            matched = self.match_index(node_id)
            if matched:
                self.set_next_index(node_id, matched + 1)
        return progress

    # --- elections --------------------------------------------------------------------------------------------------

    def may_campaign(self) -> bool:
        """Asked at each tick once the deadline is over: only with a majority's word, or when told to take over."""
        if not self._may_vote():
            return False
        self._by_hand_over = self.transfer_asked()
        if self._by_hand_over or self._alone():
            return True
        now = self._clock.boot()
        if self._prevote.take(self._membership.majority - 1, now):
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
        if self._membership.is_voter(link.node_id) and term == self.term() and link.node_id not in self._votes:
            self._votes.add(link.node_id)
            self.deliver(link.node_id, {"type": "response_vote", "term": term})

    def _on_take_over(self, link: Link, term: int) -> None:
        if self._may_vote():
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
        if new == CANDIDATE:
            self._votes = {self._own_id}
        if new == LEADER:
            self._lease.begin()
            self._progress.clear()
            self._walls.clear()
        if LEADER in (old, new) or new == FOLLOWER:
            self._host.role_changed()

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

    def _take_membership(self) -> None:
        """The last one in the log, committed or not."""
        self._membership = entries.unpack_membership(self._journal.membership)
        members = self._membership
        voters = {m.id for m in members.voters} - {self._own_id}
        self.set_members(voters, {m.id for m in members.learners} - {self._own_id})
        self._host.members_changed(members)

    def _alone(self) -> bool:
        return len(self._membership.voters) == 1 and self._may_vote()

    def _may_vote(self) -> bool:
        return self._membership.is_voter(self._own_id) and self._excluded_at <= self._journal.membership_index

    def _serial_of(self, node_id: str) -> int | None:
        link = self._host.link(node_id)
        return None if link is None else link.serial

    def _current(self, link: Link) -> bool:
        return self._serial_of(link.node_id) == link.serial
