"""What must hold, looked at after every step and at the end. Knows all nodes; no node knows it.

`canon` is what was applied first at each index, by whichever node: everybody else must agree with it, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quvatlh.ports import Entry
from quvatlh.raft import entries
from quvatlh.raft.engine import Engine
from tests.sim.box import AnyBox, Watch
from tests.sim.process import DEAD, PAUSED


class Violation(Exception):
    """A promise was broken."""


class Judge(Watch):
    def __init__(self) -> None:
        self.boxes: Sequence[AnyBox] = ()
        self.canon: dict[int, tuple[int, int, tuple[bytes, ...], bytes]] = {}
        """index -> term, log time, items, digest of the state after it."""
        self.memberships: dict[int, bytes] = {}
        self.clusters: dict[str, tuple[str, int]] = {}
        """By box: the cluster that its disk names, and which disk that was."""
        self.top = 0
        self.terms: dict[str, int] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.masters: set[tuple[str, int]] = set()
        self.on_applied: Callable[[AnyBox], None] = lambda _box: None
        """Hook of the nemesis."""
        self.backed: set[object] = set()
        self.backed_terms: set[int] = set()
        """In which somebody campaigned with a majority's word, or told by the master."""
        self.events: dict[str, int] = {}

    # --- told by the boxes ------------------------------------------------------------------------------------------

    def opened(self, box: AnyBox) -> None:
        machine, log = box.machine, box.log
        if machine is None or log is None or log.membership is None:
            return
        index = machine.applied_index
        if index and index in self.canon and self.canon[index][3] not in {b"", machine.digest}:
            raise Violation(f"{box.name} opened a state at {index} that is not what was applied there")
        own = log.membership.cluster
        self.clusters[box.name] = own, box.wipes
        disks = {other.name: other.wipes for other in self.boxes}
        others = {cluster for name, (cluster, disk) in self.clusters.items() if disk == disks[name]} - {own}
        if others:  # one that stood on a single disk, and was lost with it before anybody else knew of it, is none
            raise Violation(f"{box.name} is in cluster {own}, others in {', '.join(sorted(others))}")

    def applied(self, box: AnyBox, entry: Entry, results: Sequence[object]) -> None:
        assert box.machine is not None
        self.on_applied(box)
        digest = box.machine.digest if entry.index == box.machine.applied_index else b""
        seen = (entry.term, entry.time_ms, entry.items, digest)
        known = self.canon.get(entry.index)
        if known is None:
            self._extend(entry, seen)
            self._first_applied(box, entry, results)
        elif known[:3] != seen[:3] or (known[3] and seen[3] and known[3] != seen[3]):
            raise Violation(f"{box.name} applied {seen} at {entry.index}, {known} had been applied there")
        elif not known[3]:
            self.canon[entry.index] = seen
        if known is not None:
            self._applied_again(box, entry, results)

    def skipped(self, box: AnyBox, last: int, index: int) -> None:
        raise Violation(f"{box.name} tells of entry {index} after {last}, and not of the snapshot between")

    def _first_applied(self, box: AnyBox, entry: Entry, results: Sequence[object]) -> None:
        """What it means, a world's own judge knows; nobody has applied this index before."""

    def _applied_again(self, box: AnyBox, entry: Entry, results: Sequence[object]) -> None:
        """By another node, or by one that has crashed since."""

    def _extend(self, entry: Entry, seen: tuple[int, int, tuple[bytes, ...], bytes]) -> None:
        before = self.canon.get(entry.index - 1)
        if before is not None and entry.time_ms < before[1]:
            raise Violation(f"log time went back from {before[1]} to {entry.time_ms} at {entry.index}")
        if before is not None and entry.term < before[0]:
            raise Violation(f"term {entry.term} at {entry.index} follows {before[0]}")
        self.canon[entry.index] = seen
        self.top = max(self.top, entry.index)

    def noted(self, box: AnyBox, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1

    # --- looked at ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """After every step of the world."""
        leaders = []
        for box in self.boxes:
            log, process = box.log, box.process
            if log is None or process is None or process.gate & (DEAD | PAUSED):
                continue
            engine = log._engine
            if engine is not None and engine.leads():
                leaders.append((box, log, engine.term()))
        if len(leaders) == 1 and (leaders[0][0].name, leaders[0][2]) in self.masters:
            return
        acting = [(box, term) for box, log, term in leaders if log.acts()]
        if len(acting) > 1:
            raise Violation(f"{acting[0][0].name} and {acting[1][0].name} both act as master")
        self.masters.update((box.name, term) for box, term in acting)

    def term_seen(self, node_id: str, term: int) -> None:
        if term < self.terms.get(node_id, 0):
            raise Violation(f"{node_id} forgot term {self.terms[node_id]} and is back in {term}")
        self.terms[node_id] = term

    def voted(self, node_id: str, term: int, candidate: str) -> None:
        known = self.votes.setdefault((node_id, term), candidate)
        if known != candidate:
            raise Violation(f"{node_id} voted in term {term} for {known} and for {candidate}")

    def deposed(self, node_id: str, term: int) -> None:
        """A master that could act was made to stop by a higher term."""
        self.events["deposed"] = self.events.get("deposed", 0) + 1
        if term not in self.backed_terms:
            raise Violation(f"{node_id} was deposed at work by term {term}, for which no majority had asked")

    def deposed_by_request(self, node_id: str, term: int) -> None:
        raise Violation(f"{node_id}, which could act as master, was deposed by a mere request for votes in term {term}")

    def matched(self, engine: Engine, node_id: str) -> None:
        """What a leader believes of a follower that is in no later term must be on that follower's disk."""
        index = engine.match_index(node_id)
        for box in self.boxes:
            log = box.log
            if log is None or log.node_id != node_id or log._engine is None or not engine.leads():
                continue
            theirs = log._engine._journal
            known_to_both = max(theirs.first_index, engine._journal.first_index)
            if log._engine.term() > engine.term() or index < known_to_both:
                continue
            if index > theirs.durable_index or theirs.term_at(index) != engine._journal.term_at(index):
                raise Violation(f"{box.name} is believed to hold entry {index}, and does not")

    def commits(self, engine: Engine) -> None:
        """What a leader takes for committed in its own term, a majority has synced: itself among them or not. Of earlier
        terms it may have heard as a follower, before its own sync."""
        index = engine.commit_index()
        journal = engine._journal
        if not engine.leads() or index <= journal.durable_index or journal.term_at(index) != engine.term():
            return
        voters = [m.id for m in engine.membership.voters if m.id != engine._own_id]
        others = sum(engine.match_index(i) >= index for i in voters)
        if others < engine.membership.majority:
            raise Violation(f"entry {index} is taken for committed, and only {others} have synced it")

    def membership_logged(self, engine: Engine, index: int, command: bytes) -> None:
        """A leader has appended a membership: the one before must be committed, and differ by one voter at most."""
        if command[0] != entries.MEMBERSHIP or not engine.leads():
            return
        journal = engine._journal
        before = journal.base_at(index - 1).membership
        known = [i for i, _ in journal._runs.memberships if i < index]
        if known and known[-1] > max(self.top, journal.first_index):
            raise Violation(f"a membership was logged at {index} while that of {known[-1]} is not committed")
        old = {m.id for m in entries.unpack_membership(before).voters}
        new = {m.id for m in entries.unpack_membership_entry(command).voters}
        if len(old ^ new) > 1:
            raise Violation(f"the membership at {index} changes {len(old ^ new)} voters")

    def membership_applied(self, index: int, packed: bytes) -> None:
        if self.memberships.setdefault(index, packed) != packed:
            raise Violation(f"two memberships were committed at {index}")
