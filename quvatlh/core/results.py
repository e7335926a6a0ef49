"""What apply answers, as small values. One for each command; `Rejection` stands beside them."""

from __future__ import annotations

from msgspec import Struct

from quvatlh.core.events import Event
from quvatlh.core.rejections import Rejection


class Result(Struct, frozen=True, array_like=True, gc=False):
    """Base of the answers that are a yes."""


class Ok(Result, frozen=True, tag="ok"):
    """Done; or done before, and nothing had to be."""


class Added(Result, frozen=True, tag="added"):
    """`ids[i]` is the task that stands for `tasks[i]`."""

    ids: tuple[str, ...]
    existing: dict[int, str] = {}
    """Position -> `id` or `unique`, where it is an older task."""


class Done(Result, frozen=True, tag="done"):
    """A verb over tasks. `done` of `matched` are as asked for now; `refused` says the state of others, the first 100."""

    matched: int
    done: int
    refused: dict[str, str] = {}


class Deleted(Done, frozen=True, tag="deleted"):
    """Of those done, `over` were so before, and stay as they are. A tag of its own, since answers are remembered in the
    tables, and entries of before must be answered in the same bytes."""

    over: int = 0


class Begun(Result, frozen=True, tag="begun"):
    """A verb over more than one entry takes has this name, and is worked off by the node that asked."""

    bulk: str


class Shift(Struct, frozen=True, array_like=True, gc=False):
    """An action that moves."""

    task: str
    source: str
    target: str


class Evened(Result, frozen=True, tag="evened"):
    """All moves of a BALANCE that began at an index."""

    moves: tuple[Shift, ...]
    index: int


class Awarded(Result, frozen=True, tag="awarded"):
    """A token for each award in order, 0 where it was refused; why, by position."""

    tokens: tuple[int, ...]
    refused: dict[int, str] = {}


class Reported(Result, frozen=True, tag="reported"):
    """Reports of a session: `ok`, or a code, by position; those not named are ok."""

    refused: dict[int, str] = {}


class Opened(Result, frozen=True, tag="opened"):
    """A session is open. Tokens up to this one were awarded before it."""

    token: int


class Versioned(Result, frozen=True, tag="versioned"):
    """What was stored has this version now."""

    version: int


class Fired(Result, frozen=True, tag="fired"):
    """A slot is in the ledger: with this task, or with none and why."""

    task: str | None
    why: str = ""


class Worked(Result, frozen=True, tag="worked"):
    """A chore has done so much, and whether there is more at once."""

    done: int
    more: bool


class Digested(Result, frozen=True, tag="digested"):
    """The digest as of this entry, to be sent with the next check."""

    index: int
    digest: bytes


class Diverged(Result, frozen=True, tag="diverged"):
    """This node's tables are not the master's: it stops, and says how to rejoin."""

    index: int
    mine: bytes
    masters: bytes


Answer = (
    Ok
    | Added
    | Done
    | Deleted
    | Begun
    | Evened
    | Awarded
    | Reported
    | Opened
    | Versioned
    | Fired
    | Worked
    | Digested
    | Diverged
    | Rejection
)


class Outcome(Struct, frozen=True, gc=False):
    """What became of one item of an entry."""

    result: Answer
    events: tuple[Event, ...] = ()
