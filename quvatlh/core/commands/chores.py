"""What the master proposes by itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from quvatlh.core import limits
from quvatlh.core.commands.base import Command
from quvatlh.core.model import Name, Serial, SpanMs


class Promote(Command, frozen=True, tag="promote"):
    """What is due becomes pending."""

    limit: Annotated[int, Meta(ge=1, le=limits.BATCH_MAX)] = limits.BATCH_MAX


class Expire(Command, frozen=True, tag="expire"):
    limit: Annotated[int, Meta(ge=1, le=limits.BATCH_MAX)] = limits.BATCH_MAX


class Forget(Command, frozen=True, tag="forget"):
    """Finished tasks of a queue beyond its `keep` leave the table."""

    queue: Name
    limit: Annotated[int, Meta(ge=1, le=limits.ADD_TASKS_MAX)] = limits.BATCH_MAX


class Sweep(Command, frozen=True, tag="sweep"):
    """Rows of requests, tombstones and unique keys that mean nothing any more."""

    limit: Annotated[int, Meta(ge=1, le=limits.ADD_TASKS_MAX)] = limits.BATCH_MAX


class ForgetWorkers(Command, frozen=True, tag="forget_workers"):
    """Workers that were lost long ago and own nothing leave the table."""

    limit: Annotated[int, Meta(ge=1, le=limits.BATCH_MAX)] = limits.BATCH_MAX


class Rerank(Command, frozen=True, tag="rerank"):
    """After a change of discipline, the next tasks of the queue get their new place."""

    queue: Name
    limit: Annotated[int, Meta(ge=1, le=limits.ADD_TASKS_MAX)] = limits.BATCH_MAX


class CheckDigest(Command, frozen=True, tag="check_digest"):
    """The master's digest as of an earlier check, and the order to take the next one here."""

    index: Serial = 0
    digest: Annotated[bytes, Meta(max_length=64)] = b""
    schema: Serial = 0


class Elected(Command, frozen=True, tag="elected"):
    """The first word of a new master."""

    node: Name


class ClockJumped(Command, frozen=True, tag="clock_jumped"):
    """Taken together the voters' clocks went `by_ms` further than time did, back where it is negative. They are `behind_ms`
    behind log time, which stands still for so long. Said twice, it is told twice."""

    node: Name
    """Which master has seen it."""
    by_ms: Annotated[int, Meta(ge=-limits.TIME_MS_MAX, le=limits.TIME_MS_MAX)]
    behind_ms: SpanMs = 0


class Nothing(Command, frozen=True, tag="nothing"):
    """A barrier: proves that the log moves."""
