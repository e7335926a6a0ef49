"""What a node asks of the master for pull workers, as records: one hop, as in asks.py."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from quvatlh.core import limits
from quvatlh.core.commands import Request
from quvatlh.core.model import LeaseMs, Name, Names, Positive, Serial, SpanMs
from quvatlh.service import asks

Verb = Literal["renew", "progress", "finish", "fail"]


class Stand(Struct, frozen=True, array_like=True, tag="stand"):
    """A claim that waits with the master for `wait_s`, and is asked again then. `request` is its name: whatever it was
    awarded is remembered under that, so whoever is master next answers the same."""

    request: Request
    worker: Name
    queues: Names
    most: Positive
    lease_ms: LeaseMs
    wait_s: float
    greedy: bool = False
    tags: Names | None = None
    """None: as they are."""
    token: str = ""
    """Name of the token that claims."""


class Withdraw(Struct, frozen=True, array_like=True, tag="withdraw"):
    """Nobody waits for the claim any more. What it was awarded goes back, unless it will be asked for again."""

    request: Request
    give_back: bool


class Return(Struct, frozen=True, array_like=True, tag="return"):
    """Of a claim's actions, those that its worker was surely not told of."""

    tokens: Annotated[tuple[Serial, ...], Meta(max_length=limits.BATCH_MAX)]


class Report(Struct, frozen=True, array_like=True, gc=False):
    """On one action. `how` it ended is said by the verb; the rest as in core.commands."""

    action: str
    token: Serial
    percent: int | None = None
    text: str | None = None
    result: bytes | None = None
    error: str | None = None
    permanent: bool = False
    retry_after_ms: SpanMs | None = None
    output: str | None = None
    """The end of what it wrote, of a report that ends it."""


class Reports(Struct, frozen=True, array_like=True, tag="reports"):
    verb: Verb
    reports: Annotated[tuple[Report, ...], Meta(max_length=limits.BATCH_MAX)]
    deadline_s: float
    queues: Names = ("*",)
    """Of the token that reports: what is of other queues is not its to say."""


class Taken(Struct, frozen=True, array_like=True, tag="taken"):
    """What a claim was awarded, applied at `index`; nothing: not yet."""

    index: int = 0
    tokens: tuple[Serial, ...] = ()
    is_over: bool = False
    """It was answered before, and nothing that it brought is live: there is nothing to wait for."""


class Heard(Struct, frozen=True, array_like=True, tag="heard"):
    """A code for each report, empty for ok; applied at `index`."""

    index: int = 0
    codes: tuple[str, ...] = ()


Ask = Stand | Withdraw | Return | Reports
Answer = Taken | Heard | asks.No

ASK, ANSWER = asks.Form(Ask), asks.Form(Answer)
