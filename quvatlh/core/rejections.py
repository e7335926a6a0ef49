"""Why a command was refused: a closed list of codes, as values. A refused command has changed nothing.

Apply answers with these and never raises for what a command says; what does raise is a bug or a broken disk.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from msgspec import Struct

RejectionCode = Literal[
    "bad_request",
    "unknown_field",
    "invalid",
    "unauthorized",
    "forbidden",
    "not_found",
    "conflict",
    "unique_held",
    "stale_token",
    "not_empty",
    "gone",
    "too_large",
    "rate_limited",
]
"""The rejected part of the list in DESIGN.md 3.4; unavailable, unknown and broken are not apply's to say."""

STATUS: Final[dict[str, int]] = {
    "bad_request": 400,
    "unknown_field": 400,
    "invalid": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "unique_held": 409,
    "stale_token": 409,
    "not_empty": 409,
    "gone": 410,
    "too_large": 413,
    "rate_limited": 429,
}
assert set(STATUS) == set(get_args(RejectionCode))


class FieldError(Struct, frozen=True, array_like=True):
    """One fault of the input: where, and what is wrong there."""

    path: str
    """As a person would write it: `tasks[3].policy.name`."""
    message: str


class Rejection(Struct, frozen=True, array_like=True, tag="rejected"):
    """A no that changes nothing."""

    code: RejectionCode
    detail: str
    errors: tuple[FieldError, ...] = ()
