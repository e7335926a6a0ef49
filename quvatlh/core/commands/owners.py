"""Verbs of ownership: awards, what sessions report, sessions and workers themselves."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from quvatlh.core import limits
from quvatlh.core.commands.base import Changes, Command, Part
from quvatlh.core.model import (
    Adapter,
    Chance,
    Count,
    LeaseMs,
    Name,
    Names,
    Serial,
    Signed,
    SpanMs,
    Text,
    TimeMs,
    WorkerFacts,
)


class Award(Part, frozen=True):
    task: Serial
    worker: Name
    session: Name
    lease_ms: LeaseMs | None = None
    """What the claim of a pull worker asks for; None: the task's, the queue's, or what is usual."""


class Awards(Command, frozen=True, tag="award"):
    """The market's decisions. Limits, session and state are checked again here; what is refused is said."""

    awards: Annotated[tuple[Award, ...], Meta(max_length=limits.ADD_TASKS_MAX)]


class Started(Part, frozen=True):
    token: Serial
    started_ms: TimeMs
    announcement: dict[str, Any] | None = None


class Start(Command, frozen=True, tag="start"):
    session: Name
    reports: tuple[Started, ...]


class ProgressReport(Part, frozen=True):
    token: Serial
    percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    text: Annotated[str, Meta(max_length=limits.ERROR_CHARS_MAX)] | None = None


class Progress(Command, frozen=True, tag="progress"):
    session: Name
    reports: tuple[ProgressReport, ...]


class Announce(Command, frozen=True, tag="announce"):
    """An action's table after its start; None takes it back."""

    session: Name
    token: Serial
    table: dict[str, Any] | None


class EndDetail(Struct, frozen=True, omit_defaults=True, gc=False):
    """What there is to say of an end beyond that it was a success."""

    exit_code: Signed | None = None
    signal: Signed | None = None
    error_code: Name | None = None
    error_text: Text | None = None
    exception: Name | None = None
    """Full name of the class, for `permanent_exceptions`, where one of Python's own may stand without `builtins.`."""
    status: Count | None = None
    permanent: bool = False
    """The action's own word."""
    retry_after_ms: SpanMs | None = None
    """Its word, too: the wait, whatever the task's rule is."""
    result: Annotated[bytes, Meta(max_length=limits.RESULT_BYTES_MAX)] | None = None
    """JSON; or, behind a first byte of zero, bytes as they are (limits.RAW_RESULT); or,
    behind a one, where they are (limits.FILED_RESULT); or, behind a two, msgpack (limits.PACKED_RESULT)."""
    output_tail: Annotated[bytes, Meta(max_length=limits.OUTPUT_TAIL_BYTES_MAX)] = b""
    chance: Chance = 2**31
    """For the jitter of a retry; the middle gives none."""
    no_sooner_ms: SpanMs | None = None
    """The word of whoever it asked: the task's rule holds, but the wait is no shorter."""


class End(Part, frozen=True):
    """`how`: 0 succeeded, 1 failed, 2 stopped by somebody's wish (kill, delete, relocate, drain)."""

    token: Serial
    task: Serial
    how: Annotated[int, Meta(ge=0, le=2)] = 0
    started_ms: TimeMs = 0
    """0: it never began."""
    detail: EndDetail | None = None


class Finish(Command, frozen=True, tag="finish"):
    """A finish implies the start."""

    session: Name
    ends: tuple[End, ...]


class GiveBack(Command, frozen=True, tag="give_back"):
    """Claims that did not begin: place, rate and attempt are as before."""

    session: Name
    tokens: tuple[Serial, ...]


class Loss(Part, frozen=True):
    token: Serial
    died: bool = True
    """Whether the worker is gone; a lease that ran out under a living one does not count against the task."""


class Lost(Command, frozen=True, tag="lost"):
    """Actions whose lease is over, by the master's count."""

    losses: tuple[Loss, ...]


class OpenSession(Command, frozen=True, tag="open_session"):
    """A new executor. `silent`: the old session of the name has not beaten for 2.3 s. `ended`: its actions surely ended
    with it (a PID namespace), so they are lost at once."""

    worker: Name
    session: Name
    secret_hash: Annotated[bytes, Meta(min_length=16, max_length=64)]
    directory: Name
    """Id of the data directory: only the same one may follow a session whose leases still run."""
    facts: WorkerFacts
    isolated: bool = False
    silent: bool = False
    ended: bool = False
    outlived: Name | None = None
    """The worker's session before, where its executor was still alive when that was over: it was cut off, and not dead."""


class EndSession(Command, frozen=True, tag="end_session"):
    session: Name


class WorkerChanges(Changes, frozen=True):
    tags: Names | UnsetType = UNSET
    adapters: tuple[Adapter, ...] | UnsetType = UNSET
    slots: Count | UnsetType = UNSET
    queues: Names | UnsetType = UNSET
    draining: bool | UnsetType = UNSET
    """A person's wish: it outlives sessions."""
    facts: dict[str, Any] | UnsetType = UNSET
    leaving: bool | UnsetType = UNSET
    """Its daemon stops: until the next session, or until it says otherwise."""


class PatchWorker(Command, frozen=True, tag="patch_worker"):
    worker: Name
    changes: WorkerChanges


class Presence(Command, frozen=True, tag="presence"):
    """Lost to the market, or back: the session lives on."""

    worker: Name
    session: Name
    up: bool
    heard: bool = False
    """A beat has come, so what was taken for its death was none."""
