"""The replicated log and the links between nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

STATE_FILE = "state"
"""Name of a machine's state file inside the directory that it is given."""


class LogError(Exception):
    """An answer of the log that is not a yes. One of the three kinds below, never this class itself."""

    code = "broken"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Unavailable(LogError):
    """Certainly not done, now or later; asking again is safe."""

    code = "no_master"

    def __init__(self, detail: str, code: str = "no_master") -> None:
        super().__init__(detail)
        self.code = code


class Unknown(LogError):
    """It may have happened, or may yet happen. Ask again under the same request id."""

    code = "unknown"


class Refused(LogError):
    """The request itself cannot be granted in the present state, and nothing was done."""

    code = "conflict"

    def __init__(self, detail: str, code: str = "conflict") -> None:
        super().__init__(detail)
        self.code = code


@dataclass(frozen=True, slots=True)
class Member:
    """A node as the membership knows it. The id is made with the data directory; the rest is data and may change."""

    id: str
    name: str
    peer: str
    """host:port of the peer link."""
    http: str = ""
    """host:port of the HTTP side; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Who decides (voters) and who only follows for now (learners). Changed by one log entry at a time."""

    cluster: str
    """Id of the cluster, made at founding from the ids of the founders."""
    voters: tuple[Member, ...]
    """Sorted by id, 1 to 7."""
    learners: tuple[Member, ...] = ()

    def get(self, node_id: str) -> Member | None:
        """The member of this id, voter or learner."""
        return next((m for m in (*self.voters, *self.learners) if m.id == node_id), None)

    def is_voter(self, node_id: str) -> bool:
        return any(m.id == node_id for m in self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def warning(self) -> str | None:
        return voters_warning(len(self.voters))


def voters_warning(count: int) -> str | None:
    """What a person should know of so many voters; None where there is nothing."""
    if count % 2:
        return None
    losses = (count - 1) // 2
    return (
        f"{count} voters, an even number: they work, and bear the loss of {losses or 'none'}, as {count - 1} would; "
        "add a node, or remove one"
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log on its way into the machine."""

    index: int
    term: int
    time_ms: int
    """Log time, milliseconds since 1970 UTC: never smaller than that of any earlier entry."""
    items: tuple[bytes, ...]
    """The proposals that share the entry, in order. Empty for entries of the log's own (no-op, membership, barrier)."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The answer to a proposal: where it stands, and what the machine made of it."""

    index: int
    result: object


@dataclass(frozen=True, slots=True)
class Role:
    """What this node is now."""

    term: int
    master: str | None
    """Id of the node last heard as leader of `term`; None while there is none."""
    acting: bool
    """This node leads and has applied the no-op of its term. Whether it *may act* at this instant is `Log.acts()`."""


class Machine(Protocol):
    """The state that the log is applied to: one state file in the directory it was opened on.

    All calls come from the loop's thread, except `checkpoint`, `copy_to` and `close`, which run on another one.
    `apply` never raises: a refusal is a value. What raises here is a bug or a broken disk, and stops the node.
    """

    @property
    def applied_index(self) -> int:
        """Index of the last entry inside; 0 for a new state."""
        ...

    @property
    def time_ms(self) -> int:
        """Log time of that entry; 0 for a new state."""
        ...

    def begin(self) -> None:
        """Open a transaction. Between begin and commit there is at least one entry and at most a slice of 10 ms."""
        ...

    def apply(self, entry: Entry) -> Sequence[object]:
        """Apply one entry; one result an item. Entries come in order, without gaps; one at or below applied_index is a no-op."""
        ...

    def commit(self) -> None:
        """Close the transaction; the applied index is inside it."""
        ...

    def checkpoint(self) -> int:
        """Make what is applied durable; the greatest index that is surely so. On another thread."""
        ...

    def copy_to(self, path: str) -> int:
        """Write a copy of the state, synced, to `path` (a file that does not exist); the index read inside it. On another
        thread. OSError where it cannot be written; nothing of it is left then."""
        ...

    def close(self) -> None:
        """The last call. On another thread."""
        ...


MachineFactory = Callable[[str], Machine]
"""Opens the machine whose state file is (or will be) STATE_FILE in the named directory."""


class LogListener(Protocol):
    """Hears what the log does, on the loop, at once, in order. Must be quick and total."""

    def applied(self, entry: Entry, results: Sequence[object]) -> None:
        """The machine has it, and its own connection shows it; others will when this turn of the loop is over."""
        ...

    def role_changed(self, role: Role) -> None: ...

    def reset(self, index: int) -> None:
        """The state was replaced by a snapshot at `index`: what was derived from it is void."""
        ...


class Log(Protocol):
    """The replicated log. Narrow on purpose: the engine below stays a detail.

    Deadlines are seconds from now. A write that is answered is in the log of a majority, synced there, and applied here.
    """

    @property
    def node_id(self) -> str: ...

    @property
    def role(self) -> Role: ...

    @property
    def applied_index(self) -> int: ...

    @property
    def time_ms(self) -> int:
        """What an entry made now would be stamped with, as this node knows it: on the master, log time."""
        ...

    @property
    def membership(self) -> Membership | None:
        """None until founded or admitted."""
        ...

    def acts(self) -> bool:
        """Whether this node is master at this instant: leads, has applied its term's no-op, and holds the leadership
        lease by a clock read inside this call. Ask anew at each use."""
        ...

    def listen(self, listener: LogListener) -> None: ...

    async def propose(self, item: bytes, *, deadline: float) -> Applied:
        """Append `item`, together with all that waits. Only the master takes it.

        Raises Unavailable (not master, stopping, queue full: certainly not done), Unknown, or Refused for what no entry
        can hold."""
        ...

    async def barrier(self, *, deadline: float) -> int:
        """An index such that a read of the state at or above it sees every write answered before this call. Only on the
        master; a follower asks the master and then waits with `wait_applied`."""
        ...

    async def wait_applied(self, index: int, *, deadline: float) -> None:
        """Return once this node has applied `index`; Unavailable when the deadline comes first."""
        ...

    async def add_member(self, member: Member, *, deadline: float) -> Membership:
        """Admit a node: as a learner at once, as a voter when it has caught up. Only on the master. The address of a
        member that is in already is brought up to date the same way."""
        ...

    async def remove_member(self, node_id: str, *, deadline: float) -> Membership:
        """Only on the master; a master that is to go hands over first (Refused) and the next one removes it. Whoever is
        removed hears no more of the log, and may not see that it was."""
        ...

    async def transfer(self, to: str | None = None, *, deadline: float) -> str:
        """Hand leadership over, to the named voter or to the one furthest on; the id of the new master. Proposals that
        arrive meanwhile are Unavailable."""
        ...

    async def backup(self, path: str) -> int:
        """Write a snapshot (state and manifest) to a new file; its index. Unavailable(disk_full) where it has no room. Given
        up or failed, it leaves nothing of the file."""
        ...

    async def stop(self) -> None:
        """Stop in order: nothing new is taken, what is under way is answered, files are closed."""
        ...


RequestHandler = Callable[[str, bytes], Awaitable[bytes]]
"""(id of the asking node, body) -> answer. What it raises is `Unknown` to the asker."""


class Peers(Protocol):
    """Requests between nodes over the peer link: one question, one answer."""

    async def request(self, node_id: str, kind: str, body: bytes, *, deadline: float) -> bytes:
        """Raises Unavailable (not connected: certainly not delivered) or Unknown (sent, no answer)."""
        ...

    def handle(self, kind: str, handler: RequestHandler) -> None: ...
