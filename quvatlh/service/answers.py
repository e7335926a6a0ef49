"""From the three kinds of no of the log, and the refusals of the core, to the four kinds of problems of a door."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from quvatlh import ports
from quvatlh.core import results
from quvatlh.core.rejections import Rejection
from quvatlh.service import pool

T = TypeVar("T")

_CODES = {"busy": "rate_limited"}
"""Words of the log that the closed list tells otherwise."""


def problem(error: ports.LogError) -> pool.Problem:
    code = _CODES.get(error.code, error.code)
    if isinstance(error, ports.Unavailable):
        return pool.Unavailable(code if code in pool.UNAVAILABLE else "no_master", error.detail)
    if isinstance(error, ports.Refused):
        return pool.Rejected(code if code in pool.REJECTED else "conflict", error.detail)
    return pool.Unknown(error.detail)


def outcome(answer: results.Answer, index: int) -> pool.Done | pool.Bulk:
    """What a verb over tasks has come to, now or when its request came first."""
    if isinstance(answer, results.Begun):
        return pool.Bulk(answer.bulk)
    assert isinstance(answer, results.Done)
    over = answer.over if isinstance(answer, results.Deleted) else 0
    return pool.Done(answer.matched, answer.done, index, over)


async def shown(reading: Awaitable[T]) -> T:
    """Of what has just been written. That is done, so a no of this read must not be taken for one of the write."""
    try:
        return await reading
    except (pool.Unavailable, pool.Rejected) as error:
        raise pool.Unknown(f"it was done, and cannot be shown here: {error.detail}") from error


def refusal(rejection: Rejection) -> pool.Problem:
    if rejection.code in pool.UNAVAILABLE:
        return pool.Unavailable(rejection.code, rejection.detail)
    return pool.Rejected(rejection.code, rejection.detail, rejection.errors)
