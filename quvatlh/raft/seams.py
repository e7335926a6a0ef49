"""The one place that touches pysyncobj's private parts. Everything else in `raft/` sees `Seams`.

pysyncobj 0.3.17 keeps: terms and votes, the matching of logs, the counting of votes and of replicas. It is driven, not
running: `doTick` and its message handler are called from the asyncio loop, and what it would do with files, sockets,
clocks and pickles is taken from it here. DESIGN.md in this package says for each override what it mends and costs;
tests/raft/test_seams.py fails when a name used here is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pysyncobj.syncobj as _syncobj
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

if TYPE_CHECKING:
    from quvatlh.ports import Clock, Entropy
    from quvatlh.raft.journal import Journal
    from quvatlh.raft.settings import Settings

PINNED_VERSION = "0.3.17"

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2

Message = dict[str, Any]


class _Surroundings:
    """Clock and chance of the engine that is running. pysyncobj looks for both in its module, and several engines may
    share a process; none of them awaits anything, so whoever entered last is the one that asks."""

    clock: Clock
    entropy: Entropy

    def random(self) -> float:
        """Stands where pysyncobj looks for the module `random`."""
        return self.entropy.random()

    def now(self) -> float:
        """Stands where it looks for its monotonic clock."""
        return self.clock.boot()


_here = _Surroundings()


class _NoPoller:
    """pysyncobj has no sockets here, so there is nothing to poll."""

    def poll(self, timeout: float) -> None:
        pass


_syncobj.PIPE_NOTIFIER_ENABLED = False
_syncobj.monotonicTime = _here.now
_syncobj.random = _here
_syncobj.createJournal = lambda journal: journal


class _Outbox(Transport):  # type: ignore[misc]  # pysyncobj has no types
    """pysyncobj's idea of a network: hands each message to `Seams.send`."""

    def __init__(self, engine: Seams, own: Node, others: set[Node]) -> None:
        super().__init__(engine, own, others)
        self._engine = engine

    def send(self, node: Node, message: Message) -> bool:
        self._engine.send(node.id, message)
        return True

    def deliver(self, node: Node, message: Message) -> None:
        self._onMessageReceived(node, message)


class Seams(SyncObj):  # type: ignore[misc]  # pysyncobj has no types
    """pysyncobj with its seams as ordinary methods. The engine subclasses it and fills in what is abstract.

    No properties here: SyncObj's constructor reads every attribute of the class before the object is ready.
    """

    def __init__(self, own_id: str, journal: Journal, settings: Settings, clock: Clock, entropy: Entropy) -> None:
        # The base constructor asks for a timeout, then for the journal, then builds the transport: own attributes first.
        self._journal = journal
        self._clock = clock
        self._entropy = entropy
        self._enter()
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            commandsWaitLeader=False,
            dynamicMembershipChange=False,
            commandsQueueSize=0,
            raftMinTimeout=settings.election_min_s,
            raftMaxTimeout=settings.election_max_s,
            appendEntriesPeriod=settings.heartbeat_s,
            # The engine steps down by its own count of answers, which looks at when a message was sent.
            leaderFallbackTimeout=1e9,
            connectionTimeout=1e9,
            appendEntriesBatchSizeBytes=settings.frame_bytes_max,
            journalFile=journal,
            fullDumpFile=None,
            onStateChanged=self.state_changed,
        )
        super().__init__(Node(own_id), [], conf, nodeClass=Node, transportClass=_Outbox)
        self._poller = _NoPoller()
        self._nodes: dict[str, Node] = {own_id: self._SyncObj__selfNode}

    def _enter(self) -> None:
        """Before anything that may ask pysyncobj's module for the time or for chance."""
        _here.clock = self._clock
        _here.entropy = self._entropy

    # --- what the engine fills in -----------------------------------------------------------------------------------

    def send(self, node_id: str, message: Message) -> None:
        """pysyncobj wants this sent."""
        raise AssertionError

    def state_changed(self, old: int, new: int) -> None:
        """Follower, candidate or leader: it has just changed."""
        raise AssertionError

    def may_campaign(self) -> bool:
        """Asked at each tick once the election deadline is over."""
        raise AssertionError

    def apply_committed(self) -> bool:
        """Apply what may be applied; whether followers should hear of the commit index at once."""
        raise AssertionError

    def send_appends(self) -> None:
        """A heartbeat is due, an entry was added, or the commit index moved."""
        raise AssertionError

    def committable(self, index: int) -> bool:
        """Whether the master itself may count for this entry."""
        raise AssertionError

    # --- overrides, by their mangled names --------------------------------------------------------------------------

    def _SyncObj__connectedToAnyone(self) -> bool:
        return self.may_campaign()

    def _SyncObj__applyLogEntries(self) -> bool:
        return self.apply_committed()

    def _SyncObj__sendAppendEntries(self) -> None:
        self._SyncObj__newAppendEntriesTime = self._clock.boot() + self._SyncObj__conf.appendEntriesPeriod
        self.send_appends()

    def _SyncObj__getEntries(self, index: int | None, count: int | None = None, _max: int | None = None) -> list[Any]:
        """Two callers are left. A follower asks for the entry before an append, without count: one entry is answered, so
        that what follows it is never cut by pysyncobj (the journal cuts on contradiction). The master's commit loop asks
        with count 1: an entry that it must not count yet is not shown, and the loop passes on without committing it."""
        journal = self._journal
        if index is None or not journal.first_index <= index <= journal.last_index:
            return []
        if count is not None and not self.committable(index):
            return []
        return [journal.entry(index)]

    def _SyncObj__tryLogCompaction(self) -> None:
        pass

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        msg = "pysyncobj's snapshot branch was entered"
        raise AssertionError(msg)

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        msg = "pysyncobj applied an entry itself"
        raise AssertionError(msg)

    # --- its state, by names that say what it is --------------------------------------------------------------------

    def state(self) -> int:
        return int(self._SyncObj__raftState)

    def term(self) -> int:
        return int(self._SyncObj__raftCurrentTerm)

    def voted_for(self) -> str | None:
        voted: str | None = self._SyncObj__votedForNodeId
        return voted

    def leader_id(self) -> str | None:
        leader: Node | None = self._SyncObj__raftLeader
        return None if leader is None else str(leader.id)

    def forget_leader(self) -> None:
        self._SyncObj__raftLeader = None

    def commit_index(self) -> int:
        return int(self._SyncObj__raftCommitIndex)

    def last_applied(self) -> int:
        return int(self._SyncObj__raftLastApplied)

    def set_last_applied(self, index: int) -> None:
        self._SyncObj__raftLastApplied = index

    def start_from(self, applied_index: int) -> None:
        """What the state file holds was committed and is applied."""
        self._SyncObj__raftLastApplied = applied_index
        self._SyncObj__raftCommitIndex = applied_index
        self._journal.setRaftCommitIndex(applied_index)

    def no_op_index(self) -> int:
        """Of the no-op with which the present leadership began."""
        return int(self._SyncObj__noopIDx or 0)

    def election_deadline(self) -> float:
        return float(self._SyncObj__raftElectionDeadline)

    def set_election_deadline(self, at: float) -> None:
        self._SyncObj__raftElectionDeadline = at

    def heartbeat_due(self) -> float:
        return float(self._SyncObj__newAppendEntriesTime)

    def random_timeout(self) -> float:
        self._enter()
        return float(self._SyncObj__generateRaftTimeout())

    def transfer_asked(self) -> bool:
        return bool(self._SyncObj__transferInProgress)

    def forget_transfer(self) -> None:
        self._SyncObj__transferInProgress = False

    def adopt_term(self, term: int) -> None:
        """Move to a higher term without a vote, as a follower of nobody."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None

    def resign(self) -> None:
        """Stop leading in the present term."""
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None

    def next_index(self, node_id: str) -> int:
        return int(self._SyncObj__raftNextIndex[self.node(node_id)])

    def set_next_index(self, node_id: str, index: int) -> None:
        self._SyncObj__raftNextIndex[self.node(node_id)] = index

    def match_index(self, node_id: str) -> int:
        return int(self._SyncObj__raftMatchIndex.get(self.node(node_id), 0))

    def node(self, node_id: str) -> Node:
        found = self._nodes.get(node_id)
        if found is None:
            found = self._nodes[node_id] = Node(node_id)
        return found

    def set_members(self, voters: set[str], learners: set[str]) -> None:
        """Who counts (other voters) and who is only served (learners), from now on."""
        others = {self.node(i) for i in voters}
        readonly = {self.node(i) for i in learners}
        self._SyncObj__otherNodes = others
        self._SyncObj__readonlyNodes = readonly
        next_index, match_index = self._SyncObj__raftNextIndex, self._SyncObj__raftMatchIndex
        now = self._clock.boot()
        for node in others | readonly:
            next_index.setdefault(node, self._journal.last_index + 1)
            match_index.setdefault(node, 0)
            self._SyncObj__lastResponseTime.setdefault(node, now)
        for gone in set(next_index) - others - readonly:
            next_index.pop(gone, None)
            match_index.pop(gone, None)

    # --- driving it -------------------------------------------------------------------------------------------------

    def deliver(self, node_id: str, message: Message) -> None:
        """Hand it a message, as if from its own transport."""
        self._enter()
        self._SyncObj__transport.deliver(self.node(node_id), message)

    def look(self) -> None:
        """Let it look at its deadlines, commit, apply and send."""
        self._enter()
        self.doTick(0)

    def append(self, command: bytes) -> int:
        """Append one entry as leader, and offer it to the followers; its index. As pysyncobj would, but for its queue."""
        index = self._journal.last_index + 1
        self._journal.add(command, index, self.term())
        self._SyncObj__sendAppendEntries()
        return index

    def hand_over(self, node_id: str) -> None:
        """Send the chosen voter the request to campaign at once."""
        self._enter()
        refused: list[Any] = []
        callback: Callable[[Any, Any], None] = lambda _result, error: refused.append(error)  # noqa: E731
        self.transferLeadership(self.node(node_id), callback)
        if refused != [0]:
            msg = f"pysyncobj refused the hand-over: {refused}"
            raise AssertionError(msg)
