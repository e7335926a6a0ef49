"""From the three kinds of no of the log, and the refusals of the core, to the four kinds of problems of a door."""

from __future__ import annotations

from quvatlh import ports
from quvatlh.core.rejections import Rejection
from quvatlh.service import pool

_CODES = {"busy": "rate_limited"}
"""Words of the log that the closed list tells otherwise."""


def problem(error: ports.LogError) -> pool.Problem:
    code = _CODES.get(error.code, error.code)
    if isinstance(error, ports.Unavailable):
        return pool.Unavailable(code if code in pool.UNAVAILABLE else "no_master", error.detail)
    if isinstance(error, ports.Refused):
        return pool.Rejected(code if code in pool.REJECTED else "conflict", error.detail)
    return pool.Unknown(error.detail)


def refusal(rejection: Rejection) -> pool.Problem:
    if rejection.code in pool.UNAVAILABLE:
        return pool.Unavailable(rejection.code, rejection.detail)
    return pool.Rejected(rejection.code, rejection.detail, rejection.errors)
