"""A no, as application/problem+json. Which kinds and codes there are is said in service/pool.py and nowhere else."""

from __future__ import annotations

import math
from typing import Any, Final

from aiohttp import web

from quvatlh.api.formats import encode
from quvatlh.service.pool import CODES, Problem, Unavailable

TITLES: Final = {
    "bad_request": "The request cannot be read",
    "unknown_field": "A field or parameter is not known",
    "invalid": "A value is not valid",
    "unauthorized": "A valid token is needed",
    "forbidden": "This is not allowed",
    "not_found": "There is no such thing",
    "conflict": "The present state forbids it",
    "unique_held": "Another task holds the unique key",
    "stale_token": "The fencing token is stale",
    "not_empty": "It is not empty",
    "gone": "It is no longer there",
    "too_large": "It is too large",
    "rate_limited": "Too many at once",
    "broken": "A bug: the node stops",
    "no_master": "There is no master at the moment",
    "disk_full": "The disk is nearly full",
    "stopping": "The node is stopping",
    "unknown": "The outcome is not known",
}
assert TITLES.keys() == CODES.keys()

TYPE: Final = "urn:quvatlh:problem:"
HEADERS: Final = {
    "Content-Type": "application/problem+json",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
CHALLENGE: Final = 'Bearer realm="quvatlh"'


def document(problem: Problem) -> dict[str, Any]:
    return {
        "type": TYPE + problem.code,
        "title": TITLES[problem.code],
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        "errors": [{"path": error.path, "message": error.message} for error in problem.errors],
    }


def parts(problem: Problem) -> tuple[dict[str, str], bytes]:
    """Headers and body, with what its kind owes the client: when to come again, or how to prove oneself."""
    headers = dict(HEADERS)
    if isinstance(problem, Unavailable):
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after_s)))
    if problem.code == "unauthorized":
        headers["WWW-Authenticate"] = CHALLENGE
    return headers, encode(document(problem))


def response(problem: Problem, **more: str) -> web.Response:
    headers, body = parts(problem)
    return web.Response(body=body, status=problem.status, headers=headers | more)
