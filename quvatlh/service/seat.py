"""What a worker needs of the cluster, and what the cluster tells a worker: all of it, and nothing else.

A `Seat` is on a node (seats.py: the node's own worker and those connected to it) or across a WebSocket (remote.py). What is
said through it is made of the structs here and in asks.py, so both ways are one. A seat may lag behind the cluster and may
say a thing twice; what a worker must not get wrong (whose an action is, until when) is decided by tokens and by the master's
answer to a beat, never by what a seat leaves out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Final, Protocol

from msgspec import Meta, Struct

from quvatlh.core import commands as c
from quvatlh.core.model import Name, Serial, Work, WorkerFacts
from quvatlh.service import asks

LOOK_TASKS_MAX: Final = 200
"""Policy tasks of one look: some hundred microseconds of policies, and a message of a bounded size."""
LISTED_MAX: Final = 10_000
"""Actions asked about in one go, whether they are still listed."""


class Claim(Struct, frozen=True, array_like=True):
    """An action that is this worker's: all that carrying it out takes."""

    token: Serial
    seq: Serial
    task_id: str
    attempt: int
    slots: int
    lease_ms: int
    work: Work
    group: str
    name: str
    queue: str
    payload: bytes | None = None
    timeout_ms: int | None = None
    stop_signal: str = "TERM"
    grace_ms: int = 10_000
    service: bool = False
    once: bool = False
    stopping: bool = False
    """Somebody has asked for its end."""
    begun: bool = False
    """Its start was told, with what it announced."""
    announce: str | None = None
    """Lua, with the task as it sees it."""
    task: dict[str, Any] | None = None
    payload_json: bool = False


class Standing(Struct, frozen=True, array_like=True):
    """A worker as the cluster has it: people change it while it runs."""

    facts: WorkerFacts
    draining: bool


class PolicyTask(Struct, frozen=True, array_like=True):
    seq: Serial
    group: str
    source: int
    """Place of its policy in `Look.sources`."""
    task: dict[str, Any]


class Look(Struct, frozen=True, array_like=True):
    """Unclaimed policy tasks that the worker may bid for, and the cluster's part of what their policies see."""

    tasks: tuple[PolicyTask, ...] = ()
    sources: tuple[str, ...] = ()
    workers: int = 0
    groups: dict[str, dict[str, int]] = {}
    """Live actions by worker, of the groups asked about."""
    queues: dict[str, int] = {}
    now_ms: int = 0
    fresh: int = 0
    """So many, at the front, have become ready since the last look: the master waits for an answer."""


Report = c.Start | c.Finish | c.GiveBack | c.Progress | c.Announce | c.PatchWorker | c.EndSession
"""What a worker has to say of its actions and of itself."""

Listed = Annotated[tuple[Serial, ...], Meta(max_length=LISTED_MAX)]


class Occupant(Protocol):
    """The worker on a seat. Called on the loop; quick and total."""

    def claimed(self, claims: Sequence[Claim]) -> None:
        """By token, the smallest first. May come again."""
        ...

    def stop_actions(self, tokens: Sequence[int]) -> None:
        """Somebody wants their end, with grace."""
        ...

    def not_ours(self, tokens: Sequence[int]) -> None:
        """They are not this worker's any more."""
        ...

    def over(self, session: str) -> None:
        """The session has ended, or another has its place."""
        ...

    def moved(self) -> None:
        """Another master, or another node: a beat is due that names what is held, and what was offered is offered again."""
        ...

    def stands(self, standing: Standing) -> None: ...

    def news(self) -> None:
        """There are new policy tasks to look at."""
        ...

    def decided(self, tasks: Sequence[int]) -> None:
        """Tasks (seq) that this worker has bid for do not wait any more."""
        ...


class Seat(Protocol):
    """All coroutines raise the ports' LogErrors; `open` and `report` also door.Refusal."""

    def sit(self, occupant: Occupant) -> None:
        """Once, before all else."""
        ...

    def follow(self, session: str) -> None:
        """Tell what the cluster has of it now: its live actions as claims, its standing; and from here on what changes."""
        ...

    async def open(self, wish: asks.Open) -> int:
        """The session is there; tokens up to this one were awarded to earlier ones."""
        ...

    async def beat(self, beat: asks.Beat) -> asks.BeatAnswer: ...

    async def report(self, report: Report, deadline_s: float) -> None:
        """Applied; what was refused of it is refused for good."""
        ...

    async def offer(self, offers: asks.Offers) -> None: ...

    async def look(self) -> Look:
        """The next of them, new ones first."""
        ...

    async def listed(self, tokens: Sequence[int]) -> Sequence[int]:
        """Those of at most LISTED_MAX actions that a person may still ask about."""
        ...


def secret_hash(secret: bytes) -> bytes:
    """What the log has of a session's secret."""
    return hashlib.blake2b(secret, digest_size=32, person=b"quvatlh session").digest()


def serial_of(action: str) -> int:
    """The token in an action's id; 0 for what is none."""
    digits = action.removeprefix("a")
    return int(digits) if digits.isascii() and digits.isdigit() else 0


__all__ = [
    "LISTED_MAX", "LOOK_TASKS_MAX", "Claim", "Listed", "Look", "Name", "Occupant", "PolicyTask", "Report", "Seat",
    "Standing", "secret_hash", "serial_of",
]  # fmt: skip
