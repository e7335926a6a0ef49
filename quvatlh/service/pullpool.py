"""What the doors of a node need for pull workers: the part of pool.Pool that is theirs. Its rules are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from quvatlh.core.limits import BATCH_MAX, SECOND_MS
from quvatlh.service.pullasks import Report, Verb

if TYPE_CHECKING:
    from quvatlh.service.pool import Call, Json

CLAIM_MAX: Final = BATCH_MAX
"""Actions of one claim, and reports of one request."""
WAIT_MS_DEFAULT: Final = 20 * SECOND_MS
LEASE_MS_DEFAULT: Final = 30 * SECOND_MS
RESULT_BYTES_MAX: Final = 64 * 1024
"""Of a value that an action ends with: it stands in the log, and in every list of runs."""
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Payloads of one answer; what is left over goes back to its queue."""

assert WAIT_MS_DEFAULT < LEASE_MS_DEFAULT


@dataclass(frozen=True, slots=True)
class Wanted:
    """A claim. `wait_ms` is shorter than `lease_ms`: a lease counts from when the claim was sent."""

    worker: str
    queues: tuple[str, ...] = ("*",)
    most: int = 1
    wait_ms: int = WAIT_MS_DEFAULT
    lease_ms: int = LEASE_MS_DEFAULT
    greedy: bool = False
    tags: tuple[str, ...] | None = None
    """What the worker says of itself; None: as it is known."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a claim brought: `{action, token, lease_ms, task, payload, payload_json}`, the task as Pool.task tells it."""

    actions: Sequence[Json]
    again: bool
    """The claim was named by its client, who may ask again for the same."""


class Pull(Protocol):
    async def claim(self, call: Call, wanted: Wanted) -> Pulled:
        """Waits until there is something, or the wait is over. With `call.key` a repeated claim gets the same actions, as
        far as they are still live; an empty answer is not remembered. Cancelled, it gives back what it was awarded."""
        ...

    async def give_back(self, pulled: Pulled) -> None:
        """Nothing of it was told to anybody. Never raises: what cannot be given back ends with its lease."""
        ...

    async def report(self, call: Call, verb: Verb, reports: Sequence[Report]) -> Sequence[str]:
        """A code for each, in order; empty: it is so, now or since before. stale_token: it is not the worker's, or not any
        more. gone, of renew and progress: somebody wants its end, or it ran longer than its timeout; its lease is renewed no more."""
        ...
