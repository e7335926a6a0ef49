"""What a request was answered the first time, for whoever has to know before he decides what to propose."""

from __future__ import annotations

from quvatlh.codec import Values
from quvatlh.core import commands as c
from quvatlh.core.rejections import Rejection
from quvatlh.core.requests import remembered
from quvatlh.core.results import Answer
from quvatlh.ports import Clock, Refused
from quvatlh.service.state import State


def first_answer(state: State, codec: Values, clock: Clock, request: c.Request) -> Answer | Rejection | None:
    """As the tables of this node say; None: it is new. Refused(conflict) for a name that something else was asked under."""
    found = remembered(state.db, request, max(clock.wall_ms(), state.time_ms))
    if found is None:
        return None
    digest, body = found
    if digest and request.digest and digest != request.digest:
        raise other_request(request)
    return codec.decode_answer(body)


def other_request(request: c.Request) -> Refused:
    return Refused(f"{request.id} was used for another request", "conflict")
